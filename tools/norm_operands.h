// The tensors of one norm and the call of the library with them.
#ifndef RMSNORM_TOOLS_NORM_OPERANDS_H_
#define RMSNORM_TOOLS_NORM_OPERANDS_H_

#include <optional>

#include "check/case.h"
#include "tools/formats/tensor.h"

namespace rmsnorm::tools {

struct NormOperands {
  Tensor x;  // in place: afterwards the result
  std::optional<Tensor> weight, bias, residual;
  rn_type out_type = RN_F32;
  bool in_place = false;
  bool stats_wanted = false;

  Tensor out, residual_out, stats;  // results; out and residual_out stay empty in place

  const Tensor& result() const { return in_place ? x : out; }
  const Tensor& sum() const { return in_place ? *residual : residual_out; }
};

// Normalises over axes `axis` .. last, taken as one. Of `options` the operation and its options are read.
void call_norm(NormOperands& operands, const check::Case& options, std::int64_t axis, std::int32_t threads);

}  // namespace rmsnorm::tools

#endif  // RMSNORM_TOOLS_NORM_OPERANDS_H_
