// Scalar conversions between f32 and the 16-bit types: round to nearest even, subnormals kept, NaN stays NaN.
// The vector conversions of every target give the same bits; these serve references, tools and the scalar target.
#ifndef RMSNORM_CORE_FLOAT16_H_
#define RMSNORM_CORE_FLOAT16_H_

#include <bit>
#include <cstdint>

namespace rmsnorm {

inline float bf16_to_f32(std::uint16_t bits) { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16); }

inline std::uint16_t f32_to_bf16(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<std::uint16_t>((bits >> 16) | 0x40u);
  return static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

inline float f16_to_f32(std::uint16_t half) {
  const std::uint32_t sign = static_cast<std::uint32_t>(half & 0x8000u) << 16;
  const std::uint32_t magnitude = half & 0x7fffu;
  if (magnitude >= 0x7c00u) return std::bit_cast<float>(sign | 0x7f800000u | (magnitude & 0x3ffu) << 13);
  // Shifted into f32's fields the exponent is 112 too small; the multiplication mends it, subnormals included, exactly.
  const float scaled = std::bit_cast<float>(magnitude << 13) * 0x1p112f;
  return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(scaled));
}

inline std::uint16_t f32_to_f16(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (bits >> 16) & 0x8000u;
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<std::uint16_t>(sign | 0x7e00u | ((magnitude >> 13) & 0x3ffu));
  if (magnitude >= 0x477ff000u) return static_cast<std::uint16_t>(sign | 0x7c00u);  // 65520 and above round to infinity
  if (magnitude < 0x38800000u) {
    // Below 2^-14 the result is a multiple of 2^-24: adding 0.5, whose last bit is 2^-24, makes the FPU round there.
    const float rounded = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(rounded) - 0x3f000000u));
  }
  const std::uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
  return static_cast<std::uint16_t>(sign | ((rounded - 0x38000000u) >> 13));
}

// The f32 towards 0 from a number that f32 does not hold, its last bit set: rounded again to 16 bits it gives what the
// number itself would.
inline float round_to_odd(double value) {
  const float nearest = static_cast<float>(value);
  const double widened = static_cast<double>(nearest);
  if (widened == value || value != value || widened - widened != 0) return nearest;
  const auto bits = std::bit_cast<std::uint32_t>(nearest) - ((widened > value) == (value > 0) ? 1u : 0u);
  return std::bit_cast<float>(bits | 1u);
}

}  // namespace rmsnorm

#endif  // RMSNORM_CORE_FLOAT16_H_
