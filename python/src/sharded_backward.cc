// Norms of rows split over devices: the backward functions.
#include "operations.h"
#include "options.h"

namespace rmsnorm::python {
namespace {

constexpr const char* kRmsBackwardSum =
    R"(sum_products = sum of dy * (weight + weight_offset) * x over this rank's slice of each row.

dy, x         [.., d]  this rank's slices
weight        [d]  None: factor 1
sum_products  [..]  float64; None: made

Returns sum_products. Raises ValueError and TypeError.)";

Result py_rms_backward_sum(Array dy, Array x, OptionalArray weight, double weight_offset, int threads,
                           Output sum_products) {
  Call call("rms_backward_sum", threads);
  const View dyv = call.input("dy", dy);
  const View xv = call.input("x", x);
  const View wv = call.input("weight", weight);
  const View sv = call.output("sum_products", sum_products, RN_F64, rows_of(xv));
  return call.run([&] { rms_backward_sum(sv, dyv, xv, wv, weight_offset, call.execution()); });
}

constexpr const char* kRmsNormBackwardApply = R"(rms_norm_backward of this rank's slice, given the totals of all ranks.

sum_squares   [..]  float64: that of the forward pass
sum_products  [..]  float64: the total of rms_backward_sum
total_cols    the columns of all slices together
dweight and dbias are those of the slice's columns, and complete.
The other arguments are those of rms_norm_backward.

Returns dx, or a tuple of dx and those of dweight and dbias that are wanted. Raises ValueError and TypeError.)";

Result py_rms_norm_backward_apply(Array dy, Array x, Array sum_squares, Array sum_products, std::int64_t total_cols,
                                  OptionalArray weight, double epsilon, double weight_offset,
                                  Choice<EpsilonPlacement> epsilon_placement, bool accumulate, int threads, Output dx,
                                  OptionalOutput dweight, OptionalOutput dbias) {
  Call call("rms_norm_backward_apply", threads);
  call.check_accumulate(accumulate, "dweight", dweight);
  call.check_accumulate(accumulate, "dbias", dbias);
  const View dyv = call.input("dy", dy);
  const View xv = call.input("x", x);
  const View qv = call.input("sum_squares", sum_squares);
  const View pv = call.input("sum_products", sum_products);
  const View wv = call.input("weight", weight);
  const View dxv = call.output("dx", dx, xv.get()->type, shape_of(xv));
  const View dwv = call.output("dweight", dweight, gradient_type(wv, xv), columns_of(xv));
  const View dbv = call.output("dbias", dbias, gradient_type(wv, xv), columns_of(xv));
  const RmsNormBackwardOptions options = {{epsilon, weight_offset, call.choice(epsilon_placement), Rounding::kOnce, 0},
                                          accumulate};
  return call.run(
      [&] { rms_norm_backward_apply(dxv, dwv, dbv, dyv, xv, qv, pv, total_cols, wv, options, call.execution()); });
}

constexpr const char* kLayerBackwardSums =
    R"(Over this rank's slice, with g = dy * (weight + weight_offset): sum_gradients = sum of g, sum_products = sum of g * (x - mean).

dy, x       [.., d]  this rank's slices
sum         [..]  float64: the total of all ranks
total_cols  the columns of all slices together
weight      [d]  None: factor 1
sum_gradients, sum_products  [..]  float64; None: made

Returns (sum_gradients, sum_products). Raises ValueError and TypeError.)";

Result py_layer_backward_sums(Array dy, Array x, Array sum, std::int64_t total_cols, OptionalArray weight,
                              double weight_offset, int threads, Output sum_gradients, Output sum_products) {
  Call call("layer_backward_sums", threads);
  const View dyv = call.input("dy", dy);
  const View xv = call.input("x", x);
  const View sv = call.input("sum", sum);
  const View wv = call.input("weight", weight);
  const View gv = call.output("sum_gradients", sum_gradients, RN_F64, rows_of(xv));
  const View pv = call.output("sum_products", sum_products, RN_F64, rows_of(xv));
  return call.run([&] { layer_backward_sums(gv, pv, dyv, xv, sv, total_cols, wv, weight_offset, call.execution()); });
}

constexpr const char* kLayerNormBackwardApply =
    R"(layer_norm_backward of this rank's slice, given the totals of all ranks.

sum, sum_squares             [..]  float64: those of the forward pass
sum_gradients, sum_products  [..]  float64: the totals of layer_backward_sums
The other arguments are those of rms_norm_backward_apply.

Returns dx, or a tuple of dx and those of dweight and dbias that are wanted. Raises ValueError and TypeError.)";

Result py_layer_norm_backward_apply(Array dy, Array x, Array sum, Array sum_squares, Array sum_gradients,
                                    Array sum_products, std::int64_t total_cols, OptionalArray weight, double epsilon,
                                    double weight_offset, bool accumulate, int threads, Output dx,
                                    OptionalOutput dweight, OptionalOutput dbias) {
  Call call("layer_norm_backward_apply", threads);
  call.check_accumulate(accumulate, "dweight", dweight);
  call.check_accumulate(accumulate, "dbias", dbias);
  const View dyv = call.input("dy", dy);
  const View xv = call.input("x", x);
  const View sv = call.input("sum", sum);
  const View qv = call.input("sum_squares", sum_squares);
  const View gv = call.input("sum_gradients", sum_gradients);
  const View pv = call.input("sum_products", sum_products);
  const View wv = call.input("weight", weight);
  const View dxv = call.output("dx", dx, xv.get()->type, shape_of(xv));
  const View dwv = call.output("dweight", dweight, gradient_type(wv, xv), columns_of(xv));
  const View dbv = call.output("dbias", dbias, gradient_type(wv, xv), columns_of(xv));
  const LayerNormBackwardOptions options = {{epsilon, weight_offset}, accumulate};
  return call.run([&] {
    layer_norm_backward_apply(dxv, dwv, dbv, dyv, xv, sv, qv, gv, pv, total_cols, wv, options, call.execution());
  });
}

}  // namespace

void add_sharded_backward(nb::module_& module) {
  module.def("rms_backward_sum", py_rms_backward_sum, kRmsBackwardSum, nb::arg("dy"), nb::arg("x"), optional("weight"),
             nb::kw_only(), weight_offset(), threads(), optional("sum_products"));
  module.def("rms_norm_backward_apply", py_rms_norm_backward_apply, kRmsNormBackwardApply, nb::arg("dy"), nb::arg("x"),
             nb::arg("sum_squares"), nb::arg("sum_products"), nb::arg("total_cols"), optional("weight"), nb::kw_only(),
             rms_epsilon(), weight_offset(), epsilon_placement(), accumulate(), threads(), optional("dx"),
             optional("dweight"), optional("dbias"));
  module.def("layer_backward_sums", py_layer_backward_sums, kLayerBackwardSums, nb::arg("dy"), nb::arg("x"),
             nb::arg("sum"), nb::arg("total_cols"), optional("weight"), nb::kw_only(), weight_offset(), threads(),
             optional("sum_gradients"), optional("sum_products"));
  module.def("layer_norm_backward_apply", py_layer_norm_backward_apply, kLayerNormBackwardApply, nb::arg("dy"),
             nb::arg("x"), nb::arg("sum"), nb::arg("sum_squares"), nb::arg("sum_gradients"), nb::arg("sum_products"),
             nb::arg("total_cols"), optional("weight"), nb::kw_only(), layer_epsilon(), weight_offset(), accumulate(),
             threads(), optional("dx"), optional("dweight"), optional("dbias"));
}

}  // namespace rmsnorm::python
