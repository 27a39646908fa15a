#include "convert/onnx/rewrite.h"

#include <algorithm>
#include <map>
#include <set>

#include "convert/onnx/folded.h"
#include "convert/onnx/opset.h"

namespace rmsnorm::convert::onnx {

namespace {

using Type = pb::TensorProto;

class Rewriter {
 public:
  Rewriter(Model& model, const Graph& graph, const Shapes& shapes, const Norms& norms, const Plan& plan, Target target,
           bool carry)
      : model_(model),
        proto_(*model.proto.mutable_graph()),
        graph_(graph),
        shapes_(shapes),
        norms_(norms),
        plan_(plan),
        target_(target),
        carry_(carry) {}

  Changes run() {
    changes_.nodes_before = proto_.node_size();
    for (const Stream& stream : plan_.streams) {
      if (!stream.converted) continue;
      for (const Edit& edit : stream.edits) apply(edit);
      for (const Insert& insert : stream.inserts) apply(insert);
    }
    for (std::size_t i = 0; i < norms_.all.size(); ++i) {
      if (plan_.verdicts[i].converted) replace(i);
    }
    if (target_ == Target::kOnnxRms23) raise_opset();
    finish();
    return std::move(changes_);
  }

 private:
  std::string unique(const std::string& base) {
    std::string name = base;
    for (int i = 1; graph_.has_tensor(name) || !names_.insert(name).second; ++i) name = base + "_" + std::to_string(i);
    return name;
  }

  pb::NodeProto& add_node(const char* op, const std::vector<std::string>& inputs, const std::string& output) {
    pb::NodeProto& node = *added_.Add();
    node.set_op_type(op);
    node.set_name(output);
    for (const auto& name : inputs) node.add_input(name);
    node.add_output(output);
    return node;
  }

  static pb::AttributeProto& add_attribute(pb::NodeProto& node, const char* name,
                                           pb::AttributeProto::AttributeType type) {
    pb::AttributeProto& attribute = *node.add_attribute();
    attribute.set_name(name);
    attribute.set_type(type);
    return attribute;
  }
  static void add_int(pb::NodeProto& node, const char* name, std::int64_t value) {
    add_attribute(node, name, pb::AttributeProto::INT).set_i(value);
  }

  std::string cast(const std::string& from, int to, const std::string& name) {
    add_int(add_node("Cast", {from}, name), "to", to);
    return name;
  }

  // Before version 4 of the file format an initialiser must be an input of the graph, too; a Constant node need not.
  std::string add_constant(const std::string& base, const Array& array) {
    const std::string name = unique(base);
    if (model_.proto.ir_version() >= 4) {
      pb::TensorProto& tensor = *proto_.add_initializer();
      tensor.set_name(name);
      store_array(tensor, array);
    } else {
      pb::NodeProto& node = add_node("Constant", {}, name);
      pb::TensorProto& tensor = *add_attribute(node, "value", pb::AttributeProto::TENSOR).mutable_t();
      tensor.set_name(name);
      store_array(tensor, array);
    }
    return name;
  }

  // One for each value, whoever needs it.
  std::string common_constant(const char* what, int type, double value) {
    auto& name = common_[{what, type, value}];
    if (name.empty()) name = add_constant(fmt::format("rmsnorm_{}", what), {type, {}, {value}});
    return name;
  }

  // Of the graph that is written.
  int opset() const { return target_ == Target::kOnnxRms23 ? std::max(graph_.opset(), kRmsOpset) : graph_.opset(); }

  std::string add_mean(const std::string& x, const std::string& of, int axis, const std::string& output) {
    // Older operator sets have no axes from the end.
    const auto rank = shapes_.rank(of);
    const std::int64_t named = rank && opset() < 11 ? axis + *rank : axis;
    if (opset() >= kAxesInputOpset) {
      auto& axes = common_[{"axis", Type::INT64, static_cast<double>(named)}];
      if (axes.empty()) axes = add_constant("rmsnorm_axis", {Type::INT64, {1}, {static_cast<double>(named)}});
      add_int(add_node("ReduceMean", {x, axes}, output), "keepdims", 1);
    } else {
      pb::NodeProto& node = add_node("ReduceMean", {x}, output);
      add_attribute(node, "axes", pb::AttributeProto::INTS).add_ints(named);
      add_int(node, "keepdims", 1);
    }
    return output;
  }

  void rewire(const std::vector<Use>& uses, const std::string& to) {
    for (const Use& use : uses) proto_.mutable_node(use.node)->set_input(use.slot, to);
  }

  void apply(const Edit& edit);
  void apply(const Insert& insert);
  void replace(std::size_t index);
  void bypass_subs(const Norm& norm, const std::string& x);
  void replace_by_operator(const Norm& norm, const std::string& x, const std::string& weight, bool scaled);
  void replace_by_nodes(const Norm& norm, const std::string& x, int type);
  std::optional<std::string> vector_of(const Norm& norm, int type, bool scaled);
  void raise_opset();
  void finish();
  void remove_unread();

  Model& model_;
  pb::GraphProto& proto_;
  const Graph& graph_;
  const Shapes& shapes_;
  const Norms& norms_;
  const Plan& plan_;
  Target target_;
  bool carry_;
  Changes changes_;
  std::set<std::string> names_;
  std::map<std::tuple<std::string, int, double>, std::string> common_;
  std::map<std::pair<std::string, int>, std::string> edited_;
  std::map<std::size_t, std::string> x_of_norm_;  // where an operation was inserted
  std::set<int> removed_;                         // nodes that were replaced
  std::vector<std::string> old_outputs_;
  google::protobuf::RepeatedPtrField<pb::NodeProto> added_;
};

void Rewriter::apply(const Edit& edit) {
  auto& name = edited_[{edit.tensor, edit.axis}];
  if (name.empty()) {
    auto array = graph_.constant(edit.tensor);
    if (!array) {
      tools::fail(tools::ExitCode::kInternal, "{}: a constant of the plan cannot be read", edit.tensor);
    }
    const int rank = static_cast<int>(array->dims.size());
    if (rank < -edit.axis) {
      // It stands for the same number along the whole axis, and so is its own mean.
      std::fill(array->values.begin(), array->values.end(), 0.0);
    } else {
      centre(*array, static_cast<std::size_t>(rank + edit.axis), carry_);
    }
    (rank > 1 ? changes_.weights : changes_.biases) += 1;
    pb::TensorProto* literal = graph_.tensor(edit.tensor).literal;
    if (literal != nullptr && !edit.shared) {
      store_array(*literal, *array);
      name = edit.tensor;
    } else {
      changes_.copied += edit.shared ? 1 : 0;
      name = add_constant(edit.tensor + "_centred", *array);
    }
  }
  if (name != edit.tensor) rewire(edit.uses, name);
}

void Rewriter::apply(const Insert& insert) {
  const std::string base = insert.tensor + "_centred";
  const int type = shapes_.type(insert.tensor);
  const std::string output = unique(base);
  std::string x = insert.tensor;
  if (is_narrow(type)) x = cast(x, Type::FLOAT, unique(insert.tensor + "_f32"));
  const std::string mean = add_mean(x, insert.tensor, insert.axis, unique(insert.tensor + "_mean"));
  if (is_narrow(type)) {
    const std::string wide = unique(base + "_f32");
    add_node("Sub", {x, mean}, wide);
    cast(wide, type, output);
  } else {
    add_node("Sub", {x, mean}, output);
  }
  ++changes_.inserted;
  rewire(insert.uses, output);
  for (const int norm : insert.norms) x_of_norm_[static_cast<std::size_t>(norm)] = output;
}

// Written out with its own nodes: they read x where they read x - mean.
void Rewriter::bypass_subs(const Norm& norm, const std::string& x) {
  for (const int n : norm.interior) {
    pb::NodeProto& node = *proto_.mutable_node(n);
    for (int k = 0; k < node.input_size(); ++k) {
      const int producer = graph_.tensor(graph_.input(n, k)).producer;
      const auto centring = norms_.centrings.find(producer);
      if (centring != norms_.centrings.end() && graph_.op(producer) == "Sub" && graph_.op(n) != "Sub" &&
          std::binary_search(norm.interior.begin(), norm.interior.end(), producer)) {
        node.set_input(k, x);
      }
    }
  }
}

// The weight as a vector of the norm's width: what operators for RMSNorm take. Nothing where the width is not known.
std::optional<std::string> Rewriter::vector_of(const Norm& norm, int type, bool scaled) {
  const auto length = shapes_.length(norm.x, -1);
  if (!scaled) {
    std::optional<std::int64_t> width = length;
    if (!width && !norm.weight.empty()) width = shapes_.length(norm.weight, -1);
    if (!width || *width > kMostOnes || (!length && *width == 1)) return std::nullopt;
    auto& name = common_[{"ones", type, static_cast<double>(*width)}];
    if (name.empty()) {
      name = add_constant("rmsnorm_ones", {type, {*width}, std::vector<double>(static_cast<std::size_t>(*width), 1)});
    }
    return name;
  }
  const auto weight_length = shapes_.length(norm.weight, -1);
  const std::int64_t width = length ? *length : weight_length.value_or(1);
  if (width > kMostOnes || (!length && width == 1)) return std::nullopt;
  if (shapes_.rank(norm.weight) == 1 && weight_length == width) return norm.weight;
  auto array = graph_.constant(norm.weight);
  if (!array || array->values.empty()) return std::nullopt;
  if (array->values.size() == 1) array->values.assign(static_cast<std::size_t>(width), array->values[0]);
  if (static_cast<std::int64_t>(array->values.size()) != width) return std::nullopt;
  array->dims = {width};
  return add_constant(norm.weight + "_vector", *array);
}

void Rewriter::replace_by_operator(const Norm& norm, const std::string& x, const std::string& weight, bool scaled) {
  const bool separate_bias = norm.form == Form::kOperator && !norm.bias.empty();
  const std::string output = norm.form == Form::kWrittenOut && !scaled ? norm.core : norm.y;
  const std::string normalised = separate_bias ? unique(norm.y + "_without_bias") : output;
  const bool simplified = target_ == Target::kOnnxSimplified;
  pb::NodeProto& node =
      add_node(simplified ? "SimplifiedLayerNormalization" : "RMSNormalization", {x, weight}, normalised);
  node.set_name(norm.name);
  node.set_doc_string(graph_.node(norm.root).doc_string());
  if (node.doc_string().empty()) node.clear_doc_string();
  add_int(node, "axis", -1);
  add_int(node, "stash_type", 1);
  add_attribute(node, "epsilon", pb::AttributeProto::FLOAT).set_f(static_cast<float>(norm.epsilon));
  if (separate_bias) add_node("Add", {normalised, norm.bias}, norm.y);
  removed_.insert(norm.root);
  if (scaled && norm.scaling >= 0) removed_.insert(norm.scaling);
}

// An operator written out. Runtimes know the form with Pow and put a fused kernel in its place.
void Rewriter::replace_by_nodes(const Norm& norm, const std::string& x, int type) {
  const std::string base = norm.y + "/rms_";
  const bool narrow = is_narrow(type);
  const int wide = narrow || type == 0 ? static_cast<int>(Type::FLOAT) : type;
  const std::string in = narrow ? cast(x, wide, unique(base + "x")) : x;
  const std::string square = unique(base + "square"), variance = unique(base + "mean");
  add_node("Pow", {in, common_constant("two", wide, 2)}, square);
  add_mean(square, norm.x, -1, variance);
  const std::string sum = unique(base + "sum"), root = unique(base + "root");
  add_node("Add", {variance, common_constant("epsilon", wide, norm.epsilon)}, sum);
  add_node("Sqrt", {sum}, root);
  std::string at = unique(base + "normalised");
  pb::NodeProto& quotient = add_node("Div", {in, root}, at);
  quotient.set_name(norm.name);
  if (graph_.node(norm.root).has_doc_string()) quotient.set_doc_string(graph_.node(norm.root).doc_string());
  if (narrow) at = cast(at, type, unique(base + "narrow"));
  const std::string scaled = norm.bias.empty() ? norm.y : unique(base + "scaled");
  add_node("Mul", {at, norm.weight}, scaled);
  if (!norm.bias.empty()) add_node("Add", {scaled, norm.bias}, norm.y);
  removed_.insert(norm.root);
}

void Rewriter::replace(std::size_t index) {
  const Norm& norm = norms_.all[index];
  ++changes_.norms;
  const auto centred = x_of_norm_.find(index);
  const std::string& x = centred != x_of_norm_.end() ? centred->second : norm.x;
  int type = shapes_.type(norm.x);
  if (type == 0 && norm.form == Form::kOperator) type = shapes_.type(norm.weight);
  const bool written = norm.form == Form::kWrittenOut;
  if (target_ != Target::kOnnxPlain) {
    const bool same_types = is_float(type) && (!written || shapes_.type(norm.core) == type);
    const bool direct = !written || (norm.scaling >= 0 && (graph_.input(norm.scaling, 0) == norm.core ||
                                                           graph_.input(norm.scaling, 1) == norm.core));
    const bool scaled = direct && shapes_.type(norm.weight) == type;
    const auto weight = same_types && (scaled || written) ? vector_of(norm, type, scaled) : std::nullopt;
    if (weight) return replace_by_operator(norm, x, *weight, scaled);
    changes_.plain.push_back(
        fmt::format("{}: {}", norm.name,
                    same_types ? "its width is not known, or too large" : "its types differ or are not known"));
  }
  if (written) {
    bypass_subs(norm, x);
  } else {
    replace_by_nodes(norm, x, type);
  }
}

void Rewriter::raise_opset() {
  if (graph_.opset() >= kRmsOpset) return;
  // Initialisers were inputs in old files; in new ones that would make them defaults that anybody may replace.
  if (model_.proto.ir_version() < 4) {
    std::set<std::string> initializers;
    for (const auto& tensor : proto_.initializer()) initializers.insert(tensor.name());
    auto& inputs = *proto_.mutable_input();
    inputs.erase(std::remove_if(inputs.begin(), inputs.end(),
                                [&](const auto& input) { return initializers.count(input.name()) != 0; }),
                 inputs.end());
  }
  for (auto& import : *model_.proto.mutable_opset_import()) {
    if (import.domain().empty() || import.domain() == "ai.onnx") import.set_version(kRmsOpset);
  }
  model_.proto.set_ir_version(std::max<std::int64_t>(model_.proto.ir_version(), kRmsIrVersion));
}

// Nodes and constants that were read before and are not any more, and notes about tensors that are gone.
void Rewriter::remove_unread() {
  std::map<std::string, int> producers;
  for (int n = 0; n < proto_.node_size(); ++n) {
    for (const auto& output : proto_.node(n).output()) producers[output] = n;
  }
  std::map<std::string, int> reads;
  for (const auto& node : proto_.node()) {
    for (const auto& name : node.input()) ++reads[name];
  }
  const auto unread = [&](const std::string& name) {
    const TensorEntry& entry = graph_.tensor(name);
    const bool was_read = !entry.uses.empty();
    return reads[name] == 0 && was_read && !entry.is_output && !entry.in_subgraph;
  };
  std::vector<std::string> candidates;
  for (const auto& output : old_outputs_) {
    if (!output.empty() && unread(output)) candidates.push_back(output);
  }
  std::set<int> gone;
  while (!candidates.empty()) {
    const std::string name = candidates.back();
    candidates.pop_back();
    const auto producer = producers.find(name);
    if (producer == producers.end() || gone.count(producer->second) != 0) continue;
    const pb::NodeProto& node = proto_.node(producer->second);
    const bool all_unread = std::all_of(node.output().begin(), node.output().end(), [&](const std::string& output) {
      const TensorEntry& entry = graph_.tensor(output);
      return output.empty() || (reads[output] == 0 && !entry.is_output && !entry.in_subgraph);
    });
    if (!all_unread) continue;
    gone.insert(producer->second);
    for (const auto& input : node.input()) {
      if (--reads[input] == 0) candidates.push_back(input);
    }
  }
  google::protobuf::RepeatedPtrField<pb::NodeProto> nodes;
  for (int n = 0; n < proto_.node_size(); ++n) {
    if (gone.count(n) == 0) *nodes.Add() = std::move(*proto_.mutable_node(n));
  }
  proto_.mutable_node()->Swap(&nodes);

  std::set<std::string> dropped;
  for (const auto& tensor : proto_.initializer()) {
    if (unread(tensor.name())) dropped.insert(tensor.name());
  }
  const auto drop = [&dropped](auto& list) {
    list.erase(
        std::remove_if(list.begin(), list.end(), [&](const auto& item) { return dropped.count(item.name()) != 0; }),
        list.end());
  };
  drop(*proto_.mutable_initializer());
  if (model_.proto.ir_version() < 4) drop(*proto_.mutable_input());
  std::set<std::string> present;
  for (const auto& node : proto_.node()) present.insert(node.output().begin(), node.output().end());
  for (const auto& tensor : proto_.initializer()) present.insert(tensor.name());
  for (const auto& input : proto_.input()) present.insert(input.name());
  auto& notes = *proto_.mutable_value_info();
  notes.erase(std::remove_if(
                  notes.begin(), notes.end(),
                  [&](const auto& note) { return graph_.has_tensor(note.name()) && present.count(note.name()) == 0; }),
              notes.end());
}

void Rewriter::finish() {
  // The index speaks of nodes by their old places: from here on only names are asked for.
  for (const auto& node : proto_.node())
    old_outputs_.insert(old_outputs_.end(), node.output().begin(), node.output().end());
  google::protobuf::RepeatedPtrField<pb::NodeProto> nodes;
  for (int n = 0; n < proto_.node_size(); ++n) {
    if (removed_.count(n) == 0) *nodes.Add() = std::move(*proto_.mutable_node(n));
  }
  // Names of nodes must differ, too.
  std::set<std::string> names;
  for (const auto& node : nodes) names.insert(node.name());
  for (auto& node : added_) {
    const std::string base = node.name();
    for (int i = 1; !names.insert(node.name()).second; ++i) node.set_name(fmt::format("{}/rms_{}", base, i));
    *nodes.Add() = std::move(node);
  }
  proto_.mutable_node()->Swap(&nodes);
  remove_unread();
  sort_nodes(proto_);
  changes_.nodes_after = proto_.node_size();
}

}  // namespace

Changes rewrite(Model& model, const Graph& graph, const Shapes& shapes, const Norms& norms, const Plan& plan,
                Target target, bool carry_rounding) {
  return Rewriter(model, graph, shapes, norms, plan, target, carry_rounding).run();
}

}  // namespace rmsnorm::convert::onnx
