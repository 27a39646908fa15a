// A sub-layer on the residual stream, with its norm before, behind, or on both sides.
#ifndef RMSNORM_LAB_MODELS_RESIDUAL_H_
#define RMSNORM_LAB_MODELS_RESIDUAL_H_

#include "lab/models/model.h"

namespace rmsnorm::lab {

// The residual stream: x + branch. The sum is left to the norm that reads it, which makes both in one pass; branch is
// undefined where there is nothing to add.
struct Stream {
  torch::Tensor x, branch;

  torch::Tensor sum() const { return branch.defined() ? x + branch : x; }
  // norm(sum); the stream becomes the sum.
  torch::Tensor normalised(Norm& norm) {
    if (!branch.defined()) return norm->forward(x);
    const auto [y, sum] = norm->forward(branch, x);
    x = sum;
    branch = torch::Tensor();
    return y;
  }
};

// before only (pre):   x + f(before(x))
// after only (post):   after(x + f(x))
// both:                x + after(f(before(x)))
template <class F>
Stream sub_layer(Stream stream, Norm& before, Norm& after, F&& f) {
  if (before.is_empty()) {
    Stream sum = {stream.x, f(stream.x)};
    return {sum.normalised(after), {}};
  }
  const torch::Tensor y = f(stream.normalised(before));
  return {stream.x, after.is_empty() ? y : after->forward(y)};
}

}  // namespace rmsnorm::lab

#endif  // RMSNORM_LAB_MODELS_RESIDUAL_H_
