// A checked call of the norm of Q and K with rotary embedding. Plain data without functions, like call.h.
#ifndef RMSNORM_CORE_QK_NORM_ROPE_CALL_H_
#define RMSNORM_CORE_QK_NORM_ROPE_CALL_H_

#include "core/call.h"

namespace rmsnorm {

// Q or K: the heads of a token lie `step` bytes apart.
struct Heads {
  int64_t count;  // 0: absent
  Operand out, x, weight;
  int64_t out_step, x_step, weight_step;
};

// The rows of the base are tokens, its cols a head's; its own operands are not used, but for x.type.
struct QkNormRopeCall : NormCall {
  Heads heads[2];     // Q, K
  Operand positions;  // where absent, an "address" whose distance from kIndexBase is the position
  bool has_positions;
  bool interleaved;
  int64_t rotary_dim;    // 0: no rotary embedding
  const char* cos_sin;   // f32
  int64_t cos_sin_step;  // bytes from a position to the next
};

// Not a null pointer, which walks over operands would leave where it is.
inline constexpr uintptr_t kIndexBase = 1;

}  // namespace rmsnorm

#endif  // RMSNORM_CORE_QK_NORM_ROPE_CALL_H_
