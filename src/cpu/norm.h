// Runs a checked call: chooses the target, cuts the work into pieces, and hands these to threads.
#ifndef RMSNORM_CPU_NORM_H_
#define RMSNORM_CPU_NORM_H_

#include "core/call.h"

namespace rmsnorm {

// Returns RN_OK, or RN_UNAVAILABLE if no target can run (the message is set and nothing has been written).
rn_status run_norm(NormCall call, const rn_execution& execution);

// Rows begin .. end-1 of a call whose x is f64: one portable kernel, the same for every target.
void f64_rows(const NormCall& call, int64_t begin, int64_t end);

}  // namespace rmsnorm

#endif  // RMSNORM_CPU_NORM_H_
