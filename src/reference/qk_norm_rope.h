// Rotary position embedding of one head that has been normalised:
//   a' = a * cos - b * sin,  b' = b * cos + a * sin
// for columns a, b = i, i + n / 2 (half split) or 2i, 2i + 1 (interleaved) of the first n = rotary_dim.
#ifndef RMSNORM_REFERENCE_QK_NORM_ROPE_H_
#define RMSNORM_REFERENCE_QK_NORM_ROPE_H_

#include <algorithm>

#include "reference/format.h"

namespace rmsnorm::reference {

// Turns y, the head before its last rounding; cos_sin: n / 2 cosines, then as many sines. `addends` becomes the larger
// of the two terms of each element (0 where it is not turned).
template <class Real>
void rope(Real* y, Real* addends, std::int64_t cols, const double* cos_sin, std::int64_t rotary_dim,
          rn_rope_layout layout) {
  std::fill_n(addends, cols, Real{0});
  const std::int64_t half = rotary_dim / 2;
  const auto magnitude = [](Real v) { return v < 0 ? -v : v; };
  for (std::int64_t i = 0; i < half; ++i) {
    const std::int64_t a = layout == RN_ROPE_INTERLEAVED ? 2 * i : i;
    const std::int64_t b = layout == RN_ROPE_INTERLEAVED ? 2 * i + 1 : i + half;
    const Real c = static_cast<Real>(cos_sin[i]), s = static_cast<Real>(cos_sin[half + i]);
    const Real ya = y[a], yb = y[b];
    y[a] = ya * c - yb * s;
    y[b] = yb * c + ya * s;
    addends[a] = std::max(magnitude(ya * c), magnitude(yb * s));
    addends[b] = std::max(magnitude(yb * c), magnitude(ya * s));
  }
}

}  // namespace rmsnorm::reference

#endif  // RMSNORM_REFERENCE_QK_NORM_ROPE_H_
