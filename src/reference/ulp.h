// Errors in units of the last place.
#ifndef RMSNORM_REFERENCE_ULP_H_
#define RMSNORM_REFERENCE_ULP_H_

#include "reference/format.h"

namespace rmsnorm::reference {

// |stored - exact| in ulps of `type` at `scale` (usually exact itself; where terms cancel, the largest of them).
// A stored infinity counts as the number behind the largest finite one, so that an exact value beyond the range is met
// by infinity at distance 0. NaN meets only NaN, and an exact infinity only itself; else the distance is infinite.
inline double ulp_distance(rn_type type, double stored, Quad exact, Quad scale) {
  constexpr double kFar = std::numeric_limits<double>::infinity();
  if (is_nan(exact) || is_nan(stored)) return is_nan(exact) && is_nan(stored) ? 0 : kFar;
  if (!is_finite(exact)) return stored == exact ? 0 : kFar;
  const Quad limit = power_of_two(format_of(type).max_exponent + 1);
  Quad found = stored;
  if (!is_finite(found)) {
    if (sign_of(exact) != sign_of(found)) return kFar;
    if (absolute(exact) >= limit) return 0;
    found = stored > 0 ? limit : -limit;
  }
  return static_cast<double>(in_ulps(type, absolute(found - exact), scale));
}

inline double ulp_distance(rn_type type, double stored, Quad exact) { return ulp_distance(type, stored, exact, exact); }

// How far |v| is from the nearest tie between two numbers of type, in ulps: 0 on a tie, 0.5 on a number.
inline double tie_distance(rn_type type, Quad v) {
  if (!is_finite(v)) return 0.5;
  const Quad count = in_ulps(type, absolute(v), v);
  const Quad rest = count - static_cast<Quad>(static_cast<std::int64_t>(count));
  return static_cast<double>(absolute(rest - static_cast<Quad>(0.5)));
}

}  // namespace rmsnorm::reference

#endif  // RMSNORM_REFERENCE_ULP_H_
