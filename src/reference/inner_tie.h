// `before_weight` next to a tie of the inner rounding, where the last bits of x * inv decide between two results.
#ifndef RMSNORM_REFERENCE_INNER_TIE_H_
#define RMSNORM_REFERENCE_INNER_TIE_H_

#include <array>
#include <optional>

#include "reference/affine.h"
#include "reference/ulp.h"

namespace rmsnorm::reference {

// Element i, before its last rounding, from each of the two inner values that n may be rounded to; none where n is more
// than `reach` ulps from a tie.
inline std::optional<std::array<double, 2>> around_inner_tie(Quad n, const Parameters& p, std::int64_t i,
                                                             rn_type x_type, double reach) {
  if (tie_distance(x_type, n) > reach) return std::nullopt;
  const Quad nudge = 2 * reach * ulp_at(x_type, n);
  return std::array{affine_after_rounding(n + nudge, p, i, x_type), affine_after_rounding(n - nudge, p, i, x_type)};
}

}  // namespace rmsnorm::reference

#endif  // RMSNORM_REFERENCE_INNER_TIE_H_
