// gated_rms_norm and its backward.
#ifndef RMSNORM_TORCH_GATED_RMS_NORM_H_
#define RMSNORM_TORCH_GATED_RMS_NORM_H_

#include "norms.h"

namespace rmsnorm_torch {

inline Tensor gated_rms_norm_cpu(const Tensor& x, const Tensor& gate, const OptionalTensor& weight, double epsilon,
                                 std::string order, std::string round, int64_t groups, OptionalType dtype) {
  const Tensor in = rows(x), g = rows(gate);
  const OptionalTensor w = rows(weight);
  const Tensor out = dense_like(x, dtype);
  const rmsnorm::GatedRmsNormOptions options = {epsilon, gate_order("gated_rms_norm", order),
                                                rounding("gated_rms_norm", round), groups};
  run([&] { rmsnorm::gated_rms_norm(view(out), {}, view(in), view(g), view(w), options, execution()); });
  return out;
}

inline Tensor gated_rms_norm_meta(const Tensor& x, const Tensor&, const OptionalTensor&, double, std::string,
                                  std::string, int64_t, OptionalType dtype) {
  return dense_like(x, dtype);
}

inline ThreeTensors gated_gradients_like(const Tensor& x, const Tensor& gate, const OptionalTensor& weight,
                                         bool dweight) {
  return {dense_like(x), dense_like(gate),
          dweight ? dense(x, x.sym_sizes().slice(x.dim() - 1), weight->scalar_type()) : nothing(x)};
}

inline ThreeTensors gated_rms_norm_backward_cpu(const Tensor& dy, const Tensor& x, const Tensor& gate,
                                                const OptionalTensor& weight, double epsilon, std::string order,
                                                int64_t groups, bool wants_dweight) {
  const Tensor d = rows(dy), in = rows(x), g = rows(gate);
  const OptionalTensor w = rows(weight);
  const auto result = gated_gradients_like(x, gate, weight, wants_dweight);
  const auto& [dx, dgate, dweight] = result;
  const auto dwv = wanted(dweight, wants_dweight);
  const rmsnorm::GatedRmsNormBackwardOptions options = {
      {epsilon, gate_order("gated_rms_norm_backward", order), rmsnorm::Rounding::kOnce, groups}};
  run([&, &dx = dx, &dgate = dgate] {
    rmsnorm::gated_rms_norm_backward(view(dx), view(dgate), dwv, view(d), view(in), view(g), view(w), {}, options,
                                     execution());
  });
  return result;
}

inline ThreeTensors gated_rms_norm_backward_meta(const Tensor&, const Tensor& x, const Tensor& gate,
                                                 const OptionalTensor& weight, double, std::string, int64_t,
                                                 bool wants_dweight) {
  return gated_gradients_like(x, gate, weight, wants_dweight);
}

// The gradients with PyTorch's operators. The norm of u in groups has dx = inv (g - uhat mean(g uhat)).
inline ThreeTensors gated_rms_norm_formula(const Tensor& dy_narrow, const Tensor& x_narrow, const Tensor& gate_narrow,
                                           const Tensor& weight, double epsilon, bool first, int64_t groups,
                                           bool wants_dweight) {
  const at::ScalarType type = wide(x_narrow);
  const Tensor x = x_narrow.to(type), gate = gate_narrow.to(type), dy = dy_narrow.to(type);
  const Tensor sigmoid = gate.sigmoid(), s = gate * sigmoid, slope = sigmoid * (1 + gate * (1 - sigmoid));
  const Tensor g = weight.defined() ? dy * weight.to(type) : dy;
  const Tensor u = first ? x * s : x;
  const Tensor h = first ? g : g * s;
  const c10::SymInt columns = x.sym_size(-1) / groups;
  c10::SymDimVector split(x.sym_sizes().begin(), x.sym_sizes().end());
  split.back() = groups;
  split.push_back(columns);
  const Tensor parts = u.reshape_symint(split), h_parts = h.reshape_symint(split);
  const Tensor inv = (parts.square().mean(-1, true) + epsilon).rsqrt();
  const Tensor hat = parts * inv;
  const Tensor du = (inv * (h_parts - hat * (h_parts * hat).mean(-1, true))).reshape_symint(x.sym_sizes());
  const Tensor uhat = hat.reshape_symint(x.sym_sizes());
  const Tensor dx = first ? du * s : du;
  const Tensor dgate = (first ? du * x : g * uhat) * slope;
  const Tensor dweight = wants_dweight ? as(first ? dy * uhat : dy * s * uhat, weight) : Tensor();
  return {dx.to(x_narrow.scalar_type()), dgate.to(gate_narrow.scalar_type()), dweight};
}

struct GatedRmsNormFunction : torch::autograd::Function<GatedRmsNormFunction> {
  static auto op() {
    static const auto value = find<decltype(gated_rms_norm_cpu)>("rmsnorm::gated_rms_norm");
    return value;
  }
  static auto backward_op() {
    static const auto value = find<decltype(gated_rms_norm_backward_cpu)>("rmsnorm::gated_rms_norm_backward");
    return value;
  }

  static Tensor forward(AutogradContext* context, const Tensor& x, const Tensor& gate, const OptionalTensor& weight,
                        double epsilon, std::string order, std::string round, int64_t groups, OptionalType dtype) {
    const at::AutoDispatchBelowADInplaceOrView guard;
    context->save_for_backward({x, gate, or_undefined(weight)});
    context->saved_data["epsilon"] = epsilon;
    context->saved_data["gate_order"] = order;
    context->saved_data["groups"] = groups;
    return op().call(x, gate, weight, epsilon, order, round, groups, dtype);
  }

  static variable_list backward(AutogradContext* context, const variable_list& dout) {
    const auto saved = context->get_saved_variables();
    const Tensor &x = saved[0], &gate = saved[1], &weight = saved[2];
    const double epsilon = context->saved_data["epsilon"].toDouble();
    const std::string order = context->saved_data["gate_order"].toStringRef();
    const int64_t groups = context->saved_data["groups"].toInt();
    const bool dweight = wanted_gradients(context, weight, Tensor(), 2)[1];
    variable_list gradients(8);
    std::tie(gradients[0], gradients[1], gradients[2]) =
        formula_wanted(dout[0], weight)
            ? gated_rms_norm_formula(dout[0], x, gate, weight, epsilon, order == "first", groups, dweight)
            : backward_op().call(dout[0], x, gate, or_absent(weight), epsilon, order, groups, dweight);
    if (!dweight) gradients[2] = Tensor();
    return gradients;
  }
};

inline Tensor gated_rms_norm_autograd(const Tensor& x, const Tensor& gate, const OptionalTensor& weight, double epsilon,
                                      std::string order, std::string round, int64_t groups, OptionalType dtype) {
  if (records(x, gate, weight)) {
    return GatedRmsNormFunction::apply(x, gate, weight, epsilon, order, round, groups, dtype);
  }
  const at::AutoDispatchBelowADInplaceOrView guard;
  return GatedRmsNormFunction::op().call(x, gate, weight, epsilon, order, round, groups, dtype);
}

}  // namespace rmsnorm_torch

#endif  // RMSNORM_TORCH_GATED_RMS_NORM_H_
