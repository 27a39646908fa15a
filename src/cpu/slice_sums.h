// Runs a checked call for the sums of slices.
#ifndef RMSNORM_CPU_SLICE_SUMS_H_
#define RMSNORM_CPU_SLICE_SUMS_H_

#include "core/slice_sum_call.h"

namespace rmsnorm {

rn_status run_slice_sums(const SliceSumCall& call, const rn_execution& execution);

}  // namespace rmsnorm

#endif  // RMSNORM_CPU_SLICE_SUMS_H_
