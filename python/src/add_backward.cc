// add_rms_norm_backward, add_layer_norm_backward.
#include "operations.h"
#include "options.h"

namespace rmsnorm::python {
namespace {

constexpr const char* kAddRmsNormBackward = R"(Gradients of add_rms_norm.

    dx = dresidual = d_residual_out + rms_norm_backward(dy)

dy              [.., d]  the gradient of out
sum             [.., d]  what the norm read: residual_out
weight          [d]  None: factor 1
d_residual_out  [.., d]  the gradient that arrives through residual_out; None: none does
inv_rms         [..]  what the forward call gave; None: computed again
dx              [.., d]  None: made, type of dy; may be dy
dresidual       [.., d]  the same numbers, with a type of its own; True: made, type of sum; None: not wanted
The other arguments are those of rms_norm_backward.

Returns dx, or a tuple of dx and those of dresidual, dweight and dbias that are wanted. Raises ValueError and
TypeError.)";

// Both functions. options: from the call, whose choices must be known; operation: the library's, on the views.
template <class MakeOptions, class Operation>
Result add_backward(Call& call, Array dy, Array sum, OptionalArray weight, OptionalArray d_residual_out,
                    const char* inv_name, OptionalArray inv, bool accumulate, Output dx, OptionalOutput dresidual,
                    OptionalOutput dweight, OptionalOutput dbias, const MakeOptions& options,
                    const Operation& operation) {
  call.check_accumulate(accumulate, "dweight", dweight);
  call.check_accumulate(accumulate, "dbias", dbias);
  const View dyv = call.input("dy", dy);
  const View sv = call.input("sum", sum);
  const View wv = call.input("weight", weight);
  const View drov = call.input("d_residual_out", d_residual_out);
  const View iv = call.input(inv_name, inv);
  const View dxv = call.output("dx", dx, dyv.get()->type, shape_of(sv));
  const View drv = call.output("dresidual", dresidual, sv.get()->type, shape_of(sv));
  const View dwv = call.output("dweight", dweight, gradient_type(wv, sv), columns_of(sv));
  const View dbv = call.output("dbias", dbias, gradient_type(wv, sv), columns_of(sv));
  const auto chosen = options();
  return call.run([&] { operation(dxv, drv, dwv, dbv, dyv, drov, sv, wv, iv, chosen, call.execution()); });
}

Result py_add_rms_norm_backward(Array dy, Array sum, OptionalArray weight, OptionalArray d_residual_out,
                                OptionalArray inv_rms, double epsilon, double weight_offset,
                                Choice<EpsilonPlacement> epsilon_placement, std::int64_t partial, bool accumulate,
                                int threads, Output dx, OptionalOutput dresidual, OptionalOutput dweight,
                                OptionalOutput dbias) {
  Call call("add_rms_norm_backward", threads);
  const auto options = [&] {
    return RmsNormBackwardOptions{{epsilon, weight_offset, call.choice(epsilon_placement), Rounding::kOnce, partial},
                                  accumulate};
  };
  return add_backward(call, dy, sum, weight, d_residual_out, "inv_rms", inv_rms, accumulate, dx, dresidual, dweight,
                      dbias, options, add_rms_norm_backward);
}

constexpr const char* kAddLayerNormBackward = R"(Gradients of add_layer_norm.

    dx = dresidual = d_residual_out + layer_norm_backward(dy)

The arguments are those of add_rms_norm_backward and layer_norm_backward.

Returns dx, or a tuple of dx and those of dresidual, dweight and dbias that are wanted. Raises ValueError and
TypeError.)";

Result py_add_layer_norm_backward(Array dy, Array sum, OptionalArray weight, OptionalArray d_residual_out,
                                  OptionalArray inv_std, double epsilon, double weight_offset, bool accumulate,
                                  int threads, Output dx, OptionalOutput dresidual, OptionalOutput dweight,
                                  OptionalOutput dbias) {
  Call call("add_layer_norm_backward", threads);
  const auto options = [&] { return LayerNormBackwardOptions{{epsilon, weight_offset}, accumulate}; };
  return add_backward(call, dy, sum, weight, d_residual_out, "inv_std", inv_std, accumulate, dx, dresidual, dweight,
                      dbias, options, add_layer_norm_backward);
}

}  // namespace

void add_add_backward(nb::module_& module) {
  module.def("add_rms_norm_backward", py_add_rms_norm_backward, kAddRmsNormBackward, nb::arg("dy"), nb::arg("sum"),
             optional("weight"), optional("d_residual_out"), optional("inv_rms"), nb::kw_only(), rms_epsilon(),
             weight_offset(), epsilon_placement(), partial(), accumulate(), threads(), optional("dx"),
             optional("dresidual"), optional("dweight"), optional("dbias"));
  module.def("add_layer_norm_backward", py_add_layer_norm_backward, kAddLayerNormBackward, nb::arg("dy"),
             nb::arg("sum"), optional("weight"), optional("d_residual_out"), optional("inv_std"), nb::kw_only(),
             layer_epsilon(), weight_offset(), accumulate(), threads(), optional("dx"), optional("dresidual"),
             optional("dweight"), optional("dbias"));
}

}  // namespace rmsnorm::python
