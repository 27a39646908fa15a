// rms_norm_backward, layer_norm_backward.
#include "operations.h"
#include "options.h"

namespace rmsnorm::python {
namespace {

constexpr const char* kRmsNormBackward =
    R"(Gradients of rms_norm. With g = dy * (weight + weight_offset) and xhat = x * inv:

    dx = inv * (g - xhat * mean(g * xhat)),  dweight = sum over rows of dy * xhat,  dbias = sum over rows of dy

dy       [.., d]  the gradient of out; type of x, or float32, or float16 / bfloat16 where x is float32
x        [.., d]  what the forward call read
weight   [d]  None: factor 1
inv_rms  [..]  what the forward call gave; None: computed again
epsilon, weight_offset, epsilon_placement, partial  those of the forward call
accumulate  dweight and dbias are added to, with one rounding
dx       [.., d]  as dy; may be dy; None: made, type of x
dweight  [d]  float32, float16 or bfloat16 (float64 x: float64 or float32); True: made, type of weight; None: not wanted
dbias    [d]  likewise

Returns dx, or a tuple of dx and those of dweight and dbias that are wanted. Raises ValueError and TypeError.)";

Result py_rms_norm_backward(Array dy, Array x, OptionalArray weight, OptionalArray inv_rms, double epsilon,
                            double weight_offset, Choice<EpsilonPlacement> epsilon_placement, std::int64_t partial,
                            bool accumulate, int threads, Output dx, OptionalOutput dweight, OptionalOutput dbias) {
  Call call("rms_norm_backward", threads);
  call.check_accumulate(accumulate, "dweight", dweight);
  call.check_accumulate(accumulate, "dbias", dbias);
  const View dyv = call.input("dy", dy);
  const View xv = call.input("x", x);
  const View wv = call.input("weight", weight);
  const View iv = call.input("inv_rms", inv_rms);
  const View dxv = call.output("dx", dx, xv.get()->type, shape_of(xv));
  const View dwv = call.output("dweight", dweight, gradient_type(wv, xv), columns_of(xv));
  const View dbv = call.output("dbias", dbias, gradient_type(wv, xv), columns_of(xv));
  const RmsNormBackwardOptions options = {
      {epsilon, weight_offset, call.choice(epsilon_placement), Rounding::kOnce, partial}, accumulate};
  return call.run([&] { rms_norm_backward(dxv, dwv, dbv, dyv, xv, wv, iv, options, call.execution()); });
}

constexpr const char* kLayerNormBackward =
    R"(Gradients of layer_norm. With g = dy * (weight + weight_offset) and h = (x - mean(x)) * inv_std:

    dx = inv_std * (g - mean(g) - h * mean(g * h)),  dweight = sum over rows of dy * h,  dbias = sum over rows of dy

inv_std  [..]  what the forward call gave; None: computed again
The other arguments are those of rms_norm_backward. The mean is taken from x again: a saved float32 mean would cost a
large common offset all its digits.

Returns dx, or a tuple of dx and those of dweight and dbias that are wanted. Raises ValueError and TypeError.)";

Result py_layer_norm_backward(Array dy, Array x, OptionalArray weight, OptionalArray inv_std, double epsilon,
                              double weight_offset, bool accumulate, int threads, Output dx, OptionalOutput dweight,
                              OptionalOutput dbias) {
  Call call("layer_norm_backward", threads);
  call.check_accumulate(accumulate, "dweight", dweight);
  call.check_accumulate(accumulate, "dbias", dbias);
  const View dyv = call.input("dy", dy);
  const View xv = call.input("x", x);
  const View wv = call.input("weight", weight);
  const View iv = call.input("inv_std", inv_std);
  const View dxv = call.output("dx", dx, xv.get()->type, shape_of(xv));
  const View dwv = call.output("dweight", dweight, gradient_type(wv, xv), columns_of(xv));
  const View dbv = call.output("dbias", dbias, gradient_type(wv, xv), columns_of(xv));
  const LayerNormBackwardOptions options = {{epsilon, weight_offset}, accumulate};
  return call.run([&] { layer_norm_backward(dxv, dwv, dbv, dyv, xv, wv, iv, options, call.execution()); });
}

}  // namespace

void add_backward(nb::module_& module) {
  module.def("rms_norm_backward", py_rms_norm_backward, kRmsNormBackward, nb::arg("dy"), nb::arg("x"),
             optional("weight"), optional("inv_rms"), nb::kw_only(), rms_epsilon(), weight_offset(),
             epsilon_placement(), partial(), accumulate(), threads(), optional("dx"), optional("dweight"),
             optional("dbias"));
  module.def("layer_norm_backward", py_layer_norm_backward, kLayerNormBackward, nb::arg("dy"), nb::arg("x"),
             optional("weight"), optional("inv_std"), nb::kw_only(), layer_epsilon(), weight_offset(), accumulate(),
             threads(), optional("dx"), optional("dweight"), optional("dbias"));
}

}  // namespace rmsnorm::python
