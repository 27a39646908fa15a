#include "tools/norm_operands.h"

#include <algorithm>

#include "tools/arguments.h"
#include "tools/error.h"

namespace rmsnorm::tools {

namespace {

// x seen as rows: the axes before `axis`, then all others as one.
struct Rows {
  Shape leading;
  Shape normalised;
  std::int64_t count = 1;  // of rows
  std::int64_t cols = 1;
};

Rows split(const Shape& shape, std::int64_t axis) {
  const auto rank = static_cast<std::int64_t>(shape.size());
  if (rank == 0) fail_input("x: shape is []; it must have at least one axis");
  if (axis < -rank || axis >= rank) {
    fail(ExitCode::kUsage, "--axis is {}; it must be from {} to {} for x of shape {}", axis, -rank, rank - 1,
         shape_text(shape));
  }
  const auto first = shape.begin() + (axis < 0 ? axis + rank : axis);
  Rows rows{Shape(shape.begin(), first), Shape(first, shape.end())};
  rows.cols = *element_count(rows.normalised);
  rows.count = *element_count(rows.leading);
  if (rows.cols == 0) fail_input("x: shape is {}; the axes to normalise must not be empty", shape_text(shape));
  return rows;
}

bool is_vector(const Tensor& t, const Rows& rows) { return t.shape == rows.normalised || t.shape == Shape{rows.cols}; }

// A parameter as a view that broadcasts against x: its last axes are those normalised, the ones before them are 1 or
// equal to x's, aligned at the right.
rn_view broadcast(const Tensor& t, const Rows& rows, const char* name, const Shape& x_shape) {
  void* data = const_cast<std::byte*>(t.data.data());
  if (is_vector(t, rows)) return rn_vector(data, t.type, rows.cols);

  const std::size_t inner = rows.normalised.size();
  const std::size_t outer = t.shape.size() < inner ? 0 : t.shape.size() - inner;
  bool fits = t.shape.size() > inner && outer <= rows.leading.size() &&
              std::equal(rows.normalised.begin(), rows.normalised.end(), t.shape.end() - static_cast<long>(inner));
  Shape view_shape = rows.leading;
  view_shape.push_back(rows.cols);
  rn_view view = rn_tensor(data, t.type, static_cast<std::int32_t>(view_shape.size()), view_shape.data());
  std::int64_t stride = rows.cols;
  for (std::size_t back = 1; fits && back <= rows.leading.size(); ++back) {
    const std::size_t axis = rows.leading.size() - back;
    const std::int64_t length = back <= outer ? t.shape[outer - back] : 1;
    fits = length == 1 || length == rows.leading[axis];
    view.strides[axis] = length == 1 ? 0 : stride;
    stride *= length;
  }
  if (!fits) {
    fail_input("{}: shape is {}; it must be [{}] or broadcast against x, {}", name, shape_text(t.shape), rows.cols,
               shape_text(x_shape));
  }
  return view;
}

}  // namespace

void call_norm(NormOperands& o, const check::Case& c, std::int64_t axis, std::int32_t threads) {
  const Rows rows = split(o.x.shape, axis);
  if (o.residual && o.residual->shape != o.x.shape) {
    fail_input("residual: shape is {}; it must be that of x, {}", shape_text(o.residual->shape), shape_text(o.x.shape));
  }

  // Axes that no parameter tells apart are folded, so that x may have more of them than a view.
  const bool fold = (!o.weight || is_vector(*o.weight, rows)) && (!o.bias || is_vector(*o.bias, rows));
  Shape shape = fold ? Shape{rows.count} : rows.leading;
  if (shape.size() >= RN_MAX_RANK) {
    fail_input(
        "x: shape is {}; it must have less than {} axes beside those normalised where a parameter has more than "
        "one",
        shape_text(o.x.shape), RN_MAX_RANK);
  }
  const auto per_row = [&](void* data, rn_type type) {
    const Shape one = shape.empty() ? Shape{1} : shape;
    return rn_tensor(data, type, static_cast<std::int32_t>(one.size()), one.data());
  };
  Shape full = shape.empty() ? Shape{1} : shape;
  full.push_back(rows.cols);
  const auto matrix = [&](Tensor& t) {
    return rn_tensor(t.data.data(), t.type, static_cast<std::int32_t>(full.size()), full.data());
  };

  if (!o.in_place) o.out = make_tensor(o.out_type, o.x.shape);
  const rn_view x = matrix(o.x);
  const rn_view out = o.in_place ? x : matrix(o.out);
  const rn_view weight = o.weight ? broadcast(*o.weight, rows, "weight", o.x.shape) : rn_view{};
  const rn_view bias = o.bias ? broadcast(*o.bias, rows, "bias", o.x.shape) : rn_view{};
  const rn_view* w = o.weight ? &weight : nullptr;
  const rn_view* b = o.bias ? &bias : nullptr;
  rn_view residual{};
  rn_view sum{};
  if (o.residual) {
    residual = matrix(*o.residual);
    if (!o.in_place) o.residual_out = make_tensor(o.residual->type, o.x.shape);
    sum = o.in_place ? residual : matrix(o.residual_out);
  }
  rn_view first{};   // inv_rms, or mean
  rn_view second{};  // inv_std
  if (o.stats_wanted) {
    const rn_type type = o.x.type == RN_F64 ? RN_F64 : RN_F32;
    Shape stats_shape = rows.leading;
    if (check::is_layer(c.op)) stats_shape.insert(stats_shape.begin(), 2);
    o.stats = make_tensor(type, stats_shape);
    first = per_row(o.stats.data.data(), type);
    if (check::is_layer(c.op)) second = per_row(o.stats.data.data() + o.stats.data.size() / 2, type);
  }
  const rn_view* inv_or_mean = o.stats_wanted ? &first : nullptr;
  const rn_view* inv_std = o.stats_wanted ? &second : nullptr;

  const rn_execution execution{threads, nullptr, nullptr};
  const rn_rms_norm_options rms{c.epsilon, c.weight_offset, c.epsilon_placement, c.rounding, c.partial};
  const rn_layer_norm_options layer{c.epsilon, c.weight_offset};
  const rn_add_rms_norm_options add_rms{rms, c.norm_input};
  const rn_add_layer_norm_options add_layer{layer, c.norm_input};
  switch (c.op) {
    case check::Op::kRmsNorm:
      return require(rn_rms_norm(&out, inv_or_mean, &x, w, b, &rms, &execution));
    case check::Op::kLayerNorm:
      return require(rn_layer_norm(&out, inv_or_mean, inv_std, &x, w, b, &layer, &execution));
    case check::Op::kAddRmsNorm:
      return require(rn_add_rms_norm(&out, &sum, inv_or_mean, &x, &residual, w, b, &add_rms, &execution));
    case check::Op::kAddLayerNorm:
      return require(rn_add_layer_norm(&out, &sum, inv_or_mean, inv_std, &x, &residual, w, b, &add_layer, &execution));
    case check::Op::kCenter:
      return require(rn_center(&out, &x, &execution));
  }
}

}  // namespace rmsnorm::tools
