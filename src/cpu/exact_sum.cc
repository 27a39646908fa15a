#include "cpu/exact_sum.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "cpu/f64.h"

namespace rmsnorm {

namespace {

constexpr uint32_t kMagnitude = 0x7fffffff;
constexpr int kMantissa = 23;  // bits behind the point

// The exponent of a magnitude's last bit, in units of f32's smallest: 0 with subnormal numbers.
int shift_of(uint32_t magnitude) { return std::max(static_cast<int>(magnitude >> kMantissa), 1) - 1; }

ExactMean divided(Twofold sum, int64_t count) {
  const Twofold mean = sum / Twofold{static_cast<double>(count)};
  return {mean.value, std::isfinite(mean.value) ? mean.rest : 0};
}

}  // namespace

void add_exactly(ExactSum& sum, const float* x, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    const uint32_t bits = std::bit_cast<uint32_t>(x[i]), magnitude = bits & kMagnitude;
    const int shift = shift_of(magnitude);
    const uint64_t implied = magnitude >> kMantissa != 0 ? 1 : 0;
    const uint64_t mantissa = (implied << kMantissa | (magnitude & ((1u << kMantissa) - 1))) << shift % 32;
    const auto low = static_cast<int64_t>(mantissa & 0xffffffff), high = static_cast<int64_t>(mantissa >> 32);
    int64_t* const digit = sum.digits + shift / 32;
    const bool negative = bits != magnitude;
    digit[0] += negative ? -low : low;
    digit[1] += negative ? -high : high;
  }
}

ExactMean mean_of(const ExactSum& sum, int64_t count) {
  // Digits between -2^31 and 2^31, so that none but the first that is not 0 decides the sign and the size.
  constexpr int kLast = ExactSum::kDigits - 1;
  int64_t digits[ExactSum::kDigits];
  std::copy_n(sum.digits, ExactSum::kDigits, digits);
  for (int i = 0; i < kLast; ++i) {
    const int64_t carry = (digits[i] + (int64_t{1} << 31)) >> 32;
    digits[i] -= carry * (int64_t{1} << 32);
    digits[i + 1] += carry;
  }
  CompensatedSum total;
  for (int i = kLast; i >= 0; --i) total.add(std::ldexp(static_cast<double>(digits[i]), 32 * i - 149));
  return divided(total.twofold(), count);
}

ExactMean mean_of(double sum, int64_t count) { return divided({sum}, count); }

}  // namespace rmsnorm
