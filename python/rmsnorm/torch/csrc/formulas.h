// Gradients written with PyTorch's operators, so that they can be differentiated again. The fused kernels compute the
// same; see the library's backward.h for the formulas.
#ifndef RMSNORM_TORCH_FORMULAS_H_
#define RMSNORM_TORCH_FORMULAS_H_

#include "autograd.h"

namespace rmsnorm_torch {

// In the wide type and of the shape of x.
struct Gradients {
  Tensor dx, dweight, dbias;

  // Summed to the shapes and rounded to the types of what they belong to.
  std::tuple<Tensor, Tensor, Tensor> reduced(const Tensor& x, const Tensor& weight, const Tensor& bias,
                                             const Tensor& through, const std::array<bool, 3>& wants) const {
    return {(through.defined() ? dx + through : dx).to(x.scalar_type()), wants[1] ? as(dweight, weight) : Tensor(),
            wants[2] ? as(dbias, bias) : Tensor()};
  }
};

inline Tensor weighted(const Tensor& dy, const Tensor& weight, double weight_offset) {
  return weight.defined() ? dy * (weight.to(dy.scalar_type()) + weight_offset) : dy;
}

// dx = inv g - [i < k] c x sum(g x);  c = inv^3 / k, or with epsilon outside the root inv^2 / (k r), 0 where r = 0.
inline Gradients rms_norm_gradients(const Tensor& dy_narrow, const Tensor& x_narrow, const Tensor& weight,
                                    double epsilon, double weight_offset, bool outside, int64_t partial) {
  const Tensor x = x_narrow.to(wide(x_narrow));
  const Tensor dy = dy_narrow.to(x.scalar_type());
  const Tensor g = weighted(dy, weight, weight_offset);
  const Tensor counted = partial == 0 ? x : x.narrow(-1, 0, partial);
  const Tensor mean_square = counted.square().mean(-1, true);
  const c10::SymInt k = counted.sym_size(-1);
  Tensor inv, c;
  if (outside) {
    const Tensor root = mean_square.sqrt();
    inv = (root + epsilon).reciprocal();
    c = at::where(root == 0, at::zeros_like(root), inv.square() / root);
  } else {
    inv = (mean_square + epsilon).rsqrt();
    c = inv.pow(3);
  }
  const Tensor mean = (g * x).sum(at::IntArrayRef({-1}), true) / k;
  Tensor second = c * counted * mean;
  if (partial != 0) second = at::pad_symint(second, {c10::SymInt(0), x.sym_size(-1) - k});
  const Tensor xhat = x * inv;
  return {inv * g - second, dy * xhat, dy};
}

// dx = inv (g - mean(g) - h mean(g h)),  h = (x - mean(x)) inv
inline Gradients layer_norm_gradients(const Tensor& dy_narrow, const Tensor& x_narrow, const Tensor& weight,
                                      double epsilon, double weight_offset) {
  const Tensor x = x_narrow.to(wide(x_narrow));
  const Tensor dy = dy_narrow.to(x.scalar_type());
  const Tensor g = weighted(dy, weight, weight_offset);
  const Tensor centred = x - x.mean(-1, true);
  const Tensor inv = (centred.square().mean(-1, true) + epsilon).rsqrt();
  const Tensor h = centred * inv;
  return {inv * (g - g.mean(-1, true) - h * (g * h).mean(-1, true)), dy * h, dy};
}

}  // namespace rmsnorm_torch

#endif  // RMSNORM_TORCH_FORMULAS_H_
