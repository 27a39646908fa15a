// What the forward norms share, of whole rows and of slices.
#ifndef RMSNORM_API_NORM_ARGUMENTS_H_
#define RMSNORM_API_NORM_ARGUMENTS_H_

#include "core/checks.h"

namespace rmsnorm {

// Checks everything, then runs the call.
rn_status run_norm(const NormArguments& arguments);

}  // namespace rmsnorm

#endif  // RMSNORM_API_NORM_ARGUMENTS_H_
