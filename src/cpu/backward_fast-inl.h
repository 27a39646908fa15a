// The usual backward rows: x, dy and dx of one type, magnitudes far from the ends of f32's range. The second pass runs
// in f32, straight on the operands, with half the instructions of the f64 pass in backward-inl.h, which takes every
// other row. Which pass a row takes depends on the row and its gradient alone.
#ifndef RMSNORM_CPU_BACKWARD_FAST_INL_H_
#define RMSNORM_CPU_BACKWARD_FAST_INL_H_

#include "core/backward_call.h"
#include "cpu/stage-inl.h"

namespace rmsnorm::RMSNORM_TARGET {

// Sums over a row, and the largest |g|.
struct GradientSums {
  double x = 0, xx = 0, g = 0, gx = 0;
  float largest = 0;
};

// What the second pass needs to know about its row. Of an RMSNorm row mean, correction and mean_g are unused.
struct GradientScale {
  double inv;
  double c;  // RMSNorm: inv^3 mean(g x) or what takes its place; LayerNorm: inv mean(g h)
  double mean, correction, mean_g;
  double spread;  // mean square or variance
};

// Sums of 16-bit rows of RMSNorm in f32 lanes: squares are exact, and what g x loses is far below the last place of a
// 16-bit gradient. n <= kChunk.
template <class T>
[[gnu::noinline]] void add_narrow_gradient_sums(GradientSums* total, const typename T::Storage* x,
                                                const typename T::Storage* dy, const float* w, int64_t n) {
  constexpr int kRegisters = kWideLanes / kLanes;
  F sxx[kRegisters], sgx[kRegisters], largest = splat(0.0f);
  for (int r = 0; r < kRegisters; ++r) {
    sxx[r] = splat(kLaneFloor);
    sgx[r] = splat(0.0f);
  }
  const auto take = [&](int r, Pair xs, Pair dys, Pair ws) __attribute__((always_inline)) {
    const Pair g = mul(dys, ws);
    sxx[r] = add_exact_product(xs.a, xs.a, sxx[r]);
    sxx[r + 1] = add_exact_product(xs.b, xs.b, sxx[r + 1]);
    sgx[r] = add(sgx[r], mul(g.a, xs.a));
    sgx[r + 1] = add(sgx[r + 1], mul(g.b, xs.b));
    largest = larger_magnitude(larger_magnitude(largest, g.a), g.b);
  };
  int64_t i = 0;
  for (; i + kWideLanes <= n; i += kWideLanes) {
#pragma GCC unroll 8
    for (int r = 0; r < kRegisters; r += 2) {
      const int64_t at = i + r * kLanes;
      take(r, T::template load<false>(x + at), T::template load<false>(dy + at), F32::load<false>(w + at));
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRegisters; r += 2) {
    const int64_t at = i + r * kLanes;
    const int rest = static_cast<int>(n - at < kPair ? n - at : kPair);
    if (rest <= 0) break;
    if (rest == kPair) {
      take(r, T::template load<false>(x + at), T::template load<false>(dy + at), F32::load<false>(w + at));
    } else {
      take(r, load_part<T, false>(x + at, rest), load_part<T, false>(dy + at, rest),
           load_part<F32, false>(w + at, rest));
    }
  }
  D wide[2 * kRegisters];
#pragma GCC unroll 8
  for (int r = 0; r < kRegisters; ++r) {
    wide[2 * r] = lower(sxx[r]);
    wide[2 * r + 1] = upper(sxx[r]);
  }
  total->xx += fold(wide);
#pragma GCC unroll 8
  for (int r = 0; r < kRegisters; ++r) {
    wide[2 * r] = lower(sgx[r]);
    wide[2 * r + 1] = upper(sgx[r]);
  }
  total->gx += fold(wide);
  const float here = largest_magnitude(largest);
  if (here > total->largest || here != here) total->largest = here;
}

// What a step of the sums reads: kPair columns of x and of g = dy w in f64, and g in f32 for its size.
struct GradientStep {
  Quad x, g;
  Pair size;
};

// f32 is widened on its way from memory, and the product formed in f64; g of 16-bit rows is what f32 has.
template <class T>
[[gnu::always_inline]] inline GradientStep gradient_step(const typename T::Storage* x, const typename T::Storage* dy,
                                                         const float* w) {
  const Pair g = mul(T::template load<false>(dy), F32::load<false>(w));
  GradientStep step = {{}, {}, g};
  if constexpr (T::kNarrow) {
    step.x = T::load_wide(x);
    step.g = widen(g);
  } else {
#pragma GCC unroll 4
    for (int k = 0; k < 4; ++k) {
      const int at = k * (kLanes / 2);
      step.x.d[k] = load_wide(x + at);
      step.g.d[k] = mul(load_wide(dy + at), load_wide(w + at));
    }
  }
  return step;
}

// Sums of LayerNorm rows in f64, the columns of one pair in each kWideLanes at a time: registers are few, and the row is
// in the L1 cache. n <= kChunk.
template <class T>
[[gnu::noinline]] void add_layer_gradient_sums(GradientSums* total, const typename T::Storage* x,
                                               const typename T::Storage* dy, const float* w, int64_t n) {
  constexpr int kRegisters = kWideLanes / (kLanes / 2);
  D all_x[kRegisters], all_xx[kRegisters], all_g[kRegisters], all_gx[kRegisters];
  F largest = splat(0.0f);
  for (int pair = 0; pair < kWideLanes / kPair; ++pair) {
    D sx[4], sxx[4], sg[4], sgx[4];
#pragma GCC unroll 4
    for (int k = 0; k < 4; ++k) sx[k] = sxx[k] = sg[k] = sgx[k] = splat(0.0);
    F most = largest;
    const auto take = [&](const GradientStep& step) __attribute__((always_inline)) {
      most = larger_magnitude(larger_magnitude(most, step.size.a), step.size.b);
#pragma GCC unroll 4
      for (int k = 0; k < 4; ++k) {
        const D v = step.x.d[k], g = step.g.d[k];
        sxx[k] = add_exact_product(v, v, sxx[k]);
        sgx[k] = add(sgx[k], mul(g, v));
        sx[k] = add(sx[k], v);
        sg[k] = add(sg[k], g);
      }
    };
    int64_t i = pair * kPair;
    for (; i + kPair <= n; i += kWideLanes) take(gradient_step<T>(x + i, dy + i, w + i));
    if (i < n) {
      const auto bytes = static_cast<size_t>(n - i) * sizeof *x;
      alignas(64) typename T::Storage last_x[kPair] = {}, last_dy[kPair] = {};
      alignas(64) float last_w[kPair] = {};
      memcpy(last_x, x + i, bytes);
      memcpy(last_dy, dy + i, bytes);
      memcpy(last_w, w + i, static_cast<size_t>(n - i) * sizeof *w);
      take(gradient_step<T>(last_x, last_dy, last_w));
    }
    largest = most;
#pragma GCC unroll 4
    for (int k = 0; k < 4; ++k) {
      const int r = 4 * pair + k;
      all_x[r] = sx[k];
      all_xx[r] = sxx[k];
      all_g[r] = sg[k];
      all_gx[r] = sgx[k];
    }
  }
  total->xx += fold(all_xx);
  total->gx += fold(all_gx);
  total->x += fold(all_x);
  total->g += fold(all_g);
  const float here = largest_magnitude(largest);
  if (here > total->largest || here != here) total->largest = here;
}

// Whether f32 loses nothing in this row that counts: no term overflows, and what underflows vanishes beside the largest.
inline bool fits_f32(const GradientScale& scale, const GradientSums& sums) {
  const auto between = [](double v, double low, double high) { return v >= low && v <= high; };
  const double c = scale.c < 0 ? -scale.c : scale.c;
  const double mean = scale.mean < 0 ? -scale.mean : scale.mean;
  return scale.spread >= kSmallestMeanSquare && between(sums.largest, kGradientFloor, kGradientCeiling) &&
         between(scale.inv, kGradientFloor, kGradientCeiling) &&
         (c == 0 || between(c, kGradientFloor * kGradientFloor, kGradientCeiling)) && mean <= kGradientCeiling;
}

// Where the second pass of a row reads and writes; sums are of at most kFastRows rows.
template <class T>
struct FastStretch {
  const typename T::Storage *x, *dy, *added;  // added: d_residual_out
  const float* w;
  typename T::Storage* dx;
  float *dweight, *dbias;
  const typename T::Storage *next_x, *next_dy;  // what to fetch meanwhile
};

// Columns 0 .. n-1, n a multiple of kPair. kSums: dweight, and dbias with LayerNorm.
template <class T, bool kLayer, bool kSums, bool kAdded>
[[gnu::noinline]] void apply_fast_gradient(const FastStretch<T>& stretch, const GradientScale& scale, int64_t n,
                                           bool streamed) {
  const FastStretch<T> at = stretch;
  const float rounded_mean = static_cast<float>(scale.mean);
  const Pair inv = splat_pair(static_cast<float>(scale.inv)), c = splat_pair(static_cast<float>(scale.c));
  const Pair mean = splat_pair(rounded_mean), mean_g = splat_pair(static_cast<float>(scale.mean_g));
  const Pair correction =
      splat_pair(static_cast<float>(scale.mean - static_cast<double>(rounded_mean) + scale.correction));
  for (int64_t i = 0; i < n; i += kPair) {
    const Pair x = T::template load<false>(at.x + i);
    const Pair dy = T::template load<false>(at.dy + i);
    const Pair g = mul(dy, F32::load<false>(at.w + i));
    Pair h, result;
    if constexpr (kLayer) {
      h = mul(sub(sub(x, mean), correction), inv);
      result = sub(mul(sub(g, mean_g), inv), mul(h, c));
    } else {
      h = mul(x, inv);
      result = sub(mul(g, inv), mul(x, c));
    }
    if constexpr (kAdded) result = add(T::template load<false>(at.added + i), result);
    if constexpr (kSums) {
      F32::store<false>(at.dweight + i, add(F32::load<false>(at.dweight + i), mul(dy, h)), false);
      if constexpr (kLayer) F32::store<false>(at.dbias + i, add(F32::load<false>(at.dbias + i), dy), false);
    }
    T::template store<false>(at.dx + i, result, streamed);
#pragma GCC unroll 2
    for (int byte = 0; byte < kPair * static_cast<int>(sizeof *at.x); byte += 64) {
      prefetch(reinterpret_cast<const char*>(at.next_x + i) + byte);
      prefetch(reinterpret_cast<const char*>(at.next_dy + i) + byte);
    }
  }
}

// The same for n < kPair columns, through buffers.
template <class T, bool kLayer, bool kSums, bool kAdded>
[[gnu::noinline]] void apply_fast_part(const FastStretch<T>& s, const GradientScale& scale, int64_t n) {
  using Storage = typename T::Storage;
  const size_t elements = static_cast<size_t>(n) * sizeof(Storage), floats = static_cast<size_t>(n) * sizeof(float);
  alignas(64) Storage x[kPair] = {}, dy[kPair] = {}, added[kPair] = {}, dx[kPair];
  alignas(64) float w[kPair] = {}, dweight[kPair] = {}, dbias[kPair] = {};
  memcpy(x, s.x, elements);
  memcpy(dy, s.dy, elements);
  if constexpr (kAdded) memcpy(added, s.added, elements);
  memcpy(w, s.w, floats);
  if constexpr (kSums) {
    memcpy(dweight, s.dweight, floats);
    if constexpr (kLayer) memcpy(dbias, s.dbias, floats);
  }
  const FastStretch<T> part = {x, dy, added, w, dx, dweight, dbias, s.next_x, s.next_dy};
  apply_fast_gradient<T, kLayer, kSums, kAdded>(part, scale, kPair, false);
  memcpy(s.dx, dx, elements);
  if constexpr (kSums) {
    memcpy(s.dweight, dweight, floats);
    if constexpr (kLayer) memcpy(s.dbias, dbias, floats);
  }
}

template <class T>
inline FastStretch<T> shifted(FastStretch<T> s, int64_t by) {
  s.x += by;
  s.dy += by;
  s.w += by;
  s.dx += by;
  s.next_x += by;
  s.next_dy += by;
  if (s.added != nullptr) s.added += by;
  if (s.dweight != nullptr) s.dweight += by;
  if (s.dbias != nullptr) s.dbias += by;
  return s;
}

// Any n; with streaming stores the first columns go apart so that the rest is aligned, which short rows do not repay.
template <class T, bool kLayer, bool kSums, bool kAdded>
inline void apply_fast_stretch(FastStretch<T> s, const GradientScale& scale, int64_t n, bool streamed) {
  const auto misaligned = static_cast<int64_t>(reinterpret_cast<uintptr_t>(s.dx) % kVectorBytes);
  if (misaligned != 0 && n < kApartColumns) streamed = false;
  if (streamed && misaligned != 0) {
    int64_t head = (kVectorBytes - misaligned) / static_cast<int64_t>(sizeof *s.dx);
    if (head > n) head = n;
    apply_fast_part<T, kLayer, kSums, kAdded>(s, scale, head);
    s = shifted(s, head);
    n -= head;
  }
  const int64_t whole = n / kPair * kPair;
  apply_fast_gradient<T, kLayer, kSums, kAdded>(s, scale, whole, streamed);
  if (whole < n) apply_fast_part<T, kLayer, kSums, kAdded>(shifted(s, whole), scale, n - whole);
}

}  // namespace rmsnorm::RMSNORM_TARGET

#endif  // RMSNORM_CPU_BACKWARD_FAST_INL_H_
