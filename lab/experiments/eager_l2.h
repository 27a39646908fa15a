// RMSNorm as the practice report writes it a second time, by the L2 norm: x / (|x| / sqrt(d) + e) * weight.
#ifndef RMSNORM_LAB_EXPERIMENTS_EAGER_L2_H_
#define RMSNORM_LAB_EXPERIMENTS_EAGER_L2_H_

#include <torch/torch.h>

#include <cmath>

namespace rmsnorm::lab {

inline torch::Tensor eager_rms_norm_l2(const torch::Tensor& x, const torch::Tensor& weight, double epsilon) {
  const torch::Tensor norm = x.norm(2, -1, /*keepdim=*/true);
  return x / (norm / std::sqrt(static_cast<double>(x.size(-1))) + epsilon) * weight;
}

}  // namespace rmsnorm::lab

#endif  // RMSNORM_LAB_EXPERIMENTS_EAGER_L2_H_
