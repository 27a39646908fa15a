// Element types by their definition: precision and exponent range. Rounding, decoding and encoding follow from these
// alone and share no code with the library's conversions, which are tested against them.
#ifndef RMSNORM_REFERENCE_FORMAT_H_
#define RMSNORM_REFERENCE_FORMAT_H_

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "reference/quad.h"
#include "rmsnorm/rmsnorm.h"

namespace rmsnorm::reference {

struct Format {
  int precision;       // significant bits of a normal number
  int min_exponent;    // the smallest normal number is 2^min_exponent
  int max_exponent;    // every finite number is below 2^(max_exponent + 1)
  int bits;            // of storage
  double largest = 0;  // of types without infinity, or whose conversions never give it: what is beyond becomes this
};

// 2^n in f64, down to its least number.
inline double f64_power_of_two(int n) {
  if (n < -1022) return std::bit_cast<double>(std::uint64_t{1} << (n + 1074));
  return std::bit_cast<double>(static_cast<std::uint64_t>(n + 1023) << 52);
}

// Whole numbers: i8 outputs; positions, which are only read.
inline bool is_integer(rn_type type) { return type == RN_I8 || type == RN_I32 || type == RN_I64; }

inline Format format_of(rn_type type) {
  switch (type) {
    case RN_F16:
      return {11, -14, 15, 16};
    case RN_BF16:
      return {8, -126, 127, 16};
    case RN_F64:
      return {53, -1022, 1023, 64};
    case RN_F8E4M3:
      return {4, -6, 8, 8, 448};
    case RN_F8E5M2:
      return {3, -14, 15, 8, 57344};
    case RN_I8:  // spaced by 1 everywhere, like subnormals
      return {8, 7, 7, 8, 127};
    case RN_I32:
      return {32, 31, 31, 32};
    case RN_I64:
      return {64, 63, 63, 64};
    default:
      break;
  }
  return {24, -126, 127, 32};
}

// The distance between neighbours of type at |v|, one ulp, is 2 to this. For numbers beyond the range, that of the last
// binade.
inline int ulp_exponent(rn_type type, Quad v) {
  const Format f = format_of(type);
  return std::clamp(exponent_of(v), f.min_exponent, f.max_exponent) - f.precision + 1;
}

inline Quad ulp_at(rn_type type, Quad v) { return power_of_two(ulp_exponent(type, v)); }

// v in ulps of type at `scale`; exact.
inline Quad in_ulps(rn_type type, Quad v, Quad scale) { return v * power_of_two(-ulp_exponent(type, scale)); }

// The number of type that is nearest to v, ties to even; infinity from half an ulp above the largest finite one, or
// that one where infinities saturate. An i8 NaN is 0.
inline double round_to(rn_type type, Quad v) {
  const Format f = format_of(type);
  if (is_nan(v) && is_integer(type)) return 0;
  if (f.largest != 0 && absolute(v) >= f.largest) return sign_of(v) ? -f.largest : f.largest;
  if (!is_finite(v)) return static_cast<double>(v);
  constexpr double kInfinite = std::numeric_limits<double>::infinity();
  const int exponent = exponent_of(v);
  if (exponent > f.max_exponent) return sign_of(v) ? -kInfinite : kInfinite;
  // |v| is significand * 2^(exponent - 112); the bits of the significand below one ulp are rounded off.
  constexpr QuadBits kOne = 1;
  const QuadBits significand = (magnitude_bits(v) & ((kOne << 112) - 1)) | kOne << 112;
  const int ulp = ulp_exponent(type, v), dropped = ulp - (exponent - 112);
  if (dropped > 113) return sign_of(v) ? -0.0 : 0.0;  // 0, or below half of the least number
  std::uint64_t whole = static_cast<std::uint64_t>(significand >> dropped);
  const QuadBits rest = significand & ((kOne << dropped) - 1), half = kOne << (dropped - 1);
  if (rest > half || (rest == half && whole % 2 != 0)) ++whole;
  double rounded = static_cast<double>(whole) * f64_power_of_two(ulp);
  if (rounded >= f64_power_of_two(f.max_exponent) * 2) rounded = kInfinite;
  return sign_of(v) ? -rounded : rounded;
}

// The value of stored bits: sign, exponent field, fraction. f8e4m3 has numbers where others have infinity and NaNs, but
// for its last code.
inline double decode(rn_type type, std::uint64_t stored) {
  const Format f = format_of(type);
  if (is_integer(type)) {
    const int unused = 64 - f.bits;
    return static_cast<double>(static_cast<std::int64_t>(stored << unused) >> unused);
  }
  const int fraction_bits = f.precision - 1;
  const std::uint64_t fraction = stored & ((std::uint64_t{1} << fraction_bits) - 1);
  const int field_limit = (1 << (f.bits - f.precision)) - 1;
  const int field = static_cast<int>(stored >> fraction_bits) & field_limit;
  const bool negative = (stored >> (f.bits - 1)) & 1;
  double magnitude;
  if (type == RN_F8E4M3 ? (stored & 0x7f) == 0x7f : field == field_limit) {
    magnitude = fraction != 0 ? std::numeric_limits<double>::quiet_NaN() : std::numeric_limits<double>::infinity();
  } else {
    const std::uint64_t whole = field == 0 ? fraction : fraction | std::uint64_t{1} << fraction_bits;
    const int exponent = (field == 0 ? 1 : field) - 1 + f.min_exponent - fraction_bits;
    magnitude = static_cast<double>(whole) * f64_power_of_two(exponent);
  }
  return negative ? -magnitude : magnitude;
}

// The bits of a value that the type can hold; NaN becomes one quiet pattern.
inline std::uint64_t encode(rn_type type, double value) {
  const Format f = format_of(type);
  if (is_integer(type)) return static_cast<std::uint64_t>(static_cast<std::int64_t>(value));
  if (type == RN_F8E4M3 && is_nan(value)) return 0x7f;
  const int fraction_bits = f.precision - 1;
  const std::uint64_t infinity = ((std::uint64_t{1} << (f.bits - f.precision)) - 1) << fraction_bits;
  if (is_nan(value)) return infinity | std::uint64_t{1} << (fraction_bits - 1);
  const std::uint64_t sign = static_cast<std::uint64_t>(sign_of(value)) << (f.bits - 1);
  if (!is_finite(value)) return sign | infinity;
  if (value == 0) return sign;
  const double magnitude = std::fabs(value);
  const int exponent = std::ilogb(magnitude), ulp = std::max(exponent, f.min_exponent) - fraction_bits;
  const std::uint64_t whole = static_cast<std::uint64_t>(std::ldexp(magnitude, -ulp));
  if (exponent < f.min_exponent) return sign | whole;
  const std::uint64_t field = static_cast<std::uint64_t>(std::int64_t{exponent} - f.min_exponent + 1);
  return sign | field << fraction_bits | (whole & ((std::uint64_t{1} << fraction_bits) - 1));
}

// Element `index` of an array: its bits; as a double; and back (rounding to the type).
inline std::uint64_t stored_bits(rn_type type, const void* data, std::int64_t index) {
  const std::size_t bytes = static_cast<std::size_t>(format_of(type).bits / 8);
  std::uint64_t stored = 0;  // little endian: the low bytes
  std::memcpy(&stored, static_cast<const char*>(data) + index * static_cast<std::int64_t>(bytes), bytes);
  return stored;
}

inline double load(rn_type type, const void* data, std::int64_t index) {
  const std::uint64_t stored = stored_bits(type, data, index);
  if (type == RN_F64) return std::bit_cast<double>(stored);
  if (type == RN_F32) return static_cast<double>(std::bit_cast<float>(static_cast<std::uint32_t>(stored)));
  return decode(type, stored);
}

inline void store(rn_type type, void* data, std::int64_t index, double value) {
  const std::size_t bytes = static_cast<std::size_t>(format_of(type).bits / 8);
  std::uint64_t stored;
  if (type == RN_F64) {
    stored = std::bit_cast<std::uint64_t>(value);
  } else if (type == RN_F32) {
    stored = std::bit_cast<std::uint32_t>(static_cast<float>(value));
  } else {
    stored = encode(type, round_to(type, value));
  }
  std::memcpy(static_cast<char*>(data) + index * static_cast<std::int64_t>(bytes), &stored, bytes);
}

}  // namespace rmsnorm::reference

#endif  // RMSNORM_REFERENCE_FORMAT_H_
