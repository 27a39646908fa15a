// rms_norm_channels, group_rms_norm, their backward.
#include "operations.h"
#include "options.h"

namespace rmsnorm::python {
namespace {

// [C], the second axis.
std::span<const std::int64_t> channels_of(const View& x) {
  const auto shape = shape_of(x);
  return shape.size() < 2 ? shape.first(0) : shape.subspan(1, 1);
}

constexpr const char* kRmsNormChannels = R"(RMSNorm over the channels of each pixel of an image [N, C, .., W].

    inv = 1 / sqrt(mean over c of x[n, c, p]^2 + epsilon),  out[n, c, p] = x[n, c, p] * inv * (weight[c] + weight_offset) + bias[c]

x             [N, C, .., W]  3 to 8 axes, the last one dense
weight, bias  [C]; None: factor 1, nothing added
out           as x; may be x; None: made
The other arguments are those of rms_norm.

Returns out. Raises ValueError and TypeError.)";

Result py_rms_norm_channels(Array x, OptionalArray weight, OptionalArray bias, double epsilon, double weight_offset,
                            Choice<EpsilonPlacement> epsilon_placement, Choice<Rounding> rounding, int threads,
                            Output out) {
  Call call("rms_norm_channels", threads);
  const View xv = call.input("x", x);
  const View wv = call.input("weight", weight);
  const View bv = call.input("bias", bias);
  const View ov = call.output("out", out, xv.get()->type, shape_of(xv));
  const auto options = rms_options(call, epsilon, weight_offset, epsilon_placement, rounding, 0);
  return call.run([&] { rms_norm_channels(ov, xv, wv, bv, options, call.execution()); });
}

constexpr const char* kGroupRmsNorm = R"(RMSNorm over groups of channels and all pixels of an image [N, C, .., W].

    inv[n, g] = 1 / sqrt(mean over the group's channels and the pixels of x^2 + epsilon)

groups  a divisor of C; C gives the per-channel form of filter response normalisation
The other arguments are those of rms_norm_channels.

Returns out. Raises ValueError and TypeError.
Singh and Krishnan 2020, "Filter Response Normalization Layer", without its threshold unit.)";

Result py_group_rms_norm(Array x, std::int64_t groups, OptionalArray weight, OptionalArray bias, double epsilon,
                         double weight_offset, Choice<EpsilonPlacement> epsilon_placement, Choice<Rounding> rounding,
                         int threads, Output out) {
  Call call("group_rms_norm", threads);
  const View xv = call.input("x", x);
  const View wv = call.input("weight", weight);
  const View bv = call.input("bias", bias);
  const View ov = call.output("out", out, xv.get()->type, shape_of(xv));
  const auto options = rms_options(call, epsilon, weight_offset, epsilon_placement, rounding, 0);
  return call.run([&] { group_rms_norm(ov, xv, groups, wv, bv, options, call.execution()); });
}

constexpr const char* kRmsNormChannelsBackward = R"(Gradients of rms_norm_channels.

dy, x    as in the forward call
dx       as x; may be dy; None: made
dweight  [C]  True: made, type of weight; None: not wanted
dbias    [C]  likewise
The other arguments are those of rms_norm_backward.

Returns dx, or a tuple of dx and those of dweight and dbias that are wanted. Raises ValueError and TypeError.)";

// Both backward functions; operation: the library's, on the views.
template <class Operation>
Result channels_backward(const char* function, Array dy, Array x, OptionalArray weight, double epsilon,
                         double weight_offset, Choice<EpsilonPlacement> epsilon_placement, bool accumulate, int threads,
                         Output dx, OptionalOutput dweight, OptionalOutput dbias, const Operation& operation) {
  Call call(function, threads);
  call.check_accumulate(accumulate, "dweight", dweight);
  call.check_accumulate(accumulate, "dbias", dbias);
  const View dyv = call.input("dy", dy);
  const View xv = call.input("x", x);
  const View wv = call.input("weight", weight);
  const View dxv = call.output("dx", dx, xv.get()->type, shape_of(xv));
  const View dwv = call.output("dweight", dweight, gradient_type(wv, xv), channels_of(xv));
  const View dbv = call.output("dbias", dbias, gradient_type(wv, xv), channels_of(xv));
  const RmsNormBackwardOptions options = {{epsilon, weight_offset, call.choice(epsilon_placement), Rounding::kOnce, 0},
                                          accumulate};
  return call.run([&] { operation(dxv, dwv, dbv, dyv, xv, wv, options, call.execution()); });
}

Result py_rms_norm_channels_backward(Array dy, Array x, OptionalArray weight, double epsilon, double weight_offset,
                                     Choice<EpsilonPlacement> epsilon_placement, bool accumulate, int threads,
                                     Output dx, OptionalOutput dweight, OptionalOutput dbias) {
  return channels_backward("rms_norm_channels_backward", dy, x, weight, epsilon, weight_offset, epsilon_placement,
                           accumulate, threads, dx, dweight, dbias, rms_norm_channels_backward);
}

constexpr const char* kGroupRmsNormBackward = R"(Gradients of group_rms_norm.

groups  that of the forward call
The other arguments are those of rms_norm_channels_backward.

Returns dx, or a tuple of dx and those of dweight and dbias that are wanted. Raises ValueError and TypeError.)";

Result py_group_rms_norm_backward(Array dy, Array x, std::int64_t groups, OptionalArray weight, double epsilon,
                                  double weight_offset, Choice<EpsilonPlacement> epsilon_placement, bool accumulate,
                                  int threads, Output dx, OptionalOutput dweight, OptionalOutput dbias) {
  return channels_backward("group_rms_norm_backward", dy, x, weight, epsilon, weight_offset, epsilon_placement,
                           accumulate, threads, dx, dweight, dbias,
                           [groups](const View& dxv, const View& dwv, const View& dbv, const View& dyv, const View& xv,
                                    const View& wv, const auto& options, const Execution& execution) {
                             group_rms_norm_backward(dxv, dwv, dbv, dyv, xv, groups, wv, options, execution);
                           });
}

}  // namespace

void add_channels(nb::module_& module) {
  module.def("rms_norm_channels", py_rms_norm_channels, kRmsNormChannels, nb::arg("x"), optional("weight"),
             optional("bias"), nb::kw_only(), rms_epsilon(), weight_offset(), epsilon_placement(), rounding(),
             threads(), optional("out"));
  module.def("group_rms_norm", py_group_rms_norm, kGroupRmsNorm, nb::arg("x"), nb::arg("groups"), optional("weight"),
             optional("bias"), nb::kw_only(), rms_epsilon(), weight_offset(), epsilon_placement(), rounding(),
             threads(), optional("out"));
  module.def("rms_norm_channels_backward", py_rms_norm_channels_backward, kRmsNormChannelsBackward, nb::arg("dy"),
             nb::arg("x"), optional("weight"), nb::kw_only(), rms_epsilon(), weight_offset(), epsilon_placement(),
             accumulate(), threads(), optional("dx"), optional("dweight"), optional("dbias"));
  module.def("group_rms_norm_backward", py_group_rms_norm_backward, kGroupRmsNormBackward, nb::arg("dy"), nb::arg("x"),
             nb::arg("groups"), optional("weight"), nb::kw_only(), rms_epsilon(), weight_offset(), epsilon_placement(),
             accumulate(), threads(), optional("dx"), optional("dweight"), optional("dbias"));
}

}  // namespace rmsnorm::python
