// Backward of LayerNorm, one row:
//   g = dy * (weight + offset),  h = (x - m) * inv_std,  dx = inv_std * (g - mean(g) - h * mean(g * h)),
// and what the row adds to dweight, dy * h.
#ifndef RMSNORM_REFERENCE_LAYER_NORM_BACKWARD_H_
#define RMSNORM_REFERENCE_LAYER_NORM_BACKWARD_H_

#include "reference/layer_norm.h"
#include "reference/rms_norm_backward.h"

namespace rmsnorm::reference {

// inv: null, or what the forward call saved.
template <class Real>
GradientRow<Real> layer_norm_backward(const double* dy, const double* x, std::int64_t cols, const Parameters& p,
                                      double epsilon, const double* inv = nullptr) {
  GradientRow<Real> row;
  row.normalised.resize(static_cast<std::size_t>(cols));
  const Moments<Real> moments = layer_norm(row.normalised.data(), x, cols, Parameters{}, epsilon);
  const Real scale = inv ? static_cast<Real>(*inv) : moments.inv_std;
  const Real d = static_cast<Real>(cols);
  if (inv) {
    for (Real& h : row.normalised) h = h / moments.inv_std * scale;
  }
  Real mean_g = 0, mean_gh = 0;
  for (std::int64_t i = 0; i < cols; ++i) {
    const Real g = gradient_at_norm<Real>(dy, p, i);
    mean_g += g / d;
    mean_gh += g * row.normalised[static_cast<std::size_t>(i)] / d;
  }
  for (std::int64_t i = 0; i < cols; ++i) {
    const Real direct = scale * gradient_at_norm<Real>(dy, p, i);
    const Real through = scale * row.normalised[static_cast<std::size_t>(i)] * mean_gh;
    row.dx.push_back(direct - scale * mean_g - through);
    for (const Real term : {direct, through, row.dx.back()})
      row.largest = std::max(row.largest, term < 0 ? -term : term);
  }
  return row;
}

}  // namespace rmsnorm::reference

#endif  // RMSNORM_REFERENCE_LAYER_NORM_BACKWARD_H_
