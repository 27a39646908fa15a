// RMSNorm of one row:
//   inv = 1 / sqrt(mean(x^2) + epsilon),  out = x * inv * (weight + offset) + bias.
#ifndef RMSNORM_REFERENCE_RMS_NORM_H_
#define RMSNORM_REFERENCE_RMS_NORM_H_

#include "reference/affine.h"

namespace rmsnorm::reference {

// Writes the row before its last rounding (round_to(out_type, out[i]) is what is stored) and returns inv.
// Real: double, or Quad where double's own error or range would matter.
template <class Real>
Real rms_norm(Real* out, const double* x, std::int64_t cols, rn_type x_type, const Parameters& parameters,
              const rn_rms_norm_options& options) {
  const std::int64_t counted = options.partial == 0 ? cols : options.partial;
  Real sum = 0;
  for (std::int64_t i = 0; i < counted; ++i) sum += static_cast<Real>(x[i]) * static_cast<Real>(x[i]);
  const Real mean = sum / static_cast<Real>(counted);
  const Real epsilon = static_cast<Real>(options.epsilon);
  const Real inv = options.epsilon_placement == RN_EPSILON_INSIDE ? 1 / square_root(mean + epsilon)
                                                                  : 1 / (square_root(mean) + epsilon);
  // In f32 and f64 rows the rounding before the weight is one of the f32 or f64 operations anyway.
  const bool rounds_before = options.rounding == RN_ROUND_BEFORE_WEIGHT && (x_type == RN_F16 || x_type == RN_BF16);
  for (std::int64_t i = 0; i < cols; ++i) {
    const Real n = static_cast<Real>(x[i]) * inv;
    out[i] =
        rounds_before ? static_cast<Real>(affine_after_rounding(n, parameters, i, x_type)) : affine(n, parameters, i);
  }
  return inv;
}

}  // namespace rmsnorm::reference

#endif  // RMSNORM_REFERENCE_RMS_NORM_H_
