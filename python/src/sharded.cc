// Norms of rows split over devices: the forward functions.
#include "operations.h"
#include "options.h"

namespace rmsnorm::python {
namespace {

constexpr const char* kAddRankSums = R"(total[i] = parts[0, i] + parts[1, i] + .., added in the order of the ranks.

parts  [ranks, ..]  float64, dense: what a gather of each rank's sums leaves in memory
total  [..]  float64, dense; may be parts[0]; None: made

Returns total. Raises ValueError and TypeError.)";

Result py_add_rank_sums(Array parts, Output total) {
  Call call("add_rank_sums", 1);
  const View pv = call.dense_f64("parts", parts);
  const auto shape = shape_of(pv);
  const auto sums = shape.empty() ? shape : shape.subspan(1);
  const View tv = call.dense_f64_output("total", total, sums);
  std::int64_t count = 1;
  for (const std::int64_t size : sums) count *= size;
  return call.run([&] {
    add_rank_sums(static_cast<double*>(tv.get()->data), static_cast<const double*>(pv.get()->data),
                  shape.empty() ? 0 : shape[0], count);
  });
}

constexpr const char* kRmsSumSquares = R"(sum_squares = sum of x^2 over this rank's slice of each row.

x            [.., d]  this rank's slice
sum_squares  [..]  float64; None: made

Gather them, add them in the order of the ranks (add_rank_sums), and hand the total to rms_norm_apply.
Returns sum_squares. Raises ValueError and TypeError.)";

Result py_rms_sum_squares(Array x, int threads, Output sum_squares) {
  Call call("rms_sum_squares", threads);
  const View xv = call.input("x", x);
  const View sv = call.output("sum_squares", sum_squares, RN_F64, rows_of(xv));
  return call.run([&] { rms_sum_squares(sv, xv, call.execution()); });
}

constexpr const char* kRmsNormApply = R"(rms_norm of this rank's slice, with mean(x^2) = sum_squares / total_cols.

x            [.., d]  this rank's slice, d columns
sum_squares  [..]  float64: the total of all ranks
total_cols   the columns of all slices together
The other arguments are those of rms_norm, by the slice's columns.

Returns out, or (out, inv_rms). Raises ValueError and TypeError.)";

Result py_rms_norm_apply(Array x, Array sum_squares, std::int64_t total_cols, OptionalArray weight, OptionalArray bias,
                         double epsilon, double weight_offset, Choice<EpsilonPlacement> epsilon_placement,
                         Choice<Rounding> rounding, int threads, Output out, OptionalOutput inv_rms) {
  Call call("rms_norm_apply", threads);
  const View xv = call.input("x", x);
  const View sv = call.input("sum_squares", sum_squares);
  const View wv = call.input("weight", weight);
  const View bv = call.input("bias", bias);
  const View ov = call.output("out", out, xv.get()->type, shape_of(xv));
  const View iv = call.output("inv_rms", inv_rms, statistic_type(xv), rows_of(xv));
  const auto options = rms_options(call, epsilon, weight_offset, epsilon_placement, rounding, 0);
  return call.run([&] { rms_norm_apply(ov, iv, xv, sv, total_cols, wv, bv, options, call.execution()); });
}

constexpr const char* kLayerSum = R"(sum = sum of x over this rank's slice of each row: the first round of LayerNorm.

x    [.., d]  this rank's slice
sum  [..]  float64; None: made

Returns sum. Raises ValueError and TypeError.)";

Result py_layer_sum(Array x, int threads, Output sum) {
  Call call("layer_sum", threads);
  const View xv = call.input("x", x);
  const View sv = call.output("sum", sum, RN_F64, rows_of(xv));
  return call.run([&] { layer_sum(sv, xv, call.execution()); });
}

constexpr const char* kLayerSumSquares =
    R"(sum_squares = sum of (x - mean)^2 over this rank's slice, mean = sum / total_cols: the second round.

x            [.., d]  this rank's slice
sum          [..]  float64: the total of all ranks
total_cols   the columns of all slices together
sum_squares  [..]  float64; None: made

Returns sum_squares. Raises ValueError and TypeError.)";

Result py_layer_sum_squares(Array x, Array sum, std::int64_t total_cols, int threads, Output sum_squares) {
  Call call("layer_sum_squares", threads);
  const View xv = call.input("x", x);
  const View sv = call.input("sum", sum);
  const View qv = call.output("sum_squares", sum_squares, RN_F64, rows_of(xv));
  return call.run([&] { layer_sum_squares(qv, xv, sv, total_cols, call.execution()); });
}

constexpr const char* kLayerNormApply =
    R"(layer_norm of this rank's slice, with mean = sum / total_cols and the variance sum_squares / total_cols.

sum, sum_squares  [..]  float64: the totals of all ranks
The other arguments are those of layer_norm and rms_norm_apply.

Returns out, or a tuple of out and those of mean and inv_std that are wanted. Raises ValueError and TypeError.)";

Result py_layer_norm_apply(Array x, Array sum, Array sum_squares, std::int64_t total_cols, OptionalArray weight,
                           OptionalArray bias, double epsilon, double weight_offset, int threads, Output out,
                           OptionalOutput mean, OptionalOutput inv_std) {
  Call call("layer_norm_apply", threads);
  const View xv = call.input("x", x);
  const View sv = call.input("sum", sum);
  const View qv = call.input("sum_squares", sum_squares);
  const View wv = call.input("weight", weight);
  const View bv = call.input("bias", bias);
  const View ov = call.output("out", out, xv.get()->type, shape_of(xv));
  const View mv = call.output("mean", mean, statistic_type(xv), rows_of(xv));
  const View iv = call.output("inv_std", inv_std, statistic_type(xv), rows_of(xv));
  const LayerNormOptions options = {epsilon, weight_offset};
  return call.run([&] { layer_norm_apply(ov, mv, iv, xv, sv, qv, total_cols, wv, bv, options, call.execution()); });
}

}  // namespace

void add_sharded(nb::module_& module) {
  module.def("add_rank_sums", py_add_rank_sums, kAddRankSums, nb::arg("parts"), nb::kw_only(), optional("total"));
  module.def("rms_sum_squares", py_rms_sum_squares, kRmsSumSquares, nb::arg("x"), nb::kw_only(), threads(),
             optional("sum_squares"));
  module.def("rms_norm_apply", py_rms_norm_apply, kRmsNormApply, nb::arg("x"), nb::arg("sum_squares"),
             nb::arg("total_cols"), optional("weight"), optional("bias"), nb::kw_only(), rms_epsilon(), weight_offset(),
             epsilon_placement(), rounding(), threads(), optional("out"), optional("inv_rms"));
  module.def("layer_sum", py_layer_sum, kLayerSum, nb::arg("x"), nb::kw_only(), threads(), optional("sum"));
  module.def("layer_sum_squares", py_layer_sum_squares, kLayerSumSquares, nb::arg("x"), nb::arg("sum"),
             nb::arg("total_cols"), nb::kw_only(), threads(), optional("sum_squares"));
  module.def("layer_norm_apply", py_layer_norm_apply, kLayerNormApply, nb::arg("x"), nb::arg("sum"),
             nb::arg("sum_squares"), nb::arg("total_cols"), optional("weight"), optional("bias"), nb::kw_only(),
             layer_epsilon(), weight_offset(), threads(), optional("out"), optional("mean"), optional("inv_std"));
}

}  // namespace rmsnorm::python
