// Quantising: the scale of some numbers, and one of them in units of it.
//   scale = f32(max|y| / qmax),  q = saturate(round(y / scale)),  a true f32 division.
#ifndef RMSNORM_REFERENCE_QUANTIZE_H_
#define RMSNORM_REFERENCE_QUANTIZE_H_

#include <algorithm>

#include "reference/format.h"

namespace rmsnorm::reference {

// The largest |y| that is not NaN.
inline double largest_magnitude(const double* y, std::int64_t count) {
  double largest = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    if (!is_nan(y[i])) largest = std::max(largest, std::fabs(y[i]));
  }
  return largest;
}

inline double scale_for_largest(double largest, rn_type type, bool to_power_of_two) {
  if (largest == 0) return 1;
  if (std::isinf(largest)) return to_power_of_two ? 0x1p127 : std::numeric_limits<float>::max();
  const Quad ratio = static_cast<Quad>(largest) / format_of(type).largest;
  if (ratio < power_of_two(-126)) return 0x1p-126;
  if (!to_power_of_two) return round_to(RN_F32, ratio);
  const Quad below = power_of_two(exponent_of(ratio));
  return static_cast<double>(below == ratio ? below : 2 * below);
}

inline double quantized(double y, double scale, rn_type type) {
  return round_to(type, round_to(RN_F32, static_cast<Quad>(y) / static_cast<Quad>(scale)));
}

}  // namespace rmsnorm::reference

#endif  // RMSNORM_REFERENCE_QUANTIZE_H_
