#include "convert/onnx/recognise.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "convert/onnx/expand.h"
#include "convert/onnx/formulas.h"
#include "convert/onnx/opset.h"

namespace rmsnorm::convert::onnx {

namespace {

constexpr float kDefaultEpsilon = 1e-5f;                     // of LayerNormalization and its relatives
constexpr std::int64_t kStashType = pb::TensorProto::FLOAT;  // what they sum in, their default

class Recogniser {
 public:
  Recogniser(const Graph& graph, const Shapes& shapes) : graph_(graph), shapes_(shapes), formulas_(graph, shapes) {}

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
  bool only_use(const std::string& name) const {
    const TensorEntry& entry = graph_.tensor(name);
    return entry.uses.size() == 1 && !entry.is_output && !entry.in_subgraph;
  }

  void find_centrings() {
    for (int n = 0; n < graph_.size(); ++n) {
      const auto axis = averaged_axis(graph_, shapes_, n);
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
    } else if (!formulas_.is_vector(norm.weight)) {
      norm.fault = "its scale is no vector; it must have one axis, or ones before it";
    }
    if (!norm.bias.empty() && !(graph_.is_constant(norm.bias) && formulas_.is_vector(norm.bias))) {
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

  std::optional<Norm> written_out(int n) const {
    for (const Formulas::Quotient& quotient : formulas_.quotients(n)) {
      Norm norm;
      norm.form = Form::kWrittenOut;
      const int numerator = formulas_.producer(quotient.numerator, &norm.interior);
      const auto centring = norms_.centrings.find(numerator);
      if (numerator < 0 || centring == norms_.centrings.end() || graph_.op(numerator) != "Sub") continue;
      const auto moment = formulas_.moment(quotient.root);
      if (!moment) continue;
      const int deviation = formulas_.producer(moment->squared, &norm.interior);
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
      if (graph_.op(use.node) != op || !graph_.is_constant(other) || !formulas_.is_vector(other) ||
          !formulas_.adds_no_axis(other, at)) {
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
  const Formulas formulas_;
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
  for (const Formulas::Quotient& quotient : formulas_.quotients(root)) {
    const auto moment = formulas_.moment(quotient.root);
    if (!moment || !moment->fault.empty() || moment->axis != -1) continue;
    if (!std::isfinite(moment->epsilon) || moment->epsilon < 0) continue;
    // The same tensor on both sides, whatever casts lie between.
    if (formulas_.source(quotient.numerator) == formulas_.source(moment->squared)) {
      return Rms{formulas_.source(quotient.numerator), "", moment->epsilon};
    }
  }
  return std::nullopt;
}

}  // namespace

Norms recognise_norms(const Graph& graph, const Shapes& shapes) { return Recogniser(graph, shapes).run(); }

std::optional<Rms> recognise_rms(const Graph& graph, const Shapes& shapes, int root) {
  return Recogniser(graph, shapes).rms(root);
}

}  // namespace rmsnorm::convert::onnx
