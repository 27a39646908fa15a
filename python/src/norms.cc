// rms_norm, layer_norm, center.
#include "operations.h"
#include "options.h"

namespace rmsnorm::python {
namespace {

constexpr const char* kRmsNorm = R"(RMSNorm of each row.

    inv = 1 / sqrt(mean(x^2) + epsilon),  out = x * inv * (weight + weight_offset) + bias

x        [.., d]  float32, float16, bfloat16 or float64; any strides before the last axis, which must be dense
weight   [d], or broadcasting against x; None: factor 1; float32, float16 or bfloat16 (float64 x: float64 or float32)
bias     as weight; None: nothing is added
epsilon  finite, 0 or more (torch.nn.functional.rms_norm has 1.19e-7 for float32)
weight_offset      added to each weight before use; 1 for Gemma
epsilon_placement  'outside': inv = 1 / (sqrt(mean(x^2)) + epsilon)
rounding  'once': one rounding at the end; 'before_weight': x * inv is rounded to the type of x first, as in Llama,
          Mistral and Qwen; 'exact': as 'once', float32 results, too, correctly rounded
partial  mean square of that many leading columns only; 0: all
threads  at most so many; 0: one for each CPU; 1: the calling thread
out      [.., d]  type of x, or float32, or float16 / bfloat16 where x is float32; may be x; None: made, type of x
inv_rms  [..]  float32 (float64 where x is float64): inv of each row; True: made; None: not wanted

Returns out, or (out, inv_rms). Raises ValueError and TypeError.
Zhang and Sennrich 2019, "Root Mean Square Layer Normalization".)";

Result py_rms_norm(Array x, OptionalArray weight, OptionalArray bias, double epsilon, double weight_offset,
                   Choice<EpsilonPlacement> epsilon_placement, Choice<Rounding> rounding, std::int64_t partial,
                   int threads, Output out, OptionalOutput inv_rms) {
  Call call("rms_norm", threads);
  const View xv = call.input("x", x);
  const View wv = call.input("weight", weight);
  const View bv = call.input("bias", bias);
  const View ov = call.output("out", out, xv.get()->type, shape_of(xv));
  const View iv = call.output("inv_rms", inv_rms, statistic_type(xv), rows_of(xv));
  const auto options = rms_options(call, epsilon, weight_offset, epsilon_placement, rounding, partial);
  return call.run([&] { rms_norm(ov, iv, xv, wv, bv, options, call.execution()); });
}

constexpr const char* kLayerNorm = R"(LayerNorm of each row, with the biased variance.

    m = mean(x),  v = mean((x - m)^2),  out = (x - m) / sqrt(v + epsilon) * (weight + weight_offset) + bias

mean     [..]  float32 (float64 where x is float64): m of each row; True: made; None: not wanted
inv_std  [..]  likewise 1 / sqrt(v + epsilon)
The other arguments are those of rms_norm. A common offset of 10^4 standard deviations costs no accuracy.

Returns out, or a tuple of out and those of mean and inv_std that are wanted. Raises ValueError and TypeError.
Ba, Kiros and Hinton 2016, "Layer Normalization".)";

Result py_layer_norm(Array x, OptionalArray weight, OptionalArray bias, double epsilon, double weight_offset,
                     int threads, Output out, OptionalOutput mean, OptionalOutput inv_std) {
  Call call("layer_norm", threads);
  const View xv = call.input("x", x);
  const View wv = call.input("weight", weight);
  const View bv = call.input("bias", bias);
  const View ov = call.output("out", out, xv.get()->type, shape_of(xv));
  const View mv = call.output("mean", mean, statistic_type(xv), rows_of(xv));
  const View iv = call.output("inv_std", inv_std, statistic_type(xv), rows_of(xv));
  const LayerNormOptions options = {epsilon, weight_offset};
  return call.run([&] { layer_norm(ov, mv, iv, xv, wv, bv, options, call.execution()); });
}

constexpr const char* kCenter = R"(out = x - mean(x) for each row, correctly rounded but next to ties.

x, out, threads  as for rms_norm

Returns out. Raises ValueError and TypeError.)";

Result py_center(Array x, int threads, Output out) {
  Call call("center", threads);
  const View xv = call.input("x", x);
  const View ov = call.output("out", out, xv.get()->type, shape_of(xv));
  return call.run([&] { center(ov, xv, call.execution()); });
}

}  // namespace

void add_norms(nb::module_& module) {
  module.def("rms_norm", py_rms_norm, kRmsNorm, nb::arg("x"), optional("weight"), optional("bias"), nb::kw_only(),
             rms_epsilon(), weight_offset(), epsilon_placement(), rounding(), partial(), threads(), optional("out"),
             optional("inv_rms"));
  module.def("layer_norm", py_layer_norm, kLayerNorm, nb::arg("x"), optional("weight"), optional("bias"), nb::kw_only(),
             layer_epsilon(), weight_offset(), threads(), optional("out"), optional("mean"), optional("inv_std"));
  module.def("center", py_center, kCenter, nb::arg("x"), nb::kw_only(), threads(), optional("out"));
}

}  // namespace rmsnorm::python
