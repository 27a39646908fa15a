// Runs a checked backward call: blocks of rows on threads, then the blocks' sums into dweight and dbias.
#ifndef RMSNORM_CPU_BACKWARD_H_
#define RMSNORM_CPU_BACKWARD_H_

#include "core/backward_call.h"

namespace rmsnorm {

rn_status run_backward(BackwardCall call, const rn_execution& execution);

// Rows begin .. end-1 of a call whose x is f64, added to dweight and dbias (null where not wanted).
void f64_backward_rows(const BackwardCall& call, int64_t begin, int64_t end, double* dweight, double* dbias);

}  // namespace rmsnorm

#endif  // RMSNORM_CPU_BACKWARD_H_
