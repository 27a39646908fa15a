// Gated RMSNorm of f64 rows and its backward: portable and compensated. What is normalised is scaled by a power of two
// so that no square overflows.
#include <cstring>

#include "core/backward_call.h"
#include "cpu/f64.h"
#include "cpu/gated_rms_norm.h"
#include "cpu/silu.h"

namespace rmsnorm {

namespace {

struct Activation {
  Twofold silu, slope;
};

// silu.h's formulas, with what the denominator loses kept: about one ulp. std::fma gives the same bits everywhere.
// silu comes times 2^-shift, so that it need not be subnormal.
Activation activate(double g, int shift = 0) {
  using C = SiluF64;
  if (std::isnan(g)) return {{g}, {g}};
  const double bounded = std::clamp(g, -C::kBound, C::kBound);
  const double shifted = bounded * -C::kLog2E + C::kShift;
  uint64_t bits;
  std::memcpy(&bits, &shifted, sizeof bits);
  bits <<= 52;
  double power;
  std::memcpy(&power, &bits, sizeof power);
  const double k = shifted - C::kShift;
  const double r = std::fma(k, C::kLn2Low, std::fma(k, C::kLn2High, bounded));
  double sum = C::kTerms[C::kTermCount - 1];
  for (int i = C::kTermCount - 2; i >= 0; --i) sum = std::fma(sum, r, C::kTerms[i]);
  const double p = std::fma(r * r, sum, -r);
  const double whole = 1 + power;
  const double denominator = std::fma(power, p, whole);
  const double rest = power * p - (denominator - whole);
  const Twofold below = {denominator, rest};
  const Twofold sigmoid = Twofold{1} / below, opposite = Twofold{std::fma(power, p, power)} / below;
  const double numerator = std::ldexp(g, -shift);
  Twofold value = Twofold{numerator} / below;
  if (g > C::kBound) value = {numerator};    // of infinity the division would make a NaN
  if (g < -C::kBound) return {{-0.0}, {0}};  // what is left of either would show beside a factor of 1e200
  return {value, sigmoid * bounded * opposite + sigmoid};
}

int exponent_of(double magnitude) {
  int exponent = 0;
  if (magnitude > 0 && magnitude < HUGE_VAL) std::frexp(magnitude, &exponent);
  return exponent;
}

// NaNs and infinities count as 0.
double finite(double magnitude) { return magnitude < HUGE_VAL ? magnitude : 0; }

// One group of a row, and what is normalised of it: v = 2^-exponent x, or 2^-exponent x silu(gate).
class F64Group {
 public:
  F64Group(const GatedShape& call, const char* x, const char* gate, const Operand& gate_operand)
      : call_(call), x_(x), gate_(gate), gate_type_(gate_operand.type) {
    double x_peak = 0, gate_peak = 0;
    bool infinite = false;  // what is normalised
    for (int64_t i = 0; i < call.width; ++i) {
      const double magnitude = std::fabs(read(x, RN_F64, i)), activated = std::fabs(activation(i).silu.value);
      infinite = infinite || magnitude == HUGE_VAL || (call.gate_first && activated == HUGE_VAL);
      x_peak = std::max(x_peak, finite(magnitude));
      gate_peak = std::max(gate_peak, finite(activated));
    }
    x_exponent_ = exponent_of(x_peak);
    gate_exponent_ = exponent_of(gate_peak);
    double peak = x_peak;
    exponent_ = x_exponent_;
    if (call.gate_first) {
      peak = 0;
      exponent_ = 0;
      for (int64_t i = 0; i < call.width; ++i) {
        const Product u = product(i);
        const double magnitude = finite(std::fabs(u.mantissa.value));
        const int exponent = u.exponent + exponent_of(magnitude);
        if (magnitude > 0 && (peak == 0 || exponent > exponent_)) exponent_ = exponent;
        peak = std::max(peak, magnitude);
      }
    }
    const double root = std::sqrt(call.epsilon);
    // Without anything but zeros epsilon alone counts; an infinity leaves 0 of the rest, however it is scaled.
    if (root > 0 && (peak == 0 || exponent_of(root) > exponent_)) exponent_ = exponent_of(root);
    if (infinite) exponent_ = std::max(exponent_, 0);
    CompensatedSum squares;
    for (int64_t i = 0; i < call.width; ++i) squares.add(twofold(i) * twofold(i));
    const Twofold sum = squares.twofold() / Twofold{static_cast<double>(call.width)} +
                        Twofold{std::ldexp(call.epsilon, -2 * exponent_)};
    squared_inv_ = Twofold{1} / sum;
    inv_ = Twofold{1} / square_root(sum);
  }

  // 2^-x_exponent() x, at most about 1.
  double x_at(int64_t i) const { return std::ldexp(read(x_, RN_F64, i), -x_exponent_); }
  int x_exponent() const { return x_exponent_; }
  Activation activation(int64_t i, int shift = 0) const { return activate(read(gate_, gate_type_, i), shift); }
  // 2^-gate_exponent() silu(gate), at most about 1.
  Twofold silu(int64_t i) const { return activation(i, gate_exponent_).silu; }
  int gate_exponent() const { return gate_exponent_; }

  Twofold twofold(int64_t i) const {
    if (!call_.gate_first) return {std::ldexp(read(x_, RN_F64, i), -exponent_)};
    const Product u = product(i);
    return scaled(u.mantissa, u.exponent - exponent_);
  }
  // value(i) times a factor, scaled last: the value alone may be subnormal.
  Twofold times(int64_t i, Twofold factor) const {
    if (!call_.gate_first) return twofold(i) * factor;
    const Product u = product(i);
    return scaled(u.mantissa * factor, u.exponent - exponent_);
  }
  Twofold inv() const { return inv_; }  // of v
  Twofold squared_inv() const { return squared_inv_; }
  int exponent() const { return exponent_; }

 private:
  // x silu(gate) as mantissa and exponent: neither factor is rounded to a subnormal on the way.
  struct Product {
    Twofold mantissa;
    int exponent;
  };
  Product product(int64_t i) const {
    const double x = read(x_, RN_F64, i), gate = read(gate_, gate_type_, i);
    const int x_exponent = exponent_of(std::fabs(x)), gate_exponent = exponent_of(std::fabs(gate));
    return {Twofold{std::ldexp(x, -x_exponent)} * activate(gate, gate_exponent).silu, x_exponent + gate_exponent};
  }

  const GatedShape& call_;
  const char *x_, *gate_;
  rn_type gate_type_;
  int x_exponent_ = 0, gate_exponent_ = 0, exponent_ = 0;
  Twofold inv_ = {0}, squared_inv_ = {0};
};

// Where column `at` of a row lies; null where the operand is absent.
char* column(const RowShape& shape, const Operand& operand, int64_t row, int64_t at) {
  char* p = row_address(shape, operand, row);
  return p == nullptr ? nullptr : p + at * static_cast<int64_t>(rn_type_size(operand.type));
}
char* statistic(const GatedShape& shape, const Operand& operand, int64_t row, int64_t group) {
  char* p = row_address(shape, operand, row);
  return p == nullptr ? nullptr : p + group * shape.inv_step;
}

void f64_group(const GatedCall& call, int64_t row, int64_t group) {
  const int64_t at = group * call.width;
  const F64Group v(call, column(call, call.x, row, at), column(call, call.gate, row, at), call.gate);
  const char* weight = column(call, call.weight, row, at);
  char* out = column(call, call.out, row, at);
  if (char* inv = statistic(call, call.inv, row, group))
    write(inv, RN_F64, 0, std::ldexp(v.inv().rounded(), -v.exponent()));
  for (int64_t i = 0; i < call.width; ++i) {
    Twofold factor = v.inv();
    if (weight != nullptr) factor = factor * read(weight, call.weight.type, i);
    if (!call.gate_first) factor = factor * v.silu(i);
    // The element, which may be subnormal, comes last; it is scaled where nothing can be lost or overflow.
    const int exponent = call.gate_first ? 0 : v.gate_exponent();
    const double y = exponent > 0 ? (scaled(v.twofold(i), exponent - 1) * 2 * factor).rounded()
                                  : std::ldexp((v.twofold(i) * factor).rounded(), exponent);
    write(out, call.out.type, i, y);
  }
}

void f64_gradient(const GatedBackwardCall& call, int64_t row, int64_t group, double* dweight) {
  const int64_t at = group * call.width;
  const F64Group v(call, column(call, call.x, row, at), column(call, call.gate, row, at), call.gate);
  const char* dy = column(call, call.dy, row, at);
  const char* weight = call.weight.base == nullptr ? nullptr : column(call, call.weight, row, at);
  char* dx = column(call, call.dx, row, at);
  char* dgate = column(call, call.dgate, row, at);
  const char* saved = statistic(call, call.inv, row, group);

  // The gradient that arrives at the norm.
  const auto arriving = [&](int64_t i) {
    Twofold g = {read(dy, call.dy.type, i)};
    if (weight != nullptr) g = g * read(weight, call.weight.type, i);
    return call.gate_first ? g : g * v.silu(i);
  };
  CompensatedSum products;
  for (int64_t i = 0; i < call.width; ++i) products.add(arriving(i) * v.twofold(i));
  // inv is that of v; dx = inv (g - v inv^2 mean(g v)) 2^-exponent.
  // A saved inv times 2^exponent need not be finite: what it makes is scaled afterwards.
  Twofold inv = v.inv(), slope = v.squared_inv();
  int own_exponent = 0;
  if (saved != nullptr) {
    const double given = read(saved, RN_F64, 0);
    const int exponent = exponent_of(std::fabs(given));
    inv = {std::ldexp(given, -exponent)};
    slope = inv * inv;
    own_exponent = v.exponent() + exponent;
  }
  // Whichever of the gradient's two terms has the larger scale keeps its size until the end.
  const int shared = std::max(0, 2 * own_exponent), last = own_exponent + shared - v.exponent();
  slope = slope * (products.twofold() / Twofold{static_cast<double>(call.width)});
  for (int64_t i = 0; i < call.width; ++i) {
    const Activation a = v.activation(i);
    const Twofold own = {read(dy, call.dy.type, i)}, normalised = v.twofold(i) * inv;
    // The scale comes last: rows of 1e-315 have gradients beyond the range, whose terms must not meet as infinities.
    Twofold gradient = (scaled(arriving(i), -shared) - scaled(v.twofold(i) * slope, 2 * own_exponent - shared)) * inv;
    double gate_gradient;
    if (call.gate_first) {
      gate_gradient = std::ldexp((gradient * a.slope * v.x_at(i)).rounded(), v.x_exponent() + last);
      gradient = gradient * v.silu(i);
    } else {
      const double factor = weight != nullptr ? read(weight, call.weight.type, i) : 1.0;
      gate_gradient = std::ldexp((own * factor * a.slope * normalised).rounded(), own_exponent);
    }
    if (dweight != nullptr) {
      const Twofold term = v.times(i, (call.gate_first ? own : own * a.silu) * inv);
      dweight[at + i] += std::ldexp(term.rounded(), own_exponent);
    }
    if (dx != nullptr) write(dx, call.dx.type, i, std::ldexp(gradient.rounded(), v.gate_exponent() + last));
    if (dgate != nullptr) write(dgate, call.dgate.type, i, gate_gradient);
  }
}

}  // namespace

void f64_gated_rows(const GatedCall& call, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row) {
    for (int64_t group = 0; group < call.groups; ++group) f64_group(call, row, group);
  }
}

void f64_gated_backward_rows(const GatedBackwardCall& call, int64_t begin, int64_t end, double* dweight) {
  for (int64_t row = begin; row < end; ++row) {
    for (int64_t group = 0; group < call.groups; ++group) f64_gradient(call, row, group, dweight);
  }
}

}  // namespace rmsnorm
