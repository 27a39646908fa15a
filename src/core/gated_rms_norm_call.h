// Checked calls of gated_rms_norm and its backward. Plain data without functions, like call.h.
#ifndef RMSNORM_CORE_GATED_RMS_NORM_CALL_H_
#define RMSNORM_CORE_GATED_RMS_NORM_CALL_H_

#include "core/call.h"

namespace rmsnorm {

// A row has `groups` groups of `width` columns, each normalised for itself. One element of inv_rms belongs to each.
struct GatedShape : RowShape {
  bool gate_first;  // x * silu(gate) is normalised; else the norm is multiplied by silu(gate)
  bool stream;
  int64_t groups, width;
  int64_t inv_step;  // bytes between the inv_rms of neighbouring groups
  double epsilon;
};

struct GatedCall : GatedShape {
  bool round_norm;     // to x's type, before the weight
  bool round_product;  // and again behind it, before the gate
  Operand out, inv, x, gate, weight;
};

struct GatedBackwardCall : GatedShape {
  bool accumulate;
  Operand dx, dgate, dweight, dy, x, gate, weight, inv;
  double* sums;  // [blocks][cols], dweight's (backward_call.h); unused where it is not wanted
};

}  // namespace rmsnorm

#endif  // RMSNORM_CORE_GATED_RMS_NORM_CALL_H_
