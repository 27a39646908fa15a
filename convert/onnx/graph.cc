#include "convert/onnx/graph.h"

#include <algorithm>
#include <cmath>

#include "convert/refusal.h"

namespace rmsnorm::convert::onnx {

namespace {

const std::string kNone;

bool is_default_domain(const std::string& domain) { return domain.empty() || domain == "ai.onnx"; }

// Operators through which a constant stays a constant that can be centred all the same.
bool keeps_constant(std::string_view op) {
  return op == "Identity" || op == "Cast" || op == "Transpose" || op == "Reshape" || op == "Squeeze" ||
         op == "Unsqueeze";
}

Array transposed(const Array& in, const std::vector<std::int64_t>& perm) {
  const std::size_t rank = in.dims.size();
  Array out{in.type, Shape(rank), std::vector<double>(in.values.size())};
  Shape strides(rank), stepped(rank);
  std::int64_t stride = 1;
  for (std::size_t i = rank; i-- > 0;) {
    strides[i] = stride;
    stride *= in.dims[i];
  }
  for (std::size_t i = 0; i < rank; ++i) {
    out.dims[i] = in.dims[static_cast<std::size_t>(perm[i])];
    stepped[i] = strides[static_cast<std::size_t>(perm[i])];
  }
  Shape index(rank, 0);
  std::int64_t from = 0;
  for (double& value : out.values) {
    value = in.values[static_cast<std::size_t>(from)];
    for (std::size_t i = rank; i-- > 0;) {
      from += stepped[i];
      if (++index[i] < out.dims[i]) break;
      from -= stepped[i] * out.dims[i];
      index[i] = 0;
    }
  }
  return out;
}

bool is_permutation(std::vector<std::int64_t> perm, std::size_t rank) {
  std::sort(perm.begin(), perm.end());
  for (std::size_t i = 0; i < perm.size(); ++i) {
    if (perm[i] != static_cast<std::int64_t>(i)) return false;
  }
  return perm.size() == rank;
}

}  // namespace

const pb::AttributeProto* find_attribute(const pb::NodeProto& node, std::string_view name) {
  for (const auto& attribute : node.attribute()) {
    if (attribute.name() == name) return &attribute;
  }
  return nullptr;
}

std::int64_t int_attribute(const pb::NodeProto& node, std::string_view name, std::int64_t otherwise) {
  const auto* attribute = find_attribute(node, name);
  return attribute != nullptr && attribute->has_i() ? attribute->i() : otherwise;
}

float float_attribute(const pb::NodeProto& node, std::string_view name, float otherwise) {
  const auto* attribute = find_attribute(node, name);
  return attribute != nullptr && attribute->has_f() ? attribute->f() : otherwise;
}

std::string text_attribute(const pb::NodeProto& node, std::string_view name, const char* otherwise) {
  const auto* attribute = find_attribute(node, name);
  return attribute != nullptr && attribute->has_s() ? attribute->s() : otherwise;
}

std::optional<bool> keeps_axes(const pb::NodeProto& node) {
  const std::int64_t keep = int_attribute(node, "keepdims", 1);
  return keep == 0 || keep == 1 ? std::optional<bool>(keep == 1) : std::nullopt;
}

bool has_subgraph(const pb::NodeProto& node) {
  for (const auto& attribute : node.attribute()) {
    if (attribute.has_g() || attribute.graphs_size() > 0) return true;
  }
  return false;
}

std::int64_t default_opset(const pb::ModelProto& model) {
  for (const auto& import : model.opset_import()) {
    if (is_default_domain(import.domain())) return import.version();
  }
  return 0;
}

const std::string& label(const pb::NodeProto& node) {
  if (!node.name().empty()) return node.name();
  for (const auto& output : node.output()) {
    if (!output.empty()) return output;
  }
  return node.op_type();
}

Graph::Graph(Model& model) : model_(model) {
  const std::int64_t opset = default_opset(model.proto);
  if (opset < 1 || opset > kNewestOpset) {
    refuse(RefusalCode::kMalformed, model.path, "the operator set is {}; it must be from 1 to {}", opset, kNewestOpset);
  }
  opset_ = static_cast<int>(opset);
  pb::GraphProto& graph = *model.proto.mutable_graph();
  std::unordered_set<std::string> functions;
  for (const auto& function : model.proto.functions()) {
    functions.insert((is_default_domain(function.domain()) ? "" : function.domain() + ":") + function.name());
  }
  // Before version 4 of the file format every initialiser had to be an input.
  const bool defaults = model.proto.ir_version() >= 4;
  for (auto& tensor : *graph.mutable_initializer()) tensors_[tensor.name()].literal = &tensor;
  for (const auto& input : graph.input()) {
    TensorEntry& entry = tensors_[input.name()];
    entry.is_input = entry.literal == nullptr || defaults;
    entry.overridable = entry.literal != nullptr && defaults;
  }
  for (int i = 0; i < graph.node_size(); ++i) {
    pb::NodeProto& node = *graph.mutable_node(i);
    std::string op = (is_default_domain(node.domain()) ? "" : node.domain() + ":") + node.op_type();
    if (functions.count(op) != 0) op.clear();
    for (int k = 0; k < node.output_size(); ++k) {
      if (node.output(k).empty()) continue;
      TensorEntry& entry = tensors_[node.output(k)];
      entry.producer = i;
      entry.output = k;
    }
    for (int k = 0; k < node.input_size(); ++k) {
      if (!node.input(k).empty()) tensors_[node.input(k)].uses.push_back({i, k});
    }
    collect_inside(node);
    if (op == "Constant" && node.output_size() > 0) {
      for (auto& attribute : *node.mutable_attribute()) {
        if (attribute.name() == "value" && attribute.has_t()) {
          tensors_[node.output(0)].literal = attribute.mutable_t();
        }
      }
    }
    ops_.push_back(std::move(op));
  }
  for (const auto& output : graph.output()) tensors_[output.name()].is_output = true;

  for (const auto& tensor : graph.initializer()) {
    if (!tensors_[tensor.name()].overridable) constants_.insert(tensor.name());
  }
  for (int i = 0; i < graph.node_size(); ++i) {
    const pb::NodeProto& node = graph.node(i);
    if (node.output_size() == 0) continue;
    bool constant = op(i) == "Constant";
    if (keeps_constant(op(i)) && node.input_size() > 0) {
      constant = is_constant(node.input(0));
      // Axes and shapes must stand there as they are, or hostile files could nest them without end.
      for (int k = 1; k < node.input_size(); ++k) {
        const std::string& name = node.input(k);
        const int producer = tensor(name).producer;
        constant &= name.empty() || literal(name) != nullptr || (producer >= 0 && op(producer) == "Constant");
      }
    }
    if (constant) constants_.insert(node.output(0));
  }
}

void Graph::collect_inside(const pb::NodeProto& node) {
  const auto visit = [this](const pb::GraphProto& graph) {
    for (const auto& inner : graph.node()) {
      for (const auto& name : inner.input()) tensors_[name].in_subgraph = true;
      collect_inside(inner);
    }
    for (const auto& output : graph.output()) tensors_[output.name()].in_subgraph = true;
  };
  for (const auto& attribute : node.attribute()) {
    if (attribute.has_g()) visit(attribute.g());
    for (const auto& graph : attribute.graphs()) visit(graph);
  }
}

const TensorEntry& Graph::tensor(const std::string& name) const {
  static const TensorEntry kUnknown;
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? kUnknown : found->second;
}

const std::string& Graph::input(int node, int slot) const {
  const pb::NodeProto& proto_node = this->node(node);
  return slot < proto_node.input_size() ? proto_node.input(slot) : kNone;
}

const std::string& Graph::output(int node, int slot) const {
  const pb::NodeProto& proto_node = this->node(node);
  return slot < proto_node.output_size() ? proto_node.output(slot) : kNone;
}

const pb::TensorProto* Graph::literal(const std::string& name) const {
  const TensorEntry& entry = tensor(name);
  return entry.overridable ? nullptr : entry.literal;
}

std::optional<Array> Graph::constant(const std::string& name) const {
  if (!is_constant(name)) return std::nullopt;
  std::vector<int> chain;  // from the constant back to its literal
  std::string at = name;
  while (literal(at) == nullptr) {
    const int producer = tensor(at).producer;
    if (producer < 0) return std::nullopt;
    if (op(producer) == "Constant") break;
    chain.push_back(producer);
    at = input(producer, 0);
  }
  std::optional<Array> array;
  if (const pb::TensorProto* stored = literal(at)) {
    const auto exact = model_.exact.find(at);
    array = exact != model_.exact.end() ? exact->second : read_array(*stored, model_.folder);
  } else {
    const pb::NodeProto& source = node(tensor(at).producer);
    if (const auto* a = find_attribute(source, "value_float")) array = Array{pb::TensorProto::FLOAT, {}, {a->f()}};
    if (const auto* a = find_attribute(source, "value_int")) {
      array = Array{pb::TensorProto::INT64, {}, {static_cast<double>(a->i())}};
    }
    if (const auto* a = find_attribute(source, "value_floats")) {
      array = Array{pb::TensorProto::FLOAT, {a->floats_size()}, {a->floats().begin(), a->floats().end()}};
    }
    if (const auto* a = find_attribute(source, "value_ints")) {
      array = Array{pb::TensorProto::INT64, {a->ints_size()}, {a->ints().begin(), a->ints().end()}};
    }
  }
  for (std::size_t i = chain.size(); array && i-- > 0;) {
    const int n = chain[i];
    const std::int64_t rank = static_cast<std::int64_t>(array->dims.size());
    if (op(n) == "Cast") {
      const int to = static_cast<int>(int_attribute(node(n), "to", 0));
      if (to == array->type) continue;
      const bool whole = to == pb::TensorProto::INT64 || to == pb::TensorProto::INT32;
      if (!is_float(to) && (!whole || is_float(array->type))) return std::nullopt;
      array->type = to;
      if (is_float(to)) {
        for (double& value : array->values) value = round_to_type(to, value);
      }
    } else if (op(n) == "Transpose") {
      std::vector<std::int64_t> perm;
      if (const auto* attribute = find_attribute(node(n), "perm")) {
        perm.assign(attribute->ints().begin(), attribute->ints().end());
      } else {
        for (std::int64_t k = rank; k-- > 0;) perm.push_back(k);
      }
      if (!is_permutation(perm, array->dims.size())) return std::nullopt;
      array = transposed(*array, perm);
    } else if (op(n) != "Identity") {
      Shape dims;
      if (op(n) == "Reshape") {
        const auto wanted = integers(input(n, 1));
        if (!wanted || int_attribute(node(n), "allowzero", 0) != 0) return std::nullopt;
        std::int64_t known = 1;
        for (std::size_t k = 0; k < wanted->size(); ++k) {
          std::int64_t length = (*wanted)[k];
          if (length == 0) length = k < array->dims.size() ? array->dims[k] : -2;
          if (length < -1) return std::nullopt;
          dims.push_back(length);
          if (length > 0 && __builtin_mul_overflow(known, length, &known)) return std::nullopt;
        }
        const std::int64_t count = static_cast<std::int64_t>(array->values.size());
        for (std::int64_t& length : dims) {
          if (length == -1 && known != 0) length = count / known;
        }
      } else {
        const auto axes = ints_of(n, "axes", 1);
        if (!axes) return std::nullopt;
        const bool squeeze = op(n) == "Squeeze";
        const std::int64_t full = squeeze ? rank : rank + static_cast<std::int64_t>(axes->size());
        std::vector<bool> named(static_cast<std::size_t>(full), false);
        for (const std::int64_t axis : *axes) {
          if (axis < -full || axis >= full) return std::nullopt;
          named[static_cast<std::size_t>(axis < 0 ? axis + full : axis)] = true;
        }
        std::size_t from = 0;
        for (std::size_t k = 0; k < named.size(); ++k) {
          if (squeeze && !named[k]) dims.push_back(array->dims[k]);
          if (!squeeze) {
            if (!named[k] && from >= array->dims.size()) return std::nullopt;
            dims.push_back(named[k] ? 1 : array->dims[from++]);
          }
        }
      }
      if (tools::element_count(dims) != static_cast<std::int64_t>(array->values.size())) return std::nullopt;
      array->dims = dims;
    }
  }
  return array;
}

std::optional<double> Graph::scalar(const std::string& name) const {
  const pb::TensorProto* stored = literal(name);
  if (stored != nullptr) {
    for (const std::int64_t length : stored->dims()) {
      if (length != 1) return std::nullopt;  // before the numbers of a large table are read
    }
  }
  const auto array = constant(name);
  if (!array || array->values.size() != 1) return std::nullopt;
  return array->values[0];
}

std::optional<std::vector<std::int64_t>> Graph::integers(const std::string& name) const {
  constexpr std::int64_t kMost = 1024;
  const pb::TensorProto* stored = literal(name);
  if (stored != nullptr && tools::element_count({stored->dims().begin(), stored->dims().end()}) > kMost) {
    return std::nullopt;
  }
  const auto array = constant(name);
  if (!array || is_float(array->type)) return std::nullopt;
  std::vector<std::int64_t> numbers;
  for (const double value : array->values) {
    // i64's largest numbers, "to the end", are no doubles.
    numbers.push_back(value >= 0x1p62 ? INT64_MAX : value <= -0x1p62 ? INT64_MIN : static_cast<std::int64_t>(value));
  }
  return numbers;
}

std::optional<std::vector<std::int64_t>> Graph::ints_of(int n, std::string_view attribute, int slot) const {
  if (const auto* found = find_attribute(node(n), attribute)) {
    return std::vector<std::int64_t>(found->ints().begin(), found->ints().end());
  }
  if (input(n, slot).empty()) return std::nullopt;
  return integers(input(n, slot));
}

}  // namespace rmsnorm::convert::onnx
