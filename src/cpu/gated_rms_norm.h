// Runs checked calls of gated RMSNorm and its backward.
#ifndef RMSNORM_CPU_GATED_RMS_NORM_H_
#define RMSNORM_CPU_GATED_RMS_NORM_H_

#include "core/gated_rms_norm_call.h"

namespace rmsnorm {

rn_status run_gated(GatedCall call, const rn_execution& execution);
rn_status run_gated_backward(GatedBackwardCall call, const rn_execution& execution);

// Rows begin .. end-1 of a call whose x is f64; of a backward call, added to dweight (null where it is not wanted).
void f64_gated_rows(const GatedCall& call, int64_t begin, int64_t end);
void f64_gated_backward_rows(const GatedBackwardCall& call, int64_t begin, int64_t end, double* dweight);

}  // namespace rmsnorm

#endif  // RMSNORM_CPU_GATED_RMS_NORM_H_
