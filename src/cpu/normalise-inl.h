// x * inv * weight of staged columns, for operations that go on with the result in the buffer.
#ifndef RMSNORM_CPU_NORMALISE_INL_H_
#define RMSNORM_CPU_NORMALISE_INL_H_

#include "cpu/round_product-inl.h"
#include "cpu/simd.h"

namespace rmsnorm::RMSNORM_TARGET {

// What is fetched of the next row while this one is computed.
struct Ahead {
  const char *x, *residual;
  int x_bytes, residual_bytes;
};

// Asks for the lines of columns i .. i+n-1. Always inline: see fetch_ahead (row-inl.h).
[[gnu::always_inline]] inline void fetch(const char* p, int64_t i, int element, int n) {
  for (int byte = 0; byte < n * element; byte += 64) prefetch(p + i * element + byte);
}

// Columns that are normalised: y may be x. bias is null where absent. In f64 `offset` is added to each weight; in f32
// the weights have theirs.
struct NormStretch {
  const float *x, *weight, *bias;
  float* y;
  double offset;
  Ahead ahead;
};

// y of n columns, to a whole block, and the largest |y| that is not NaN. T: the type that before_weight rounds to, or
// F32. kWide: in f64 (before_weight: the product alone).
template <class T, bool kWide>
[[gnu::noinline]] float normalise(const NormStretch& stretch, double inv, int64_t n) {
  constexpr int kHalf = kLanes / 2;
  constexpr int kTurn = 4;  // registers
  const NormStretch s = stretch;
  const F narrow_inv = splat(static_cast<float>(inv));
  const D wide_inv = splat(inv), offset = splat(s.offset);
  F peak = splat(0.0f);
  for (int64_t i = 0; i < n; i += kTurn * kLanes) {
    fetch(s.ahead.x, i, s.ahead.x_bytes, kTurn * kLanes);
    if (s.ahead.residual != nullptr) fetch(s.ahead.residual, i, s.ahead.residual_bytes, kTurn * kLanes);
    F y[kTurn];
    if constexpr (kWide && !T::kNarrow) {
      for (int r = 0; r < kTurn; ++r) {
        D half[2];
        for (int k = 0; k < 2; ++k) {
          const int64_t at = i + r * kLanes + k * kHalf;
          const D factor = add(load_wide(s.weight + at), offset);
          half[k] = mul(mul(load_wide(s.x + at), wide_inv), factor);
          if (s.bias != nullptr) half[k] = add(half[k], load_wide(s.bias + at));
        }
        y[r] = narrow(half[0], half[1]);
      }
    } else {
      round_products<T, kWide>(y, s.x + i, inv, narrow_inv);
#pragma GCC unroll 4
      for (int r = 0; r < kTurn; ++r) {
        y[r] = mul(y[r], load(s.weight + i + r * kLanes));
        if constexpr (T::kNarrow) {
          if (s.bias != nullptr) y[r] = add(y[r], load(s.bias + i + r * kLanes));
          y[r] = T::round({y[r], y[r]}).a;
        }
      }
    }
#pragma GCC unroll 4
    for (int r = 0; r < kTurn; ++r) {
      store(s.y + i + r * kLanes, y[r]);
      peak = larger(magnitude(y[r]), peak);
    }
  }
  return largest_magnitude(peak);
}

}  // namespace rmsnorm::RMSNORM_TARGET

#endif  // RMSNORM_CPU_NORMALISE_INL_H_
