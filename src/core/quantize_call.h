// A checked call of RMSNorm with a quantised output. Plain data without functions, like call.h.
#ifndef RMSNORM_CORE_QUANTIZE_CALL_H_
#define RMSNORM_CORE_QUANTIZE_CALL_H_

#include "core/call.h"

namespace rmsnorm {

struct QuantizeCall : NormCall {
  Operand scale;         // absent with a static scale
  int64_t scale_stride;  // bytes from one scale of a row to the next
  int64_t group;         // columns that share a scale, a divisor of kChunk; cols: one scale a row
  float static_scale;    // where scale is absent
  float largest;         // number of out's type
  bool power_of_two;
};

inline constexpr float kLargestI8 = 127;

// Scales are not below the smallest normal f32, so that a division by one cannot overflow where y is finite and small.
inline constexpr float kSmallestScale = 0x1p-126f;
inline constexpr float kLargestScale = 0x1.fffffep127f;  // where the largest |y| is infinite
inline constexpr float kLargestPowerOfTwoScale = 0x1p127f;

}  // namespace rmsnorm

#endif  // RMSNORM_CORE_QUANTIZE_CALL_H_
