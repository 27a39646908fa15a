// add_rms_norm, add_layer_norm and their backward.
#ifndef RMSNORM_TORCH_ADD_NORMS_H_
#define RMSNORM_TORCH_ADD_NORMS_H_

#include "norms.h"

namespace rmsnorm_torch {

using TwoTensors = std::tuple<Tensor, Tensor>;

// ---- Forward -------------------------------------------------------------------------------------------------------

inline TwoTensors sums_like(const Tensor& x, const Tensor& residual, OptionalType dtype) {
  return {dense_like(x, dtype), dense_like(x, residual.scalar_type())};
}

inline TwoTensors add_rms_norm_cpu(const Tensor& x, const Tensor& residual, const OptionalTensor& weight,
                                   const OptionalTensor& bias, double epsilon, double weight_offset,
                                   std::string placement, std::string round, int64_t partial, std::string input,
                                   OptionalType dtype) {
  const Tensor in = rows(x), r = rows(residual);
  const OptionalTensor w = rows(weight), b = rows(bias);
  const auto result = sums_like(x, residual, dtype);
  const auto& [out, sum] = result;
  const rmsnorm::AddRmsNormOptions options = {
      {epsilon, weight_offset, epsilon_placement("add_rms_norm", placement), rounding("add_rms_norm", round), partial},
      norm_input("add_rms_norm", input)};
  run([&, &out = out, &sum = sum] {
    rmsnorm::add_rms_norm(view(out), view(sum), {}, view(in), view(r), view(w), view(b), options, execution());
  });
  return result;
}

inline TwoTensors add_rms_norm_meta(const Tensor& x, const Tensor& residual, const OptionalTensor&,
                                    const OptionalTensor&, double, double, std::string, std::string, int64_t,
                                    std::string, OptionalType dtype) {
  return sums_like(x, residual, dtype);
}

inline TwoTensors add_layer_norm_cpu(const Tensor& x, const Tensor& residual, const OptionalTensor& weight,
                                     const OptionalTensor& bias, double epsilon, double weight_offset,
                                     std::string input, OptionalType dtype) {
  const Tensor in = rows(x), r = rows(residual);
  const OptionalTensor w = rows(weight), b = rows(bias);
  const auto result = sums_like(x, residual, dtype);
  const auto& [out, sum] = result;
  const rmsnorm::AddLayerNormOptions options = {{epsilon, weight_offset}, norm_input("add_layer_norm", input)};
  run([&, &out = out, &sum = sum] {
    rmsnorm::add_layer_norm(view(out), view(sum), {}, {}, view(in), view(r), view(w), view(b), options, execution());
  });
  return result;
}

inline TwoTensors add_layer_norm_meta(const Tensor& x, const Tensor& residual, const OptionalTensor&,
                                      const OptionalTensor&, double, double, std::string, OptionalType dtype) {
  return sums_like(x, residual, dtype);
}

// Under autocast one of the two may be narrower than the stream; the library takes a residual of the type of x or f32.
inline TwoTensors promoted(const Tensor& x, const Tensor& residual) {
  const bool fits = residual.scalar_type() == x.scalar_type() || residual.scalar_type() == at::kFloat;
  return {x, fits ? residual : residual.to(x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat)};
}

inline TwoTensors add_rms_norm_autocast(const Tensor& x, const Tensor& residual, const OptionalTensor& weight,
                                        const OptionalTensor& bias, double epsilon, double weight_offset,
                                        std::string placement, std::string round, int64_t partial, std::string input,
                                        OptionalType dtype) {
  const c10::impl::ExcludeDispatchKeyGuard guard(c10::DispatchKey::AutocastCPU);
  static const auto op = find<decltype(add_rms_norm_cpu)>("rmsnorm::add_rms_norm");
  const auto [in, r] = promoted(x, residual);
  return op.call(in, r, weight, bias, epsilon, weight_offset, placement, round, partial, input, dtype);
}

inline TwoTensors add_layer_norm_autocast(const Tensor& x, const Tensor& residual, const OptionalTensor& weight,
                                          const OptionalTensor& bias, double epsilon, double weight_offset,
                                          std::string input, OptionalType dtype) {
  const c10::impl::ExcludeDispatchKeyGuard guard(c10::DispatchKey::AutocastCPU);
  static const auto op = find<decltype(add_layer_norm_cpu)>("rmsnorm::add_layer_norm");
  const auto [in, r] = promoted(x, residual);
  return op.call(in, r, weight, bias, epsilon, weight_offset, input, dtype);
}

// ---- Autograd ------------------------------------------------------------------------------------------------------

// dx = dresidual = the gradient through the sum + the norm's own, each in its operand's type. `norm` gives the two
// together. An absent gradient of an output is undefined.
template <class Norm>
variable_list add_gradients(AutogradContext* context, const variable_list& dout, size_t arguments, Norm&& norm) {
  const auto saved = context->get_saved_variables();
  const Tensor &sum = saved[0], &weight = saved[1], &bias = saved[2];
  const auto x_type = static_cast<at::ScalarType>(context->saved_data["x_type"].toInt());
  const std::array<bool, 3> wants = wanted_gradients(context, weight, bias, 2);
  variable_list gradients(arguments);
  Tensor total = dout[1];
  if (dout[0].defined()) {
    const auto [dx, dweight, dbias] = norm(sum, weight, bias, wants);
    total = dx;
    if (wants[1]) gradients[2] = dweight;
    if (wants[2]) gradients[3] = dbias;
  }
  if (!total.defined()) return gradients;
  gradients[0] = total.to(x_type);
  gradients[1] = total.to(sum.scalar_type());
  return gradients;
}

struct AddRmsNormFunction : torch::autograd::Function<AddRmsNormFunction> {
  static auto op() {
    static const auto value = find<decltype(add_rms_norm_cpu)>("rmsnorm::add_rms_norm");
    return value;
  }

  static variable_list forward(AutogradContext* context, const Tensor& x, const Tensor& residual,
                               const OptionalTensor& weight, const OptionalTensor& bias, double epsilon,
                               double weight_offset, std::string placement, std::string round, int64_t partial,
                               std::string input, OptionalType dtype) {
    const at::AutoDispatchBelowADInplaceOrView guard;
    const auto [out, sum] =
        op().call(x, residual, weight, bias, epsilon, weight_offset, placement, round, partial, input, dtype);
    context->set_materialize_grads(false);
    context->save_for_backward({sum, or_undefined(weight), or_undefined(bias)});
    context->saved_data["x_type"] = static_cast<int64_t>(x.scalar_type());
    context->saved_data["epsilon"] = epsilon;
    context->saved_data["weight_offset"] = weight_offset;
    context->saved_data["epsilon_placement"] = placement;
    context->saved_data["partial"] = partial;
    return {out, sum};
  }

  static variable_list backward(AutogradContext* context, const variable_list& dout) {
    const double epsilon = context->saved_data["epsilon"].toDouble();
    const double offset = context->saved_data["weight_offset"].toDouble();
    const std::string placement = context->saved_data["epsilon_placement"].toStringRef();
    const int64_t partial = context->saved_data["partial"].toInt();
    return add_gradients(
        context, dout, 11,
        [&](const Tensor& sum, const Tensor& weight, const Tensor& bias, const std::array<bool, 3>& wants) {
          return rms_norm_backward(dout[0], sum, weight, bias, dout[1], epsilon, offset, placement, partial, wants);
        });
  }
};

inline TwoTensors add_rms_norm_autograd(const Tensor& x, const Tensor& residual, const OptionalTensor& weight,
                                        const OptionalTensor& bias, double epsilon, double weight_offset,
                                        std::string placement, std::string round, int64_t partial, std::string input,
                                        OptionalType dtype) {
  if (records(x, residual, weight, bias)) {
    const auto result = AddRmsNormFunction::apply(x, residual, weight, bias, epsilon, weight_offset, placement, round,
                                                  partial, input, dtype);
    return {result[0], result[1]};
  }
  const at::AutoDispatchBelowADInplaceOrView guard;
  return AddRmsNormFunction::op().call(x, residual, weight, bias, epsilon, weight_offset, placement, round, partial,
                                       input, dtype);
}

struct AddLayerNormFunction : torch::autograd::Function<AddLayerNormFunction> {
  static auto op() {
    static const auto value = find<decltype(add_layer_norm_cpu)>("rmsnorm::add_layer_norm");
    return value;
  }

  static variable_list forward(AutogradContext* context, const Tensor& x, const Tensor& residual,
                               const OptionalTensor& weight, const OptionalTensor& bias, double epsilon,
                               double weight_offset, std::string input, OptionalType dtype) {
    const at::AutoDispatchBelowADInplaceOrView guard;
    const auto [out, sum] = op().call(x, residual, weight, bias, epsilon, weight_offset, input, dtype);
    context->set_materialize_grads(false);
    context->save_for_backward({sum, or_undefined(weight), or_undefined(bias)});
    context->saved_data["x_type"] = static_cast<int64_t>(x.scalar_type());
    context->saved_data["epsilon"] = epsilon;
    context->saved_data["weight_offset"] = weight_offset;
    return {out, sum};
  }

  static variable_list backward(AutogradContext* context, const variable_list& dout) {
    const double epsilon = context->saved_data["epsilon"].toDouble();
    const double offset = context->saved_data["weight_offset"].toDouble();
    return add_gradients(
        context, dout, 8,
        [&](const Tensor& sum, const Tensor& weight, const Tensor& bias, const std::array<bool, 3>& wants) {
          return layer_norm_backward(dout[0], sum, weight, bias, dout[1], epsilon, offset, wants);
        });
  }
};

inline TwoTensors add_layer_norm_autograd(const Tensor& x, const Tensor& residual, const OptionalTensor& weight,
                                          const OptionalTensor& bias, double epsilon, double weight_offset,
                                          std::string input, OptionalType dtype) {
  if (records(x, residual, weight, bias)) {
    const auto result = AddLayerNormFunction::apply(x, residual, weight, bias, epsilon, weight_offset, input, dtype);
    return {result[0], result[1]};
  }
  const at::AutoDispatchBelowADInplaceOrView guard;
  return AddLayerNormFunction::op().call(x, residual, weight, bias, epsilon, weight_offset, input, dtype);
}

}  // namespace rmsnorm_torch

#endif  // RMSNORM_TORCH_ADD_NORMS_H_
