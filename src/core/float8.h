// Scalar conversions between f32 and the 8-bit types: round to nearest even, subnormals kept, NaN stays NaN; numbers
// beyond the largest finite one, infinities too, become that one. These serve f64 rows, tools and tests; the vector
// code (cpu/float8-inl.h) gives the same bits.
#ifndef RMSNORM_CORE_FLOAT8_H_
#define RMSNORM_CORE_FLOAT8_H_

#include <bit>
#include <cstdint>

namespace rmsnorm {

namespace detail {

// Both types have 0x7f for a NaN, and the codes of finite numbers in their order.
template <int kFractionBits, int kMinExponent>
inline std::uint8_t f32_to_f8(float value, float largest, std::uint8_t largest_code) {
  constexpr int kShift = 23 - kFractionBits;
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (bits >> 24) & 0x80u;
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<std::uint8_t>(sign | 0x7fu);
  if (magnitude >= std::bit_cast<std::uint32_t>(largest)) return static_cast<std::uint8_t>(sign | largest_code);
  if (magnitude < static_cast<std::uint32_t>(kMinExponent + 127) << 23) {
    // Multiples of the smallest number: beside this one, whose last bit is that, the FPU rounds there.
    constexpr std::uint32_t kBeside = static_cast<std::uint32_t>(kMinExponent + kShift + 127) << 23;
    const float rounded = std::bit_cast<float>(magnitude) + std::bit_cast<float>(kBeside);
    return static_cast<std::uint8_t>(sign | (std::bit_cast<std::uint32_t>(rounded) - kBeside));
  }
  const std::uint32_t rounded = magnitude + ((1u << (kShift - 1)) - 1) + ((magnitude >> kShift) & 1u);
  constexpr std::uint32_t kBias = static_cast<std::uint32_t>(kMinExponent + 126) << 23;
  return static_cast<std::uint8_t>(sign | ((rounded - kBias) >> kShift));
}

}  // namespace detail

inline constexpr float kLargestF8E4M3 = 448;
inline constexpr float kLargestF8E5M2 = 57344;

inline std::uint8_t f32_to_f8e4m3(float value) { return detail::f32_to_f8<3, -6>(value, kLargestF8E4M3, 0x7e); }
inline std::uint8_t f32_to_f8e5m2(float value) { return detail::f32_to_f8<2, -14>(value, kLargestF8E5M2, 0x7b); }

// Shifted into f32's fields the exponent is too small; the multiplication mends it, subnormals included, exactly.
inline float f8e4m3_to_f32(std::uint8_t code) {
  const std::uint32_t sign = static_cast<std::uint32_t>(code & 0x80u) << 24;
  const std::uint32_t magnitude = code & 0x7fu;
  if (magnitude == 0x7fu) return std::bit_cast<float>(sign | 0x7fc00000u);
  return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude << 20) * 0x1p120f));
}
inline float f8e5m2_to_f32(std::uint8_t code) {
  const std::uint32_t sign = static_cast<std::uint32_t>(code & 0x80u) << 24;
  const std::uint32_t magnitude = code & 0x7fu;
  if (magnitude >= 0x7cu) return std::bit_cast<float>(sign | 0x7f800000u | (magnitude & 3u) << 21);
  return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude << 21) * 0x1p112f));
}

// Nearest whole number, ties to even, from -127 to 127; NaN becomes 0.
inline std::int8_t f32_to_i8(float value) {
  if (value != value) return 0;
  const float within = value > 127 ? 127.0f : value < -127 ? -127.0f : value;
  constexpr float kBeside = 0x1.8p23f;  // its last bit is 1: the FPU rounds there
  return static_cast<std::int8_t>((within + kBeside) - kBeside);
}

}  // namespace rmsnorm

#endif  // RMSNORM_CORE_FLOAT8_H_
