// The last step of every norm: out = n * (weight + offset) + bias.
#ifndef RMSNORM_REFERENCE_AFFINE_H_
#define RMSNORM_REFERENCE_AFFINE_H_

#include "reference/format.h"

namespace rmsnorm::reference {

// Weight and bias of a row, exactly widened; null: absent.
struct Parameters {
  const double* weight = nullptr;
  const double* bias = nullptr;
  double weight_offset = 0;
};

// Exact up to the one rounding that follows (`once`, `exact`).
template <class Real>
Real affine(Real n, const Parameters& p, std::int64_t i) {
  if (p.weight) n *= static_cast<Real>(p.weight[i]) + static_cast<Real>(p.weight_offset);
  if (p.bias) n += static_cast<Real>(p.bias[i]);
  return n;
}

// `before_weight` for 16-bit x: n is rounded to x's type, then factor, product and sum each to f32.
inline double affine_after_rounding(Quad n, const Parameters& p, std::int64_t i, rn_type x_type) {
  double y = round_to(x_type, n);
  if (p.weight) {
    const double factor = round_to(RN_F32, static_cast<Quad>(p.weight[i]) + static_cast<Quad>(p.weight_offset));
    y = round_to(RN_F32, static_cast<Quad>(y) * factor);
  }
  return p.bias ? round_to(RN_F32, static_cast<Quad>(y) + p.bias[i]) : y;
}

}  // namespace rmsnorm::reference

#endif  // RMSNORM_REFERENCE_AFFINE_H_
