// rms_norm, layer_norm, center, rms_norm_backward, layer_norm_backward.
#ifndef RMSNORM_TORCH_NORMS_H_
#define RMSNORM_TORCH_NORMS_H_

#include <torch/library.h>

#include "formulas.h"

namespace rmsnorm_torch {

using OptionalType = std::optional<at::ScalarType>;

// ---- Forward -------------------------------------------------------------------------------------------------------

inline Tensor rms_norm_cpu(const Tensor& x, const OptionalTensor& weight, const OptionalTensor& bias, double epsilon,
                           double weight_offset, std::string placement, std::string round, int64_t partial,
                           OptionalType dtype) {
  const Tensor in = rows(x);
  const OptionalTensor w = rows(weight), b = rows(bias);
  const Tensor out = dense_like(x, dtype);
  const rmsnorm::RmsNormOptions options = {epsilon, weight_offset, epsilon_placement("rms_norm", placement),
                                           rounding("rms_norm", round), partial};
  run([&] { rmsnorm::rms_norm(view(out), {}, view(in), view(w), view(b), options, execution()); });
  return out;
}

inline Tensor rms_norm_meta(const Tensor& x, const OptionalTensor&, const OptionalTensor&, double, double, std::string,
                            std::string, int64_t, OptionalType dtype) {
  return dense_like(x, dtype);
}

inline Tensor layer_norm_cpu(const Tensor& x, const OptionalTensor& weight, const OptionalTensor& bias, double epsilon,
                             double weight_offset, OptionalType dtype) {
  const Tensor in = rows(x);
  const OptionalTensor w = rows(weight), b = rows(bias);
  const Tensor out = dense_like(x, dtype);
  const rmsnorm::LayerNormOptions options = {epsilon, weight_offset};
  run([&] { rmsnorm::layer_norm(view(out), {}, {}, view(in), view(w), view(b), options, execution()); });
  return out;
}

inline Tensor layer_norm_meta(const Tensor& x, const OptionalTensor&, const OptionalTensor&, double, double,
                              OptionalType dtype) {
  return dense_like(x, dtype);
}

inline Tensor center_cpu(const Tensor& x) {
  const Tensor in = rows(x);
  const Tensor out = dense_like(x);
  run([&] { rmsnorm::center(view(out), view(in), execution()); });
  return out;
}

inline Tensor center_meta(const Tensor& x) { return dense_like(x); }

// ---- Backward ------------------------------------------------------------------------------------------------------

using ThreeTensors = std::tuple<Tensor, Tensor, Tensor>;

// Gradients of one norm: dx, dweight, dbias. `through` is the gradient that reaches x past the norm and is added to
// its own, where x is the sum of an add form. wants: which of the three; dx is made in any case.
inline ThreeTensors gradients_like(const Tensor& x, const OptionalTensor& weight, at::ScalarType dbias_type,
                                   const std::array<bool, 3>& wants) {
  const auto columns = x.sym_sizes().slice(x.dim() - 1);
  const at::ScalarType type = present(weight) ? weight->scalar_type() : wide(x);
  return {dense_like(x), wants[1] ? dense(x, columns, type) : nothing(x),
          wants[2] ? dense(x, columns, dbias_type) : nothing(x)};
}

inline rmsnorm::View wanted(const Tensor& gradient, bool is_wanted) {
  return is_wanted ? view(gradient) : rmsnorm::View();
}

inline ThreeTensors rms_norm_backward_cpu(const Tensor& dy, const Tensor& x, const OptionalTensor& weight,
                                          const OptionalTensor& through, double epsilon, double weight_offset,
                                          std::string placement, int64_t partial, at::ScalarType dbias_type,
                                          std::array<bool, 3> wants) {
  const Tensor g = rows(dy), in = rows(x);
  const OptionalTensor w = rows(weight), t = rows(through);
  const auto result = gradients_like(x, weight, dbias_type, wants);
  const auto& [dx, dweight, dbias] = result;
  const auto dwv = wanted(dweight, wants[1]), dbv = wanted(dbias, wants[2]);
  const rmsnorm::RmsNormBackwardOptions options = {
      {epsilon, weight_offset, epsilon_placement("rms_norm_backward", placement), rmsnorm::Rounding::kOnce, partial}};
  run([&, &dx = dx] {
    if (t.has_value()) {
      rmsnorm::add_rms_norm_backward(view(dx), {}, dwv, dbv, view(g), view(t), view(in), view(w), {}, options,
                                     execution());
    } else {
      rmsnorm::rms_norm_backward(view(dx), dwv, dbv, view(g), view(in), view(w), {}, options, execution());
    }
  });
  return result;
}

inline ThreeTensors rms_norm_backward_meta(const Tensor&, const Tensor& x, const OptionalTensor& weight,
                                           const OptionalTensor&, double, double, std::string, int64_t,
                                           at::ScalarType dbias_type, std::array<bool, 3> wants) {
  return gradients_like(x, weight, dbias_type, wants);
}

inline ThreeTensors layer_norm_backward_cpu(const Tensor& dy, const Tensor& x, const OptionalTensor& weight,
                                            const OptionalTensor& through, double epsilon, double weight_offset,
                                            at::ScalarType dbias_type, std::array<bool, 3> wants) {
  const Tensor g = rows(dy), in = rows(x);
  const OptionalTensor w = rows(weight), t = rows(through);
  const auto result = gradients_like(x, weight, dbias_type, wants);
  const auto& [dx, dweight, dbias] = result;
  const auto dwv = wanted(dweight, wants[1]), dbv = wanted(dbias, wants[2]);
  const rmsnorm::LayerNormBackwardOptions options = {{epsilon, weight_offset}};
  run([&, &dx = dx] {
    if (t.has_value()) {
      rmsnorm::add_layer_norm_backward(view(dx), {}, dwv, dbv, view(g), view(t), view(in), view(w), {}, options,
                                       execution());
    } else {
      rmsnorm::layer_norm_backward(view(dx), dwv, dbv, view(g), view(in), view(w), {}, options, execution());
    }
  });
  return result;
}

inline ThreeTensors layer_norm_backward_meta(const Tensor&, const Tensor& x, const OptionalTensor& weight,
                                             const OptionalTensor&, double, double, at::ScalarType dbias_type,
                                             std::array<bool, 3> wants) {
  return gradients_like(x, weight, dbias_type, wants);
}

// ---- Autograd ------------------------------------------------------------------------------------------------------

struct RmsNormOp {
  static auto forward_op() {
    static const auto op = find<decltype(rms_norm_cpu)>("rmsnorm::rms_norm");
    return op;
  }
  static auto backward_op() {
    static const auto op = find<decltype(rms_norm_backward_cpu)>("rmsnorm::rms_norm_backward");
    return op;
  }
};

struct LayerNormOp {
  static auto forward_op() {
    static const auto op = find<decltype(layer_norm_cpu)>("rmsnorm::layer_norm");
    return op;
  }
  static auto backward_op() {
    static const auto op = find<decltype(layer_norm_backward_cpu)>("rmsnorm::layer_norm_backward");
    return op;
  }
};

// The gradients by the fused kernel, or by the formula where they are to be differentiated again.
inline ThreeTensors rms_norm_backward(const Tensor& dy, const Tensor& x, const Tensor& weight, const Tensor& bias,
                                      const Tensor& through, double epsilon, double weight_offset,
                                      const std::string& placement, int64_t partial, const std::array<bool, 3>& wants) {
  if (formula_wanted(dy, weight, bias)) {
    const Gradients g = rms_norm_gradients(dy, x, weight, epsilon, weight_offset, placement == "outside", partial);
    return g.reduced(x, weight, bias, through, wants);
  }
  return RmsNormOp::backward_op().call(dy, x, or_absent(weight), or_absent(through), epsilon, weight_offset, placement,
                                       partial, bias.defined() ? bias.scalar_type() : wide(x), wants);
}

inline ThreeTensors layer_norm_backward(const Tensor& dy, const Tensor& x, const Tensor& weight, const Tensor& bias,
                                        const Tensor& through, double epsilon, double weight_offset,
                                        const std::array<bool, 3>& wants) {
  if (formula_wanted(dy, weight, bias)) {
    return layer_norm_gradients(dy, x, weight, epsilon, weight_offset).reduced(x, weight, bias, through, wants);
  }
  return LayerNormOp::backward_op().call(dy, x, or_absent(weight), or_absent(through), epsilon, weight_offset,
                                         bias.defined() ? bias.scalar_type() : wide(x), wants);
}

struct RmsNormFunction : torch::autograd::Function<RmsNormFunction> {
  static Tensor forward(AutogradContext* context, const Tensor& x, const OptionalTensor& weight,
                        const OptionalTensor& bias, double epsilon, double weight_offset, std::string placement,
                        std::string round, int64_t partial, OptionalType dtype) {
    const at::AutoDispatchBelowADInplaceOrView guard;
    context->save_for_backward({x, or_undefined(weight), or_undefined(bias)});
    context->saved_data["epsilon"] = epsilon;
    context->saved_data["weight_offset"] = weight_offset;
    context->saved_data["epsilon_placement"] = placement;
    context->saved_data["partial"] = partial;
    return RmsNormOp::forward_op().call(x, weight, bias, epsilon, weight_offset, placement, round, partial, dtype);
  }

  static variable_list backward(AutogradContext* context, const variable_list& dout) {
    const auto saved = context->get_saved_variables();
    const Tensor &x = saved[0], &weight = saved[1], &bias = saved[2];
    const double epsilon = context->saved_data["epsilon"].toDouble();
    const double offset = context->saved_data["weight_offset"].toDouble();
    const std::string placement = context->saved_data["epsilon_placement"].toStringRef();
    const int64_t partial = context->saved_data["partial"].toInt();
    const std::array<bool, 3> wants = wanted_gradients(context, weight, bias, 1);
    const auto [dx, dweight, dbias] =
        rms_norm_backward(dout[0], x, weight, bias, Tensor(), epsilon, offset, placement, partial, wants);
    variable_list gradients(9);
    gradients[0] = dx;
    if (wants[1]) gradients[1] = dweight;
    if (wants[2]) gradients[2] = dbias;
    return gradients;
  }
};

inline Tensor rms_norm_autograd(const Tensor& x, const OptionalTensor& weight, const OptionalTensor& bias,
                                double epsilon, double weight_offset, std::string placement, std::string round,
                                int64_t partial, OptionalType dtype) {
  if (records(x, weight, bias)) {
    return RmsNormFunction::apply(x, weight, bias, epsilon, weight_offset, placement, round, partial, dtype);
  }
  const at::AutoDispatchBelowADInplaceOrView guard;
  return RmsNormOp::forward_op().call(x, weight, bias, epsilon, weight_offset, placement, round, partial, dtype);
}

struct LayerNormFunction : torch::autograd::Function<LayerNormFunction> {
  static Tensor forward(AutogradContext* context, const Tensor& x, const OptionalTensor& weight,
                        const OptionalTensor& bias, double epsilon, double weight_offset, OptionalType dtype) {
    const at::AutoDispatchBelowADInplaceOrView guard;
    context->save_for_backward({x, or_undefined(weight), or_undefined(bias)});
    context->saved_data["epsilon"] = epsilon;
    context->saved_data["weight_offset"] = weight_offset;
    return LayerNormOp::forward_op().call(x, weight, bias, epsilon, weight_offset, dtype);
  }

  static variable_list backward(AutogradContext* context, const variable_list& dout) {
    const auto saved = context->get_saved_variables();
    const Tensor &x = saved[0], &weight = saved[1], &bias = saved[2];
    const double epsilon = context->saved_data["epsilon"].toDouble();
    const double offset = context->saved_data["weight_offset"].toDouble();
    const std::array<bool, 3> wants = wanted_gradients(context, weight, bias, 1);
    const auto [dx, dweight, dbias] = layer_norm_backward(dout[0], x, weight, bias, Tensor(), epsilon, offset, wants);
    variable_list gradients(6);
    gradients[0] = dx;
    if (wants[1]) gradients[1] = dweight;
    if (wants[2]) gradients[2] = dbias;
    return gradients;
  }
};

inline Tensor layer_norm_autograd(const Tensor& x, const OptionalTensor& weight, const OptionalTensor& bias,
                                  double epsilon, double weight_offset, OptionalType dtype) {
  if (records(x, weight, bias)) {
    return LayerNormFunction::apply(x, weight, bias, epsilon, weight_offset, dtype);
  }
  const at::AutoDispatchBelowADInplaceOrView guard;
  return LayerNormOp::forward_op().call(x, weight, bias, epsilon, weight_offset, dtype);
}

// Centring is its own gradient.
struct CenterFunction : torch::autograd::Function<CenterFunction> {
  static auto op() {
    static const auto value = find<decltype(center_cpu)>("rmsnorm::center");
    return value;
  }
  static Tensor forward(AutogradContext*, const Tensor& x) {
    const at::AutoDispatchBelowADInplaceOrView guard;
    return op().call(x);
  }
  static variable_list backward(AutogradContext*, const variable_list& dout) { return {op().call(dout[0])}; }
};

inline Tensor center_autograd(const Tensor& x) {
  if (records(x)) return CenterFunction::apply(x);
  const at::AutoDispatchBelowADInplaceOrView guard;
  return CenterFunction::op().call(x);
}

}  // namespace rmsnorm_torch

#endif  // RMSNORM_TORCH_NORMS_H_
