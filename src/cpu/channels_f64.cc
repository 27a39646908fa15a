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
  double factor(int64_t i) const {
    const double w = read(call.weight.base, call.weight.type, channel_of(i));
    return call.weight_offset != 0 ? w + call.weight_offset : w;
  }
  double g(int64_t i) const { return call.weight.base == nullptr ? dy(i) : dy(i) * factor(i); }
};

struct F64Scale {
  double scale, inv, slope;  // scale: a power of two; inv of the scaled elements; slope of mean(g x), but for inv
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
  for (int64_t i = 0; i < e.count(); ++i) squares.add(e.x(i) * scale * (e.x(i) * scale));
  const double mean = squares.total() / static_cast<double>(e.count()), rms = std::sqrt(mean);
  const double inv = inverse(rms, root, scale, call.epsilon_outside);
  const double slope = !call.epsilon_outside ? 1 / (mean + call.epsilon * scale * scale) : rms == 0 ? 0 : inv / rms;
  return {scale, inv, slope};
}

void forward(const Elements& e) {
  const F64Scale s = scale_of(e);
  for (int64_t i = 0; i < e.count(); ++i) {
    double y = e.x(i) * s.scale * s.inv;
    if (e.call.weight.base != nullptr) y *= e.factor(i);
    if (e.call.bias.base != nullptr) y += read(e.call.bias.base, e.call.bias.type, e.channel_of(i));
    write(e.at(e.call.out, i), e.call.out.type, 0, y);
  }
}

// take(channel, dy xhat, dy) for each element.
template <class Take>
void backward(const Elements& e, const Take& take) {
  const F64Scale s = scale_of(e);
  CompensatedSum products;
  for (int64_t i = 0; i < e.count(); ++i) {
    const double g = e.g(i), x = e.x(i) * s.scale;
    products.add_product(g, x);
    if (e.call.weight.base != nullptr && std::isfinite(g * x)) products.add(std::fma(e.dy(i), e.factor(i), -g) * x);
  }
  const double slope = products.total() / static_cast<double>(e.count()) * s.slope;
  for (int64_t i = 0; i < e.count(); ++i) {
    const double x = e.x(i) * s.scale, dy = e.dy(i);
    // The scale comes last: see backward_f64.cc.
    const double result = (e.g(i) - x * slope) * s.inv * s.scale;
    take(e.channel_of(i), dy * (x * s.inv), dy);
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
