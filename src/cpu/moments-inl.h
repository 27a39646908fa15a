// First pass: the sums of a stretch of one row. A Source (row-inl.h) gives the elements; lanes, chunks and the folding
// order are those of thresholds.h, so that every target adds the same numbers in the same order.
#ifndef RMSNORM_CPU_MOMENTS_INL_H_
#define RMSNORM_CPU_MOMENTS_INL_H_

#include "cpu/simd.h"
#include "cpu/target.h"
#include "cpu/thresholds.h"

namespace rmsnorm::RMSNORM_TARGET {

// Columns that every lane type takes at a turn.
inline constexpr int kBlock = kFastLanes;

// Squares of 16-bit elements in f32 lanes, for at most kChunk columns.
template <class Source>
class FastLanes {
 public:
  static constexpr bool kNone = false;  // see NoLanes (apply-inl.h)
  static constexpr bool kByPasses = false;

  FastLanes() {
#pragma GCC unroll 16
    for (int r = 0; r < kRegisters; ++r) lanes_[r] = splat(kLaneFloor);
  }

  // Columns i .. i + kBlock - 1.
  [[gnu::always_inline]] void take(const Source& source, int64_t i) {
#pragma GCC unroll 8
    for (int pair = 0; pair < kPairs; ++pair) take_pair(source.template load<kSplit>(i + pair * kPair), pair);
  }

  // The first n < kBlock of these, then fold. In a copy, so that the address of what a loop keeps in registers is never
  // taken.
  Moments fold_with_part(const Source& source, int64_t i, int64_t n) const {
    FastLanes lanes = *this;
    lanes.take_part(source, i, n);
    return lanes.fold();
  }
  [[gnu::noinline]] void take_part(const Source& source, int64_t i, int64_t n) { part(source, i, n); }
  [[gnu::always_inline]] void take_short_part(const Source& source, int64_t i, int64_t n) { part(source, i, n); }

  // 64 lanes to 16 in f32, the rest in f64.
  [[gnu::always_inline]] Moments fold() {
    D sum, square;
    fold_registers(sum, square);
    return {0, sum_lanes(square)};
  }

  // On to one register.
  [[gnu::always_inline]] void fold_registers(D&, D& square) {
#pragma GCC unroll 16
    for (int r = 0; r < kRegisters / 2; ++r) lanes_[r] = add(lanes_[r], lanes_[r + kRegisters / 2]);
#pragma GCC unroll 16
    for (int r = 0; r < kRegisters / 4; ++r) lanes_[r] = add(lanes_[r], lanes_[r + kRegisters / 4]);
    D wide[kRegisters / 2];
#pragma GCC unroll 16
    for (int r = 0; r < kRegisters / 4; ++r) {
      wide[2 * r] = lower(lanes_[r]);
      wide[2 * r + 1] = upper(lanes_[r]);
    }
    square = RMSNORM_TARGET::fold_registers(wide);
  }

 private:
  static constexpr bool kSplit = Source::kSplitSum;
  static constexpr int kRegisters = kFastLanes / kLanes;
  static constexpr int kPairs = kFastLanes / kPair;
  static constexpr int kSplitPairs = kPairs / 2;  // pairs in the 32 elements whose halves fill 16 + 16 lanes

  [[gnu::always_inline]] void part(const Source& source, int64_t i, int64_t n) {
#pragma GCC unroll 8
    for (int pair = 0; pair < kPairs; ++pair) {
      const int64_t left = n - pair * kPair;
      if (left >= kPair) {
        take_pair(source.template load<kSplit>(i + pair * kPair), pair);
      } else if (left > 0) {
        take_pair(source.template load_part<kSplit>(i + pair * kPair, static_cast<int>(left)), pair);
      }
    }
  }

  [[gnu::always_inline]] void take_pair(Pair v, int pair) {
    // Logical lanes: memory order as it comes; split order 16 even, 16 odd of each 32 elements, whatever kLanes is.
    const int a = kSplit ? pair / kSplitPairs * 2 * kSplitPairs + pair % kSplitPairs : 2 * pair;
    const int b = kSplit ? a + kSplitPairs : a + 1;
    lanes_[a] = add_exact_product(v.a, v.a, lanes_[a]);
    lanes_[b] = add_exact_product(v.b, v.b, lanes_[b]);
  }

  F lanes_[kRegisters];
};

// Sum (if kWithSum) and sum of squares in f64 lanes, for at most kChunk columns.
template <bool kWithSum, class Source>
class WideLanes {
 public:
  static constexpr bool kNone = false;
  // Where the lanes do not fit the registers beside what a loop works with, the columns of one pair in each kWideLanes
  // are summed at a time: see take_columns.
  static constexpr bool kByPasses = (kWithSum ? 2 : 1) * kWideLanes / (kLanes / 2) > kRegisterCount / 2;

  WideLanes() {
#pragma GCC unroll 16
    for (int r = 0; r < kRegisters; ++r) sums_[r] = squares_[r] = splat(0.0);
  }

  [[gnu::always_inline]] void take(const Source& source, int64_t i) {
#pragma GCC unroll 16
    for (int pair = 0; pair < kBlock / kPair; ++pair) take_quad(source.load_wide(i + pair * kPair), pair % kPairs);
  }

  // Columns begin .. end-1, at most kChunk: the row stays in the L1 cache from pass to pass.
  void take_columns(const Source& source, int64_t begin, int64_t end) {
    for (int pair = 0; pair < kPairs; ++pair) {
      D sums[4], squares[4];
#pragma GCC unroll 4
      for (int k = 0; k < 4; ++k) sums[k] = squares[k] = splat(0.0);
      const auto take = [&](const Quad& v) __attribute__((always_inline)) {
#pragma GCC unroll 4
        for (int k = 0; k < 4; ++k) {
          if constexpr (kWithSum) sums[k] = add(sums[k], v.d[k]);
          squares[k] = add_exact_product(v.d[k], v.d[k], squares[k]);
        }
      };
      int64_t i = begin + pair * kPair;
      for (; i + kPair <= end; i += kWideLanes) {
        if constexpr (requires { source.template fetch<kWideLanes>(i); }) {
          if (pair == 0) source.template fetch<kWideLanes>(i);
        }
        take(source.load_wide(i));
      }
      if (i < end) take(widen(source.template load_part<false>(i, static_cast<int>(end - i))));
#pragma GCC unroll 4
      for (int k = 0; k < 4; ++k) {
        if constexpr (kWithSum) sums_[4 * pair + k] = sums[k];
        squares_[4 * pair + k] = squares[k];
      }
    }
  }

  Moments fold_with_part(const Source& source, int64_t i, int64_t n) const {
    WideLanes lanes = *this;
    lanes.take_part(source, i, n);
    return lanes.fold();
  }
  [[gnu::noinline]] void take_part(const Source& source, int64_t i, int64_t n) { part(source, i, n); }
  [[gnu::always_inline]] void take_short_part(const Source& source, int64_t i, int64_t n) { part(source, i, n); }

  [[gnu::always_inline]] Moments fold() {
    return {kWithSum ? RMSNORM_TARGET::fold(sums_) : 0.0, RMSNORM_TARGET::fold(squares_)};
  }
  [[gnu::always_inline]] void fold_registers(D& sum, D& square) {
    if constexpr (kWithSum) sum = RMSNORM_TARGET::fold_registers(sums_);
    square = RMSNORM_TARGET::fold_registers(squares_);
  }

 private:
  static constexpr int kRegisters = kWideLanes / (kLanes / 2);
  static constexpr int kPairs = kWideLanes / kPair;

  [[gnu::always_inline]] void part(const Source& source, int64_t i, int64_t n) {
#pragma GCC unroll 16
    for (int pair = 0; pair < kBlock / kPair; ++pair) {
      const int64_t left = n - pair * kPair;
      if (left >= kPair) {
        take_quad(source.load_wide(i + pair * kPair), pair % kPairs);
      } else if (left > 0) {
        take_quad(widen(source.template load_part<false>(i + pair * kPair, static_cast<int>(left))), pair % kPairs);
      }
    }
  }

  [[gnu::always_inline]] void take_quad(const Quad& v, int pair) {
#pragma GCC unroll 4
    for (int k = 0; k < 4; ++k) {
      if constexpr (kWithSum) sums_[4 * pair + k] = add(sums_[4 * pair + k], v.d[k]);
      squares_[4 * pair + k] = add_exact_product(v.d[k], v.d[k], squares_[4 * pair + k]);
    }
  }

  D sums_[kRegisters], squares_[kRegisters];
};

// One chunk, with lanes of either kind.
template <class Lanes, class Source>
inline Moments chunk_moments(const Source& source, int64_t begin, int64_t end) {
  Lanes lanes;
  if constexpr (Lanes::kByPasses) {
    lanes.take_columns(source, begin, end);
    return lanes.fold();
  }
  int64_t i = begin;
  for (; i + kBlock <= end; i += kBlock) lanes.take(source, i);
  if (i < end) return lanes.fold_with_part(source, i, end - i);
  return lanes.fold();
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
    Quad v = left >= kPair ? source.load_wide(i) : widen(source.template load_part<false>(i, static_cast<int>(left)));
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
[[gnu::noinline]] Moments segment_moments(const Source& source, int64_t begin, int64_t end, SumMode mode,
                                          double centre) {
  Moments total = {0, 0};
  for (int64_t i = begin; i < end; i += kChunk) {
    const int64_t stop = end - i < kChunk ? end : i + kChunk;
    Moments chunk;
    if (mode == SumMode::kFast) {
      if constexpr (Source::kFastSum) {
        chunk = chunk_moments<FastLanes<Source>>(source, i, stop);
      } else {
        __builtin_unreachable();
      }
    } else if (mode == SumMode::kWide) {
      chunk = chunk_moments<WideLanes<kWithSum, Source>>(source, i, stop);
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
