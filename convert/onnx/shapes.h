// What is known about each tensor's type and shape without running the graph: enough to follow an axis through it.
#ifndef RMSNORM_CONVERT_ONNX_SHAPES_H_
#define RMSNORM_CONVERT_ONNX_SHAPES_H_

#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "convert/onnx/graph.h"

namespace rmsnorm::convert::onnx {

// A length: known where not negative; otherwise the number of an unknown, and equal numbers are equal lengths.
using Length = std::int64_t;
using Lengths = std::vector<Length>;

struct TensorInfo {
  int type = 0;                    // of TensorProto.DataType; 0: unknown
  std::optional<Lengths> lengths;  // nothing: not even the number of axes is known
};

class Shapes {
 public:
  explicit Shapes(const Graph& graph);

  const TensorInfo& info(const std::string& tensor) const;
  int type(const std::string& tensor) const { return info(tensor).type; }
  std::optional<int> rank(const std::string& tensor) const;
  // The length of an axis counted from the end (-1: last); axes in front of the first have length 1. Nothing: unknown.
  std::optional<std::int64_t> length(const std::string& tensor, int axis) const;

 private:
  const Graph& graph_;
  std::unordered_map<std::string, TensorInfo> infos_;
  std::unordered_map<std::string, Lengths> values_;  // of small tensors of whole numbers: shapes under construction
  Length next_unknown_ = -2;                         // -1 is left to Reshape: "the rest"
  std::unordered_map<std::string, Length> named_;

  Length unknown() { return next_unknown_--; }
  TensorInfo declared(const pb::TypeProto& type);
  void infer(int node);
  void infer_values(int node);
  TensorInfo infer_output(int node, int output);
  std::optional<Lengths> broadcast(const std::vector<Lengths>& shapes);
  std::optional<Lengths> reshaped(const Lengths& from, const Lengths& wanted, bool zero_is_zero);
  std::optional<Lengths> axes_changed(int node, const Lengths& in);
  std::optional<Lengths> multiplied(const Lengths& a, const Lengths& b);
  const Lengths* value_of(const std::string& tensor) const;
};

// True where the product of lengths [a_begin, a_end) of `a` is that of [b_begin, b_end) of `b`, whatever the unknowns.
bool same_product(const Lengths& a, std::size_t a_begin, std::size_t a_end, const Lengths& b, std::size_t b_begin,
                  std::size_t b_end);

}  // namespace rmsnorm::convert::onnx

#endif  // RMSNORM_CONVERT_ONNX_SHAPES_H_
