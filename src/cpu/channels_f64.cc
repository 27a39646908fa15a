// Channel norms of f64: portable and compensated, scaled by a power of two as the rows in f64.cc are.
#include "cpu/channels.h"
#include "cpu/f64.h"

namespace rmsnorm {

namespace {

// The elements that share a mean, numbered: channels of one pixel, or the pixels of a group's channels.
struct Elements {
  const ChannelCall& call;
  int64_t image, channel, pixel;
  int64_t channels, pixels;

  int64_t count() const { return channels * pixels; }
  int64_t channel_of(int64_t i) const { return channel + i / pixels; }

  char* at(const ChannelOperand& operand, int64_t i) const {
    if (operand.base == nullptr) return nullptr;
    const int64_t p = pixel + i % pixels;
    const auto size = static_cast<int64_t>(rn_type_size(operand.type));
    char* address = operand.base + image * operand.image + channel_of(i) * operand.channel + p % call.line * size;
    int64_t row = p / call.line;
    for (int axis = call.axes - 1; axis >= 0; --axis) {
      address += row % call.shape[axis] * operand.lines[axis];
      row /= call.shape[axis];
    }
    return address;
  }
  double x(int64_t i) const { return read(at(call.x, i), RN_F64, 0); }
  double dy(int64_t i) const { return read(at(call.dy, i), call.dy.type, 0); }
  Twofold factor(int64_t i) const {
    return with_offset(read(call.weight.base, call.weight.type, channel_of(i)), call.weight_offset);
  }
  Twofold g(int64_t i) const { return call.weight.base == nullptr ? Twofold{dy(i)} : factor(i) * dy(i); }
};

struct F64Scale {
  double scale;   // a power of two
  F64Inverse of;  // the scaled elements
};

F64Scale scale_of(const Elements& e) {
  const ChannelCall& call = e.call;
  const double root = call.epsilon_outside ? call.epsilon : std::sqrt(call.epsilon);
  double peak = root;
  for (int64_t i = 0; i < e.count(); ++i) {
    const double magnitude = std::fabs(e.x(i));
    if (magnitude <= HUGE_VAL) peak = std::max(peak, magnitude);  // NaNs do not count
  }
  const double scale = scale_for(peak);
  CompensatedSum squares;
  for (int64_t i = 0; i < e.count(); ++i) squares.add_product(e.x(i) * scale, e.x(i) * scale);
  const Twofold mean = squares.twofold() / Twofold{static_cast<double>(e.count())};
  return {scale, inverse(mean, call.epsilon, scale, call.epsilon_outside)};
}

void forward(const Elements& e) {
  const F64Scale s = scale_of(e);
  for (int64_t i = 0; i < e.count(); ++i) {
    Twofold y = s.of.inv * (e.x(i) * s.scale);
    if (e.call.weight.base != nullptr) y = y * e.factor(i);
    if (e.call.bias.base != nullptr) y = y + Twofold{read(e.call.bias.base, e.call.bias.type, e.channel_of(i))};
    write(e.at(e.call.out, i), e.call.out.type, 0, y.rounded());
  }
}

// take(channel, dy xhat, dy) for each element.
template <class Take>
void backward(const Elements& e, const Take& take) {
  const F64Scale s = scale_of(e);
  CompensatedSum products;
  for (int64_t i = 0; i < e.count(); ++i) products.add(e.g(i) * (e.x(i) * s.scale));
  const Twofold slope = products.twofold() / Twofold{static_cast<double>(e.count())} * s.of.slope;
  for (int64_t i = 0; i < e.count(); ++i) {
    const double x = e.x(i) * s.scale, dy = e.dy(i);
    // The scale comes last: see backward_f64.cc.
    const double result = ((e.g(i) - slope * x) * s.of.inv).rounded() * s.scale;
    take(e.channel_of(i), dy * (s.of.inv * x).rounded(), dy);
    write(e.at(e.call.out, i), e.call.out.type, 0, result);
  }
}

}  // namespace

void f64_pixel(const ChannelCall& call, int64_t image, int64_t pixel, double* sums) {
  const Elements e = {call, image, 0, pixel, call.channels, 1};
  if (!call.backward) return forward(e);
  backward(e, [&](int64_t channel, double product, double gradient) {
    if (sums == nullptr) return;
    sums[channel] += product;
    sums[call.channels + channel] += gradient;
  });
}

void f64_group(const ChannelCall& call, int64_t image, int64_t group, ChannelSums* sums) {
  const int64_t width = call.channels / call.groups;
  const Elements e = {call, image, group * width, 0, width, call.pixels};
  if (!call.backward) return forward(e);
  for (int64_t k = 0; k < width; ++k) sums[k] = {0, 0, 0};
  backward(e, [&](int64_t channel, double product, double gradient) {
    sums[channel - group * width].products += product;
    sums[channel - group * width].gradients += gradient;
  });
}

}  // namespace rmsnorm
