// LayerNorms written out so that their weight, or their bias, too, stands inside the formula: as exporters of
// TensorFlow write them.
#ifndef RMSNORM_CONVERT_ONNX_FOLDED_H_
#define RMSNORM_CONVERT_ONNX_FOLDED_H_

#include <string>
#include <vector>

#include "convert/onnx/shapes.h"

namespace rmsnorm::convert::onnx {

// The longest weight that is made where a norm has none: what a file says about lengths needs no memory there.
inline constexpr std::int64_t kMostOnes = std::int64_t{1} << 24;

struct FoldedNorm {
  std::string x, y;
  std::string weight;      // a constant; empty: none, and `width` is known
  std::string bias;        // a constant, or empty
  std::int64_t width = 0;  // 0: not known
  float epsilon = 0;
  int root = -1;           // the node that gives y
  std::vector<int> nodes;  // that only y needs, in their order; the root is the last
};

// In the order of their roots; no two have a node in common.
//
//   (x - m) * (r * w)                  in any order of the factors but those that recognise_norms knows
//   x * (r * w) + (b - m * (r * w))    in any order of the terms; w and b may be absent
//   instance_normalization(x, ones, zeros) [* w]    with three axes
//   reshape(batch_normalization(reshape(x, [1, rows, width, 1]), ones, zeros, mean, variance), shape(x)) [* w]
//
// with m = mean(x) and r = 1 / sqrt(mean((x - m)^2) + epsilon).
std::vector<FoldedNorm> find_folded_norms(const Graph& graph, const Shapes& shapes);

}  // namespace rmsnorm::convert::onnx

#endif  // RMSNORM_CONVERT_ONNX_FOLDED_H_
