// Carries a plan out: constants are centred, operations inserted, norms replaced; what nobody reads any more goes.
#ifndef RMSNORM_CONVERT_ONNX_REWRITE_H_
#define RMSNORM_CONVERT_ONNX_REWRITE_H_

#include <string>
#include <vector>

#include "convert/onnx/stream.h"

namespace rmsnorm::convert::onnx {

struct Changes {
  int norms = 0;
  int weights = 0;   // constants with several axes
  int biases = 0;    // constants with one
  int copied = 0;    // of them, those that others read, too
  int inserted = 0;  // operations that subtract a mean
  int nodes_before = 0, nodes_after = 0;
  std::vector<std::string> plain;  // norms written out although the target has an operator for them, and why
};

// `graph`, `shapes`, `norms` and `plan` are those of `model`, which changes; they are of no use afterwards.
Changes rewrite(Model& model, const Graph& graph, const Shapes& shapes, const Norms& norms, const Plan& plan,
                Target target, bool carry_rounding);

}  // namespace rmsnorm::convert::onnx

#endif  // RMSNORM_CONVERT_ONNX_REWRITE_H_
