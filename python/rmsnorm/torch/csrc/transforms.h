// The operators written with PyTorch's, for what kernels on plain memory cannot do: forward-mode tangents and torch.func.
// They round once, whatever `rounding` says.
#ifndef RMSNORM_TORCH_TRANSFORMS_H_
#define RMSNORM_TORCH_TRANSFORMS_H_

#include "channels.h"
#include "gated_rms_norm.h"
#include "qk_norm_rope.h"

namespace rmsnorm_torch {

// A norm of x in the wide type, by its definition.
inline Tensor rms_norm_wide(const Tensor& x, const OptionalTensor& weight, const OptionalTensor& bias, double epsilon,
                            double weight_offset, bool outside, int64_t partial) {
  const Tensor counted = partial == 0 ? x : x.narrow(-1, 0, partial);
  const Tensor mean_square = counted.square().mean(-1, true);
  const Tensor inv = outside ? (mean_square.sqrt() + epsilon).reciprocal() : (mean_square + epsilon).rsqrt();
  const Tensor y = weighted(x * inv, or_undefined(weight), weight_offset);
  return present(bias) ? y + bias->to(y.scalar_type()) : y;
}

inline Tensor layer_norm_wide(const Tensor& x, const OptionalTensor& weight, const OptionalTensor& bias, double epsilon,
                              double weight_offset) {
  const Tensor centred = x - x.mean(-1, true);
  const Tensor inv = (centred.square().mean(-1, true) + epsilon).rsqrt();
  const Tensor y = weighted(centred * inv, or_undefined(weight), weight_offset);
  return present(bias) ? y + bias->to(y.scalar_type()) : y;
}

inline bool is_outside(const char* function, const std::string& placement) {
  return epsilon_placement(function, placement) == rmsnorm::EpsilonPlacement::kOutside;
}

inline Tensor rms_norm_transformed(const Tensor& x, const OptionalTensor& weight, const OptionalTensor& bias,
                                   double epsilon, double weight_offset, std::string placement, std::string round,
                                   int64_t partial, OptionalType dtype) {
  rounding("rms_norm", round);
  return rms_norm_wide(x.to(wide(x)), weight, bias, epsilon, weight_offset, is_outside("rms_norm", placement), partial)
      .to(dtype.value_or(x.scalar_type()));
}

inline Tensor layer_norm_transformed(const Tensor& x, const OptionalTensor& weight, const OptionalTensor& bias,
                                     double epsilon, double weight_offset, OptionalType dtype) {
  return layer_norm_wide(x.to(wide(x)), weight, bias, epsilon, weight_offset).to(dtype.value_or(x.scalar_type()));
}

inline Tensor center_transformed(const Tensor& x) {
  const Tensor in = x.to(wide(x));
  return (in - in.mean(-1, true)).to(x.scalar_type());
}

// The sum as it is returned, and as the norm reads it.
inline TwoTensors sums_transformed(const char* function, const Tensor& x, const Tensor& residual,
                                   const std::string& input) {
  const Tensor sum = x.to(wide(x)) + residual.to(wide(x));
  const Tensor rounded = sum.to(residual.scalar_type());
  return {rounded, norm_input(function, input) == rmsnorm::NormInput::kUnroundedSum ? sum : rounded.to(wide(x))};
}

inline TwoTensors add_rms_norm_transformed(const Tensor& x, const Tensor& residual, const OptionalTensor& weight,
                                           const OptionalTensor& bias, double epsilon, double weight_offset,
                                           std::string placement, std::string round, int64_t partial, std::string input,
                                           OptionalType dtype) {
  rounding("add_rms_norm", round);
  const auto [sum, read] = sums_transformed("add_rms_norm", x, residual, input);
  const bool outside = is_outside("add_rms_norm", placement);
  const Tensor y = rms_norm_wide(read, weight, bias, epsilon, weight_offset, outside, partial);
  return {y.to(dtype.value_or(x.scalar_type())), sum};
}

inline TwoTensors add_layer_norm_transformed(const Tensor& x, const Tensor& residual, const OptionalTensor& weight,
                                             const OptionalTensor& bias, double epsilon, double weight_offset,
                                             std::string input, OptionalType dtype) {
  const auto [sum, read] = sums_transformed("add_layer_norm", x, residual, input);
  return {layer_norm_wide(read, weight, bias, epsilon, weight_offset).to(dtype.value_or(x.scalar_type())), sum};
}

inline Tensor gated_rms_norm_transformed(const Tensor& x_narrow, const Tensor& gate_narrow,
                                         const OptionalTensor& weight, double epsilon, std::string order,
                                         std::string round, int64_t groups, OptionalType dtype) {
  rounding("gated_rms_norm", round);
  TORCH_CHECK_VALUE(groups >= 1 && x_narrow.size(-1) % groups == 0, "gated_rms_norm: groups is ", groups,
                    "; it must divide the row's length");
  const bool first = gate_order("gated_rms_norm", order) == rmsnorm::GateOrder::kFirst;
  const Tensor x = x_narrow.to(wide(x_narrow)), gate = gate_narrow.to(x.scalar_type());
  const Tensor s = gate * gate.sigmoid(), u = first ? x * s : x;
  const Tensor parts = u.unflatten(-1, {groups, x.size(-1) / groups});
  const Tensor hat = (parts * (parts.square().mean(-1, true) + epsilon).rsqrt()).flatten(-2);
  const Tensor y = weighted(hat, or_undefined(weight), 0);
  return (first ? y : y * s).to(dtype.value_or(x_narrow.scalar_type()));
}

inline TwoTensors qk_norm_rope_transformed(const Tensor& q, const Tensor& k, const OptionalTensor& q_weight,
                                           const OptionalTensor& k_weight, const OptionalTensor& cos_sin,
                                           const OptionalTensor& positions, double epsilon, double weight_offset,
                                           std::string placement, std::string round, std::string layout) {
  rounding("qk_norm_rope", round);
  const bool outside = is_outside("qk_norm_rope", placement);
  const bool interleaved = rope_layout(layout) == rmsnorm::RopeLayout::kInterleaved;
  Tensor table;  // a turn forwards is one back by the opposite angle
  if (present(cos_sin)) {
    const auto halves = cos_sin->chunk(2, -1);
    table = at::cat({halves[0], halves[1].neg()}, -1);
  }
  const auto one = [&](const Tensor& x, const OptionalTensor& weight) {
    const Tensor y = rms_norm_wide(x.to(wide(x)), weight, std::nullopt, epsilon, weight_offset, outside, 0);
    return turned_back(y, table, or_undefined(positions), interleaved).to(x.scalar_type());
  };
  return {one(q, q_weight), one(k, k_weight)};
}

inline Tensor channels_transformed(const Tensor& x, int64_t groups, const OptionalTensor& weight,
                                   const OptionalTensor& bias, double epsilon, double weight_offset) {
  const Tensor in = x.to(wide(x));
  if (groups == 0) {
    return rms_norm_wide(in.movedim(1, -1), weight, bias, epsilon, weight_offset, false, 0)
        .movedim(-1, 1)
        .to(x.scalar_type());
  }
  TORCH_CHECK_VALUE(x.size(1) % groups == 0, "group_rms_norm: groups is ", groups,
                    "; it must divide the number of channels");
  std::vector<int64_t> channel(static_cast<size_t>(x.dim()) - 1, 1);
  channel[0] = x.size(1);
  const Tensor parts = in.reshape({x.size(0), groups, -1});
  Tensor y = (parts * (parts.square().mean(-1, true) + epsilon).rsqrt()).reshape(x.sizes());
  if (present(weight)) y = weighted(y, weight->reshape(channel), weight_offset);
  if (present(bias)) y = y + bias->to(y.scalar_type()).reshape(channel);
  return y.to(x.scalar_type());
}

// The autograd kernel of an operator, and what stands in for it under a transform. The tensors are among the arguments.
template <auto kAutograd, auto kTransformed>
struct Transformable;

template <class Result, class... Arguments, Result (*kAutograd)(Arguments...), Result (*kTransformed)(Arguments...)>
struct Transformable<kAutograd, kTransformed> {
  static bool is_transformed(const Tensor& tensor) { return transformed(tensor); }
  static bool is_transformed(const OptionalTensor& tensor) { return present(tensor) && transformed(*tensor); }
  template <class Other>
  static bool is_transformed(const Other&) {
    return false;
  }
  static Result call(Arguments... arguments) {
    if ((is_transformed(arguments) || ...)) return kTransformed(arguments...);
    return kAutograd(arguments...);
  }
};

}  // namespace rmsnorm_torch

#endif  // RMSNORM_TORCH_TRANSFORMS_H_
