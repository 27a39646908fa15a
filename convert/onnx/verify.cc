#include "convert/onnx/verify.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <random>

#include "convert/onnx/opset.h"
#include "convert/onnx/stream.h"
#include "convert/refusal.h"

namespace rmsnorm::convert::onnx {

namespace {

constexpr double kAllowedMean = 8;  // of a centred line: in units of roundoff times its rms
constexpr std::size_t kMostFaults = 16;

// What a tensor of the new graph is, in terms of the original's tensors.
struct Value {
  std::string tensor;       // of the original; empty: not known
  int axis = 0;             // the mean along it is subtracted; 0: nothing is
  double epsilon = -1;      // not negative: normalised with it, and not named in the original
  std::string weight = {};  // ... and multiplied by this constant of the new graph
  // Axes (axis_bit) along which a number for each line is added, which is not known: all but readers that ignore such
  // numbers must not see it. It comes from a sum of which only a part is centred.
  std::uint32_t shifted = 0;
  // Axes along which it differs from the tensor by a number for each line.
  std::uint32_t moved() const { return axis_bit(axis) | shifted; }
  bool operator==(const Value&) const = default;
};

std::string text_of(const Value& value) {
  if (value.tensor.empty()) return "not known";
  if (value.epsilon >= 0) return fmt::format("{} normalised", value.tensor);
  if (value.shifted != 0) return fmt::format("{}, of which a part is centred", value.tensor);
  if (value.axis == 0) return value.tensor;
  return fmt::format("{} centred along axis {}", value.tensor, value.axis);
}

std::string bytes_of(const google::protobuf::MessageLite& message) { return message.SerializeAsString(); }

bool is_carried(const Model& model) {
  const std::string* rounding = metadata(model.proto, kRounding);
  return rounding != nullptr && *rounding == kCarried;
}

bool same_kind(const pb::TensorProto& a, const pb::TensorProto& b) {
  return a.data_type() == b.data_type() && a.dims_size() == b.dims_size() &&
         std::equal(a.dims().begin(), a.dims().end(), b.dims().begin());
}

std::string dims_text(const pb::TensorProto& tensor) {
  return tools::shape_text({tensor.dims().begin(), tensor.dims().end()});
}

std::string attributes_of(const pb::NodeProto& node) {
  pb::NodeProto attributes;
  *attributes.mutable_attribute() = node.attribute();
  return bytes_of(attributes);
}

class Prover {
 public:
  Prover(Model& original, Model& converted, int vectors)
      : old_graph_(original),
        old_shapes_(old_graph_),
        old_norms_(recognise_norms(old_graph_, old_shapes_)),
        new_graph_(converted),
        new_shapes_(new_graph_),
        new_norms_(recognise_norms(new_graph_, new_shapes_)),
        vectors_(vectors),
        carried_(is_carried(converted)) {
    for (const Norm& norm : old_norms_.all) {
      for (const auto& name : {norm.core, norm.y}) {
        if (!name.empty()) norm_of_[name] = &norm;
      }
    }
  }

  Proof run() {
    compare_frames();
    for (const auto& input : new_graph_.proto().input()) {
      if (!new_graph_.is_constant(input.name())) values_[input.name()] = {input.name()};
    }
    for (const auto& tensor : new_graph_.proto().sparse_initializer()) {
      values_[tensor.values().name()] = {tensor.values().name()};
    }
    for (int n = 0; n < new_graph_.size(); ++n) {
      if (new_graph_.op(n) != "Constant") understand(n);
    }
    for (const auto& tensor : new_graph_.proto().initializer()) check_kind(tensor.name());
    for (int n = 0; n < new_graph_.size(); ++n) check_form(n);
    for (const auto& output : new_graph_.proto().output()) expect_itself(output.name(), "an output of the graph");
    for (const auto& node : new_graph_.proto().node()) {
      for (const auto& output : node.output()) {
        if (!output.empty() && new_graph_.tensor(output).in_subgraph) {
          expect_itself(output, "read by a graph inside a node");
        }
      }
    }
    for (const auto& tensor : new_graph_.proto().initializer()) {
      const TensorEntry& entry = new_graph_.tensor(tensor.name());
      const bool same = entry.overridable ? same_default(tensor.name()) : same_constant(tensor.name(), tensor.name());
      if ((entry.in_subgraph || entry.overridable) && !same) {
        fault(tensor.name(), "a graph inside a node, or a caller, sees this constant, and it is not the original's");
      }
    }
    for (const auto& tensor : old_graph_.proto().initializer()) {
      if (!old_graph_.tensor(tensor.name()).overridable || new_graph_.tensor(tensor.name()).literal != nullptr)
        continue;
      fault(tensor.name(), "this input has a default in the original, and none here");
    }
    return std::move(proof_);
  }

 private:
  void fault(const std::string& site, std::string what) {
    if (proof_.faults.size() < kMostFaults) proof_.faults.push_back({site, std::move(what)});
  }

  void expect_itself(const std::string& name, const char* why) {
    if (value(name) == canonical(name) || same_constant(name, name)) return;
    if (!value(name).tensor.empty()) {
      fault(name, fmt::format("it is {}, and here it is {}", why, text_of(value(name))));
    } else if (!trace(name)) {
      fault(name, fmt::format("it is {}, and nothing computes it", why));
    }
  }

  // From a tensor that is not shown back to the nodes where the proof broke off.
  bool trace(const std::string& name) {
    std::vector<int> waiting{new_graph_.tensor(name).producer};
    bool found = false;
    while (!waiting.empty()) {
      const int n = waiting.back();
      waiting.pop_back();
      const auto break_off = n < 0 ? broken_.end() : broken_.find(n);
      if (break_off == broken_.end()) continue;
      found = true;
      if (break_off->second.traced) continue;
      break_off->second.traced = true;
      std::vector<int> before;
      for (const auto& input : new_graph_.node(n).input()) {
        const int producer = new_graph_.tensor(input).producer;
        if (producer >= 0 && broken_.count(producer) != 0) before.push_back(producer);
      }
      if (before.empty() || break_off->second.is_norm) fault(label(new_graph_.node(n)), break_off->second.why);
      if (!break_off->second.is_norm) waiting.insert(waiting.end(), before.begin(), before.end());
    }
    return found;
  }

  void compare_frames();
  void compare_versions();
  void check_kind(const std::string& name);
  void check_form(int n);
  bool same_tensor(const pb::TensorProto& a, const pb::TensorProto& b) const;
  bool same_default(const std::string& name) const;
  void understand(int n);
  bool same_node(int n, int old) const;
  std::string copied_with_axis(int n, int old);
  std::optional<std::uint32_t> moved_input(int n, int old, int slot, std::uint32_t axes);
  std::optional<std::uint32_t> moved_output(int n, int old);
  bool rms_norm(int n);
  bool parameters(int n);
  bool cast(int n);
  bool is_original_norm(const std::string& output, const Value& x, double epsilon, const std::string& weight,
                        const std::string& bias);

  Value value(const std::string& name) const {
    const auto found = values_.find(name);
    return found == values_.end() ? Value{} : found->second;
  }

  // The original's tensor; where it is another one with its mean subtracted, as such.
  Value canonical(const std::string& name) const {
    Value found{name};
    for (;;) {
      const int n = old_graph_.tensor(found.tensor).producer;
      const auto centring = old_norms_.centrings.find(n);
      if (n < 0 || centring == old_norms_.centrings.end() || old_graph_.op(n) != "Sub") return found;
      if (found.axis != 0 && found.axis != centring->second.axis) return found;
      found = {centring->second.x, centring->second.axis};
    }
  }

  // Its mean is 0 in the original already.
  bool is_centred(const std::string& name, int axis) const {
    const Value itself = canonical(name);
    if (itself.axis == axis) return true;
    const auto norm = norm_of_.find(name);
    if (norm == norm_of_.end() || axis != -1 || !norm->second->ignores_mean) return false;
    return name == norm->second->core || has_centred_output(old_graph_, *norm->second);
  }

  bool same_constant(const std::string& fresh, const std::string& old);
  std::string centred_constant(const std::string& fresh, const std::string& old, int axis);
  std::string compare_centred(const std::string& fresh, const Array& now, Array wanted, int axis);

  // Nothing where one of the types is not known: then no cast was believed either.
  std::string differs_in_type(const std::string& fresh, const std::string& old) const {
    const int now = new_shapes_.type(fresh), before = old_shapes_.type(old);
    if (now == 0 || before == 0 || now == before) return "";
    return fmt::format("{} must be {} and is {}", fresh, type_name(before), type_name(now));
  }

  // Input of the new node against the original's: empty if equal, else what is wrong.
  std::string differs(const std::string& fresh, const std::string& old) {
    if (fresh.empty() && old.empty()) return "";
    if (auto wrong = differs_in_type(fresh, old); !wrong.empty()) return wrong;
    if (!fresh.empty() && value(fresh) == canonical(old)) return "";
    if (same_constant(fresh, old)) return "";
    return fmt::format("{} must be {} and is {}", fresh, text_of(canonical(old)), text_of(value(fresh)));
  }

  std::string differs_centred(const std::string& fresh, const std::string& old, int axis) {
    if (auto wrong = differs_in_type(fresh, old); !wrong.empty()) return wrong;
    const Value found = value(fresh);
    if (found == Value{canonical(old).tensor, axis} && (canonical(old).axis == 0 || canonical(old).axis == axis))
      return "";
    if (is_centred(old, axis) && (found == canonical(old) || found == Value{old})) return "";
    if (new_graph_.is_constant(fresh) && old_graph_.is_constant(old)) return centred_constant(fresh, old, axis);
    return fmt::format("{} must be {} centred along axis {} and is {}", fresh, old, axis, text_of(found));
  }

  Graph old_graph_;
  Shapes old_shapes_;
  Norms old_norms_;
  Graph new_graph_;
  Shapes new_shapes_;
  Norms new_norms_;
  int vectors_;
  bool carried_;  // rounding errors went to the next element
  std::map<std::string, const Norm*> norm_of_;
  std::map<std::string, Value> values_;
  std::map<std::tuple<std::string, std::string, int>, std::string> compared_;
  struct Broken {
    std::string why;
    bool is_norm = false;
    bool traced = false;
  };
  std::map<int, Broken> broken_;  // nodes that could not be shown
  Proof proof_;
};

// Everything around the nodes: inputs, outputs, texts, functions, operator sets.
void Prover::compare_frames() {
  pb::ModelProto old_frame, new_frame;
  // A copy without what is large or may differ.
  const auto strip = [](const Model& model, pb::ModelProto& frame) {
    frame.set_producer_name(model.proto.producer_name());
    frame.set_producer_version(model.proto.producer_version());
    frame.set_domain(model.proto.domain());
    frame.set_model_version(model.proto.model_version());
    frame.set_doc_string(model.proto.doc_string());
    *frame.mutable_functions() = model.proto.functions();
    frame.mutable_unknown_fields()->MergeFrom(model.proto.unknown_fields());
    frame.mutable_graph()->set_name(model.proto.graph().name());
    frame.mutable_graph()->set_doc_string(model.proto.graph().doc_string());
    frame.mutable_graph()->mutable_unknown_fields()->MergeFrom(model.proto.graph().unknown_fields());
    *frame.mutable_graph()->mutable_output() = model.proto.graph().output();
    *frame.mutable_graph()->mutable_sparse_initializer() = model.proto.graph().sparse_initializer();
    for (const auto& import : model.proto.opset_import()) {
      if (!import.domain().empty() && import.domain() != "ai.onnx") *frame.add_opset_import() = import;
    }
  };
  strip(old_graph_.model(), old_frame);
  strip(new_graph_.model(), new_frame);
  const auto add_inputs = [](const Graph& graph, pb::ModelProto& frame) {
    for (const auto& input : graph.proto().input()) {
      if (!graph.is_constant(input.name())) *frame.mutable_graph()->add_input() = input;
    }
  };
  add_inputs(old_graph_, old_frame);
  add_inputs(new_graph_, new_frame);
  if (bytes_of(old_frame) != bytes_of(new_frame)) {
    fault(new_graph_.model().path, "inputs, outputs, names, functions or operator sets differ from the original's");
  }
  compare_versions();
}

// They are the original's, or both raised as RMSNormalization asks.
void Prover::compare_versions() {
  const pb::ModelProto& before = old_graph_.model().proto;
  const pb::ModelProto& now = new_graph_.model().proto;
  const bool raised = new_graph_.opset() == kRmsOpset && old_graph_.opset() < kRmsOpset;
  if (!raised && new_graph_.opset() != old_graph_.opset()) {
    fault(new_graph_.model().path,
          fmt::format("the operator set is {} and was {}", new_graph_.opset(), old_graph_.opset()));
    return;
  }
  const std::int64_t format = raised ? std::max<std::int64_t>(before.ir_version(), kRmsIrVersion) : before.ir_version();
  if (now.ir_version() != format) {
    fault(new_graph_.model().path,
          fmt::format("the version of the file format is {} and must be {}", now.ir_version(), format));
  }
  if (!raised) return;
  try {
    check_target(old_graph_, Target::kOnnxRms23);
  } catch (const Refusal& refusal) {
    fault(refusal.site(), refusal.what());
  }
}

bool Prover::same_node(int n, int old) const {
  const pb::NodeProto& a = new_graph_.node(n);
  const pb::NodeProto& b = old_graph_.node(old);
  if (new_graph_.op(n) != old_graph_.op(old) || a.op_type() != b.op_type() || a.domain() != b.domain()) return false;
  if (a.input_size() != b.input_size() || a.output_size() != b.output_size()) return false;
  for (int k = 0; k < a.output_size(); ++k) {
    if (a.output(k) != b.output(k)) return false;
  }
  return attributes_of(a) == attributes_of(b);
}

bool Prover::same_tensor(const pb::TensorProto& a, const pb::TensorProto& b) const {
  if (!same_kind(a, b)) return false;
  if (type_size(a.data_type()) == 0) {
    pb::TensorProto x = a, y = b;
    x.clear_name();
    y.clear_name();
    return bytes_of(x) == bytes_of(y);
  }
  return tensor_bytes(a, new_graph_.model().folder) == tensor_bytes(b, old_graph_.model().folder);
}

bool Prover::same_default(const std::string& name) const {
  const auto* a = new_graph_.tensor(name).literal;
  const auto* b = old_graph_.tensor(name).literal;
  return a != nullptr && b != nullptr && same_tensor(*a, *b);
}

// What has a name in both graphs has the same type and shape, wherever it is read: a norm is recognised by the numbers
// alone.
void Prover::check_kind(const std::string& name) {
  const auto* a = new_graph_.tensor(name).literal;
  const auto* b = old_graph_.tensor(name).literal;
  if (a != nullptr && b != nullptr && !same_kind(*a, *b)) {
    fault(name, fmt::format("this constant is {} {} and was {} {}", type_name(a->data_type()), dims_text(*a),
                            type_name(b->data_type()), dims_text(*b)));
    return;
  }
  if (name.empty() || !old_graph_.has_tensor(name)) return;
  if (auto wrong = differs_in_type(name, name); !wrong.empty()) {
    fault(name, std::move(wrong));
    return;
  }
  const auto& now = new_shapes_.info(name).lengths;
  const auto& before = old_shapes_.info(name).lengths;
  if (!now) return;
  bool same = before && now->size() == before->size();
  for (std::size_t i = 0; same && i < now->size(); ++i) {
    same = (*now)[i] < 0 || (*before)[i] < 0 || (*now)[i] == (*before)[i];
  }
  if (!same) fault(name, "the shape of this tensor is not the original's");
}

// Nodes that the original does not have: of the operators that centre and normalise, written as the operator set asks.
void Prover::check_form(int n) {
  const pb::NodeProto& node = new_graph_.node(n);
  const std::string_view op = new_graph_.op(n);
  for (const auto& output : node.output()) check_kind(output);
  const int old = old_graph_.tensor(new_graph_.output(n)).producer;
  const bool is_old = old >= 0 && same_node(n, old);
  const bool has_two = op == "Add" || op == "Sub" || op == "Mul" || op == "Div" || op == "Pow";
  if (has_two) {
    const int a = new_shapes_.type(new_graph_.input(n, 0)), b = new_shapes_.type(new_graph_.input(n, 1));
    const bool was_so =
        is_old && a == old_shapes_.type(old_graph_.input(old, 0)) && b == old_shapes_.type(old_graph_.input(old, 1));
    if (a != 0 && b != 0 && a != b && !was_so) {
      fault(label(node), fmt::format("{} reads {} and {}; it must read one type", op, type_name(a), type_name(b)));
    }
  }
  if (is_old) return;
  using Attribute = pb::AttributeProto;
  std::map<std::string, int> allowed;
  int inputs = has_two ? 2 : 1;
  if (op == "ReduceMean") {
    allowed = {{"keepdims", Attribute::INT}};
    if (new_graph_.opset() >= kAxesInputOpset) {
      inputs = 2;
      const auto& axes = new_graph_.input(n, 1);
      if (new_shapes_.type(axes) != pb::TensorProto::INT64 || new_shapes_.rank(axes) != 1) {
        fault(label(node), "its axes must be a list of i64");
      }
    } else {
      allowed["axes"] = Attribute::INTS;
    }
  } else if (op == "RMSNormalization" || op == "SimplifiedLayerNormalization") {
    inputs = 2;
    allowed = {{"axis", Attribute::INT}, {"epsilon", Attribute::FLOAT}, {"stash_type", Attribute::INT}};
    if (op == "RMSNormalization" && new_graph_.opset() < kRmsOpset) {
      fault(label(node),
            fmt::format("the operator set is {}; RMSNormalization needs {}", new_graph_.opset(), kRmsOpset));
    }
  } else if (op == "Cast") {
    allowed = {{"to", Attribute::INT}};
    if (value(new_graph_.output(n)).tensor.empty()) fault(label(node), "the original has no such cast");
  } else if (op == "Constant") {
    inputs = 0;
    allowed = {{"value", Attribute::TENSOR}};
  } else if (!has_two && op != "Sqrt" && op != "Reciprocal") {
    return;  // shown by its inputs, or not at all
  }
  bool right = node.input_size() == inputs && node.output_size() == 1 && node.domain().empty();
  for (const auto& attribute : node.attribute()) {
    const auto found = allowed.find(attribute.name());
    right &= found != allowed.end() && found->second == attribute.type() && !attribute.has_ref_attr_name();
    if (found != allowed.end()) allowed.erase(found);  // each once
  }
  if (!right) {
    fault(label(node), fmt::format("its inputs, outputs or attributes are not those of {} in operator set {}", op,
                                   new_graph_.opset()));
  }
}

bool Prover::same_constant(const std::string& fresh, const std::string& old) {
  if (!new_graph_.is_constant(fresh) || !old_graph_.is_constant(old)) return false;
  const auto* a = new_graph_.literal(fresh);
  const auto* b = old_graph_.literal(old);
  if (a != nullptr && b != nullptr) return same_tensor(*a, *b);
  const int n = new_graph_.tensor(fresh).producer, m = old_graph_.tensor(old).producer;
  if (n >= 0 && m >= 0 && new_graph_.op(n) == "Constant" && old_graph_.op(m) == "Constant") {
    return attributes_of(new_graph_.node(n)) == attributes_of(old_graph_.node(m));
  }
  const auto x = new_graph_.constant(fresh), y = old_graph_.constant(old);
  return x && y && x->type == y->type && x->dims == y->dims && x->values == y->values;
}

std::string Prover::centred_constant(const std::string& fresh, const std::string& old, int axis) {
  const auto [found, is_new] = compared_.try_emplace({fresh, old, axis});
  if (!is_new) return found->second;
  const auto now = new_graph_.constant(fresh);
  auto before = old_graph_.constant(old);
  if (!now || !before || now->type != before->type || now->dims != before->dims || !is_float(now->type)) {
    return found->second = fmt::format("{} has not the type and shape of {}", fresh, old);
  }
  return found->second = compare_centred(fresh, *now, std::move(*before), axis);
}

std::string Prover::compare_centred(const std::string& fresh, const Array& now, Array wanted, int axis) {
  const int rank = static_cast<int>(wanted.dims.size());
  if (rank < -axis) {  // the same number along the whole axis
    for (const double number : now.values) {
      if (number != 0) return fmt::format("{} is {}; centred along axis {} it is 0", fresh, number, axis);
    }
    ++proof_.constants;
    return "";
  }
  const std::size_t at = static_cast<std::size_t>(rank + axis);
  const Lines lines = lines_along(wanted.dims, at);
  const double u = unit_roundoff(now.type);
  centre(wanted, at, false);
  // For --carry-rounding's random vectors; the elements are checked for what they are.
  std::vector<double> largest(lines.outer * lines.inner, 0);
  const auto line_of = [&](std::size_t i) { return i / (lines.length * lines.inner) * lines.inner + i % lines.inner; };
  for (std::size_t i = 0; i < wanted.values.size(); ++i) {
    largest[line_of(i)] = std::max(largest[line_of(i)], std::fabs(wanted.values[i]));
  }
  const double least = now.type == pb::TensorProto::FLOAT16 ? 0x1p-25 : 0x1p-134;  // half the smallest number
  // Elements: one rounding each; where the file says so (--carry-rounding), of the exact one and what those before it in
  // its line have lost.
  std::vector<double> lost(largest.size(), 0);
  for (std::size_t i = 0; i < wanted.values.size(); ++i) {
    const double exact = wanted.values[i] + lost[line_of(i)];
    if (carried_) lost[line_of(i)] = exact - now.values[i];
    const double error = std::fabs(now.values[i] - exact);
    const double allowed = u * std::fabs(exact) + least;
    if (!(error <= allowed)) {
      return fmt::format("{} is not the original's centred along axis {}: element {} is {} and must be {}", fresh, axis,
                         i, now.values[i], exact);
    }
    proof_.worst_error = std::max(proof_.worst_error, error / allowed);
  }
  for (std::size_t line = 0; line < largest.size(); ++line) {
    double sum = 0, squares = 0;
    const std::size_t start = line / lines.inner * lines.length * lines.inner + line % lines.inner;
    for (std::size_t k = 0; k < lines.length; ++k) {
      const double number = now.values[start + k * lines.inner];
      sum += number;
      squares += number * number;
    }
    const double length = static_cast<double>(lines.length);
    const double mean = std::fabs(sum / length), rms = std::sqrt(squares / length);
    if (!(mean <= kAllowedMean * u * rms + 2 * least)) {
      return fmt::format("{} has a line with mean {} and rms {}; the mean must be at most {} of it", fresh, mean, rms,
                         kAllowedMean * u);
    }
    if (rms > 0) proof_.worst_mean = std::max(proof_.worst_mean, mean / (u * rms));
  }
  // As a layer: M(Wa) against W'a for random a.
  std::mt19937_64 random(1);
  std::uniform_real_distribution<double> uniform(-1, 1);
  for (int v = 0; v < vectors_ && lines.length > 0; ++v) {
    std::vector<double> exact(lines.length, 0), found(lines.length, 0), allowed(lines.length, 0);
    for (std::size_t line = 0; line < largest.size(); ++line) {
      const double a = uniform(random);
      const std::size_t start = line / lines.inner * lines.length * lines.inner + line % lines.inner;
      for (std::size_t k = 0; k < lines.length; ++k) {
        const std::size_t i = start + k * lines.inner;
        exact[k] += a * wanted.values[i];
        found[k] += a * now.values[i];
        const double neighbour = carried_ ? largest[line] : 0;
        allowed[k] += std::fabs(a) * (u * (std::fabs(now.values[i]) + neighbour) * 1.01 + 2 * least);
      }
    }
    for (std::size_t k = 0; k < lines.length; ++k) {
      if (std::fabs(exact[k] - found[k]) <= allowed[k]) continue;
      return fmt::format("{}, applied to random vector {}, gives {} in place {} and must give {}", fresh, v, found[k],
                         k, exact[k]);
    }
  }
  ++proof_.constants;
  return "";
}

// Axes along which an input differs from the original's by a number for each line; a constant: one of `axes`, along
// which it is centred. Nothing if it differs otherwise.
std::optional<std::uint32_t> Prover::moved_input(int n, int old, int slot, std::uint32_t axes) {
  const std::string& fresh = new_graph_.input(n, slot);
  const std::string& before = old_graph_.input(old, slot);
  if (differs(fresh, before).empty()) return 0;
  if (fresh.empty() || before.empty() || !differs_in_type(fresh, before).empty()) return std::nullopt;
  const Value found = value(fresh), itself = canonical(before);
  if (found.tensor == itself.tensor && found.epsilon < 0) return found.moved() | itself.moved();
  if (!new_graph_.is_constant(fresh) || !old_graph_.is_constant(before)) return std::nullopt;
  for (int axis = -1; axis >= -kMaxAxis; --axis) {
    if ((axes & axis_bit(axis)) != 0 && centred_constant(fresh, before, axis).empty()) return axis_bit(axis);
  }
  return std::nullopt;
}

// Axes along which the output differs from the original's by a number for each line: such numbers are carried on (in
// one input after the other, the others being what they are) or ignored. Nothing if it may differ otherwise.
std::optional<std::uint32_t> Prover::moved_output(int n, int old) {
  const int count = old_graph_.node(old).input_size();
  std::vector<std::map<int, int>> carried(static_cast<std::size_t>(count));  // by slot: its axis, and the output's
  std::vector<std::uint32_t> axes(static_cast<std::size_t>(count), 0);
  for (int axis = -1; axis >= -kMaxAxis; --axis) {
    for (const Operand& operand :
         linear_operands(old_graph_, old_shapes_, old, axis).value_or(std::vector<Operand>())) {
      if (operand.slot >= count) continue;
      carried[static_cast<std::size_t>(operand.slot)].try_emplace(operand.axis, axis);
      axes[static_cast<std::size_t>(operand.slot)] |= axis_bit(operand.axis);
    }
  }
  const bool norm = std::any_of(old_norms_.all.begin(), old_norms_.all.end(), [&](const Norm& candidate) {
    return candidate.form == Form::kOperator && candidate.root == old && candidate.ignores_mean;
  });
  std::uint32_t result = 0;
  for (int slot = 0; slot < count; ++slot) {
    const auto moved = moved_input(n, old, slot, axes[static_cast<std::size_t>(slot)]);
    if (!moved) return std::nullopt;
    for (int axis = -1; axis >= -kMaxAxis; --axis) {
      if ((*moved & axis_bit(axis)) == 0) continue;
      const auto& on = carried[static_cast<std::size_t>(slot)];
      if (const auto found = on.find(axis); found != on.end()) {
        result |= axis_bit(found->second);
        continue;
      }
      const bool ignored = norm ? slot == 0 && axis == -1 : ignores_shift(old_graph_, old_shapes_, old, {slot, axis});
      if (!ignored) return std::nullopt;
    }
  }
  return result;
}

// The same node as in the original: with the same inputs, or with inputs that differ by a mean that it carries on or
// ignores. Empty if shown, else what is wrong.
std::string Prover::copied_with_axis(int n, int old) {
  const int count = old_graph_.node(old).input_size();
  const auto finish = [&](int axis, std::uint32_t shifted = 0) {
    for (const auto& output : old_graph_.node(old).output()) {
      if (output.empty()) continue;
      values_[output] = axis == 0 && shifted == 0 ? canonical(output) : Value{output, axis, -1, {}, shifted};
    }
    ++proof_.nodes;
    const auto norm = norm_of_.find(new_graph_.output(n));
    const bool written_out =
        norm != norm_of_.end() && norm->second->form == Form::kWrittenOut && norm->second->root == old;
    for (int k = 0; k < count && written_out; ++k) {
      if (new_graph_.input(n, k) == old_graph_.input(old, k)) continue;
      ++proof_.norms;  // it reads the centred tensor where it read a difference
      break;
    }
    return std::string();
  };
  std::string first;
  for (int k = 0; k < count && first.empty(); ++k) first = differs(new_graph_.input(n, k), old_graph_.input(old, k));
  if (first.empty()) return finish(0);

  std::string nearest = first;
  int most_matched = 0;
  for (int axis = -1; axis >= -kMaxAxis; --axis) {
    const auto operands = linear_operands(old_graph_, old_shapes_, old, axis);
    if (!operands) continue;
    std::string wrong;
    int matched = 0;
    for (int k = 0; k < count; ++k) {
      const auto operand = std::find_if(operands->begin(), operands->end(), [k](const auto& o) { return o.slot == k; });
      const std::string why = operand == operands->end()
                                  ? differs(new_graph_.input(n, k), old_graph_.input(old, k))
                                  : differs_centred(new_graph_.input(n, k), old_graph_.input(old, k), operand->axis);
      if (!why.empty() && wrong.empty()) wrong = why;
      matched += why.empty() && operand != operands->end() ? 1 : 0;
    }
    if (wrong.empty()) {
      ++proof_.carried;
      return finish(axis);
    }
    if (matched > most_matched) {
      most_matched = matched;
      nearest = wrong;
    }
  }
  if (const auto moved = moved_output(n, old)) {
    ++proof_.carried;
    return finish(0, *moved);
  }
  return nearest;
}

bool Prover::is_original_norm(const std::string& output, const Value& x, double epsilon, const std::string& weight,
                              const std::string& bias) {
  const auto found = norm_of_.find(output);
  if (found == norm_of_.end()) return false;
  const Norm& norm = *found->second;
  const bool centred = x == Value{norm.x, -1} || (x == Value{norm.x} && is_centred(norm.x, -1)) ||
                       (canonical(norm.x).axis == -1 && x == canonical(norm.x));
  if (!norm.fault.empty() || !centred) return false;
  // The file holds f32; what is written out may hold it in any type.
  if (static_cast<float>(norm.epsilon) != static_cast<float>(epsilon)) return false;
  if (!differs_in_type(output, output).empty()) return false;
  // By its numbers, and by how it broadcasts: along the last axis alone, adding neither axes nor elements.
  const auto same_vector = [&](const std::string& fresh, const std::string& old) {
    if (same_constant(fresh, old)) return true;
    const auto a = new_graph_.constant(fresh);
    auto b = old.empty() ? std::optional<Array>(Array{old_shapes_.type(output), {}, {1}}) : old_graph_.constant(old);
    if (!a || !b || a->type != b->type || a->values.empty()) return false;
    const auto count = static_cast<std::int64_t>(a->values.size());
    if (!a->dims.empty() && a->dims.back() != count) return false;
    const auto rank = old_shapes_.rank(norm.x);
    if (a->dims.size() > 1 && !(rank && static_cast<int>(a->dims.size()) <= *rank)) return false;
    if (b->values.size() == 1 && count > 1) {
      auto width = old_shapes_.length(norm.x, -1);
      if (!width && !norm.weight.empty()) width = old_shapes_.length(norm.weight, -1);
      if (width != count) return false;
      b->values.assign(a->values.size(), b->values[0]);
    }
    return a->values == b->values;
  };
  const bool is_core = output == norm.core;
  const std::string old_weight = is_core ? "" : norm.weight;
  if (weight.empty() ? !old_weight.empty() : !same_vector(weight, old_weight)) return false;
  const std::string old_bias = norm.form == Form::kOperator ? norm.bias : "";
  if (bias.empty() != old_bias.empty()) return false;
  if (!bias.empty() && !same_constant(bias, old_bias)) return false;
  values_[output] = {output};
  ++proof_.norms;
  return true;
}

bool Prover::rms_norm(int n) {
  const auto rms = recognise_rms(new_graph_, new_shapes_, n);
  if (!rms) return false;
  const std::string& output = new_graph_.output(n);
  const Value x = value(rms->x);
  if (x.tensor.empty() || x.epsilon >= 0) return false;
  if (!rms->weight.empty()) {  // an operator takes a list of its width
    const auto width = old_shapes_.length(x.tensor, -1), length = new_shapes_.length(rms->weight, -1);
    if (new_shapes_.rank(rms->weight) != 1 || (width && width != length)) return false;
  }
  if (is_original_norm(output, x, rms->epsilon, rms->weight, "")) return true;
  const bool centred = x.axis == -1 || (x.axis == 0 && is_centred(x.tensor, -1));
  if (!centred || x.shifted != 0 || old_graph_.has_tensor(output)) return false;
  values_[output] = {x.tensor, x.axis, rms->epsilon, rms->weight};
  return true;
}

// The weight and the bias of a norm that was one operator.
bool Prover::parameters(int n) {
  const std::string_view op = new_graph_.op(n);
  const std::string& output = new_graph_.output(n);
  const Value norm = value(new_graph_.input(n, 0));
  const std::string& parameter = new_graph_.input(n, 1);
  if (norm.epsilon < 0 || !new_graph_.is_constant(parameter)) return false;
  const Value x{norm.tensor, norm.axis};
  if (op == "Mul" && norm.weight.empty()) {
    if (is_original_norm(output, x, norm.epsilon, parameter, "")) return true;
    if (old_graph_.has_tensor(output)) return false;
    values_[output] = {norm.tensor, norm.axis, norm.epsilon, parameter};
    return true;
  }
  return op == "Add" && is_original_norm(output, x, norm.epsilon, norm.weight, parameter);
}

// A new cast: to f32 and back, around sums of narrow numbers.
bool Prover::cast(int n) {
  const Value from = value(new_graph_.input(n, 0));
  if (new_graph_.op(n) != "Cast" || from.tensor.empty() || old_graph_.has_tensor(new_graph_.output(n))) return false;
  const int to = static_cast<int>(int_attribute(new_graph_.node(n), "to", 0));
  const int type = old_shapes_.type(from.tensor);
  if (to != type && !(to == pb::TensorProto::FLOAT && is_narrow(type))) return false;
  values_[new_graph_.output(n)] = from;
  return true;
}

void Prover::understand(int n) {
  const std::string& output = new_graph_.output(n);
  const auto centring = new_norms_.centrings.find(n);
  const bool is_mean = centring != new_norms_.centrings.end() && centring->second.mean == n;
  if (is_mean) return;  // part of the subtraction, which alone reads it
  if (centring != new_norms_.centrings.end()) {
    const Value x = value(centring->second.x);
    if (!x.tensor.empty() && x.epsilon < 0) {
      const int axis = centring->second.axis;
      const std::uint32_t others = x.moved() & ~axis_bit(axis);
      values_[output] = others == 0 ? Value{x.tensor, axis} : Value{x.tensor, 0, -1, {}, others | axis_bit(axis)};
      proof_.operations += old_graph_.has_tensor(output) ? 0 : 1;
      proof_.nodes += old_graph_.has_tensor(output) ? 1 : 0;
      return;
    }
  }
  const int old = old_graph_.tensor(output).producer;
  std::string wrong = fmt::format("nothing in the original is like this {}", new_graph_.node(n).op_type());
  if (old >= 0 && same_node(n, old)) {
    wrong = copied_with_axis(n, old);
    if (wrong.empty()) return;
  }
  if (rms_norm(n) || parameters(n) || cast(n)) return;
  // Steps inside a written-out norm have values that the original has no names for: whether this matters is seen from
  // the outputs.
  const auto rms = recognise_rms(new_graph_, new_shapes_, n);
  if (rms && (old < 0 || !same_node(n, old))) {
    wrong = fmt::format("no LayerNorm of the original is this norm of {} with epsilon {}", text_of(value(rms->x)),
                        static_cast<float>(rms->epsilon));
  }
  broken_[n] = {wrong, rms.has_value() && (old < 0 || !same_node(n, old))};
}

}  // namespace

Proof prove_equal(Model& original, Model& converted, int vectors) { return Prover(original, converted, vectors).run(); }

}  // namespace rmsnorm::convert::onnx
