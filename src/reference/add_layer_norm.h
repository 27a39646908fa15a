// Residual add and LayerNorm of one row:
//   s = x + residual,  residual_out = round(s),  out = layer_norm(residual_out or s).
#ifndef RMSNORM_REFERENCE_ADD_LAYER_NORM_H_
#define RMSNORM_REFERENCE_ADD_LAYER_NORM_H_

#include <vector>

#include "reference/layer_norm.h"
#include "reference/residual.h"

namespace rmsnorm::reference {

// Returns mean and inv_std; see layer_norm.h.
template <class Real>
Moments<Real> add_layer_norm(Real* out, double* residual_out, const double* x, const double* residual,
                             std::int64_t cols, rn_type x_type, rn_type residual_out_type, const Parameters& parameters,
                             double epsilon, rn_norm_input norm_input) {
  std::vector<double> sum(static_cast<std::size_t>(cols));
  add_residual(residual_out, sum.data(), x, residual, cols, x_type, residual_out_type, norm_input);
  return layer_norm(out, sum.data(), cols, parameters, epsilon);
}

}  // namespace rmsnorm::reference

#endif  // RMSNORM_REFERENCE_ADD_LAYER_NORM_H_
