// Single elements of parameters and of their gradients, of any type.
#ifndef RMSNORM_CPU_PARAMETERS_H_
#define RMSNORM_CPU_PARAMETERS_H_

#include <bit>

#include "core/call.h"
#include "core/float16.h"

namespace rmsnorm {

inline double load_element(const Operand& operand, int64_t i) {
  switch (operand.type) {
    case RN_F16:
      return static_cast<double>(f16_to_f32(reinterpret_cast<const uint16_t*>(operand.base)[i]));
    case RN_BF16:
      return static_cast<double>(bf16_to_f32(reinterpret_cast<const uint16_t*>(operand.base)[i]));
    case RN_F64:
      return reinterpret_cast<const double*>(operand.base)[i];
    default:
      return static_cast<double>(reinterpret_cast<const float*>(operand.base)[i]);
  }
}

// The f32 towards 0 from a number that f32 does not hold, its last bit set: rounded again to 16 bits it gives what the
// number itself would.
inline float round_to_odd(double value) {
  const float nearest = static_cast<float>(value);
  const double widened = static_cast<double>(nearest);
  if (widened == value || value != value || widened - widened != 0) return nearest;
  const auto bits = std::bit_cast<uint32_t>(nearest) - ((widened > value) == (value > 0) ? 1u : 0u);
  return std::bit_cast<float>(bits | 1u);
}

inline void store_element(const Operand& operand, int64_t i, double value) {
  switch (operand.type) {
    case RN_F16:
      reinterpret_cast<uint16_t*>(operand.base)[i] = f32_to_f16(round_to_odd(value));
      return;
    case RN_BF16:
      reinterpret_cast<uint16_t*>(operand.base)[i] = f32_to_bf16(round_to_odd(value));
      return;
    case RN_F64:
      reinterpret_cast<double*>(operand.base)[i] = value;
      return;
    default:
      reinterpret_cast<float*>(operand.base)[i] = static_cast<float>(value);
  }
}

}  // namespace rmsnorm

#endif  // RMSNORM_CPU_PARAMETERS_H_
