// Single elements of parameters and of their gradients, of any type.
#ifndef RMSNORM_CPU_PARAMETERS_H_
#define RMSNORM_CPU_PARAMETERS_H_

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
