// LayerNorm of one row:
//   m = mean(x),  v = mean((x - m)^2),  out = (x - m) / sqrt(v + epsilon) * (weight + offset) + bias.
#ifndef RMSNORM_REFERENCE_LAYER_NORM_H_
#define RMSNORM_REFERENCE_LAYER_NORM_H_

#include "reference/affine.h"
#include "reference/mean.h"

namespace rmsnorm::reference {

template <class Real>
struct Moments {
  Real mean;
  Real inv_std;
};

// Writes the row before its last rounding.
template <class Real>
Moments<Real> layer_norm(Real* out, const double* x, std::int64_t cols, const Parameters& parameters, double epsilon) {
  const Mean<Real> mean = mean_of<Real>(x, cols);
  Real squares = 0;
  for (std::int64_t i = 0; i < cols; ++i) {
    const Real centred = mean.from(x[i]);
    squares += centred * centred;
  }
  const Real inv_std = 1 / square_root(squares / static_cast<Real>(cols) + static_cast<Real>(epsilon));
  for (std::int64_t i = 0; i < cols; ++i) out[i] = affine(mean.from(x[i]) * inv_std, parameters, i);
  return {mean.total(), inv_std};
}

}  // namespace rmsnorm::reference

#endif  // RMSNORM_REFERENCE_LAYER_NORM_H_
