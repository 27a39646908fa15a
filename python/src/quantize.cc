// rms_norm_quantize, add_rms_norm_quantize.
#include "operations.h"
#include "options.h"

namespace rmsnorm::python {
namespace {

auto scaling() { return nb::arg("scaling") = spelled(Quantization().scaling); }
auto static_scale() { return nb::arg("static_scale") = Quantization().static_scale; }
auto power_of_two() { return nb::arg("power_of_two") = Quantization().power_of_two; }
auto dtype() { return nb::arg("dtype") = "int8"; }

// [.., 1] of rows, [.., ceil(d / 128)] of groups.
std::vector<std::int64_t> scale_shape(const View& x, Scaling scaling) {
  const auto rows = shape_of(x);
  std::vector<std::int64_t> shape(rows.begin(), rows.end());
  if (!shape.empty()) {
    shape.back() = scaling == Scaling::kPerRow ? 1 : (x.cols() + RN_SCALE_GROUP - 1) / RN_SCALE_GROUP;
  }
  return shape;
}

View scale_output(Call& call, Output scale, const View& x, Scaling scaling) {
  if (scaling == Scaling::kStatic && scale.object.is_none()) return View();
  return call.output("scale", scale, RN_F32, scale_shape(x, scaling));
}

constexpr const char* kRmsNormQuantize = R"(RMSNorm with a quantised output.

    y = rms_norm(x),  scale = float32(max|y| / qmax),  out = saturate(round(y / scale)), ties to even

scaling  'per_row'; 'per_group': 128 columns of a row share a scale; 'static': one number for all, static_scale
static_scale  finite, above 0
power_of_two  scales of rows and groups are rounded up to a power of two
dtype    of an out that is made: numpy.int8 (qmax 127), ml_dtypes.float8_e4m3fn (448) or float8_e5m2 (57344)
out      [.., d]  one of these types; None: made
scale    [.., 1] or [.., ceil(d / 128)]  float32; None: made, but for 'static', which has none
x, weight, bias and the options of the norm  as for rms_norm; rounding says which y is quantised
A scale is 1 where all of y is 0. NaN becomes NaN (int8: 0), an infinity the largest number. out * scale gives y back,
but for the rounding.

Returns (out, scale); with 'static' out. Raises ValueError and TypeError.)";

Result py_rms_norm_quantize(Array x, OptionalArray weight, OptionalArray bias, double epsilon, double weight_offset,
                            Choice<EpsilonPlacement> epsilon_placement, Choice<Rounding> rounding, std::int64_t partial,
                            Choice<Scaling> scaling, float static_scale, bool power_of_two, nb::handle dtype,
                            int threads, Output out, Output scale) {
  Call call("rms_norm_quantize", threads);
  const View xv = call.input("x", x);
  const View wv = call.input("weight", weight);
  const View bv = call.input("bias", bias);
  const Quantization quantization = {call.choice(scaling), static_scale, power_of_two};
  const View ov = call.output("out", out, dtype, shape_of(xv));
  const View sv = scale_output(call, scale, xv, quantization.scaling);
  const RmsNormQuantizeOptions options = {
      rms_options(call, epsilon, weight_offset, epsilon_placement, rounding, partial), quantization};
  return call.run([&] { rms_norm_quantize(ov, sv, xv, wv, bv, options, call.execution()); });
}

constexpr const char* kAddRmsNormQuantize = R"(Residual add, RMSNorm and quantisation in one pass.

    s = x + residual,  residual_out = round(s),  out and scale from rms_norm(residual_out or s)

residual, norm_input, residual_out  as for add_rms_norm
The other arguments are those of rms_norm_quantize.

Returns (out, residual_out, scale); with 'static' (out, residual_out). Raises ValueError and TypeError.)";

Result py_add_rms_norm_quantize(Array x, Array residual, OptionalArray weight, OptionalArray bias, double epsilon,
                                double weight_offset, Choice<EpsilonPlacement> epsilon_placement,
                                Choice<Rounding> rounding, std::int64_t partial, Choice<NormInput> norm_input,
                                Choice<Scaling> scaling, float static_scale, bool power_of_two, nb::handle dtype,
                                int threads, Output out, Output residual_out, Output scale) {
  Call call("add_rms_norm_quantize", threads);
  const View xv = call.input("x", x);
  const View rv = call.input("residual", residual);
  const View wv = call.input("weight", weight);
  const View bv = call.input("bias", bias);
  const Quantization quantization = {call.choice(scaling), static_scale, power_of_two};
  const View ov = call.output("out", out, dtype, shape_of(xv));
  const View rov = call.output("residual_out", residual_out, rv.get()->type, shape_of(xv));
  const View sv = scale_output(call, scale, xv, quantization.scaling);
  const AddRmsNormQuantizeOptions options = {
      {rms_options(call, epsilon, weight_offset, epsilon_placement, rounding, partial), call.choice(norm_input)},
      quantization};
  return call.run([&] { add_rms_norm_quantize(ov, rov, sv, xv, rv, wv, bv, options, call.execution()); });
}

}  // namespace

void add_quantize(nb::module_& module) {
  module.def("rms_norm_quantize", py_rms_norm_quantize, kRmsNormQuantize, nb::arg("x"), optional("weight"),
             optional("bias"), nb::kw_only(), rms_epsilon(), weight_offset(), epsilon_placement(), rounding(),
             partial(), scaling(), static_scale(), power_of_two(), dtype(), threads(), optional("out"),
             optional("scale"));
  module.def("add_rms_norm_quantize", py_add_rms_norm_quantize, kAddRmsNormQuantize, nb::arg("x"), nb::arg("residual"),
             optional("weight"), optional("bias"), nb::kw_only(), rms_epsilon(), weight_offset(), epsilon_placement(),
             rounding(), partial(), norm_input(), scaling(), static_scale(), power_of_two(), dtype(), threads(),
             optional("out"), optional("residual_out"), optional("scale"));
}

}  // namespace rmsnorm::python
