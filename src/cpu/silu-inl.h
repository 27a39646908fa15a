// silu(g) = g / (1 + e^-g) and its derivative, in registers. See silu.h for the formulas.
#ifndef RMSNORM_CPU_SILU_INL_H_
#define RMSNORM_CPU_SILU_INL_H_

#include "cpu/silu.h"
#include "cpu/simd.h"

namespace rmsnorm::RMSNORM_TARGET {

// p = expm1(-r) and 2^(k + bias): what 1 + e^-g is made of. g is within what f32 can hold.
struct ExpParts {
  F p, power;
};
inline ExpParts exp_parts(F g, float shift) {
  using C = SiluF32;
  const F shifted = add(mul(g, splat(-C::kLog2E)), splat(shift));
  const F k = sub(shifted, splat(shift));
  // Fused products are exact.
  const F r = add(add_exact_product(k, splat(C::kLn2High), g), mul(k, splat(C::kLn2Low)));
  const F square = mul(r, r);
  const F low = add(splat(C::kTerms[0]), mul(splat(C::kTerms[1]), r));
  const F high = add(add(splat(C::kTerms[2]), mul(splat(C::kTerms[3]), r)), mul(splat(C::kTerms[4]), square));
  return {sub(mul(square, add(low, mul(high, square))), r), into_exponent(shifted)};
}

// one + power (1 + p), the larger of one and power last: of all orders the one that loses least.
inline F one_plus(ExpParts e, F one) {
  return add(larger(e.power, one), add_exact_product(e.power, e.p, smaller(e.power, one)));
}

// silu(g), at most 2 ulp off for g >= -80: 1.998, found by trying all of them.
inline F silu(F g) {
  using C = SiluF32;
  const F numerator = larger(splat(C::kLeast), g);
  const ExpParts e = exp_parts(smaller(splat(C::kMost), numerator), C::kShift);
  const F denominator = one_plus(e, splat(1.0f));
  // Below kLeast the denominator grows on, to infinity at the latest for -infinity.
  return div(numerator, mul(denominator, larger(splat(1.0f), sub(splat(C::kFade), g))));
}
inline Pair silu(Pair g) { return {silu(g.a), silu(g.b)}; }

// 2^32 silu(g), so that its product with an element underflows only where silu(g) times that is far below f32.
// Infinite for gates from 2^96 on.
inline F scaled_silu(F g) {
  using C = SiluF32;
  const F numerator = larger(splat(C::kScaledLeast), g);
  const ExpParts e = exp_parts(smaller(splat(C::kMost), numerator), C::kScaledShift);
  return div(numerator, one_plus(e, splat(1 / C::kScale)));
}
inline Pair scaled_silu(Pair g) { return {scaled_silu(g.a), scaled_silu(g.b)}; }

// The same in f64, for rows that f32 cannot hold and for gradients.
struct SiluAndSlope {
  D silu, slope;
};

inline SiluAndSlope silu_and_slope(D g) {
  using C = SiluF64;
  const D numerator = larger(splat(-C::kBound), g);
  const D bounded = smaller(splat(C::kBound), numerator);
  const D shifted = add(mul(bounded, splat(-C::kLog2E)), splat(C::kShift));
  const D power = into_exponent(shifted);
  const D k = sub(shifted, splat(C::kShift));
  const D r = add(add_exact_product(k, splat(C::kLn2High), bounded), mul(k, splat(C::kLn2Low)));
  D sum = splat(C::kTerms[C::kTermCount - 1]);
#pragma GCC unroll 10
  for (int i = C::kTermCount - 2; i >= 0; --i) sum = add(mul(sum, r), splat(C::kTerms[i]));
  const D p = sub(mul(mul(r, r), sum), r);
  const D rest = add_exact_product(power, p, power);  // e^-g
  const D denominator = add(add(splat(1.0), power), mul(power, p));
  const D sigmoid = div(splat(1.0), denominator);
  const D value = mul(mul(mul(numerator, sigmoid), splat(C::kDown)), splat(C::kUp));
  return {value, mul(sigmoid, add(splat(1.0), mul(bounded, mul(rest, sigmoid))))};
}

}  // namespace rmsnorm::RMSNORM_TARGET

#endif  // RMSNORM_CPU_SILU_INL_H_
