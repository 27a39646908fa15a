// qk_norm_rope. Its backward turns the gradients back and hands them to the backward of rms_norm.
#ifndef RMSNORM_TORCH_QK_NORM_ROPE_H_
#define RMSNORM_TORCH_QK_NORM_ROPE_H_

#include "add_norms.h"

namespace rmsnorm_torch {

inline rmsnorm::RopeLayout rope_layout(const std::string& text) {
  return choice<rmsnorm::RopeLayout>("qk_norm_rope", "rope_layout", text, {"half_split", "interleaved"});
}

inline TwoTensors qk_norm_rope_cpu(const Tensor& q, const Tensor& k, const OptionalTensor& q_weight,
                                   const OptionalTensor& k_weight, const OptionalTensor& cos_sin,
                                   const OptionalTensor& positions, double epsilon, double weight_offset,
                                   std::string placement, std::string round, std::string layout) {
  const Tensor qi = rows(q), ki = rows(k);
  const OptionalTensor qw = rows(q_weight), kw = rows(k_weight), table = rows(cos_sin);
  const TwoTensors result = {dense_like(q), dense_like(k)};
  const auto& [q_out, k_out] = result;
  const rmsnorm::QkNormRopeOptions options = {
      {epsilon, weight_offset, epsilon_placement("qk_norm_rope", placement), rounding("qk_norm_rope", round), 0},
      rope_layout(layout)};
  run([&, &q_out = q_out, &k_out = k_out] {
    rmsnorm::qk_norm_rope(view(q_out), view(k_out), view(qi), view(ki), view(qw), view(kw), view(table),
                          view(positions), options, execution());
  });
  return result;
}

inline TwoTensors qk_norm_rope_meta(const Tensor& q, const Tensor& k, const OptionalTensor&, const OptionalTensor&,
                                    const OptionalTensor&, const OptionalTensor&, double, double, std::string,
                                    std::string, std::string) {
  return {dense_like(q), dense_like(k)};
}

inline TwoTensors qk_norm_rope_autocast(const Tensor& q, const Tensor& k, const OptionalTensor& q_weight,
                                        const OptionalTensor& k_weight, const OptionalTensor& cos_sin,
                                        const OptionalTensor& positions, double epsilon, double weight_offset,
                                        std::string placement, std::string round, std::string layout) {
  const c10::impl::ExcludeDispatchKeyGuard guard(c10::DispatchKey::AutocastCPU);
  static const auto op = find<decltype(qk_norm_rope_cpu)>("rmsnorm::qk_norm_rope");
  const at::ScalarType type = at::promote_types(q.scalar_type(), k.scalar_type());
  const OptionalTensor table = present(cos_sin) ? OptionalTensor(cos_sin->to(at::kFloat)) : std::nullopt;
  return op.call(q.to(type), k.to(type), q_weight, k_weight, table, positions, epsilon, weight_offset, placement, round,
                 layout);
}

// The rotation is orthogonal where cos and sin are of one angle, and linear in any case: its transpose takes gradients
// back, a = a' cos + b' sin, b = b' cos - a' sin.
inline Tensor turned_back(const Tensor& gradient_narrow, const Tensor& table, const Tensor& positions,
                          bool interleaved) {
  const Tensor gradient = gradient_narrow.to(wide(gradient_narrow));
  if (!table.defined()) return gradient;
  const Tensor rows_of_table = positions.defined() ? table.index_select(0, positions.reshape(-1).to(at::kLong))
                                                   : table.narrow_symint(0, 0, gradient.sym_size(-3));
  c10::SymDimVector shape(gradient.sym_sizes().begin(), gradient.sym_sizes().end());
  const c10::SymInt half = table.sym_size(1) / 2;
  shape[shape.size() - 1] = 2 * half;
  shape[shape.size() - 2] = 1;
  if (!positions.defined()) {
    for (size_t axis = 0; axis + 3 < shape.size(); ++axis) shape[axis] = 1;
  }
  const Tensor turns = rows_of_table.to(gradient.scalar_type()).reshape_symint(shape);
  const Tensor cos = turns.narrow_symint(-1, 0, half), sin = turns.narrow_symint(-1, half, half);
  const Tensor turning = gradient.narrow_symint(-1, 0, 2 * half);
  const Tensor rest = gradient.narrow_symint(-1, 2 * half, gradient.sym_size(-1) - 2 * half);
  const Tensor a = interleaved ? turning.slice(-1, 0, std::nullopt, 2) : turning.narrow_symint(-1, 0, half);
  const Tensor b = interleaved ? turning.slice(-1, 1, std::nullopt, 2) : turning.narrow_symint(-1, half, half);
  const Tensor da = a * cos + b * sin, db = b * cos - a * sin;
  const Tensor back = interleaved ? at::stack({da, db}, -1).flatten(-2) : at::cat({da, db}, -1);
  return at::cat({back, rest}, -1);
}

struct QkNormRopeFunction : torch::autograd::Function<QkNormRopeFunction> {
  static auto op() {
    static const auto value = find<decltype(qk_norm_rope_cpu)>("rmsnorm::qk_norm_rope");
    return value;
  }

  static variable_list forward(AutogradContext* context, const Tensor& q, const Tensor& k,
                               const OptionalTensor& q_weight, const OptionalTensor& k_weight,
                               const OptionalTensor& cos_sin, const OptionalTensor& positions, double epsilon,
                               double weight_offset, std::string placement, std::string round, std::string layout) {
    const at::AutoDispatchBelowADInplaceOrView guard;
    context->save_for_backward(
        {q, k, or_undefined(q_weight), or_undefined(k_weight), or_undefined(cos_sin), or_undefined(positions)});
    context->saved_data["epsilon"] = epsilon;
    context->saved_data["weight_offset"] = weight_offset;
    context->saved_data["epsilon_placement"] = placement;
    context->saved_data["rope_layout"] = layout;
    const auto [q_out, k_out] =
        op().call(q, k, q_weight, k_weight, cos_sin, positions, epsilon, weight_offset, placement, round, layout);
    return {q_out, k_out};
  }

  static variable_list backward(AutogradContext* context, const variable_list& dout) {
    const auto saved = context->get_saved_variables();
    const double epsilon = context->saved_data["epsilon"].toDouble();
    const double offset = context->saved_data["weight_offset"].toDouble();
    const std::string placement = context->saved_data["epsilon_placement"].toStringRef();
    const bool interleaved = context->saved_data["rope_layout"].toStringRef() == "interleaved";
    variable_list gradients(11);
    for (size_t i = 0; i < 2; ++i) {
      const Tensor &x = saved[i], &weight = saved[2 + i];
      const std::array<bool, 3> wants = {true, weight.defined() && weight.requires_grad(), false};
      const Tensor dy = turned_back(dout[i], saved[4], saved[5], interleaved);
      const auto [dx, dweight, dbias] =
          rms_norm_backward(dy, x, weight, Tensor(), Tensor(), epsilon, offset, placement, 0, wants);
      gradients[i] = dx;
      if (wants[1]) gradients[2 + i] = dweight;
    }
    return gradients;
  }
};

inline TwoTensors qk_norm_rope_autograd(const Tensor& q, const Tensor& k, const OptionalTensor& q_weight,
                                        const OptionalTensor& k_weight, const OptionalTensor& cos_sin,
                                        const OptionalTensor& positions, double epsilon, double weight_offset,
                                        std::string placement, std::string round, std::string layout) {
  TORCH_CHECK_VALUE(!needs_gradient(cos_sin), "qk_norm_rope: cos_sin requires a gradient; it must not, it has none");
  if (records(q, k, q_weight, k_weight)) {
    const auto result = QkNormRopeFunction::apply(q, k, q_weight, k_weight, cos_sin, positions, epsilon, weight_offset,
                                                  placement, round, layout);
    return {result[0], result[1]};
  }
  const at::AutoDispatchBelowADInplaceOrView guard;
  return QkNormRopeFunction::op().call(q, k, q_weight, k_weight, cos_sin, positions, epsilon, weight_offset, placement,
                                       round, layout);
}

}  // namespace rmsnorm_torch

#endif  // RMSNORM_TORCH_QK_NORM_ROPE_H_
