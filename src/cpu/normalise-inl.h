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
  const NormStretch s = stretch;
  const F narrow_inv = splat(static_cast<float>(inv));
  const D wide_inv = splat(inv), offset = splat(s.offset);
  F peak = splat(0.0f);
  for (int64_t i = 0; i < n; i += kLanes) {
    prefetch(s.ahead.x + i * s.ahead.x_bytes);
    if (s.ahead.residual != nullptr) prefetch(s.ahead.residual + i * s.ahead.residual_bytes);
    F y;
    if constexpr (kWide && !T::kNarrow) {
      D half[2];
      for (int k = 0; k < 2; ++k) {
        const D factor = add(load_wide(s.weight + i + k * kHalf), offset);
        half[k] = mul(mul(load_wide(s.x + i + k * kHalf), wide_inv), factor);
        if (s.bias != nullptr) half[k] = add(half[k], load_wide(s.bias + i + k * kHalf));
      }
      y = narrow(half[0], half[1]);
    } else {
      const F x = load(s.x + i);
      F product;
      if constexpr (kWide) {
        product = odd_product(x, inv);
        product = T::round({product, product}).a;
      } else {
        product = round_product<T>(x, inv, narrow_inv);
      }
      y = mul(product, load(s.weight + i));
      if constexpr (T::kNarrow) {
        if (s.bias != nullptr) y = add(y, load(s.bias + i));
        y = T::round({y, y}).a;
      }
    }
    store(s.y + i, y);
    peak = larger(magnitude(y), peak);
  }
  float lanes[kLanes];
  store(lanes, peak);
  float largest = 0;
  for (const float lane : lanes) largest = lane > largest ? lane : largest;
  return largest;
}

}  // namespace rmsnorm::RMSNORM_TARGET

#endif  // RMSNORM_CPU_NORMALISE_INL_H_
