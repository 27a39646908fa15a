// Runs a checked call of the norm of Q and K with rotary embedding.
#ifndef RMSNORM_CPU_QK_NORM_ROPE_H_
#define RMSNORM_CPU_QK_NORM_ROPE_H_

#include "core/qk_norm_rope_call.h"

namespace rmsnorm {

// The position that a walk over the operand `positions` has come to.
inline int64_t position_of(const QkNormRopeCall& call, const char* at) {
  if (!call.has_positions) return static_cast<int64_t>(reinterpret_cast<uintptr_t>(at) - kIndexBase);
  if (call.positions.type == RN_I64) return *reinterpret_cast<const int64_t*>(at);
  return *reinterpret_cast<const int32_t*>(at);
}

rn_status run_qk_norm_rope(QkNormRopeCall call, const rn_execution& execution);

}  // namespace rmsnorm

#endif  // RMSNORM_CPU_QK_NORM_ROPE_H_
