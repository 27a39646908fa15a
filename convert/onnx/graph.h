// An index over a graph: who computes a tensor, who reads it, what is constant. It holds pointers into the graph and is
// made anew after the graph has changed.
#ifndef RMSNORM_CONVERT_ONNX_GRAPH_H_
#define RMSNORM_CONVERT_ONNX_GRAPH_H_

#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "convert/onnx/model.h"
#include "convert/onnx/values.h"

namespace rmsnorm::convert::onnx {

// Input `slot` of node `node`.
struct Use {
  int node = -1;
  int slot = 0;
  auto operator<=>(const Use&) const = default;
};

struct TensorEntry {
  int producer = -1;  // a node
  int output = 0;     // which of its outputs
  std::vector<Use> uses;
  pb::TensorProto* literal = nullptr;  // an initialiser, or the value of a Constant node
  bool overridable = false;            // an initialiser that is an input, too: only a default
  bool is_input = false;
  bool is_output = false;
  bool in_subgraph = false;  // read by a graph inside a node
};

class Graph {
 public:
  explicit Graph(Model& model);

  const Model& model() const { return model_; }
  const pb::GraphProto& proto() const { return model_.proto.graph(); }
  int size() const { return proto().node_size(); }
  const pb::NodeProto& node(int i) const { return proto().node(i); }
  int opset() const { return opset_; }

  const TensorEntry& tensor(const std::string& name) const;
  bool has_tensor(const std::string& name) const { return tensors_.count(name) != 0; }

  // The operator of ONNX's own domain; "com.microsoft:NAME" for others; empty for a function that the model defines.
  std::string_view op(int node) const { return ops_[static_cast<std::size_t>(node)]; }

  // Input `slot`, or empty.
  const std::string& input(int node, int slot) const;
  const std::string& output(int node, int slot = 0) const;

  // A literal that nobody can override.
  const pb::TensorProto* literal(const std::string& name) const;
  // A literal, or what Identity, Cast, Transpose, Reshape, Squeeze and Unsqueeze make of one.
  bool is_constant(const std::string& name) const { return constants_.count(name) != 0; }
  // Its numbers; nothing where it is not constant or not of a readable type.
  std::optional<Array> constant(const std::string& name) const;
  // The only number of a constant with one element.
  std::optional<double> scalar(const std::string& name) const;
  // The whole numbers of a constant of at most 1024 elements.
  std::optional<std::vector<std::int64_t>> integers(const std::string& name) const;

  // Axes, pads and the like: an attribute in older operator sets, an input in newer ones.
  std::optional<std::vector<std::int64_t>> ints_of(int node, std::string_view attribute, int slot) const;

 private:
  void collect_inside(const pb::NodeProto& node);

  Model& model_;
  int opset_ = 0;
  std::vector<std::string> ops_;
  std::unordered_map<std::string, TensorEntry> tensors_;
  std::unordered_set<std::string> constants_;
};

const pb::AttributeProto* find_attribute(const pb::NodeProto& node, std::string_view name);
std::int64_t int_attribute(const pb::NodeProto& node, std::string_view name, std::int64_t otherwise);
float float_attribute(const pb::NodeProto& node, std::string_view name, float otherwise);
std::string text_attribute(const pb::NodeProto& node, std::string_view name, const char* otherwise);
// `keepdims` of a reduction; nothing for other numbers than 0 and 1, which runtimes take differently.
std::optional<bool> keeps_axes(const pb::NodeProto& node);
bool has_subgraph(const pb::NodeProto& node);

// The version of ONNX's own operator set.
std::int64_t default_opset(const pb::ModelProto& model);

// A name for people: the node's own, or that of its first output.
const std::string& label(const pb::NodeProto& node);

}  // namespace rmsnorm::convert::onnx

#endif  // RMSNORM_CONVERT_ONNX_GRAPH_H_
