// Numbers for f64 kernels whose intermediate results need neither f64's range nor its precision to be enough.
#ifndef RMSNORM_CPU_SCALED_H_
#define RMSNORM_CPU_SCALED_H_

#include "cpu/f64.h"

namespace rmsnorm {

// A pair of numbers with an exponent of its own: about 100 bits. Nothing overflows or becomes subnormal until it is
// stored. Zeros, infinities and NaNs are as in f64.
class Scaled {
 public:
  Scaled() = default;
  Scaled(double value) : Scaled(Twofold{value}, 0) {}
  Scaled(Twofold mantissa, int exponent) {
    // What is left of a difference may be smaller than its own rest.
    const double sum = mantissa.rounded(), added = sum - mantissa.value;
    if (sum == 0 || !std::isfinite(sum)) {
      mantissa_ = {sum};
      return;
    }
    const double rest = std::isfinite(mantissa.rest) ? mantissa.rest : 0;
    int own = 0;
    mantissa_.value = std::frexp(sum, &own);
    mantissa_.rest = std::ldexp((mantissa.value - (sum - added)) + (rest - added), -own);
    exponent_ = exponent + own;
  }

  double rounded() const { return std::ldexp(mantissa_.rounded(), exponent_); }

  friend Scaled operator*(const Scaled& a, const Scaled& b) {
    return {a.mantissa_ * b.mantissa_, a.exponent_ + b.exponent_};
  }
  friend Scaled operator/(const Scaled& a, const Scaled& b) {
    return {a.mantissa_ / b.mantissa_, a.exponent_ - b.exponent_};
  }
  friend Scaled operator-(const Scaled& a, const Scaled& b) {
    // A zero has no size.
    const int exponent = a.mantissa_.value == 0   ? b.exponent_
                         : b.mantissa_.value == 0 ? a.exponent_
                                                  : std::max(a.exponent_, b.exponent_);
    return {scaled(a.mantissa_, a.exponent_ - exponent) - scaled(b.mantissa_, b.exponent_ - exponent), exponent};
  }
  friend Scaled operator+(const Scaled& a, const Scaled& b) {
    return a - Scaled({-b.mantissa_.value, -b.mantissa_.rest}, b.exponent_);
  }
  friend Scaled square_root(const Scaled& a) {
    const int half = a.exponent_ >> 1;
    return {square_root(scaled(a.mantissa_, a.exponent_ - 2 * half)), half};
  }

 private:
  Twofold mantissa_ = {0};  // at least 1/2 and below 1, but for those without a size
  int exponent_ = 0;
};

}  // namespace rmsnorm

#endif  // RMSNORM_CPU_SCALED_H_
