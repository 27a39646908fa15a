// Backward of RMSNorm, one row:
//   g = dy * (weight + offset),  xhat = x * inv,  dx = inv * (g - xhat * mean(g * xhat)),
// and what the row adds to dweight, dy * xhat.
#ifndef RMSNORM_REFERENCE_RMS_NORM_BACKWARD_H_
#define RMSNORM_REFERENCE_RMS_NORM_BACKWARD_H_

#include <vector>

#include "reference/affine.h"

namespace rmsnorm::reference {

// A gradient and the magnitudes that its error is measured by.
template <class Real>
struct GradientRow {
  std::vector<Real> dx;
  std::vector<Real> normalised;  // xhat, or (x - mean) * inv_std
  Real largest = 0;              // of |inv g|, |inv xhat mean(g xhat)| and |dx|
};

template <class Real>
Real gradient_at_norm(const double* dy, const Parameters& p, std::int64_t i) {
  const Real factor = p.weight ? static_cast<Real>(p.weight[i]) + static_cast<Real>(p.weight_offset) : Real{1};
  return static_cast<Real>(dy[i]) * factor;
}

// inv: null, or what the forward call saved.
template <class Real>
GradientRow<Real> rms_norm_backward(const double* dy, const double* x, std::int64_t cols, const Parameters& p,
                                    const rn_rms_norm_options& options, const double* inv = nullptr) {
  const std::int64_t counted = options.partial == 0 ? cols : options.partial;
  const bool outside = options.epsilon_placement == RN_EPSILON_OUTSIDE;
  Real squares = 0, products = 0;
  for (std::int64_t i = 0; i < counted; ++i) squares += static_cast<Real>(x[i]) * static_cast<Real>(x[i]);
  for (std::int64_t i = 0; i < cols; ++i) products += gradient_at_norm<Real>(dy, p, i) * static_cast<Real>(x[i]);
  const Real mean = squares / static_cast<Real>(counted);
  const Real epsilon = static_cast<Real>(options.epsilon);
  const Real r = square_root(mean);
  Real scale = outside ? 1 / (r + epsilon) : 1 / square_root(mean + epsilon);
  if (inv) scale = static_cast<Real>(*inv);
  const Real share = products / static_cast<Real>(counted);  // mean(g x)
  const Real slope = !outside ? scale * scale * scale * share : r == 0 ? Real{0} : scale * scale * share / r;
  GradientRow<Real> row;
  for (std::int64_t i = 0; i < cols; ++i) {
    const Real direct = scale * gradient_at_norm<Real>(dy, p, i);
    const Real through = i < counted ? static_cast<Real>(x[i]) * slope : Real{0};
    row.dx.push_back(direct - through);
    row.normalised.push_back(static_cast<Real>(x[i]) * scale);
    for (const Real term : {direct, through, row.dx.back()})
      row.largest = std::max(row.largest, term < 0 ? -term : term);
  }
  return row;
}

}  // namespace rmsnorm::reference

#endif  // RMSNORM_REFERENCE_RMS_NORM_BACKWARD_H_
