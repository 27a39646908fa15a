// The checks that all entry points share: from arguments to a call that kernels can run without looking again.
#ifndef RMSNORM_CORE_CHECKS_H_
#define RMSNORM_CORE_CHECKS_H_

#include "core/rules.h"

namespace rmsnorm {

// What an entry point was given. Operands that the operation does not have stay null.
struct NormArguments {
  const char* function;  // "rn_rms_norm"
  Norm norm;
  bool add;
  const char* inv_name = "inv_rms";  // or "inv_std"

  const rn_view* out = nullptr;
  const rn_view* residual_out = nullptr;
  const rn_view* mean = nullptr;
  const rn_view* inv = nullptr;
  const rn_view* x = nullptr;
  const rn_view* residual = nullptr;
  const rn_view* weight = nullptr;
  const rn_view* bias = nullptr;

  // Of a slice (sharded.h): the statistics of the whole row.
  bool slice = false;
  const rn_view* sum = nullptr;
  const rn_view* sum_squares = nullptr;
  int64_t total_cols = 0;

  NormOptions options = {};
  int norm_input = RN_NORM_ROUNDED_SUM;

  const rn_execution* execution = nullptr;
};

// Checks everything and fills `call` and `execution`. On failure the message is set. A call with rows == 0 has nothing
// to do, and no more than rows and cols are set.
rn_status make_call(const NormArguments& arguments, NormCall* call, rn_execution* execution);

}  // namespace rmsnorm

#endif  // RMSNORM_CORE_CHECKS_H_
