// add_rms_norm, add_layer_norm.
#include "operations.h"
#include "options.h"

namespace rmsnorm::python {
namespace {

constexpr const char* kAddRmsNorm = R"(Residual add and RMSNorm in one pass.

    s = x + residual,  residual_out = round(s),  out = rms_norm(residual_out or s)

residual      [.., d]  type of x, or float32 where x is float16 or bfloat16 (a residual stream kept in float32)
norm_input    'rounded_sum': the norm reads residual_out, what separate add and norm compute; 'unrounded_sum': s
residual_out  as residual; may be residual; None: made, type of residual
The other arguments are those of rms_norm; out may be x. The sum is formed in float32 (float64 for float64).

Returns (out, residual_out), or (out, residual_out, inv_rms). Raises ValueError and TypeError.)";

Result py_add_rms_norm(Array x, Array residual, OptionalArray weight, OptionalArray bias, double epsilon,
                       double weight_offset, Choice<EpsilonPlacement> epsilon_placement, Choice<Rounding> rounding,
                       std::int64_t partial, Choice<NormInput> norm_input, int threads, Output out, Output residual_out,
                       OptionalOutput inv_rms) {
  Call call("add_rms_norm", threads);
  const View xv = call.input("x", x);
  const View rv = call.input("residual", residual);
  const View wv = call.input("weight", weight);
  const View bv = call.input("bias", bias);
  const View ov = call.output("out", out, xv.get()->type, shape_of(xv));
  const View sv = call.output("residual_out", residual_out, rv.get()->type, shape_of(xv));
  const View iv = call.output("inv_rms", inv_rms, statistic_type(xv), rows_of(xv));
  const AddRmsNormOptions options = {rms_options(call, epsilon, weight_offset, epsilon_placement, rounding, partial),
                                     call.choice(norm_input)};
  return call.run([&] { add_rms_norm(ov, sv, iv, xv, rv, wv, bv, options, call.execution()); });
}

constexpr const char* kAddLayerNorm = R"(Residual add and LayerNorm in one pass.

    s = x + residual,  residual_out = round(s),  out = layer_norm(residual_out or s)

The arguments are those of add_rms_norm and layer_norm.

Returns a tuple of out, residual_out and those of mean and inv_std that are wanted. Raises ValueError and TypeError.)";

Result py_add_layer_norm(Array x, Array residual, OptionalArray weight, OptionalArray bias, double epsilon,
                         double weight_offset, Choice<NormInput> norm_input, int threads, Output out,
                         Output residual_out, OptionalOutput mean, OptionalOutput inv_std) {
  Call call("add_layer_norm", threads);
  const View xv = call.input("x", x);
  const View rv = call.input("residual", residual);
  const View wv = call.input("weight", weight);
  const View bv = call.input("bias", bias);
  const View ov = call.output("out", out, xv.get()->type, shape_of(xv));
  const View sv = call.output("residual_out", residual_out, rv.get()->type, shape_of(xv));
  const View mv = call.output("mean", mean, statistic_type(xv), rows_of(xv));
  const View iv = call.output("inv_std", inv_std, statistic_type(xv), rows_of(xv));
  const AddLayerNormOptions options = {{epsilon, weight_offset}, call.choice(norm_input)};
  return call.run([&] { add_layer_norm(ov, sv, mv, iv, xv, rv, wv, bv, options, call.execution()); });
}

}  // namespace

void add_add_norms(nb::module_& module) {
  module.def("add_rms_norm", py_add_rms_norm, kAddRmsNorm, nb::arg("x"), nb::arg("residual"), optional("weight"),
             optional("bias"), nb::kw_only(), rms_epsilon(), weight_offset(), epsilon_placement(), rounding(),
             partial(), norm_input(), threads(), optional("out"), optional("residual_out"), optional("inv_rms"));
  module.def("add_layer_norm", py_add_layer_norm, kAddLayerNorm, nb::arg("x"), nb::arg("residual"), optional("weight"),
             optional("bias"), nb::kw_only(), layer_epsilon(), weight_offset(), norm_input(), threads(),
             optional("out"), optional("residual_out"), optional("mean"), optional("inv_std"));
}

}  // namespace rmsnorm::python
