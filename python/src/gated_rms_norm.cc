// gated_rms_norm and its backward.
#include "operations.h"
#include "options.h"

namespace rmsnorm::python {
namespace {

auto gate_order() { return nb::arg("gate_order") = spelled(GatedRmsNormOptions().gate_order); }
auto gated_epsilon() { return nb::arg("epsilon") = GatedRmsNormOptions().epsilon; }
auto groups() { return nb::arg("groups") = GatedRmsNormOptions().groups; }

// [.., groups]: inv_rms of each group.
std::vector<std::int64_t> groups_shape(const View& x, std::int64_t groups) {
  const auto rows = shape_of(x);
  std::vector<std::int64_t> shape(rows.begin(), rows.end());
  if (!shape.empty()) shape.back() = groups;
  return shape;
}

constexpr const char* kGatedRmsNorm =
    R"(RMSNorm with a gate. silu(g) = g / (1 + exp(-g)); the mean is over each of `groups` equal parts of a row.

    gate_order 'last'   out = x * inv * weight * silu(gate)            (Qwen3-Next)
    gate_order 'first'  u = x * silu(gate),  out = u * inv * weight    (Mamba 2)

x        [.., d]  float32, float16, bfloat16 or float64
gate     [.., d]  type of x, or float32, or float16 / bfloat16 where x is float32
weight   [d], or broadcasting against x; None: factor 1
epsilon  1e-5 in Mamba 2
rounding  'once', or 'before_weight', what Hugging Face's models do: 'last' rounds x * inv to the type of x, then its
          product with the weight if that has the type of x; 'first' rounds u * inv
groups   a divisor of d
out      as gate; may be x; None: made, type of x
inv_rms  [.., groups]  float32 (float64 where x is float64); True: made; None: not wanted

Returns out, or (out, inv_rms). Raises ValueError and TypeError.)";

Result py_gated_rms_norm(Array x, Array gate, OptionalArray weight, double epsilon, Choice<GateOrder> gate_order,
                         Choice<Rounding> rounding, std::int64_t groups, int threads, Output out,
                         OptionalOutput inv_rms) {
  Call call("gated_rms_norm", threads);
  const View xv = call.input("x", x);
  const View gv = call.input("gate", gate);
  const View wv = call.input("weight", weight);
  const View ov = call.output("out", out, xv.get()->type, shape_of(xv));
  const View iv = call.output("inv_rms", inv_rms, statistic_type(xv), groups_shape(xv, groups));
  const GatedRmsNormOptions options = {epsilon, call.choice(gate_order), call.choice(rounding), groups};
  return call.run([&] { gated_rms_norm(ov, iv, xv, gv, wv, options, call.execution()); });
}

constexpr const char* kGatedRmsNormBackward = R"(Gradients of gated_rms_norm. With g = dy * weight and s = silu(gate):

    gate_order 'last'   xhat = x * inv,  h = g * s,  dx = inv * (h - xhat * mean(h * xhat))
                        dgate = g * xhat * silu'(gate),  dweight = sum over rows of dy * s * xhat
    gate_order 'first'  uhat = x * s * inv,  du = inv * (g - uhat * mean(g * uhat)),  dx = du * s
                        dgate = du * x * silu'(gate),  dweight = sum over rows of dy * uhat

dy, x, gate, weight  the gradient of out; what the forward call read; weight is [d]
inv_rms  [.., groups]  what the forward call gave; None: computed again
accumulate  dweight is added to, with one rounding
dx       [.., d]  may be dy; None: made, type of x
dgate    [.., d]  True: made, type of gate; None: not wanted
dweight  [d]  True: made, type of weight; None: not wanted

Returns dx, or a tuple of dx and those of dgate and dweight that are wanted. Raises ValueError and TypeError.)";

Result py_gated_rms_norm_backward(Array dy, Array x, Array gate, OptionalArray weight, OptionalArray inv_rms,
                                  double epsilon, Choice<GateOrder> gate_order, std::int64_t groups, bool accumulate,
                                  int threads, Output dx, OptionalOutput dgate, OptionalOutput dweight) {
  Call call("gated_rms_norm_backward", threads);
  call.check_accumulate(accumulate, "dweight", dweight);
  const View dyv = call.input("dy", dy);
  const View xv = call.input("x", x);
  const View gv = call.input("gate", gate);
  const View wv = call.input("weight", weight);
  const View iv = call.input("inv_rms", inv_rms);
  const View dxv = call.output("dx", dx, xv.get()->type, shape_of(xv));
  const View dgv = call.output("dgate", dgate, gv.get()->type, shape_of(xv));
  const View dwv = call.output("dweight", dweight, gradient_type(wv, xv), columns_of(xv));
  const GatedRmsNormBackwardOptions options = {{epsilon, call.choice(gate_order), Rounding::kOnce, groups}, accumulate};
  return call.run([&] { gated_rms_norm_backward(dxv, dgv, dwv, dyv, xv, gv, wv, iv, options, call.execution()); });
}

}  // namespace

void add_gated_rms_norm(nb::module_& module) {
  module.def("gated_rms_norm", py_gated_rms_norm, kGatedRmsNorm, nb::arg("x"), nb::arg("gate"), optional("weight"),
             nb::kw_only(), gated_epsilon(), gate_order(), rounding(), groups(), threads(), optional("out"),
             optional("inv_rms"));
  module.def("gated_rms_norm_backward", py_gated_rms_norm_backward, kGatedRmsNormBackward, nb::arg("dy"), nb::arg("x"),
             nb::arg("gate"), optional("weight"), optional("inv_rms"), nb::kw_only(), gated_epsilon(), gate_order(),
             groups(), accumulate(), threads(), optional("dx"), optional("dgate"), optional("dweight"));
}

}  // namespace rmsnorm::python
