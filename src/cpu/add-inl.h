// Residual add where all its operands have the type of x and the norm reads the stored sum: the usual case. Each row is
// added once, in the first pass, which stores the sum, keeps it in the L1 cache and takes its moments; the second pass is
// that of the norm alone, on what was kept.
#ifndef RMSNORM_CPU_ADD_INL_H_
#define RMSNORM_CPU_ADD_INL_H_

#include "core/call.h"
#include "cpu/moments-inl.h"
#include "cpu/row-inl.h"
#include "cpu/simd.h"
#include "cpu/thresholds.h"

namespace rmsnorm::RMSNORM_TARGET {

// x + residual as a Source that is read once, each column in turn: what is read is also stored. kStreamed: residual_out
// around the caches. Known when this is compiled: a branch for each pair costs registers.
template <class X, bool kStreamed>
struct AddingSource {
  static constexpr bool kFastSum = X::kNarrow;
  static constexpr bool kSplitSum = X::kType == RN_BF16;
  using Storage = typename X::Storage;
  const Storage *x, *residual;
  Storage *kept, *residual_out;

  AddingSource(const Row& row, char* kept)
      : x(reinterpret_cast<const Storage*>(row.x)),
        residual(reinterpret_cast<const Storage*>(row.residual)),
        kept(reinterpret_cast<Storage*>(kept)),
        residual_out(reinterpret_cast<Storage*>(row.residual_out)) {}

  template <bool Split>
  [[gnu::always_inline]] Pair load(int64_t i) const {
    const Pair sum = add(X::template load<Split>(x + i), X::template load<Split>(residual + i));
    X::template store<Split>(kept + i, sum, false);
    if constexpr (X::kNarrow) {
      // Rounded once, by the store above: a pair of 16-bit elements fills one register.
      F packed;
      static_assert(sizeof packed == kPair * sizeof(Storage));
      memcpy(&packed, kept + i, sizeof packed);
      if constexpr (kStreamed) {
        stream(reinterpret_cast<float*>(residual_out + i), packed);
      } else {
        memcpy(residual_out + i, &packed, sizeof packed);
      }
      return X::template load<Split>(kept + i);
    } else {
      X::template store<Split>(residual_out + i, sum, kStreamed);
      return sum;
    }
  }
  template <bool Split>
  Pair load_part(int64_t i, int n) const {
    const Pair sum =
        add(RMSNORM_TARGET::load_part<X, Split>(x + i, n), RMSNORM_TARGET::load_part<X, Split>(residual + i, n));
    store_part<X, Split>(kept + i, sum, n);
    store_part<X, Split>(residual_out + i, sum, n);
    return RMSNORM_TARGET::load_part<X, Split>(kept + i, n);
  }
  Quad load_wide(int64_t i) const { return widen(load<false>(i)); }

  template <int kColumns>
  [[gnu::always_inline]] void fetch(int64_t i) const {
    fetch_ahead<kColumns, sizeof *x>(x + i);
    fetch_ahead<kColumns, sizeof *x>(residual + i);
  }
};

// The moments of one row, at most kOneSegment columns.
template <class Lanes, class Source>
[[gnu::noinline]] Moments add_row(const Source& from, int64_t cols) {
  const Source source = from;
  Moments total = {0, 0};
  for (int64_t chunk = 0; chunk < cols; chunk += kChunk) {
    const int64_t stop = cols - chunk < kChunk ? cols : chunk + kChunk;
    Lanes lanes;
    Moments sums;
    if constexpr (Lanes::kByPasses) {
      lanes.take_columns(source, chunk, stop);
      sums = lanes.fold();
    } else {
      int64_t i = chunk;
      for (; i + kBlock <= stop; i += kBlock) {
        source.template fetch<kBlock>(i);
        lanes.take(source, i);
      }
      sums = i < stop ? lanes.fold_with_part(source, i, stop - i) : lanes.fold();
    }
    total.sum += sums.sum;
    total.square += sums.square;
  }
  return total;
}

}  // namespace rmsnorm::RMSNORM_TARGET

#endif  // RMSNORM_CPU_ADD_INL_H_
