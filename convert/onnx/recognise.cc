#include "convert/onnx/recognise.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "convert/onnx/opset.h"

namespace rmsnorm::convert::onnx {

namespace {

constexpr float kDefaultEpsilon = 1e-5f;                     // of LayerNormalization and its relatives
constexpr std::int64_t kStashType = pb::TensorProto::FLOAT;  // what they sum in, their default

bool is_fused_norm(const Graph& graph, int n) {
  return graph.op(n) == "com.microsoft:SkipLayerNormalization" ||
         graph.op(n) == "com.microsoft:EmbedLayerNormalization";
}

class Recogniser {
 public:
  Recogniser(const Graph& graph, const Shapes& shapes) : graph_(graph), shapes_(shapes) {}

  Norms run() {
    find_centrings();
    for (int n = 0; n < graph_.size(); ++n) {
      if (graph_.op(n) == "LayerNormalization") {
        norms_.all.push_back(operator_norm(n));
      } else if (is_fused_norm(graph_, n)) {
        norms_.all.push_back(fused_norm(n));
      } else if (auto norm = written_out(n)) {
        norms_.all.push_back(std::move(*norm));
      }
    }
    return std::move(norms_);
  }

  std::optional<Rms> rms(int root) const;

 private:
  // The node that computes the tensor, behind any casts between float types; -1 for none. `through` collects the casts.
  int producer(std::string name, std::vector<int>* through = nullptr) const {
    for (;;) {
      const int n = graph_.tensor(name).producer;
      if (n < 0 || graph_.op(n) != "Cast" || !is_float(static_cast<int>(int_attribute(graph_.node(n), "to", 0)))) {
        return n;
      }
      if (through != nullptr) through->push_back(n);
      name = graph_.input(n, 0);
    }
  }

  bool is_op(int n, std::string_view op) const { return n >= 0 && graph_.op(n) == op; }
  bool only_use(const std::string& name) const {
    const TensorEntry& entry = graph_.tensor(name);
    return entry.uses.size() == 1 && !entry.is_output && !entry.in_subgraph;
  }

  void find_centrings() {
    for (int n = 0; n < graph_.size(); ++n) {
      if (graph_.op(n) != "ReduceMean") continue;
      const auto axis = reduced_axis(graph_, shapes_, n);
      const TensorEntry& mean = graph_.tensor(graph_.output(n));
      if (!axis || mean.is_output || mean.in_subgraph || mean.uses.empty()) continue;
      Centring centring{graph_.input(n, 0), *axis, n, {}};
      bool complete = true;
      for (const Use& use : mean.uses) {
        complete &= use.slot == 1 && graph_.op(use.node) == "Sub" && graph_.input(use.node, 0) == centring.x;
        centring.subs.push_back(use.node);
      }
      if (!complete) continue;
      norms_.centrings[n] = centring;
      for (const int sub : centring.subs) norms_.centrings[sub] = centring;
    }
  }

  Norm operator_norm(int n) const {
    const pb::NodeProto& node = graph_.node(n);
    Norm norm;
    norm.name = label(node);
    norm.origin = node.op_type();
    norm.root = n;
    norm.x = graph_.input(n, 0);
    norm.y = norm.whole = graph_.output(n);
    norm.weight = graph_.input(n, 1);
    norm.bias = graph_.input(n, 2);
    norm.epsilon = static_cast<double>(float_attribute(node, "epsilon", kDefaultEpsilon));
    const std::int64_t axis = int_attribute(node, "axis", -1);
    const auto rank = shapes_.rank(norm.x);
    if (axis != -1 && !(rank && axis == *rank - 1)) {
      norm.ignores_mean = false;
      norm.fault = fmt::format("it normalises from axis {} of {} axes on; it must normalise the last alone", axis,
                               rank ? std::to_string(*rank) : "unknown");
    }
    for (const int extra : {1, 2}) {
      const TensorEntry& entry = graph_.tensor(graph_.output(n, extra));
      if (graph_.output(n, extra).empty() || (entry.uses.empty() && !entry.is_output && !entry.in_subgraph)) continue;
      norm.ignores_mean &= extra != 1;
      norm.fault =
          fmt::format("its output {} is used; only the normalised tensor may be", extra == 1 ? "Mean" : "InvStdDev");
    }
    if (!graph_.is_constant(norm.weight)) {
      norm.fault = "its scale is not constant";
    } else if (!is_vector(norm.weight)) {
      norm.fault = "its scale is no vector; it must have one axis, or ones before it";
    }
    if (!norm.bias.empty() && !(graph_.is_constant(norm.bias) && is_vector(norm.bias))) {
      norm.fault = "its bias is no constant vector";
    }
    for (const std::string* parameter : {&norm.weight, &norm.bias}) {
      const auto axes = shapes_.rank(*parameter);
      if (parameter->empty() || !rank || !axes || *axes <= std::max(*rank, 1)) continue;
      norm.fault = fmt::format("its {} has {} axes and its input {}; it must have no more",
                               parameter == &norm.weight ? "scale" : "bias", *axes, *rank);
    }
    if (const std::int64_t stash = int_attribute(node, "stash_type", kStashType); stash != kStashType) {
      norm.fault = fmt::format("its stash_type is {}; it must be {} (f32)", stash, kStashType);
    }
    if (!std::isfinite(norm.epsilon) || norm.epsilon < 0) norm.fault = fmt::format("its epsilon is {}", norm.epsilon);
    if (const int type = shapes_.type(norm.x); type != 0 && !is_float(type)) {
      norm.fault = fmt::format("it normalises {}; it must be floats", type_name(type));
    }
    return norm;
  }

  // What expand_fused_norms has left.
  Norm fused_norm(int n) const {
    Norm norm;
    norm.name = label(graph_.node(n));
    norm.origin = graph_.node(n).op_type();
    norm.root = n;
    norm.ignores_mean = false;
    norm.y = norm.whole = graph_.output(n);
    norm.fault =
        "this fused form is not taken apart: its mean, its deviation or its mask is used, a scale is missing, or the "
        "positions are no input";
    return norm;
  }

  // [H], [1, 1, H], [1] or a number.
  bool is_vector(const std::string& name) const {
    const auto& lengths = shapes_.info(name).lengths;
    if (!lengths) return false;
    for (std::size_t i = 0; i + 1 < lengths->size(); ++i) {
      if ((*lengths)[i] != 1) return false;
    }
    return true;
  }

  // Beside a tensor that is normalised, a constant of one number may have one axis or none; more would show in the
  // result where the tensor itself has fewer.
  bool adds_no_axis(const std::string& name, const std::string& beside) const {
    const auto rank = shapes_.rank(name), limit = shapes_.rank(beside);
    return rank && (*rank <= 1 || (limit && *rank <= *limit));
  }

  // The number that stands beside input `slot` of a node with two.
  std::optional<double> number_beside(int n, int slot) const {
    const std::string& name = graph_.input(n, 1 - slot);
    return adds_no_axis(name, graph_.input(n, slot)) ? graph_.scalar(name) : std::nullopt;
  }

  // What stands under a square root, or in its place.
  struct Root {
    std::string inside;    // variance + epsilon
    bool outside = false;  // epsilon is added to the root
    std::vector<int> nodes;
  };

  // name = sqrt(inside), as Sqrt or Pow 0.5; or sqrt(inside) + a constant.
  std::optional<Root> square_root(const std::string& name) const {
    Root root;
    int n = producer(name, &root.nodes);
    if (is_op(n, "Add")) {
      const int other = number_beside(n, 0) ? 0 : number_beside(n, 1) ? 1 : -1;
      if (other < 0) return std::nullopt;
      root.outside = true;
      root.nodes.push_back(n);
      n = producer(graph_.input(n, other), &root.nodes);
    }
    const bool power = is_op(n, "Pow") && number_beside(n, 0) == std::optional<double>(0.5);
    if (!power && !is_op(n, "Sqrt")) return std::nullopt;
    root.nodes.push_back(n);
    root.inside = graph_.input(n, 0);
    return root;
  }

  // name = 1 / sqrt(inside)
  std::optional<Root> inverse_root(const std::string& name) const {
    std::vector<int> nodes;
    const int n = producer(name, &nodes);
    if (n < 0) return std::nullopt;
    nodes.push_back(n);
    std::optional<Root> root;
    if (graph_.op(n) == "Pow" && number_beside(n, 0) == std::optional<double>(-0.5)) {
      root = Root{graph_.input(n, 0), false, {}};
    } else if (graph_.op(n) == "Reciprocal") {
      root = square_root(graph_.input(n, 0));
    } else if (graph_.op(n) == "Div" && number_beside(n, 1) == std::optional<double>(1)) {
      root = square_root(graph_.input(n, 1));
    }
    if (root) root->nodes.insert(root->nodes.end(), nodes.begin(), nodes.end());
    return root;
  }

  // name = t * t for a tensor t; returns t.
  std::optional<std::string> squared(const std::string& name, std::vector<int>& nodes) const {
    const int n = producer(name, &nodes);
    const bool power = is_op(n, "Pow") && number_beside(n, 0) == std::optional<double>(2);
    const bool product = is_op(n, "Mul") && graph_.input(n, 0) == graph_.input(n, 1);
    if (!power && !product) return std::nullopt;
    nodes.push_back(n);
    return graph_.input(n, 0);
  }

  struct Quotient {
    std::string numerator;
    Root root;
  };

  std::vector<Quotient> quotients(int n) const {
    std::vector<Quotient> found;
    if (graph_.op(n) == "Div") {
      if (auto root = square_root(graph_.input(n, 1))) found.push_back({graph_.input(n, 0), std::move(*root)});
    } else if (graph_.op(n) == "Mul") {
      for (const int slot : {0, 1}) {
        if (auto root = inverse_root(graph_.input(n, 1 - slot))) {
          found.push_back({graph_.input(n, slot), std::move(*root)});
        }
      }
    }
    return found;
  }

  // inside = mean(t^2) + epsilon: gives t, or says what is different.
  struct Moment {
    std::string squared;
    int axis = -1;
    double epsilon = 0;
    std::string fault;
    std::vector<int> nodes;
  };

  std::optional<Moment> moment(const Root& root) const {
    Moment moment;
    moment.nodes = root.nodes;
    std::string at = root.inside;
    int n = producer(at, &moment.nodes);
    if (is_op(n, "Add")) {
      const int slot = number_beside(n, 0) ? 0 : number_beside(n, 1) ? 1 : -1;
      if (slot >= 0) {
        moment.epsilon = *number_beside(n, slot);
        at = graph_.input(n, slot);
      } else {
        moment.fault = "its epsilon is not constant";
        at = graph_.input(n, 0);
      }
      moment.nodes.push_back(n);
    } else {
      moment.fault = "it adds no epsilon to the variance";
    }
    if (root.outside) moment.fault = "it adds epsilon to the root, not under it";
    n = producer(at, &moment.nodes);
    // Some multiply the mean by n / (n - 1), with an n that is constant or computed.
    for (int steps = 0; n >= 0 && steps < 4 && (graph_.op(n) == "Mul" || graph_.op(n) == "Div"); ++steps) {
      if (const auto factor = number_beside(n, 0); factor == std::optional<double>(1)) {
        // a step that changes nothing
      } else {
        moment.fault = "its variance is scaled (unbiased: divided by n - 1); it must be the mean of the squares";
      }
      moment.nodes.push_back(n);
      n = producer(graph_.input(n, 0), &moment.nodes);
    }
    if (is_op(n, "ReduceSum")) {
      moment.fault = "its variance is a sum that is divided by something else; it must be the mean of the squares";
    } else if (!is_op(n, "ReduceMean")) {
      return std::nullopt;
    }
    moment.nodes.push_back(n);
    const auto axis = reduced_axis(graph_, shapes_, n);
    if (!axis) moment.fault = "its variance is taken over several or unknown axes; it must be over the last alone";
    moment.axis = axis.value_or(0);
    const auto t = squared(graph_.input(n, 0), moment.nodes);
    if (!t) return std::nullopt;
    moment.squared = *t;
    return moment;
  }

  std::optional<Norm> written_out(int n) const {
    for (const Quotient& quotient : quotients(n)) {
      Norm norm;
      norm.form = Form::kWrittenOut;
      const int numerator = producer(quotient.numerator, &norm.interior);
      const auto centring = norms_.centrings.find(numerator);
      if (numerator < 0 || centring == norms_.centrings.end() || graph_.op(numerator) != "Sub") continue;
      const auto moment = this->moment(quotient.root);
      if (!moment) continue;
      const int deviation = producer(moment->squared, &norm.interior);
      const auto other = norms_.centrings.find(deviation);
      if (deviation < 0 || other == norms_.centrings.end() || graph_.op(deviation) != "Sub") continue;
      if (other->second.x != centring->second.x || other->second.axis != centring->second.axis) continue;
      norm.origin = "written out";
      norm.name = label(graph_.node(n));
      norm.x = centring->second.x;
      norm.core = norm.y = norm.whole = graph_.output(n);
      norm.epsilon = moment->epsilon;
      norm.root = n;
      norm.fault = moment->fault;
      norm.interior.insert(norm.interior.end(), moment->nodes.begin(), moment->nodes.end());
      for (const int node : {n, numerator, deviation, centring->second.mean, other->second.mean}) {
        norm.interior.push_back(node);
      }
      std::sort(norm.interior.begin(), norm.interior.end());
      norm.interior.erase(std::unique(norm.interior.begin(), norm.interior.end()), norm.interior.end());
      if (norm.fault.empty() && moment->axis != centring->second.axis) {
        norm.fault = "its mean and its variance are taken over different axes";
      }
      if (centring->second.axis != -1) {
        norm.fault =
            fmt::format("it normalises axis {} from the end; it must normalise the last", -centring->second.axis);
      }
      if (!std::isfinite(norm.epsilon) || norm.epsilon < 0) norm.fault = fmt::format("its epsilon is {}", norm.epsilon);
      add_parameters(norm);
      return norm;
    }
    return std::nullopt;
  }

  // core * weight + bias, where nothing else reads what lies between.
  void add_parameters(Norm& norm) const {
    std::string at = norm.core;
    for (const char* op : {"Mul", "Add"}) {
      std::string uncast = at;
      while (only_use(uncast) && graph_.op(graph_.tensor(uncast).uses[0].node) == "Cast") {
        const int cast = graph_.tensor(uncast).uses[0].node;
        if (!is_float(static_cast<int>(int_attribute(graph_.node(cast), "to", 0)))) break;
        uncast = graph_.output(cast);
      }
      if (!only_use(uncast)) continue;
      const Use use = graph_.tensor(uncast).uses[0];
      const std::string& other = graph_.input(use.node, 1 - use.slot);
      if (graph_.op(use.node) != op || !graph_.is_constant(other) || !is_vector(other) || !adds_no_axis(other, at)) {
        continue;
      }
      const bool multiplies = op[0] == 'M';
      (multiplies ? norm.weight : norm.bias) = other;
      if (multiplies) {
        norm.scaling = use.node;
        norm.y = graph_.output(use.node);
      }
      at = norm.whole = graph_.output(use.node);
    }
  }

  const Graph& graph_;
  const Shapes& shapes_;
  Norms norms_;
};

std::optional<Rms> Recogniser::rms(int root) const {
  const std::string_view op = graph_.op(root);
  if (op == "RMSNormalization" || op == "SimplifiedLayerNormalization") {
    const pb::NodeProto& node = graph_.node(root);
    const std::int64_t axis = int_attribute(node, "axis", -1);
    const auto rank = shapes_.rank(graph_.input(root, 0));
    if (axis != -1 && !(rank && axis == *rank - 1)) return std::nullopt;
    if (op == "RMSNormalization" && graph_.opset() < kRmsOpset) return std::nullopt;
    const double epsilon = static_cast<double>(float_attribute(node, "epsilon", kDefaultEpsilon));
    const bool plain_sums = int_attribute(node, "stash_type", kStashType) == kStashType;
    if (!plain_sums || !std::isfinite(epsilon) || epsilon < 0) return std::nullopt;
    return Rms{graph_.input(root, 0), graph_.input(root, 1), epsilon};
  }
  for (const Quotient& quotient : quotients(root)) {
    const auto moment = this->moment(quotient.root);
    if (!moment || !moment->fault.empty() || moment->axis != -1) continue;
    if (!std::isfinite(moment->epsilon) || moment->epsilon < 0) continue;
    // The same tensor on both sides, whatever casts lie between.
    const auto source = [this](std::string name) {
      int n = graph_.tensor(name).producer;
      while (is_op(n, "Cast") && is_float(shapes_.type(graph_.input(n, 0)))) {
        name = graph_.input(n, 0);
        n = graph_.tensor(name).producer;
      }
      return name;
    };
    if (source(quotient.numerator) == source(moment->squared)) {
      return Rms{source(quotient.numerator), "", moment->epsilon};
    }
  }
  return std::nullopt;
}

// Builds the nodes that stand in for a fused one.
class Expander {
 public:
  Expander(const pb::NodeProto& original, Expansion& expansion) : original_(original), expansion_(expansion) {}

  // Appends a node; an empty name makes one.
  std::string add(const char* op, const std::vector<std::string>& inputs, const char* suffix, std::string output = "") {
    pb::NodeProto& node = nodes.emplace_back();
    if (output.empty()) output = expansion_.y + "/rmsnorm_" + suffix;
    node.set_op_type(op);
    node.set_name(label(original_) + "/" + suffix);
    for (const auto& name : inputs) node.add_input(name);
    node.add_output(output);
    expansion_.outputs.push_back(output);
    return output;
  }

  void norm(const std::string& x, const std::string& weight, const std::string& bias, float default_epsilon) {
    add("LayerNormalization", {x, weight}, "norm", expansion_.y);
    if (!bias.empty()) nodes.back().add_input(bias);
    nodes.back().set_name(label(original_));
    pb::AttributeProto& epsilon = *nodes.back().add_attribute();
    epsilon.set_name("epsilon");
    epsilon.set_type(pb::AttributeProto::FLOAT);
    epsilon.set_f(float_attribute(original_, "epsilon", default_epsilon));
  }

  std::vector<pb::NodeProto> nodes;

 private:
  const pb::NodeProto& original_;
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
  Expander expander(node, expansion);
  if (node.op_type() == "SkipLayerNormalization") {
    if (used(2) || graph.input(n, 2).empty()) return {};
    std::string sum = graph.input(n, 0);
    if (!graph.input(n, 4).empty()) sum = expander.add("Add", {sum, graph.input(n, 4)}, "with_bias");
    sum = expander.add("Add", {sum, graph.input(n, 1)}, "sum", graph.output(n, 3));
    expander.norm(sum, graph.input(n, 2), graph.input(n, 3), 1e-12f);
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
  expander.norm(sum, graph.input(n, 5), graph.input(n, 6), 1e-12f);
  return std::move(expander.nodes);
}

}  // namespace

Norms recognise_norms(const Graph& graph, const Shapes& shapes) { return Recogniser(graph, shapes).run(); }

std::optional<Rms> recognise_rms(const Graph& graph, const Shapes& shapes, int root) {
  return Recogniser(graph, shapes).rms(root);
}

std::vector<Expansion> expand_fused_norms(Model& model) {
  std::vector<Expansion> expansions;
  google::protobuf::RepeatedPtrField<pb::NodeProto> nodes;
  {
    const Graph graph(model);
    if (graph.opset() < 7) return expansions;  // before, Add did not broadcast
    for (int n = 0; n < graph.size(); ++n) {
      Expansion expansion{{}, graph.output(n), {}};
      const auto replacement = is_fused_norm(graph, n) ? expanded(graph, n, expansion) : std::vector<pb::NodeProto>();
      if (replacement.empty()) {
        *nodes.Add() = graph.node(n);
        continue;
      }
      for (const auto& node : replacement) *nodes.Add() = node;
      expansion.original = graph.node(n);
      expansions.push_back(std::move(expansion));
    }
  }
  if (!expansions.empty()) model.proto.mutable_graph()->mutable_node()->Swap(&nodes);
  return expansions;
}

void restore_fused_norms(Model& model, const std::vector<Expansion>& expansions) {
  std::map<std::string, const Expansion*> by_output;
  for (const auto& expansion : expansions) {
    for (const auto& output : expansion.outputs) by_output[output] = &expansion;
  }
  if (by_output.empty()) return;
  google::protobuf::RepeatedPtrField<pb::NodeProto> nodes;
  for (auto& node : *model.proto.mutable_graph()->mutable_node()) {
    const auto found = node.output_size() > 0 ? by_output.find(node.output(0)) : by_output.end();
    if (found == by_output.end()) {
      *nodes.Add() = std::move(node);
    } else if (node.output(0) == found->second->y) {
      *nodes.Add() = found->second->original;
    }
  }
  model.proto.mutable_graph()->mutable_node()->Swap(&nodes);
}

}  // namespace rmsnorm::convert::onnx
