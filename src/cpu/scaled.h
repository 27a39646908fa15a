// Numbers for f64 kernels whose intermediate results need neither f64's range nor its precision to be enough.
#ifndef RMSNORM_CPU_SCALED_H_
#define RMSNORM_CPU_SCALED_H_

#include <bit>

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
    mantissa_ = {sum, (mantissa.value - (sum - added)) + (rest - added)};
    int own = 0;
    if (std::fabs(sum) >= 0x1p-900 && std::fabs(sum) <= 0x1p900) {  // what needs no library
      own = static_cast<int>(std::bit_cast<uint64_t>(sum) >> 52 & 0x7ff) - 1022;
      mantissa_ = times_power(mantissa_, -own);
    } else {
      mantissa_.value = std::frexp(sum, &own);
      mantissa_.rest = std::ldexp(mantissa_.rest, -own);
    }
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
    // Of two so far apart as the least power says, the smaller does not count.
    const auto aligned = [exponent](const Scaled& v) {
      return times_power(v.mantissa_, std::clamp(v.exponent_ - exponent, -1000, 0));
    };
    return {aligned(a) - aligned(b), exponent};
  }
  friend Scaled operator+(const Scaled& a, const Scaled& b) {
    return a - Scaled({-b.mantissa_.value, -b.mantissa_.rest}, b.exponent_);
  }
  friend Scaled square_root(const Scaled& a) {
    const int half = a.exponent_ >> 1;
    return {square_root(times_power(a.mantissa_, a.exponent_ - 2 * half)), half};
  }

 private:
  // Times 2^n, for n that leaves the power normal.
  static Twofold times_power(Twofold v, int n) {
    const double power = std::bit_cast<double>(static_cast<uint64_t>(1023 + n) << 52);
    return {v.value * power, v.rest * power};
  }

  Twofold mantissa_ = {0};  // at least 1/2 and below 1, but for those without a size
  int exponent_ = 0;
};

}  // namespace rmsnorm

#endif  // RMSNORM_CPU_SCALED_H_
