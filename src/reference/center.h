// Centring of one row:
//   out = x - mean(x).
#ifndef RMSNORM_REFERENCE_CENTER_H_
#define RMSNORM_REFERENCE_CENTER_H_

#include "reference/mean.h"

namespace rmsnorm::reference {

template <class Real>
void center(Real* out, const double* x, std::int64_t cols) {
  const Mean<Real> mean = mean_of<Real>(x, cols);
  for (std::int64_t i = 0; i < cols; ++i) out[i] = mean.from(x[i]);
}

}  // namespace rmsnorm::reference

#endif  // RMSNORM_REFERENCE_CENTER_H_
