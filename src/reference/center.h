// Centring of one row:
//   out = x - mean(x).
#ifndef RMSNORM_REFERENCE_CENTER_H_
#define RMSNORM_REFERENCE_CENTER_H_

#include "reference/format.h"

namespace rmsnorm::reference {

template <class Real>
void center(Real* out, const double* x, std::int64_t cols) {
  Real sum = 0;
  for (std::int64_t i = 0; i < cols; ++i) sum += static_cast<Real>(x[i]);
  const Real m = sum / static_cast<Real>(cols);
  for (std::int64_t i = 0; i < cols; ++i) out[i] = static_cast<Real>(x[i]) - m;
}

}  // namespace rmsnorm::reference

#endif  // RMSNORM_REFERENCE_CENTER_H_
