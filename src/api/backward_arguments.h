// What the backward norms share, of whole rows and of slices.
#ifndef RMSNORM_API_BACKWARD_ARGUMENTS_H_
#define RMSNORM_API_BACKWARD_ARGUMENTS_H_

#include "core/rules.h"

namespace rmsnorm {

// What an entry point was given. Operands that the operation does not have stay null.
struct BackwardArguments {
  const char* function;
  Norm norm;
  bool add;
  const char* inv_name;
  const rn_view *dx = nullptr, *dresidual = nullptr, *dweight = nullptr, *dbias = nullptr;
  const rn_view *dy = nullptr, *x = nullptr, *d_residual_out = nullptr, *weight = nullptr, *inv = nullptr;
  // Of a slice (sharded.h): the statistics of the whole row.
  bool slice = false;
  const rn_view *sum = nullptr, *sum_squares = nullptr, *sum_gradients = nullptr, *sum_products = nullptr;
  int64_t total_cols = 0;
  const rn_scratch* scratch = nullptr;
  NormOptions options = {};
  int accumulate = 0;
  const rn_execution* execution = nullptr;
};

// Checks everything, then runs the call.
rn_status run_backward(const BackwardArguments& arguments);

// The same, with the caller's options taken over.
template <class Options>
rn_status run_backward(BackwardArguments arguments, const Options& options) {
  arguments.options = norm_options(options.norm);
  arguments.accumulate = options.accumulate;
  return run_backward(arguments);
}

}  // namespace rmsnorm

#endif  // RMSNORM_API_BACKWARD_ARGUMENTS_H_
