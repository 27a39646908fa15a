// The mean of a row, exact enough for what lies next to it. Rows of 1e25 among 1e-10 span more than the 113 bits of
// Quad: where the large ones cancel, or add up to a multiple of one of them, a plain sum has lost what is left.
#ifndef RMSNORM_REFERENCE_MEAN_H_
#define RMSNORM_REFERENCE_MEAN_H_

#include "reference/format.h"

namespace rmsnorm::reference {

// value + rest; value has half the digits of Real, so that its multiples are exact.
template <class Real>
struct Mean {
  Real value, rest;

  Real total() const { return value + rest; }
  Real from(double x) const { return (static_cast<Real>(x) - value) - rest; }
};

inline Quad half_the_digits(Quad v) { return static_cast<double>(v); }
inline double half_the_digits(double v) {
  return std::bit_cast<double>(std::bit_cast<std::uint64_t>(v) & ~std::uint64_t{0x7ffffff});
}

template <class Real>
Mean<Real> mean_of(const double* x, std::int64_t cols) {
  Real sum = 0, lost = 0;  // lost: what the additions rounded away (Neumaier 1974)
  for (std::int64_t i = 0; i < cols; ++i) {
    const Real v = static_cast<Real>(x[i]), next = sum + v;
    lost += magnitude_bits(sum) >= magnitude_bits(v) ? (sum - next) + v : (v - next) + sum;
    sum = next;
  }
  const Real d = static_cast<Real>(cols);
  if (!is_finite(sum)) return {sum / d, 0};
  const Real value = half_the_digits((sum + lost) / d);
  return {value, ((sum - value * d) + lost) / d};
}

}  // namespace rmsnorm::reference

#endif  // RMSNORM_REFERENCE_MEAN_H_
