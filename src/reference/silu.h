// silu(g) = g / (1 + e^-g) and its derivative.
#ifndef RMSNORM_REFERENCE_SILU_H_
#define RMSNORM_REFERENCE_SILU_H_

#include "reference/quad.h"

namespace rmsnorm::reference {

inline double exponential(double v) { return std::exp(v); }

// e^v = 2^k e^r,  e^r = (e^(r/16))^16, and that by its series.
inline Quad exponential(Quad v) {
  if (is_nan(v)) return v;
  if (v > 11000) return std::numeric_limits<double>::infinity();
  if (v < -11000) return 0;
  // ln 2 in three parts, the first two with room for a product with k.
  const Quad high = 0x1.62e42fefa39ep-1, middle = 0x1.e6af278ece6p-50, low = 0x1.f97b57a079a19p-103;
  const int k = static_cast<int>(std::floor(static_cast<double>(v) / 0.6931471805599453 + 0.5));
  const Quad small = (((v - k * high) - k * middle) - k * low) / 16;
  Quad sum = 1;
  for (int n = 20; n > 0; --n) sum = 1 + sum * small / n;
  for (int square = 0; square < 4; ++square) sum *= sum;
  return sum * power_of_two(k);
}

template <class Real>
struct Activation {
  Real value, slope;
  Real slope_terms;  // the larger of the two that slope is the sum of: sigmoid(g) and g sigmoid(g) sigmoid(-g)
};

// Of -infinity -0 and 0, of infinity infinity and 1: the limits.
template <class Real>
Activation<Real> silu(double gate) {
  constexpr double kInfinite = std::numeric_limits<double>::infinity();
  const Real g = static_cast<Real>(gate);
  if (gate == kInfinite) return {g, Real{1}, Real{1}};
  if (gate == -kInfinite) return {Real{-0.0}, Real{0}, Real{0}};
  const Real e = exponential(-g);
  if (static_cast<double>(e) == kInfinite && gate < -700) {  // where e^-g overflows
    const Real inverse = exponential(g);
    return {g * inverse, (1 + g) * inverse, -g * inverse};
  }
  const Real sigmoid = 1 / (1 + e);
  const Real other = g * (e * sigmoid) * sigmoid, magnitude = other < 0 ? -other : other;
  return {g * sigmoid, sigmoid + other, magnitude > sigmoid ? magnitude : sigmoid};
}

}  // namespace rmsnorm::reference

#endif  // RMSNORM_REFERENCE_SILU_H_
