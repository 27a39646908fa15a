// LayerNorm of one row:
//   m = mean(x),  v = mean((x - m)^2),  out = (x - m) / sqrt(v + epsilon) * (weight + offset) + bias.
#ifndef RMSNORM_REFERENCE_LAYER_NORM_H_
#define RMSNORM_REFERENCE_LAYER_NORM_H_

#include "reference/affine.h"

namespace rmsnorm::reference {

template <class Real>
struct Moments {
  Real mean;
  Real inv_std;
};

// Writes the row before its last rounding. In double, m carries a rounding error that a large common offset magnifies:
// delta = mean(x - m) takes it out again. In Quad, delta is too small to matter.
template <class Real>
Moments<Real> layer_norm(Real* out, const double* x, std::int64_t cols, const Parameters& parameters, double epsilon) {
  Real sum = 0;
  for (std::int64_t i = 0; i < cols; ++i) sum += static_cast<Real>(x[i]);
  const Real m = sum / static_cast<Real>(cols);
  sum = 0;
  for (std::int64_t i = 0; i < cols; ++i) sum += static_cast<Real>(x[i]) - m;
  const Real delta = sum / static_cast<Real>(cols);
  sum = 0;
  for (std::int64_t i = 0; i < cols; ++i) {
    const Real centred = (static_cast<Real>(x[i]) - m) - delta;
    sum += centred * centred;
  }
  const Real inv_std = 1 / square_root(sum / static_cast<Real>(cols) + static_cast<Real>(epsilon));
  for (std::int64_t i = 0; i < cols; ++i) {
    out[i] = affine(((static_cast<Real>(x[i]) - m) - delta) * inv_std, parameters, i);
  }
  return {is_finite(static_cast<Quad>(m)) ? m + delta : m, inv_std};
}

}  // namespace rmsnorm::reference

#endif  // RMSNORM_REFERENCE_LAYER_NORM_H_
