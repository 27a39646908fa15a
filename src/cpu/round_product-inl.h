// x * inv rounded to a 16-bit type once, as if formed exactly: what `before_weight` asks for where a different last bit
// would show.
#ifndef RMSNORM_CPU_ROUND_PRODUCT_INL_H_
#define RMSNORM_CPU_ROUND_PRODUCT_INL_H_

#include "cpu/simd.h"

namespace rmsnorm::RMSNORM_TARGET {

// f32 products are at most 2 units of their last place off. A lane is near a tie of T where more than that many units
// decide: within this many of the midpoint between two numbers of T.
inline constexpr int kTieReach = 4;

// Lanes of p that may round to the wrong side.
template <class T>
inline I near_tie(F p) {
  constexpr bool kHalf = T::kType == RN_F16;
  constexpr int kTie = kHalf ? 0x1000 : 0x8000;  // in the bits that T does not have
  const I distance = bit_and(add(as_int(p), splat(kTie + kTieReach)), splat(2 * kTie - 1));
  I near = less(distance, splat(2 * kTieReach + 1));
  if constexpr (kHalf) {
    // Subnormals of f16 have their ties elsewhere.
    const I size = magnitude_bits(p);
    near = bit_or(near, bit_and(less(splat(0), size), less(size, splat(0x38800000))));
  }
  return near;
}

// Lane by lane: an f32 that rounds to any 16-bit type as x * inv does, because it is odd where inexact.
[[gnu::noinline]] inline F odd_product(F x, double inv) {
  float lanes[kLanes];
  memcpy(lanes, &x, sizeof x);
  for (float& lane : lanes) {
    const double product = static_cast<double>(lane) * inv;
    float rounded = static_cast<float>(product);
    const double back = static_cast<double>(rounded);
    if (back != product && product == product) {
      uint32_t bits;
      memcpy(&bits, &rounded, sizeof bits);
      const bool away = product < 0 ? back < product : back > product;
      bits = (away ? bits - 1 : bits) | 1;
      memcpy(&rounded, &bits, sizeof bits);
    }
    lane = rounded;
  }
  memcpy(&x, lanes, sizeof x);
  return x;
}

// Several registers of products. T is F16, BF16, or F32: then there is nothing to round. kExact: each lane from f64,
// which a row at the ends of the range needs.
template <class T, bool kExact, int kCount>
[[gnu::always_inline]] inline void round_products(F (&p)[kCount], const float* x, double inv, F narrow_inv) {
#pragma GCC unroll 4
  for (int r = 0; r < kCount; ++r) p[r] = mul(load(x + r * kLanes), narrow_inv);
  if constexpr (T::kNarrow) {
    I near = near_tie<T>(p[0]);
#pragma GCC unroll 4
    for (int r = 1; r < kCount; ++r) near = bit_or(near, near_tie<T>(p[r]));
    if (kExact || __builtin_expect(any(near), 0)) {
      for (int r = 0; r < kCount; ++r) p[r] = odd_product(load(x + r * kLanes), inv);
    }
    static_assert(kCount % 2 == 0);
#pragma GCC unroll 4
    for (int r = 0; r < kCount; r += 2) {
      const Pair rounded = T::round({p[r], p[r + 1]});
      p[r] = rounded.a;
      p[r + 1] = rounded.b;
    }
  }
}

}  // namespace rmsnorm::RMSNORM_TARGET

#endif  // RMSNORM_CPU_ROUND_PRODUCT_INL_H_
