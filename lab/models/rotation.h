// Rotary positions (Su et al. 2021).
#ifndef RMSNORM_LAB_MODELS_ROTATION_H_
#define RMSNORM_LAB_MODELS_ROTATION_H_

#include <torch/torch.h>

#include <cstdint>

namespace rmsnorm::lab {

// Cosines and sines [context, head_width] of the angles position * theta^(-2 i / head_width), i < head_width / 2, twice
// in a row for the halves of a head. In f32 whatever the model's type is, as transformers has them: the angles are part
// of what a checkpoint means.
struct Rotation {
  torch::Tensor cosines, sines;

  Rotation(std::int64_t context, std::int64_t head_width, double theta) {
    const torch::Tensor exponents = torch::arange(0, head_width, 2, torch::kFloat) / static_cast<double>(head_width);
    const torch::Tensor frequencies = 1.0 / torch::pow(theta, exponents);
    const torch::Tensor angles = torch::outer(torch::arange(context, torch::kFloat), frequencies).repeat({1, 2});
    cosines = angles.cos();
    sines = angles.sin();
  }

  // x [batch, heads, time, head_width], whose first token stands at position `first`. (a, b) -> (a cos - b sin,
  // b cos + a sin), a and b the halves of a head.
  torch::Tensor operator()(const torch::Tensor& x, std::int64_t first = 0) const {
    const auto of_x = [&](const torch::Tensor& table) { return table.narrow(0, first, x.size(2)).to(x.scalar_type()); };
    const auto halves = x.chunk(2, -1);
    return x * of_x(cosines) + torch::cat({-halves[1], halves[0]}, -1) * of_x(sines);
  }
};

}  // namespace rmsnorm::lab

#endif  // RMSNORM_LAB_MODELS_ROTATION_H_
