// Elements of tensors as f64, and back with one rounding.
#ifndef RMSNORM_CONVERT_CHECKPOINT_NUMBERS_H_
#define RMSNORM_CONVERT_CHECKPOINT_NUMBERS_H_

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>

#include "rmsnorm/rmsnorm.h"
#include "src/core/float16.h"

namespace rmsnorm::convert::checkpoint {

// The bits that a 16-bit type lacks must not be rounded twice: f32 with the last bit set where anything was cut off
// (round to odd) rounds to 16 bits as the f64 itself does.
inline float to_odd_f32(double value) {
  const float nearest = static_cast<float>(value);
  if (static_cast<double>(nearest) == value || !std::isfinite(value)) return nearest;
  std::uint32_t bits = std::bit_cast<std::uint32_t>(nearest);
  if (std::fabs(static_cast<double>(nearest)) > std::fabs(value)) --bits;  // towards zero
  return std::bit_cast<float>(bits | 1u);
}

template <rn_type kType>
struct Element;
template <>
struct Element<RN_F64> {
  using Stored = double;
  static double load(double v) { return v; }
  static double store(double v) { return v; }
};
template <>
struct Element<RN_F32> {
  using Stored = float;
  static double load(float v) { return static_cast<double>(v); }
  static float store(double v) { return static_cast<float>(v); }
};
template <>
struct Element<RN_F16> {
  using Stored = std::uint16_t;
  static double load(std::uint16_t v) { return static_cast<double>(f16_to_f32(v)); }
  static std::uint16_t store(double v) { return f32_to_f16(to_odd_f32(v)); }
};
template <>
struct Element<RN_BF16> {
  using Stored = std::uint16_t;
  static double load(std::uint16_t v) { return static_cast<double>(bf16_to_f32(v)); }
  static std::uint16_t store(double v) { return f32_to_bf16(to_odd_f32(v)); }
};

// Calls visit(Element<type>()).
template <class Visit>
decltype(auto) with_type(rn_type type, const Visit& visit) {
  switch (type) {
    case RN_F64:
      return visit(Element<RN_F64>());
    case RN_F16:
      return visit(Element<RN_F16>());
    case RN_BF16:
      return visit(Element<RN_BF16>());
    default:
      return visit(Element<RN_F32>());
  }
}

inline void decode(rn_type type, const std::byte* bytes, std::span<double> out) {
  with_type(type, [&]<class E>(E) {
    for (std::size_t i = 0; i < out.size(); ++i) {
      typename E::Stored stored;
      std::memcpy(&stored, bytes + i * sizeof(stored), sizeof(stored));
      out[i] = E::load(stored);
    }
  });
}

// Half a unit in the last place of 1, and half the smallest subnormal.
struct Precision {
  double unit;
  double tiny;
};
inline Precision precision(rn_type type) {
  switch (type) {
    case RN_F64:
      return {0x1p-53, std::numeric_limits<double>::denorm_min()};
    case RN_F16:
      return {0x1p-11, 0x1p-25};
    case RN_BF16:
      return {0x1p-8, 0x1p-134};
    default:
      return {0x1p-24, 0x1p-150};
  }
}

}  // namespace rmsnorm::convert::checkpoint

#endif  // RMSNORM_CONVERT_CHECKPOINT_NUMBERS_H_
