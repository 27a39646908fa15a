#include "cpu/exact_sum.h"

#include <algorithm>
#include <bit>

#include "cpu/f64.h"

namespace rmsnorm {

namespace {

constexpr uint32_t kMagnitude = 0x7fffffff;
constexpr int kMantissa = 23;  // bits behind the point

// The exponent of a magnitude's last bit, in units of f32's smallest: 0 with subnormal numbers.
int shift_of(uint32_t magnitude) { return std::max(static_cast<int>(magnitude >> kMantissa), 1) - 1; }

}  // namespace

void add_range(BitRange& range, const float* x, int64_t n) {
  BitRange all = range;
  for (int64_t i = 0; i < n; ++i) {
    const uint32_t magnitude = std::bit_cast<uint32_t>(x[i]) & kMagnitude;
    all.any |= magnitude;
    all.largest = std::max(all.largest, magnitude);
    all.smallest = std::min(all.smallest, magnitude == 0 ? kMagnitude : magnitude);
  }
  range = all;
}

bool exact_in_f64(const BitRange& range, int64_t count) {
  if (range.largest == 0) return true;
  // Each is a multiple of 2^last and below 2^first, the sum of their magnitudes below 2^(first + bits of count).
  const int first = shift_of(range.largest) + kMantissa + 1;
  const int last = shift_of(range.smallest) + std::min(std::countr_zero(range.any), kMantissa);
  return first + std::bit_width(static_cast<uint64_t>(count)) - last <= 53;
}

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
  const Twofold mean = total.twofold() / Twofold{static_cast<double>(count)};
  return {mean.value, mean.rest};
}

ExactMean mean_of(double sum, int64_t count) {
  const Twofold mean = Twofold{sum} / Twofold{static_cast<double>(count)};
  return {mean.value, mean.rest};
}

}  // namespace rmsnorm
