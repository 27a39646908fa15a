#include "convert/onnx/expand.h"

#include <algorithm>
#include <map>
#include <set>

#include "convert/onnx/folded.h"

namespace rmsnorm::convert::onnx {

namespace {

using Nodes = google::protobuf::RepeatedPtrField<pb::NodeProto>;

constexpr float kFusedEpsilon = 1e-12f;  // of ONNX Runtime's own operators

// Builds the nodes that stand in for a fused one.
class Expander {
 public:
  // `name` is that of the norm.
  Expander(std::string name, Expansion& expansion) : name_(std::move(name)), expansion_(expansion) {}

  // Appends a node; an empty name makes one.
  std::string add(const char* op, const std::vector<std::string>& inputs, const char* suffix, std::string output = "") {
    pb::NodeProto& node = nodes.emplace_back();
    if (output.empty()) output = expansion_.y + "/rmsnorm_" + suffix;
    node.set_op_type(op);
    node.set_name(name_ + "/" + suffix);
    for (const auto& name : inputs) node.add_input(name);
    node.add_output(output);
    expansion_.outputs.push_back(output);
    return output;
  }

  void norm(const std::string& x, const std::string& weight, const std::string& bias, float epsilon) {
    add("LayerNormalization", {x, weight}, "norm", expansion_.y);
    if (!bias.empty()) nodes.back().add_input(bias);
    nodes.back().set_name(name_);
    pb::AttributeProto& attribute = *nodes.back().add_attribute();
    attribute.set_name("epsilon");
    attribute.set_type(pb::AttributeProto::FLOAT);
    attribute.set_f(epsilon);
  }

  // As a node: before version 4 of the file format an initialiser would have to be an input, too.
  std::string ones(int type, std::int64_t width) {
    const std::string name = add("Constant", {}, "ones");
    pb::AttributeProto& attribute = *nodes.back().add_attribute();
    attribute.set_name("value");
    attribute.set_type(pb::AttributeProto::TENSOR);
    attribute.mutable_t()->set_name(name);
    store_array(*attribute.mutable_t(), {type, {width}, std::vector<double>(static_cast<std::size_t>(width), 1.0)});
    return name;
  }

  std::vector<pb::NodeProto> nodes;

 private:
  std::string name_;
  Expansion& expansion_;
};

// The nodes for one fused node; none where one of its other outputs is used.
std::vector<pb::NodeProto> expanded(const Graph& graph, int n, Expansion& expansion) {
  const pb::NodeProto& node = graph.node(n);
  const auto used = [&](int output) {
    const TensorEntry& entry = graph.tensor(graph.output(n, output));
    return !graph.output(n, output).empty() && (!entry.uses.empty() || entry.is_output || entry.in_subgraph);
  };
  if (used(1)) return {};
  Expander expander(label(node), expansion);
  const float epsilon = float_attribute(node, "epsilon", kFusedEpsilon);
  if (node.op_type() == "SkipLayerNormalization") {
    if (used(2) || graph.input(n, 2).empty()) return {};
    std::string sum = graph.input(n, 0);
    if (!graph.input(n, 4).empty()) sum = expander.add("Add", {sum, graph.input(n, 4)}, "with_bias");
    sum = expander.add("Add", {sum, graph.input(n, 1)}, "sum", graph.output(n, 3));
    expander.norm(sum, graph.input(n, 2), graph.input(n, 3), epsilon);
    return std::move(expander.nodes);
  }
  // EmbedLayerNormalization, with the positions as an input; without them they are run-time numbers of its own.
  if (graph.input(n, 8).empty() || graph.input(n, 5).empty()) return {};
  const std::string words = expander.add("Gather", {graph.input(n, 2), graph.input(n, 0)}, "words");
  const std::string places = expander.add("Gather", {graph.input(n, 3), graph.input(n, 8)}, "positions");
  const bool segments = !graph.input(n, 4).empty() && !graph.input(n, 1).empty();
  std::string sum = expander.add("Add", {words, places}, "sum", segments ? "" : graph.output(n, 2));
  if (segments) {
    const std::string types = expander.add("Gather", {graph.input(n, 4), graph.input(n, 1)}, "segments");
    sum = expander.add("Add", {sum, types}, "sum_of_three", graph.output(n, 2));
  }
  expander.norm(sum, graph.input(n, 5), graph.input(n, 6), epsilon);
  return std::move(expander.nodes);
}

std::vector<Expansion> expand_fused(Model& model) {
  std::vector<Expansion> expansions;
  Nodes nodes;
  {
    const Graph graph(model);
    for (int n = 0; n < graph.size(); ++n) {
      Expansion expansion{graph.output(n), graph.node(n).op_type(), {}, {}};
      const auto replacement = is_fused_norm(graph, n) ? expanded(graph, n, expansion) : std::vector<pb::NodeProto>();
      if (replacement.empty()) {
        *nodes.Add() = graph.node(n);
        continue;
      }
      for (const auto& node : replacement) *nodes.Add() = node;
      expansion.originals.push_back(graph.node(n));
      expansions.push_back(std::move(expansion));
    }
  }
  if (!expansions.empty()) model.proto.mutable_graph()->mutable_node()->Swap(&nodes);
  return expansions;
}

std::vector<Expansion> expand_folded(Model& model) {
  std::vector<Expansion> expansions;
  Nodes nodes;
  {
    const Graph graph(model);
    const Shapes shapes(graph);
    const auto norms = find_folded_norms(graph, shapes);
    if (norms.empty()) return expansions;
    std::map<int, const FoldedNorm*> by_root;
    std::set<int> removed;
    for (const FoldedNorm& norm : norms) {
      by_root[norm.root] = &norm;
      removed.insert(norm.nodes.begin(), norm.nodes.end());
    }
    for (int n = 0; n < graph.size(); ++n) {
      if (const auto found = by_root.find(n); found != by_root.end()) {
        const FoldedNorm& norm = *found->second;
        Expansion expansion{norm.y, "written out", {}, {}};
        for (const int inside : norm.nodes) expansion.originals.push_back(graph.node(inside));
        Expander expander(label(graph.node(n)), expansion);
        const std::string weight = norm.weight.empty() ? expander.ones(shapes.type(norm.x), norm.width) : norm.weight;
        expander.norm(norm.x, weight, norm.bias, norm.epsilon);
        for (auto& node : expander.nodes) *nodes.Add() = std::move(node);
        expansions.push_back(std::move(expansion));
      } else if (removed.count(n) == 0) {
        *nodes.Add() = graph.node(n);
      }
    }
  }
  model.proto.mutable_graph()->mutable_node()->Swap(&nodes);
  return expansions;
}

// Removes constants among `names` that nobody reads, and those that they are made of.
void remove_unread_constants(Model& model, std::set<std::string> names) {
  const bool defaults = model.proto.ir_version() >= 4;
  while (!names.empty()) {
    std::set<std::string> unread, before;
    const Graph graph(model);
    for (const std::string& name : names) {
      const TensorEntry& entry = graph.tensor(name);
      if (!graph.is_constant(name) || !entry.uses.empty() || entry.is_output || entry.in_subgraph) continue;
      unread.insert(name);
      if (entry.producer >= 0) {
        before.insert(graph.node(entry.producer).input().begin(), graph.node(entry.producer).input().end());
      }
    }
    const auto drop = [&](auto& list, const auto& name_of) {
      list.erase(std::remove_if(list.begin(), list.end(), [&](const auto& i) { return unread.count(name_of(i)) != 0; }),
                 list.end());
    };
    const auto own_name = [](const auto& item) { return item.name(); };
    pb::GraphProto& proto = *model.proto.mutable_graph();
    drop(*proto.mutable_node(), [](const auto& node) { return node.output_size() == 1 ? node.output(0) : ""; });
    drop(*proto.mutable_initializer(), own_name);
    if (!defaults) drop(*proto.mutable_input(), own_name);
    drop(*proto.mutable_value_info(), own_name);
    names = std::move(before);
  }
}

}  // namespace

bool is_fused_norm(const Graph& graph, int n) {
  return graph.op(n) == "com.microsoft:SkipLayerNormalization" ||
         graph.op(n) == "com.microsoft:EmbedLayerNormalization";
}

std::vector<Expansion> expand_norms(Model& model) {
  if (default_opset(model.proto) < 7) return {};  // before, Add did not broadcast
  auto expansions = expand_fused(model);
  for (auto& expansion : expand_folded(model)) expansions.push_back(std::move(expansion));
  return expansions;
}

void restore_norms(Model& model, const std::vector<Expansion>& expansions, const std::vector<std::string>& stays) {
  std::map<std::string, const Expansion*> by_output;
  std::set<std::string> gone, read;
  for (const auto& expansion : expansions) {
    if (std::find(stays.begin(), stays.end(), expansion.y) != stays.end()) {
      for (const auto& output : expansion.outputs) by_output[output] = &expansion;
      continue;
    }
    for (const auto& node : expansion.originals) {
      gone.insert(node.output().begin(), node.output().end());
      read.insert(node.input().begin(), node.input().end());
    }
  }
  pb::GraphProto& graph = *model.proto.mutable_graph();
  Nodes nodes;
  for (auto& node : *graph.mutable_node()) {
    const auto found = node.output_size() > 0 ? by_output.find(node.output(0)) : by_output.end();
    if (found == by_output.end()) {
      *nodes.Add() = std::move(node);
    } else if (node.output(0) == found->second->y) {
      for (const auto& original : found->second->originals) *nodes.Add() = original;
    }
  }
  graph.mutable_node()->Swap(&nodes);
  sort_nodes(graph);
  remove_unread_constants(model, std::move(read));
  for (const auto& node : graph.node()) {
    for (const auto& output : node.output()) gone.erase(output);
  }
  auto& notes = *graph.mutable_value_info();
  notes.erase(
      std::remove_if(notes.begin(), notes.end(), [&](const auto& note) { return gone.count(note.name()) != 0; }),
      notes.end());
}

}  // namespace rmsnorm::convert::onnx
