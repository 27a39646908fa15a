#include "tools/norm_operands.h"

#include <algorithm>

#include "tools/arguments.h"
#include "tools/error.h"
#include "tools/progress.h"

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

// The views of one call. A parameter has the axes of x or only the last one; statistics have all but the last.
struct Views {
  rn_view x{}, out{};
  std::optional<rn_view> weight, bias, residual, residual_out;
  std::optional<rn_view> inv_or_mean, inv_std;
};

const rn_view* pointer(const std::optional<rn_view>& view) { return view ? &*view : nullptr; }

rn_status call(const Views& v, const check::Case& c, const rn_execution& execution) {
  const rn_view* weight = pointer(v.weight);
  const rn_view* bias = pointer(v.bias);
  const rn_view* residual = pointer(v.residual);
  const rn_view* sum = pointer(v.residual_out);
  const rn_view* first = pointer(v.inv_or_mean);
  const rn_view* second = pointer(v.inv_std);
  const rn_rms_norm_options rms{c.epsilon, c.weight_offset, c.epsilon_placement, c.rounding, c.partial};
  const rn_layer_norm_options layer{c.epsilon, c.weight_offset};
  const rn_add_rms_norm_options add_rms{rms, c.norm_input};
  const rn_add_layer_norm_options add_layer{layer, c.norm_input};
  switch (c.op) {
    case check::Op::kRmsNorm:
      return rn_rms_norm(&v.out, first, &v.x, weight, bias, &rms, &execution);
    case check::Op::kLayerNorm:
      return rn_layer_norm(&v.out, first, second, &v.x, weight, bias, &layer, &execution);
    case check::Op::kAddRmsNorm:
      return rn_add_rms_norm(&v.out, sum, first, &v.x, residual, weight, bias, &add_rms, &execution);
    case check::Op::kAddLayerNorm:
      return rn_add_layer_norm(&v.out, sum, first, second, &v.x, residual, weight, bias, &add_layer, &execution);
    case check::Op::kCenter:
      break;
  }
  return rn_center(&v.out, &v.x, &execution);
}

void take(rn_view& view, std::int32_t axis, std::int64_t begin, std::int64_t count) {
  const std::int64_t bytes = begin * view.strides[axis] * static_cast<std::int64_t>(rn_type_size(view.type));
  view.data = static_cast<std::byte*>(view.data) + bytes;
  view.shape[axis] = count;
}

// Entries begin .. begin + count - 1 of one axis before the last.
Views slice(Views v, std::int32_t axis, std::int64_t begin, std::int64_t count) {
  take(v.x, axis, begin, count);
  take(v.out, axis, begin, count);
  for (std::optional<rn_view>* view : {&v.residual, &v.residual_out, &v.inv_or_mean, &v.inv_std}) {
    if (*view) take(**view, axis, begin, count);
  }
  for (std::optional<rn_view>* view : {&v.weight, &v.bias}) {
    if (*view && (*view)->rank == v.x.rank) take(**view, axis, begin, count);  // the others are vectors, for all rows
  }
  return v;
}

// So many bytes of x in one call of the library: some ten milliseconds, and more than its outputs' way to memory depends
// on.
constexpr std::int64_t kSliceBytes = 24 << 20;

// The call in slices of rows, so that the progress line moves. No row depends on another. A single long row is one
// slice.
void call_in_slices(const Views& v, const check::Case& c, const rn_execution& execution) {
  const std::int64_t* shape = v.x.shape;
  const std::int32_t axis = static_cast<std::int32_t>(std::max_element(shape, shape + v.x.rank - 1) - shape);
  std::int64_t entry_bytes = static_cast<std::int64_t>(rn_type_size(v.x.type));  // x is in memory: no overflow
  for (std::int32_t i = 0; i < v.x.rank; ++i) entry_bytes *= i == axis ? 1 : shape[i];
  const std::int64_t step = std::max<std::int64_t>(1, kSliceBytes / std::max<std::int64_t>(1, entry_bytes));
  Progress progress("computing " + std::string(check::name_of(c.op)), static_cast<std::uint64_t>(shape[axis]));
  std::int64_t begin = 0;
  do {  // an empty tensor, too, has its options checked
    const std::int64_t count = std::min(step, shape[axis] - begin);
    require(call(slice(v, axis, begin, count), c, execution));
    progress.advance(static_cast<std::uint64_t>(count));
    begin += count;
  } while (begin < shape[axis]);
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
  Views v;
  v.x = matrix(o.x);
  v.out = o.in_place ? v.x : matrix(o.out);
  if (o.weight) v.weight = broadcast(*o.weight, rows, "weight", o.x.shape);
  if (o.bias) v.bias = broadcast(*o.bias, rows, "bias", o.x.shape);
  if (o.residual) {
    v.residual = matrix(*o.residual);
    if (!o.in_place) o.residual_out = make_tensor(o.residual->type, o.x.shape);
    v.residual_out = o.in_place ? v.residual : matrix(o.residual_out);
  }
  if (o.stats_wanted) {
    const rn_type type = o.x.type == RN_F64 ? RN_F64 : RN_F32;
    Shape stats_shape = rows.leading;
    if (check::is_layer(c.op)) stats_shape.insert(stats_shape.begin(), 2);
    o.stats = make_tensor(type, stats_shape);
    v.inv_or_mean = per_row(o.stats.data.data(), type);
    if (check::is_layer(c.op)) v.inv_std = per_row(o.stats.data.data() + o.stats.data.size() / 2, type);
  }
  call_in_slices(v, c, {threads, nullptr, nullptr});
}

}  // namespace rmsnorm::tools
