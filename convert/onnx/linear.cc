#include "convert/onnx/linear.h"

#include <algorithm>
#include <cmath>

namespace rmsnorm::convert::onnx {

namespace {

using Operands = std::optional<std::vector<Operand>>;

struct Question {
  const Graph& graph;
  const Shapes& shapes;
  int node;
  int axis;

  std::string_view op() const { return graph.op(node); }
  const std::string& input(int slot) const { return graph.input(node, slot); }
  std::optional<int> rank(int slot) const { return shapes.rank(input(slot)); }
  std::optional<int> out_rank() const { return shapes.rank(graph.output(node)); }
  std::int64_t attribute(std::string_view name, std::int64_t otherwise) const {
    return int_attribute(graph.node(node), name, otherwise);
  }
  bool is_broadcast(int slot) const { return shapes.length(input(slot), axis) == std::optional<std::int64_t>(1); }
  // The axis that a node names, counted from the end; nothing where the rank is needed and not known.
  std::optional<int> from_end(std::int64_t named, std::optional<int> rank_of) const {
    if (named < 0) return named >= -kMaxAxis ? std::optional<int>(static_cast<int>(named)) : std::nullopt;
    if (!rank_of || named >= *rank_of) return std::nullopt;
    return static_cast<int>(named) - *rank_of;
  }
};

// The operands whose values are added up. One that lacks the axis must be a constant, which then becomes 0.
Operands all_of(const Question& q, int first, int count) {
  std::vector<Operand> operands;
  for (int slot = first; slot < count; ++slot) {
    if (q.input(slot).empty()) continue;
    const auto rank = q.rank(slot);
    const bool has_axis = rank ? *rank >= -q.axis : q.axis == -1;
    if (!has_axis && !q.graph.is_constant(q.input(slot))) return std::nullopt;
    operands.push_back({slot, q.axis});
  }
  return operands;
}

Operands product(const Question& q) {
  if (q.is_broadcast(1)) return all_of(q, 0, 1);
  if (q.op() == "Mul" && q.is_broadcast(0)) return all_of(q, 1, 2);
  return std::nullopt;
}

Operands transpose(const Question& q) {
  const auto rank = q.rank(0);
  const auto* perm = find_attribute(q.graph.node(q.node), "perm");
  if (perm == nullptr) {
    if (!rank || -q.axis > *rank) return std::nullopt;
    return Operands({{0, -1 - (q.axis + *rank)}});
  }
  const int count = perm->ints_size();
  if (-q.axis > count) return std::nullopt;
  const std::int64_t from = perm->ints(q.axis + count);
  if (from < 0 || from >= count) return std::nullopt;
  return Operands({{0, static_cast<int>(from) - count}});
}

// Squeeze, Unsqueeze, ReduceMean and ReduceSum: the axes that are named vanish, appear or shrink.
Operands named_axes(const Question& q) {
  const auto axes = q.graph.ints_of(q.node, "axes", 1);
  const bool unsqueeze = q.op() == "Unsqueeze", squeeze = q.op() == "Squeeze";
  const auto keeps = squeeze || unsqueeze ? std::optional<bool>(false) : keeps_axes(q.graph.node(q.node));
  const auto rank = q.rank(0);
  if (!axes || !rank || !keeps) return std::nullopt;
  const int full = unsqueeze ? *rank + static_cast<int>(axes->size()) : *rank;
  std::vector<bool> named(static_cast<std::size_t>(full), false);
  for (const std::int64_t axis : *axes) {
    if (axis < -full || axis >= full) return std::nullopt;
    named[static_cast<std::size_t>(axis < 0 ? axis + full : axis)] = true;
  }
  // Walk from the end; `shorter` counts on the side without the named axes.
  int shorter = 0;
  for (int longer = -1; longer >= -full; --longer) {
    const bool is_named = named[static_cast<std::size_t>(longer + full)];
    if (!is_named) --shorter;
    const int in = unsqueeze ? shorter : longer, out = unsqueeze || *keeps ? longer : shorter;
    if (out == q.axis && !is_named) return Operands({{0, in}});
  }
  return std::nullopt;
}

// Reshape and Flatten: an axis stays one where what stands before it, or behind it, has the same size as before.
Operands reshape(const Question& q) {
  const auto& in = q.shapes.info(q.input(0)).lengths;
  const auto& out = q.shapes.info(q.graph.output(q.node)).lengths;
  if (!in || !out || -q.axis > static_cast<int>(out->size())) return std::nullopt;
  const std::size_t at = out->size() - static_cast<std::size_t>(-q.axis);
  const Length length = (*out)[at];
  if (length == 0 || length == 1) return std::nullopt;
  for (std::size_t from = 0; from < in->size(); ++from) {
    if ((*in)[from] != length) continue;
    if (same_product(*out, 0, at, *in, 0, from) || same_product(*out, at + 1, out->size(), *in, from + 1, in->size())) {
      return Operands({{0, static_cast<int>(from) - static_cast<int>(in->size())}});
    }
  }
  return std::nullopt;
}

// Slice, Split, Concat, Pad, Tile, Expand: everything happens on other axes.
Operands on_other_axes(const Question& q) {
  const std::string_view op = q.op();
  const auto rank = q.rank(0);
  const auto spares = [&](std::int64_t named) {
    const auto axis = q.from_end(named, rank);
    return axis && *axis != q.axis;
  };
  if (op == "Split" || op == "Concat") {
    if (!spares(q.attribute("axis", 0))) return std::nullopt;
    return all_of(q, 0, op == "Split" ? 1 : q.graph.node(q.node).input_size());
  }
  if (op == "Slice") {
    auto axes = q.graph.ints_of(q.node, "axes", 3);
    if (!axes && q.input(3).empty()) {
      const auto starts = q.graph.ints_of(q.node, "starts", 1);
      if (!starts) return std::nullopt;
      axes.emplace();
      for (std::size_t i = 0; i < starts->size(); ++i) axes->push_back(static_cast<std::int64_t>(i));
    }
    if (!axes || !std::all_of(axes->begin(), axes->end(), spares)) return std::nullopt;
    return Operands({{0, q.axis}});
  }
  if (op == "Expand") {
    // A length that is not 1 can only stay.
    const auto length = q.shapes.length(q.input(0), q.axis);
    if (!length || *length == 1) return std::nullopt;
    return Operands({{0, q.axis}});
  }
  if (!rank || -q.axis > *rank) return std::nullopt;
  const std::size_t at = static_cast<std::size_t>(q.axis + *rank), size = static_cast<std::size_t>(*rank);
  if (op == "Tile") {
    const auto repeats = q.graph.integers(q.input(1));
    if (!repeats || repeats->size() != size || (*repeats)[at] != 1) return std::nullopt;
    return Operands({{0, q.axis}});
  }
  // Pad: rows of a constant would have no mean of 0, unless it is 0.
  const auto pads = q.graph.ints_of(q.node, "pads", 1);
  if (!pads || pads->size() != 2 * size || !q.input(3).empty()) return std::nullopt;
  if ((*pads)[at] != 0 || (*pads)[at + size] != 0) return std::nullopt;
  if (text_attribute(q.graph.node(q.node), "mode", "constant") == "constant") {
    if (float_attribute(q.graph.node(q.node), "value", 0) != 0) return std::nullopt;
    if (!q.input(2).empty() && q.graph.scalar(q.input(2)) != std::optional<double>(0)) return std::nullopt;
  }
  return Operands({{0, q.axis}});
}

Operands gather(const Question& q) {
  const auto rank = q.rank(0), index_rank = q.shapes.rank(q.input(1));
  if (!rank) return std::nullopt;
  const auto gathered = q.from_end(q.attribute("axis", 0), rank);
  if (!gathered) return std::nullopt;
  // Axes behind the gathered one keep their place from the end, those before it their place from the front.
  if (q.axis > *gathered) return Operands({{0, q.axis}});
  if (!index_rank) return std::nullopt;
  const int front = q.axis + *rank - 1 + *index_rank;
  if (front < 0 || front >= *gathered + *rank) return std::nullopt;
  return Operands({{0, front - *rank}});
}

Operands matrix_product(const Question& q) {
  const auto left = q.rank(0), right = q.rank(1);
  if (!right || *right < 2) return std::nullopt;
  if (q.axis == -1) return Operands({{1, -1}});
  if (q.axis == -2 && left && *left >= 2) return Operands({{0, -2}});
  return std::nullopt;
}

Operands gemm(const Question& q) {
  if (q.axis != -1 && q.axis != -2) return std::nullopt;
  const int slot = q.axis == -1 ? 1 : 0;
  const bool turned = q.attribute(slot == 1 ? "transB" : "transA", 0) != 0;
  Operands bias = all_of(q, 2, 3);
  if (!bias) return std::nullopt;
  bias->insert(bias->begin(), {slot, turned ? -3 - q.axis : q.axis});
  return bias;
}

Operands convolution(const Question& q) {
  const auto out_rank = q.out_rank(), weight_rank = q.rank(1);
  if (!out_rank || !weight_rank || *weight_rank < 3 || q.axis + *out_rank != 1 || q.attribute("group", 1) != 1) {
    return std::nullopt;
  }
  std::vector<Operand> operands{{1, (q.op() == "Conv" ? 0 : 1) - *weight_rank}};
  if (!q.input(2).empty()) operands.push_back({2, -1});
  return operands;
}

bool in_training(const Question& q) {
  if (q.graph.opset() < 7) return q.attribute("is_test", 0) == 0;
  return !q.input(2).empty() && q.graph.scalar(q.input(2)) != std::optional<double>(0);
}

}  // namespace

std::optional<std::vector<Operand>> linear_operands(const Graph& graph, const Shapes& shapes, int node, int axis) {
  const Question q{graph, shapes, node, axis};
  const std::string_view op = q.op();
  if (op == "Add" || op == "Sub") return graph.opset() < 7 ? std::nullopt : all_of(q, 0, 2);
  if (op == "Sum" || op == "Mean")
    return graph.opset() < 8 ? std::nullopt : all_of(q, 0, graph.node(node).input_size());
  if (op == "Mul" || op == "Div") return graph.opset() < 7 ? std::nullopt : product(q);
  if (op == "Identity" || op == "Neg") return Operands({{0, axis}});
  if (op == "Dropout") return in_training(q) ? std::nullopt : Operands({{0, axis}});
  if (op == "Cast") {
    const bool floats = is_float(shapes.type(q.input(0))) && is_float(static_cast<int>(q.attribute("to", 0)));
    return floats ? Operands({{0, axis}}) : std::nullopt;
  }
  if (op == "Where") return q.is_broadcast(0) ? all_of(q, 1, 3) : std::nullopt;
  if (op == "Transpose") return transpose(q);
  if (op == "Squeeze" || op == "Unsqueeze" || op == "ReduceMean" || op == "ReduceSum") return named_axes(q);
  if (op == "Reshape" || op == "Flatten") return reshape(q);
  if (op == "Slice" || op == "Split" || op == "Concat" || op == "Pad" || op == "Tile" || op == "Expand") {
    return on_other_axes(q);
  }
  if (op == "Gather") return gather(q);
  if (op == "MatMul") return matrix_product(q);
  if (op == "Gemm") return graph.opset() < 7 ? std::nullopt : gemm(q);
  if (op == "Conv" || op == "ConvTranspose") return convolution(q);
  if (op == "GlobalAveragePool" || op == "AveragePool") {
    const auto rank = q.rank(0);
    if (!rank || axis + *rank < 0 || axis + *rank > 1) return std::nullopt;
    return Operands({{0, axis}});
  }
  return std::nullopt;
}

bool ignores_shift(const Graph& graph, const Shapes& shapes, int node, Operand operand) {
  const Question q{graph, shapes, node, operand.axis};
  const std::string_view op = q.op();
  if (op == "Shape" || op == "Size") return true;
  std::size_t axis = 0;  // of the weight, along which a column is summed
  const auto rank = q.rank(1);
  if (operand.slot != 0 || !rank || *rank < 2 || !graph.is_constant(q.input(1))) return false;
  if (op == "MatMul" && operand.axis == -1) {
    axis = static_cast<std::size_t>(*rank - 2);
  } else if (op == "Gemm" && operand.axis == (q.attribute("transA", 0) != 0 ? -2 : -1)) {
    axis = q.attribute("transB", 0) != 0 ? 1 : 0;
  } else if (op == "Conv" && q.rank(0) && operand.axis + *q.rank(0) == 1 && q.attribute("group", 1) == 1) {
    axis = 1;  // zero padding does no harm: a padded place is shifted by 0
  } else {
    return false;
  }
  const auto weight = graph.constant(q.input(1));
  if (!weight || !is_float(weight->type)) return false;
  const Lines lines = lines_along(weight->dims, axis);
  for (std::size_t o = 0; o < lines.outer; ++o) {
    for (std::size_t i = 0; i < lines.inner; ++i) {
      double sum = 0, size = 0;
      for (std::size_t k = 0; k < lines.length; ++k) {
        const double value = weight->values[(o * lines.length + k) * lines.inner + i];
        sum += value;
        size += std::fabs(value);
      }
      if (!(std::fabs(sum) <= unit_roundoff(weight->type) * size)) return false;
    }
  }
  return true;
}

std::optional<int> averaged_axis(const Graph& graph, const Shapes& shapes, int node) {
  // With three axes: so exporters of TensorFlow write the mean along the last.
  if (graph.op(node) == "GlobalAveragePool" && shapes.rank(graph.input(node, 0)) == 3) return -1;
  if (graph.op(node) != "ReduceMean") return std::nullopt;
  const auto axes = graph.ints_of(node, "axes", 1);
  if (!axes || axes->size() != 1 || !keeps_axes(graph.node(node)).value_or(false)) return std::nullopt;
  return Question{graph, shapes, node, 0}.from_end(axes->front(), shapes.rank(graph.input(node, 0)));
}

}  // namespace rmsnorm::convert::onnx
