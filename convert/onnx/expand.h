// Norms in forms that hold more than a norm become a LayerNormalization and what else they do, so that only one kind
// has to be understood: SkipLayerNormalization, EmbedLayerNormalization, and those that find_folded_norms finds.
#ifndef RMSNORM_CONVERT_ONNX_EXPAND_H_
#define RMSNORM_CONVERT_ONNX_EXPAND_H_

#include <string>
#include <vector>

#include "convert/onnx/graph.h"

namespace rmsnorm::convert::onnx {

// What stood there, for norms that stay.
struct Expansion {
  std::string y;                         // its first output
  std::string form;                      // for people
  std::vector<pb::NodeProto> originals;  // in their order
  std::vector<std::string> outputs;      // of the nodes that took their place
};

std::vector<Expansion> expand_norms(Model& model);

// Puts back those of `expansions` whose y is in `stays`, and removes constants that only the others read.
void restore_norms(Model& model, const std::vector<Expansion>& expansions, const std::vector<std::string>& stays);

bool is_fused_norm(const Graph& graph, int n);

}  // namespace rmsnorm::convert::onnx

#endif  // RMSNORM_CONVERT_ONNX_EXPAND_H_
