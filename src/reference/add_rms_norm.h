// Residual add and RMSNorm of one row:
//   s = x + residual,  residual_out = round(s),  out = rms_norm(residual_out or s).
#ifndef RMSNORM_REFERENCE_ADD_RMS_NORM_H_
#define RMSNORM_REFERENCE_ADD_RMS_NORM_H_

#include <vector>

#include "reference/residual.h"
#include "reference/rms_norm.h"

namespace rmsnorm::reference {

// Returns inv; see rms_norm.h.
template <class Real>
Real add_rms_norm(Real* out, double* residual_out, const double* x, const double* residual, std::int64_t cols,
                  rn_type x_type, rn_type residual_out_type, const Parameters& parameters,
                  const rn_add_rms_norm_options& options) {
  std::vector<double> sum(static_cast<std::size_t>(cols));
  add_residual(residual_out, sum.data(), x, residual, cols, x_type, residual_out_type, options.norm_input);
  return rms_norm(out, sum.data(), cols, x_type, parameters, options.norm);
}

}  // namespace rmsnorm::reference

#endif  // RMSNORM_REFERENCE_ADD_RMS_NORM_H_
