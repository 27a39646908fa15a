// First pass: the sums of a stretch of one row. A Source (row-inl.h) gives the elements; lanes, chunks and the folding
// order are those of thresholds.h, so that every target adds the same numbers in the same order.
#ifndef RMSNORM_CPU_MOMENTS_INL_H_
#define RMSNORM_CPU_MOMENTS_INL_H_

#include "cpu/simd.h"
#include "cpu/target.h"
#include "cpu/thresholds.h"

namespace rmsnorm::RMSNORM_TARGET {

// Squares of 16-bit elements in f32 lanes, at most kChunk columns.
template <class Source>
inline double fast_chunk(const Source& source, int64_t begin, int64_t end) {
  constexpr bool kSplit = Source::kSplitSum;
  constexpr int kRegisters = kFastLanes / kLanes;
  constexpr int kBlockPairs = kFastLanes / kPair;
  constexpr int kSplitPairs = kBlockPairs / 2;  // pairs in the 32 elements whose halves fill 16 + 16 lanes
  F lanes[kRegisters];
#pragma GCC unroll 16
  for (int r = 0; r < kRegisters; ++r) lanes[r] = splat(kLaneFloor);
  const auto take = [&](Pair v, int pair) __attribute__((always_inline)) {
    // Logical lanes: memory order as it comes; split order 16 even, 16 odd of each 32 elements, whatever kLanes is.
    const int a = kSplit ? pair / kSplitPairs * 2 * kSplitPairs + pair % kSplitPairs : 2 * pair;
    const int b = kSplit ? a + kSplitPairs : a + 1;
    lanes[a] = add_exact_product(v.a, v.a, lanes[a]);
    lanes[b] = add_exact_product(v.b, v.b, lanes[b]);
  };
  int64_t i = begin;
  for (; i + kFastLanes <= end; i += kFastLanes) {
#pragma GCC unroll 8
    for (int pair = 0; pair < kBlockPairs; ++pair) take(source.template load<kSplit>(i + pair * kPair), pair);
  }
  if (i < end) {
#pragma GCC unroll 8
    for (int pair = 0; pair < kBlockPairs; ++pair) {
      const int64_t left = end - i - pair * kPair;
      if (left >= kPair) {
        take(source.template load<kSplit>(i + pair * kPair), pair);
      } else if (left > 0) {
        take(source.template load_part<kSplit>(i + pair * kPair, static_cast<int>(left)), pair);
      }
    }
  }
  // 64 lanes to 16 in f32, the rest in f64.
#pragma GCC unroll 16
  for (int r = 0; r < kRegisters / 2; ++r) lanes[r] = add(lanes[r], lanes[r + kRegisters / 2]);
#pragma GCC unroll 16
  for (int r = 0; r < kRegisters / 4; ++r) lanes[r] = add(lanes[r], lanes[r + kRegisters / 4]);
  D wide[kRegisters / 2];
#pragma GCC unroll 16
  for (int r = 0; r < kRegisters / 4; ++r) {
    wide[2 * r] = lower(lanes[r]);
    wide[2 * r + 1] = upper(lanes[r]);
  }
  return fold(wide);
}

// Sum (if kWithSum) and sum of squares in f64 lanes, at most kChunk columns.
template <bool kWithSum, class Source>
inline Moments wide_chunk(const Source& source, int64_t begin, int64_t end) {
  constexpr int kRegisters = kWideLanes / (kLanes / 2);
  constexpr int kBlockPairs = kWideLanes / kPair;
  D sums[kRegisters], squares[kRegisters];
#pragma GCC unroll 16
  for (int r = 0; r < kRegisters; ++r) sums[r] = squares[r] = splat(0.0);
  const auto take = [&](const Quad& v, int pair) __attribute__((always_inline)) {
#pragma GCC unroll 4
    for (int k = 0; k < 4; ++k) {
      if constexpr (kWithSum) sums[4 * pair + k] = add(sums[4 * pair + k], v.d[k]);
      squares[4 * pair + k] = add_exact_product(v.d[k], v.d[k], squares[4 * pair + k]);
    }
  };
  int64_t i = begin;
  for (; i + kWideLanes <= end; i += kWideLanes) {
#pragma GCC unroll 8
    for (int pair = 0; pair < kBlockPairs; ++pair) take(source.load_wide(i + pair * kPair), pair);
  }
  if (i < end) {
#pragma GCC unroll 8
    for (int pair = 0; pair < kBlockPairs; ++pair) {
      const int64_t left = end - i - pair * kPair;
      if (left >= kPair) {
        take(source.load_wide(i + pair * kPair), pair);
      } else if (left > 0) {
        take(widen(source.template load_part<false>(i + pair * kPair, static_cast<int>(left))), pair);
      }
    }
  }
  return {kWithSum ? fold(sums) : 0.0, fold(squares)};
}

// Sums of x - centre and its square in f64 lanes, at most kChunk columns. Products here are not exact: no FMA.
template <class Source>
inline Moments centred_chunk(const Source& source, int64_t begin, int64_t end, double centre) {
  constexpr int kHalf = kLanes / 2;
  constexpr int kRegisters = kWideLanes / kHalf;
  D sums[kRegisters], squares[kRegisters];
  for (int r = 0; r < kRegisters; ++r) sums[r] = squares[r] = splat(0.0);
  for (int64_t i = begin; i < end; i += kPair) {
    const int64_t left = end - i;
    const int first = static_cast<int>((i - begin) % kWideLanes) / kHalf;
    Quad v = left >= kPair ? source.load_wide(i)
                           : widen(source.template load_part<false>(i, static_cast<int>(left)));
    for (int k = 0; k < 4; ++k) {
      D t = sub(v.d[k], splat(centre));
      if (left < (k + 1) * kHalf) t = keep_first(t, static_cast<int>(left) - k * kHalf);
      sums[first + k] = add(sums[first + k], t);
      squares[first + k] = add(squares[first + k], mul(t, t));
    }
  }
  return {fold(sums), fold(squares)};
}

// The sums over columns begin .. end-1, a segment: chunk after chunk.
template <bool kWithSum, class Source>
inline Moments segment_moments(const Source& source, int64_t begin, int64_t end, SumMode mode, double centre) {
  Moments total = {0, 0};
  for (int64_t i = begin; i < end; i += kChunk) {
    const int64_t stop = end - i < kChunk ? end : i + kChunk;
    Moments chunk;
    if (mode == SumMode::kFast) {
      if constexpr (Source::kFastSum) {
        chunk = {0, fast_chunk(source, i, stop)};
      } else {
        __builtin_unreachable();
      }
    } else if (mode == SumMode::kWide) {
      chunk = wide_chunk<kWithSum>(source, i, stop);
    } else {
      chunk = centred_chunk(source, i, stop, centre);
    }
    total.sum += chunk.sum;
    total.square += chunk.square;
  }
  return total;
}

}  // namespace rmsnorm::RMSNORM_TARGET

#endif  // RMSNORM_CPU_MOMENTS_INL_H_
