#include "convert/onnx/shapes.h"

#include <algorithm>

namespace rmsnorm::convert::onnx {

namespace {

constexpr std::size_t kMaxValues = 256;

template <std::size_t N>
bool is_one_of(std::string_view op, const char* const (&names)[N]) {
  return std::find(std::begin(names), std::end(names), op) != std::end(names);
}

// One input (the first) decides type and shape of the output.
constexpr const char* kAlike[] = {"Identity",
                                  "Dropout",
                                  "Relu",
                                  "Sigmoid",
                                  "Tanh",
                                  "Erf",
                                  "Sqrt",
                                  "Exp",
                                  "Log",
                                  "Neg",
                                  "Abs",
                                  "Clip",
                                  "Softmax",
                                  "LogSoftmax",
                                  "LayerNormalization",
                                  "RMSNormalization",
                                  "SimplifiedLayerNormalization",
                                  "BatchNormalization",
                                  "InstanceNormalization",
                                  "HardSigmoid",
                                  "HardSwish",
                                  "LeakyRelu",
                                  "Elu",
                                  "Selu",
                                  "Gelu",
                                  "Floor",
                                  "Ceil",
                                  "Round",
                                  "Reciprocal",
                                  "Sin",
                                  "Cos",
                                  "Softplus",
                                  "Mish",
                                  "CumSum",
                                  "Trilu",
                                  "Pow",
                                  "PRelu",
                                  "com.microsoft:Gelu",
                                  "com.microsoft:FastGelu",
                                  "com.microsoft:QuickGelu",
                                  "com.microsoft:BiasGelu"};
constexpr const char* kBroadcast[] = {"Add", "Sub", "Mul", "Div", "Max", "Min", "Sum", "Mean"};
constexpr const char* kCompare[] = {"Equal", "Greater", "Less", "GreaterOrEqual", "LessOrEqual", "And", "Or", "Xor"};
constexpr const char* kReduce[] = {"ReduceMean", "ReduceSum", "ReduceMax",      "ReduceMin",
                                   "ReduceProd", "ReduceL2",  "ReduceSumSquare"};
constexpr const char* kPool[] = {"MaxPool", "AveragePool"};
constexpr const char* kGlobalPool[] = {"GlobalAveragePool", "GlobalMaxPool"};

std::optional<std::size_t> position(std::int64_t axis, std::size_t rank) {
  const std::int64_t r = static_cast<std::int64_t>(rank);
  if (axis < -r || axis >= r) return std::nullopt;
  return static_cast<std::size_t>(axis < 0 ? axis + r : axis);
}

}  // namespace

bool same_product(const Lengths& a, std::size_t a_begin, std::size_t a_end, const Lengths& b, std::size_t b_begin,
                  std::size_t b_end) {
  const auto split = [](const Lengths& lengths, std::size_t begin, std::size_t end, std::int64_t& known,
                        Lengths& unknowns) {
    for (std::size_t i = begin; i < end; ++i) {
      if (lengths[i] < 0) {
        unknowns.push_back(lengths[i]);
      } else if (__builtin_mul_overflow(known, lengths[i], &known)) {
        return false;
      }
    }
    std::sort(unknowns.begin(), unknowns.end());
    return known != 0;
  };
  std::int64_t known_a = 1, known_b = 1;
  Lengths unknown_a, unknown_b;
  return split(a, a_begin, a_end, known_a, unknown_a) && split(b, b_begin, b_end, known_b, unknown_b) &&
         known_a == known_b && unknown_a == unknown_b;
}

Shapes::Shapes(const Graph& graph) : graph_(graph) {
  const auto add_literal = [this](const std::string& name, const pb::TensorProto& tensor) {
    infos_[name] = {tensor.data_type(), Lengths(tensor.dims().begin(), tensor.dims().end())};
    if (auto values = graph_.literal(name) != nullptr ? graph_.integers(name) : std::nullopt;
        values && values->size() <= kMaxValues && tensor.dims_size() <= 1) {
      if (std::all_of(values->begin(), values->end(), [](auto v) { return v >= -1; })) values_[name] = *values;
    }
  };
  for (const auto& input : graph.proto().input()) infos_[input.name()] = declared(input.type());
  for (const auto& tensor : graph.proto().initializer()) add_literal(tensor.name(), tensor);
  std::unordered_map<std::string, const pb::ValueInfoProto*> noted;
  for (const auto& info : graph.proto().value_info()) noted[info.name()] = &info;
  for (const auto& info : graph.proto().output()) noted[info.name()] = &info;
  for (int n = 0; n < graph.size(); ++n) {
    infer(n);
    for (const auto& output : graph.node(n).output()) {
      const auto note = noted.find(output);
      if (note == noted.end()) continue;
      // What the file says fills only what could not be found: files lie, and exporters leave old notes.
      TensorInfo& info = infos_[output];
      const TensorInfo said = declared(note->second->type());
      if (info.type == 0) info.type = said.type;
      if (!info.lengths) {
        info.lengths = said.lengths;
      } else if (said.lengths && said.lengths->size() == info.lengths->size()) {
        for (std::size_t i = 0; i < info.lengths->size(); ++i) {
          if ((*info.lengths)[i] < 0 && (*said.lengths)[i] >= 0) (*info.lengths)[i] = (*said.lengths)[i];
        }
      }
    }
  }
}

const TensorInfo& Shapes::info(const std::string& tensor) const {
  static const TensorInfo kUnknown;
  const auto found = infos_.find(tensor);
  return found == infos_.end() ? kUnknown : found->second;
}

std::optional<int> Shapes::rank(const std::string& tensor) const {
  const auto& lengths = info(tensor).lengths;
  if (!lengths) return std::nullopt;
  return static_cast<int>(lengths->size());
}

std::optional<std::int64_t> Shapes::length(const std::string& tensor, int axis) const {
  const auto& lengths = info(tensor).lengths;
  if (!lengths) return std::nullopt;
  const std::int64_t at = static_cast<std::int64_t>(lengths->size()) + axis;
  if (at < 0) return 1;
  const Length length = (*lengths)[static_cast<std::size_t>(at)];
  if (length < 0) return std::nullopt;
  return length;
}

TensorInfo Shapes::declared(const pb::TypeProto& type) {
  TensorInfo info;
  if (!type.has_tensor_type()) return info;
  info.type = type.tensor_type().elem_type();
  if (!type.tensor_type().has_shape()) return info;
  Lengths lengths;
  for (const auto& dim : type.tensor_type().shape().dim()) {
    if (dim.has_dim_value() && dim.dim_value() >= 0) {
      lengths.push_back(dim.dim_value());
    } else if (!dim.dim_param().empty()) {
      const auto [known, fresh] = named_.try_emplace(dim.dim_param(), next_unknown_);
      if (fresh) unknown();
      lengths.push_back(known->second);
    } else {
      lengths.push_back(unknown());
    }
  }
  if (lengths.size() <= tools::kMaxRank) info.lengths = lengths;
  return info;
}

const Lengths* Shapes::value_of(const std::string& tensor) const {
  const auto found = values_.find(tensor);
  return found == values_.end() ? nullptr : &found->second;
}

void Shapes::infer(int n) {
  infer_values(n);
  // What an unknown operator computes has the type of the scale that it is multiplied by.
  if (graph_.op(n) == "LayerNormalization" && graph_.has_tensor(graph_.input(n, 0)) && type(graph_.input(n, 0)) == 0) {
    infos_[graph_.input(n, 0)].type = type(graph_.input(n, 1));
  }
  const pb::NodeProto& node = graph_.node(n);
  for (int k = 0; k < node.output_size(); ++k) {
    if (!node.output(k).empty()) infos_[node.output(k)] = infer_output(n, k);
  }
}

// Whole numbers that become shapes: Shape, and what is cut from it and put together.
void Shapes::infer_values(int n) {
  const std::string_view op = graph_.op(n);
  const std::string& out = graph_.output(n);
  const std::string& in = graph_.input(n, 0);
  std::optional<Lengths> values;
  const Lengths* first = value_of(in);
  if (op == "Constant") {
    const auto numbers = graph_.integers(out);
    if (numbers && std::all_of(numbers->begin(), numbers->end(), [](auto v) { return v >= -1; })) values = numbers;
  } else if (op == "Shape") {
    const auto& lengths = info(in).lengths;
    if (lengths) {
      const std::int64_t rank = static_cast<std::int64_t>(lengths->size());
      const auto bound = [&](const char* name, std::int64_t otherwise) {
        const std::int64_t at = int_attribute(graph_.node(n), name, otherwise);
        return std::clamp<std::int64_t>(at < 0 ? at + rank : at, 0, rank);
      };
      const std::int64_t start = bound("start", 0), end = std::max(start, bound("end", rank));
      values = Lengths(lengths->begin() + start, lengths->begin() + end);
    }
  } else if (op == "Gather" && first != nullptr) {
    if (const auto index = graph_.integers(graph_.input(n, 1))) {
      values = Lengths();
      for (const std::int64_t i : *index) {
        const auto at = position(i, first->size());
        if (!at) return;
        values->push_back((*first)[*at]);
      }
    }
  } else if (op == "Slice" && first != nullptr) {
    const auto starts = graph_.ints_of(n, "starts", 1), ends = graph_.ints_of(n, "ends", 2);
    const bool steps =
        !graph_.input(n, 4).empty() && graph_.integers(graph_.input(n, 4)) != std::vector<std::int64_t>{1};
    if (starts && ends && starts->size() == 1 && ends->size() == 1 && !steps) {
      const std::int64_t size = static_cast<std::int64_t>(first->size());
      const auto clip = [size](std::int64_t at) { return std::clamp<std::int64_t>(at < 0 ? at + size : at, 0, size); };
      const std::int64_t start = clip(starts->front()), end = std::max(start, clip(ends->front()));
      values = Lengths(first->begin() + start, first->begin() + end);
    }
  } else if (op == "Concat") {
    values = Lengths();
    for (const auto& name : graph_.node(n).input()) {
      const Lengths* part = value_of(name);
      if (part != nullptr) {
        values->insert(values->end(), part->begin(), part->end());
        continue;
      }
      const auto& lengths = info(name).lengths;
      if (!lengths || lengths->size() != 1 || (*lengths)[0] < 0 || (*lengths)[0] > 64) return;
      for (Length i = 0; i < (*lengths)[0]; ++i) values->push_back(unknown());
    }
  } else if ((op == "Unsqueeze" || op == "Squeeze" || op == "Cast" || op == "Identity" || op == "Reshape") &&
             first != nullptr) {
    values = *first;
  } else if (op == "Mul" || op == "Add" || op == "Sub" || op == "Div") {
    const Lengths* second = value_of(graph_.input(n, 1));
    if (first == nullptr || second == nullptr || first->size() != second->size()) return;
    values = Lengths();
    for (std::size_t i = 0; i < first->size(); ++i) {
      const Length a = (*first)[i], b = (*second)[i];
      Length result = -1;
      const bool known = a >= 0 && b >= 0;
      if (known && op == "Mul" && __builtin_mul_overflow(a, b, &result)) result = -1;
      if (known && op == "Add" && __builtin_add_overflow(a, b, &result)) result = -1;
      if (known && op == "Sub") result = a - b;
      if (known && op == "Div" && b != 0) result = a / b;
      values->push_back(result >= 0 ? result : unknown());
    }
  }
  if (values && values->size() <= kMaxValues && !out.empty()) values_[out] = *values;
}

std::optional<Lengths> Shapes::broadcast(const std::vector<Lengths>& shapes) {
  std::size_t rank = 0;
  for (const auto& shape : shapes) rank = std::max(rank, shape.size());
  Lengths result(rank, 1);
  for (std::size_t i = 0; i < rank; ++i) {  // from the end
    Length& length = result[rank - 1 - i];
    for (const auto& shape : shapes) {
      const Length other = i < shape.size() ? shape[shape.size() - 1 - i] : 1;
      if (other == 1 || other == length) continue;
      if (length == 1) {
        length = other;
      } else if (length < 0 && other >= 0) {
        length = other;  // the unknown is 1 or this
      } else if (length < 0) {
        length = unknown();
      }
    }
  }
  return result;
}

std::optional<Lengths> Shapes::reshaped(const Lengths& from, const Lengths& wanted, bool zero_is_zero) {
  Lengths result;
  std::optional<std::size_t> rest;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    Length length = wanted[i];
    if (length == 0 && !zero_is_zero) {
      if (i >= from.size()) return std::nullopt;
      length = from[i];
    }
    if (length == -1 && rest) return std::nullopt;
    if (length == -1) rest = i;
    result.push_back(length);
  }
  if (!rest) return result;
  // The rest is the quotient of the products, where the unknowns cancel.
  std::int64_t above = 1, below = 1;
  Lengths unknowns;
  for (const Length length : from) {
    if (length < 0) {
      unknowns.push_back(length);
    } else if (__builtin_mul_overflow(above, length, &above)) {
      return std::nullopt;
    }
  }
  bool cancelled = true;
  for (std::size_t i = 0; i < result.size(); ++i) {
    if (i == *rest) continue;
    if (result[i] < 0) {
      const auto found = std::find(unknowns.begin(), unknowns.end(), result[i]);
      cancelled &= found != unknowns.end();
      if (found != unknowns.end()) unknowns.erase(found);
    } else if (__builtin_mul_overflow(below, result[i], &below)) {
      return std::nullopt;
    }
  }
  if (cancelled && unknowns.size() == 1 && above == below) {
    result[*rest] = unknowns[0];
  } else {
    result[*rest] = cancelled && unknowns.empty() && below != 0 ? above / below : unknown();
  }
  return result;
}

std::optional<Lengths> Shapes::multiplied(const Lengths& a, const Lengths& b) {
  if (a.empty() || b.empty()) return std::nullopt;
  const Lengths a_batch(a.begin(), a.end() - std::min<std::ptrdiff_t>(2, static_cast<std::ptrdiff_t>(a.size())));
  const Lengths b_batch(b.begin(), b.end() - std::min<std::ptrdiff_t>(2, static_cast<std::ptrdiff_t>(b.size())));
  auto result = broadcast({a_batch, b_batch});
  if (a.size() >= 2) result->push_back(a[a.size() - 2]);
  if (b.size() >= 2) result->push_back(b.back());
  return result;
}

// Squeeze, Unsqueeze, reductions, Slice, Split, Tile, Pad: same axes but for those that the node names.
std::optional<Lengths> Shapes::axes_changed(int n, const Lengths& in) {
  const std::string_view op = graph_.op(n);
  const std::size_t rank = in.size();
  Lengths result = in;
  if (op == "Squeeze" || op == "Unsqueeze" || is_one_of(op, kReduce)) {
    auto axes = graph_.ints_of(n, "axes", 1);
    const bool reduce = is_one_of(op, kReduce);
    if (!axes && reduce && graph_.input(n, 1).empty()) {
      if (int_attribute(graph_.node(n), "noop_with_empty_axes", 0) != 0) return in;
      axes.emplace();
      for (std::size_t i = 0; i < rank; ++i) axes->push_back(static_cast<std::int64_t>(i));
    }
    if (!axes) return std::nullopt;
    const std::size_t full = op == "Unsqueeze" ? rank + axes->size() : rank;
    std::vector<bool> named(full, false);
    for (const std::int64_t axis : *axes) {
      const auto at = position(axis, full);
      if (!at) return std::nullopt;
      named[*at] = true;
    }
    const auto keep = reduce ? keeps_axes(graph_.node(n)) : std::optional<bool>(false);
    if (!keep) return std::nullopt;
    result.clear();
    std::size_t from = 0;
    for (std::size_t i = 0; i < full; ++i) {
      if (op == "Unsqueeze") {
        if (!named[i] && from >= rank) return std::nullopt;
        result.push_back(named[i] ? 1 : in[from++]);
      } else if (!named[i]) {
        result.push_back(in[i]);
      } else if (*keep) {
        result.push_back(1);
      }
    }
    return result;
  }
  const auto forget = [&](std::int64_t axis) {
    const auto at = position(axis, rank);
    if (at) result[*at] = unknown();
    return at.has_value();
  };
  if (op == "Slice") {
    auto axes = graph_.ints_of(n, "axes", 3);
    if (!axes && graph_.input(n, 3).empty()) {
      const auto starts = graph_.ints_of(n, "starts", 1);
      axes.emplace();
      for (std::size_t i = 0; i < (starts ? starts->size() : rank); ++i) axes->push_back(static_cast<std::int64_t>(i));
    }
    if (!axes) {
      for (Length& length : result) length = unknown();
      return result;
    }
    const auto starts = graph_.ints_of(n, "starts", 1), ends = graph_.ints_of(n, "ends", 2);
    const bool steps = !graph_.input(n, 4).empty();
    for (std::size_t i = 0; i < axes->size(); ++i) {
      const auto at = position((*axes)[i], rank);
      if (!at) return std::nullopt;
      const Length length = in[*at];
      const bool known = starts && ends && i < starts->size() && i < ends->size() && !steps;
      if (known && length >= 0) {
        const auto clip = [length](std::int64_t v) { return std::clamp<Length>(v < 0 ? v + length : v, 0, length); };
        result[*at] = std::max<Length>(0, clip((*ends)[i]) - clip((*starts)[i]));
      } else if (known && (*starts)[i] == 0 && (*ends)[i] == 1) {
        result[*at] = 1;
      } else if (!(known && (*starts)[i] == 0 && (*ends)[i] > 0x7ffffffe)) {
        result[*at] = unknown();
      }
    }
    return result;
  }
  if (op == "Split") {
    if (!forget(int_attribute(graph_.node(n), "axis", 0))) return std::nullopt;
    return result;
  }
  if (op == "Tile") {
    const auto repeats = graph_.integers(graph_.input(n, 1));
    for (std::size_t i = 0; i < rank; ++i) {
      const std::int64_t times = repeats && repeats->size() == rank ? (*repeats)[i] : -1;
      if (times == 1) continue;
      if (times < 0 || in[i] < 0 || __builtin_mul_overflow(in[i], times, &result[i])) result[i] = unknown();
    }
    return result;
  }
  if (op == "Pad") {
    const auto pads = graph_.ints_of(n, "pads", 1);
    if (!pads || pads->size() != 2 * rank || !graph_.input(n, 3).empty()) {
      for (Length& length : result) length = unknown();
      return result;
    }
    for (std::size_t i = 0; i < rank; ++i) {
      const std::int64_t more = (*pads)[i] + (*pads)[i + rank];
      if ((*pads)[i] != 0 || (*pads)[i + rank] != 0) result[i] = in[i] >= 0 && more >= 0 ? in[i] + more : unknown();
    }
    return result;
  }
  return std::nullopt;
}

TensorInfo Shapes::infer_output(int n, int output) {
  const std::string_view op = graph_.op(n);
  const pb::NodeProto& node = graph_.node(n);
  const TensorInfo first = info(graph_.input(n, 0));
  TensorInfo result{first.type, std::nullopt};
  const auto& in = first.lengths;
  if (op == "Constant") {
    if (const auto array =
            graph_.literal(graph_.output(n)) == nullptr ? graph_.constant(graph_.output(n)) : std::nullopt) {
      return {array->type, array->dims};
    }
    if (const auto* literal = graph_.literal(graph_.output(n))) {
      return {literal->data_type(), Lengths(literal->dims().begin(), literal->dims().end())};
    }
    return {};
  }
  if (is_one_of(op, kAlike) || op == "Pow") {
    if (output > 0) return {};
    if (op == "Pow" || op == "PRelu") {
      const auto& second = info(graph_.input(n, 1)).lengths;
      if (in && second) result.lengths = broadcast({*in, *second});
      return result;
    }
    return first;
  }
  if (is_one_of(op, kBroadcast) || is_one_of(op, kCompare) || op == "Where") {
    std::vector<Lengths> shapes;
    for (const auto& name : node.input()) {
      const TensorInfo& operand = info(name);
      if (!operand.lengths) return {is_one_of(op, kCompare) ? pb::TensorProto::BOOL : first.type, std::nullopt};
      shapes.push_back(*operand.lengths);
      if (result.type == 0) result.type = operand.type;
    }
    if (is_one_of(op, kCompare)) result.type = pb::TensorProto::BOOL;
    if (op == "Where") result.type = info(graph_.input(n, 1)).type;
    result.lengths = broadcast(shapes);
    return result;
  }
  if (op == "Cast") return {static_cast<int>(int_attribute(node, "to", 0)), in};
  if (op == "Shape") {
    if (in) result.lengths = Lengths{static_cast<Length>(in->size())};
    if (const Lengths* values = value_of(graph_.output(n)))
      result.lengths = Lengths{static_cast<Length>(values->size())};
    return {pb::TensorProto::INT64, result.lengths};
  }
  if (op == "Reshape") {
    const std::string& shape = graph_.input(n, 1);
    const Lengths* wanted = value_of(shape);
    if (wanted != nullptr && in && wanted->size() <= tools::kMaxRank) {
      result.lengths = reshaped(*in, *wanted, int_attribute(node, "allowzero", 0) != 0);
    }
    return result;
  }
  if (op == "Flatten" && in) {
    const std::int64_t axis = int_attribute(node, "axis", 1);
    const std::int64_t rank = static_cast<std::int64_t>(in->size());
    if (axis < -rank || axis > rank) return result;
    const auto at = in->begin() + (axis < 0 ? axis + rank : axis);
    const auto product = [this](auto begin, auto end) {
      Length all = 1;
      for (auto i = begin; i != end; ++i) {
        if (all == 1) {
          all = *i;
        } else if (*i != 1) {
          all = *i < 0 || all < 0 || __builtin_mul_overflow(all, *i, &all) ? unknown() : all;
        }
      }
      return all;
    };
    result.lengths = Lengths{product(in->begin(), at), product(at, in->end())};
    return result;
  }
  if (op == "Transpose" && in) {
    Lengths lengths(in->rbegin(), in->rend());
    if (const auto* perm = find_attribute(node, "perm")) {
      if (perm->ints_size() != static_cast<int>(in->size())) return result;
      for (int i = 0; i < perm->ints_size(); ++i) {
        const auto at = position(perm->ints(i), in->size());
        if (!at) return result;
        lengths[static_cast<std::size_t>(i)] = (*in)[*at];
      }
    }
    result.lengths = lengths;
    return result;
  }
  if (op == "Concat" && in) {
    const auto at = position(int_attribute(node, "axis", 0), in->size());
    if (!at) return result;
    Lengths lengths = *in;
    for (int k = 1; k < node.input_size(); ++k) {
      const auto& other = info(node.input(k)).lengths;
      if (!other || other->size() != in->size()) {
        lengths[*at] = unknown();
        continue;
      }
      for (std::size_t i = 0; i < lengths.size(); ++i) {
        if (i == *at) {
          lengths[i] = lengths[i] >= 0 && (*other)[i] >= 0 ? lengths[i] + (*other)[i] : unknown();
        } else if (lengths[i] < 0 && (*other)[i] >= 0) {
          lengths[i] = (*other)[i];
        }
      }
    }
    result.lengths = lengths;
    return result;
  }
  if (op == "Gather" && in) {
    const auto& index = info(graph_.input(n, 1)).lengths;
    const auto at = position(int_attribute(node, "axis", 0), in->size());
    if (!index || !at) return result;
    Lengths lengths(in->begin(), in->begin() + static_cast<std::ptrdiff_t>(*at));
    lengths.insert(lengths.end(), index->begin(), index->end());
    lengths.insert(lengths.end(), in->begin() + static_cast<std::ptrdiff_t>(*at) + 1, in->end());
    if (lengths.size() <= tools::kMaxRank) result.lengths = lengths;
    return result;
  }
  if (op == "MatMul") {
    const auto& second = info(graph_.input(n, 1)).lengths;
    if (result.type == 0) result.type = info(graph_.input(n, 1)).type;
    if (in && second) result.lengths = multiplied(*in, *second);
    return result;
  }
  if (op == "Gemm") {
    const auto& second = info(graph_.input(n, 1)).lengths;
    Lengths lengths{unknown(), unknown()};
    if (in && in->size() == 2) lengths[0] = (*in)[int_attribute(node, "transA", 0) != 0 ? 1 : 0];
    if (second && second->size() == 2) lengths[1] = (*second)[int_attribute(node, "transB", 0) != 0 ? 0 : 1];
    result.lengths = lengths;
    return result;
  }
  if (op == "Conv" || op == "ConvTranspose" || is_one_of(op, kPool) || is_one_of(op, kGlobalPool)) {
    const auto& weight = info(graph_.input(n, 1)).lengths;
    const bool conv = op == "Conv" || op == "ConvTranspose";
    const std::optional<Lengths>& known = in ? in : conv ? weight : in;
    if (!known || known->size() < 2 || output > 0) return result;
    Lengths lengths(known->size());
    for (Length& length : lengths) length = is_one_of(op, kGlobalPool) ? 1 : unknown();
    if (in) lengths[0] = (*in)[0];
    if (!conv) {
      lengths[1] = (*in)[1];
    } else if (weight && weight->size() >= 2) {
      const std::int64_t group = int_attribute(node, "group", 1);
      lengths[1] = op == "Conv" ? (*weight)[0] : group == 1 ? (*weight)[1] : unknown();
    }
    result.lengths = lengths;
    return result;
  }
  if (op == "Expand") {
    const Lengths* wanted = value_of(graph_.input(n, 1));
    const auto& count = info(graph_.input(n, 1)).lengths;  // where only the number of axes is known
    if (!in || (wanted == nullptr && !(count && count->size() == 1 && count->front() >= 0))) return result;
    const std::size_t rank = wanted != nullptr ? wanted->size() : static_cast<std::size_t>(count->front());
    if (rank > tools::kMaxRank) return result;
    Lengths lengths = wanted != nullptr ? *wanted : Lengths(rank, -1);
    for (Length& length : lengths) {
      if (length == -1) length = unknown();
    }
    result.lengths = broadcast({*in, lengths});
    return result;
  }
  if (op == "ConstantOfShape") {
    const auto* value = find_attribute(node, "value");
    result.type = value != nullptr && value->has_t() ? value->t().data_type() : pb::TensorProto::FLOAT;
    if (const Lengths* values = value_of(graph_.input(n, 0))) {
      if (std::find(values->begin(), values->end(), -1) == values->end()) result.lengths = *values;
    }
    return result;
  }
  if (op == "Range") {
    result.lengths = Lengths{unknown()};
    return result;
  }
  if (op == "com.microsoft:SkipLayerNormalization" || op == "com.microsoft:SkipSimplifiedLayerNormalization") {
    return output == 0 || output == 3 ? first : TensorInfo{};
  }
  if (in) {
    result.lengths = axes_changed(n, *in);
    if (!result.lengths && (op == "Squeeze" || op == "Unsqueeze")) return result;
    if (result.lengths) return result;
  }
  return {};
}

}  // namespace rmsnorm::convert::onnx
