// Gradients against differences of the loss itself.
#ifndef RMSNORM_TEST_LAB_GRADIENTS_H_
#define RMSNORM_TEST_LAB_GRADIENTS_H_

#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

namespace rmsnorm::lab {

// The largest error of the gradient of `loss` in `count` entries of each f64 leaf, spread evenly over it, against the
// central difference of step h: relative to the largest gradient looked at. The difference is of order h^2 wrong, 1e-10
// times the third derivative, and rounding adds 1e-16 / h = 1e-11 times the loss.
inline double gradient_error(const std::function<torch::Tensor()>& loss, const std::vector<torch::Tensor>& leaves,
                             std::int64_t count) {
  constexpr double h = 1e-5;
  const auto gradients = torch::autograd::grad({loss()}, leaves);
  const torch::NoGradGuard guard;
  double error = 0, largest = 0;
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    const torch::Tensor entries = leaves[i].view(-1), gradient = gradients[i].reshape(-1);
    const std::int64_t size = entries.numel(), stride = std::max<std::int64_t>(1, size / count);
    for (std::int64_t j = stride / 2; j < size; j += stride) {
      const double kept = entries[j].item<double>();
      entries[j] = kept + h;
      const double above = loss().item<double>();
      entries[j] = kept - h;
      const double below = loss().item<double>();
      entries[j] = kept;
      const double expected = (above - below) / (2 * h);
      error = std::max(error, std::abs(gradient[j].item<double>() - expected));
      largest = std::max(largest, std::abs(expected));
    }
  }
  return error / largest;
}

}  // namespace rmsnorm::lab

#endif  // RMSNORM_TEST_LAB_GRADIENTS_H_
