// Rows of at most one chunk, up to eight at a time: what does not depend on a row's width is done once for the eight.
// Their lanes are folded side by side, their square roots and divisions fill registers, and parameters that all rows
// share are converted to f32 once for each call.
#ifndef RMSNORM_CPU_GROUP_INL_H_
#define RMSNORM_CPU_GROUP_INL_H_

#include "core/call.h"
#include "cpu/apply-inl.h"
#include "cpu/moments-inl.h"
#include "cpu/rms_norm-inl.h"
#include "cpu/row-inl.h"
#include "cpu/simd.h"
#include "cpu/target.h"
#include "cpu/thresholds.h"

namespace rmsnorm::RMSNORM_TARGET {

inline constexpr int kGroup = kMaxGroup;
inline constexpr int kHalfLanes = kLanes / 2;
static_assert(kGroup % kHalfLanes == 0);

// weight + offset and bias of the rows, in f32 and in the order in which pairs are loaded. An absent weight is 1; an
// absent bias -0, which changes nothing.
struct GroupParameters {
  alignas(64) float weight[kMaxGroupColumns];
  alignas(64) float bias[kMaxGroupColumns];
};

// The sums of eight rows, before they are folded into one lane each, and after.
struct GroupLanes {
  D sums[kGroup], squares[kGroup];
};
struct GroupMoments {
  alignas(64) double sum[kGroup], square[kGroup];

  // Of the first `count` rows; the others become copies of the first.
  template <bool kWithSum>
  void fold(GroupLanes& lanes, int count) {
    for (int k = count; k < kGroup; ++k) {
      lanes.squares[k] = lanes.squares[0];
      if constexpr (kWithSum) lanes.sums[k] = lanes.sums[0];
    }
    for (int k = 0; k < kGroup; k += kHalfLanes) {
      const D squares = fold_rows(lanes.squares + k);
      memcpy(square + k, &squares, sizeof squares);
      if constexpr (kWithSum) {
        const D sums = fold_rows(lanes.sums + k);
        memcpy(sum + k, &sums, sizeof sums);
      }
    }
  }
};

// The scales of eight rows. usual: none of them needs its row summed again or a second pass in f64. near: but one of
// them may need its mean from an exact sum.
struct GroupScales {
  alignas(64) double mean[kGroup], inv[kGroup];
  bool usual, near;
};

// What rms_scale and layer_scale give to rows that need nothing else, by the same operations.
template <Norm kNorm>
inline void group_scales(const NormCall& call, SumMode mode, const GroupMoments& moments, GroupScales& scales) {
  const D one = splat(1.0), epsilon = splat(call.epsilon), count = splat(static_cast<double>(call.partial));
  const D infinity = splat(__builtin_inf());
  bool usual = true;
  D nearest = infinity;  // of what near_an_element compares, the difference
  for (int k = 0; k < kGroup; k += kHalfLanes) {
    D square;
    memcpy(&square, moments.square + k, sizeof square);
    // As fast_sum_usable and needs_wide_pass.
    if (mode == SumMode::kFast) usual &= all_within(square, splat(kFastSumFloor), splat(kLargestSum));
    square = div(square, count);
    usual &= all_within(square, splat(kSmallestMeanSquare), infinity);
    D spread = square;
    if constexpr (kNorm == Norm::kLayer) {
      D mean;
      memcpy(&mean, moments.sum + k, sizeof mean);
      mean = div(mean, count);
      const D mean_squared = mul(mean, mean);
      spread = sub(square, mean_squared);
      usual &= all_within(mul(splat(kOffsetLimit), spread), mean_squared, infinity);
      const D scaled = mul(mean, splat(kEightBits));
      const D rest = sub(mean, sub(scaled, sub(scaled, mean)));
      nearest = smaller(sub(mul(rest, rest), mul(splat(kMeanReach), square)), nearest);
      memcpy(scales.mean + k, &mean, sizeof mean);
    }
    const bool outside = kNorm == Norm::kRms && call.epsilon_outside;
    const D inv = div(one, outside ? add(sqrt(spread), epsilon) : sqrt(add(spread, epsilon)));
    usual &= all_within(inv, splat(kInvFloor), splat(kInvCeiling));
    memcpy(scales.inv + k, &inv, sizeof inv);
  }
  scales.usual = usual;
  scales.near = kNorm == Norm::kLayer && !all_within(nearest, splat(0.0), infinity);
}

// How rows are written: through the caches, around them, or around them where no row starts on a vector's boundary.
enum class Stores : uint8_t { kOrdinary, kStreamed, kJoined };

// What kJoined has to remember from row to row. Rows that follow each other in memory are one stream of registers, and
// each vector of it is joined from two of them: at the end of a row, from two rows. So NumPy's arrays, which start 16
// bytes behind a page, go around the caches as well. The first row shares a line with what is not known here: it is
// written through the caches.
struct RowStream {
  int behind = 0;     // bytes from a vector's boundary to the rows
  bool open = false;  // the last `behind` bytes before `end` are still to be written, from `last`
  char* end = nullptr;
  F last;

  void close() {
    const auto bytes = static_cast<size_t>(behind);
    if (open) memcpy(end - bytes, reinterpret_cast<const char*>(&last) + sizeof last - bytes, bytes);
    open = false;
  }
};

// The sums of one row of at most kMaxGroupColumns columns in one register each. Unless kSumOnly, each pair of columns
// is also handed to write.
template <bool kSumOnly, class Lanes, class Source, class Writer>
[[gnu::always_inline]] inline void sum_short_row(const Source& ahead, int64_t cols, GroupLanes& to, int k,
                                                 const Writer& write) {
  Lanes lanes;
  if constexpr (kSumOnly && Lanes::kByPasses) {
    lanes.take_columns(ahead, 0, cols);
    return lanes.fold_registers(to.sums[k], to.squares[k]);
  }
  int64_t i = 0;
  for (; i + kBlock <= cols; i += kBlock) {
    ahead.template fetch<kBlock>(i);
    lanes.take(ahead, i);
#pragma GCC unroll 8
    for (int pair = 0; pair < kBlock / kPair; ++pair) write(i + pair * kPair);
  }
  if (i < cols) {
    if constexpr (kSumOnly) {
      Lanes copy = lanes;  // so that the address of what the loop keeps in registers is not taken
      copy.take_part(ahead, i, cols - i);
      return copy.fold_registers(to.sums[k], to.squares[k]);
    }
    lanes.take_short_part(ahead, i, cols - i);
  }
  for (; i + kPair <= cols; i += kPair) write(i);
  lanes.fold_registers(to.sums[k], to.squares[k]);
}

// Sums `count` rows.
template <class Lanes, class Source>
[[gnu::noinline]] void sum_group(const NormCall& call, const Row* rows, int count, GroupLanes& to) {
  for (int k = 0; k < count; ++k) {
    sum_short_row<true, Lanes>(Source(call, rows[k]), call.cols, to, k, [](int64_t) {});
  }
}

// Writes `count` rows and, unless Lanes is NoLanes, sums as many others meanwhile.
template <class X, class O, bool kSplit, Norm kNorm, Style kStyle, class Lanes, class Source>
[[gnu::noinline]] void apply_group(const NormCall& call, const Row* rows, const Row* next, int count,
                                   const GroupParameters& parameters, const GroupScales& scales, Stores stores,
                                   RowStream& rows_before, GroupLanes& to) {
  const int64_t cols = call.cols;
  const bool streamed = stores == Stores::kStreamed;
  const int behind = rows_before.behind;
  const Joint joint = joint_behind(behind);
  for (int k = 0; k < count; ++k) {
    const Source source(call, rows[k]), ahead(call, next[k]);
    auto* const out = reinterpret_cast<typename O::Storage*>(rows[k].out);
    const F inv = splat(static_cast<float>(scales.inv[k]));
    F mean = inv, correction = inv;  // of LayerNorm only
    if constexpr (kStyle == Style::kCentredScale) {
      const float rounded = static_cast<float>(scales.mean[k]);
      mean = splat(rounded);
      correction = splat(static_cast<float>(scales.mean[k] - static_cast<double>(rounded)));
    }
    const auto finish = [&](Pair v, int64_t i) __attribute__((always_inline)) {
      if constexpr (kStyle == Style::kCentredScale) {
        v = {sub(sub(v.a, mean), correction), sub(sub(v.b, mean), correction)};
      }
      v = {mul(v.a, inv), mul(v.b, inv)};
      if constexpr (kStyle == Style::kRoundedScale) v = X::round(v);
      v = mul(v, F32::load<false>(parameters.weight + i));
      if constexpr (kNorm == Norm::kLayer) v = add(v, F32::load<false>(parameters.bias + i));
      return v;
    };
    const bool joined = kJoins && stores == Stores::kJoined && rows_before.open;
    F last = joined ? rows_before.last : inv;
    const auto write = [&](int64_t i) __attribute__((always_inline)) {
      const Pair v = source.template load<kSplit>(i);
      source.template store_residual<kSplit>(i, v, streamed);
      const Pair result = finish(v, i);
      if (!joined) return O::template store<kSplit>(out + i, result, streamed);
      constexpr int kVectors = kPair * sizeof(typename O::Storage) / sizeof(F);
      alignas(64) typename O::Storage packed[kPair];
      O::template store<kSplit>(packed, result, false);
      auto* const line = reinterpret_cast<float*>(reinterpret_cast<char*>(out + i) - behind);
#pragma GCC unroll 4
      for (int r = 0; r < kVectors; ++r) {
        F now;
        memcpy(&now, packed + r * (kPair / kVectors), sizeof now);
        stream(line + r * kLanes, join(last, now, joint));
        last = now;
      }
    };
    if constexpr (Lanes::kNone) {
      for (int64_t i = 0; i + kPair <= cols; i += kPair) write(i);
    } else {
      sum_short_row<false, Lanes>(ahead, cols, to, k, write);
    }
    if (stores == Stores::kJoined) {
      if (!joined) memcpy(&last, reinterpret_cast<const char*>(out + cols) - sizeof last, sizeof last);
      rows_before.last = last;
      rows_before.end = reinterpret_cast<char*>(out + cols);
      rows_before.open = true;
      continue;  // whole pairs only
    }
    const int left = static_cast<int>(cols % kPair);
    if (left != 0) {
      const int64_t i = cols - left;
      const Pair v = source.template load_part<kSplit>(i, left);
      source.template store_residual_part<kSplit>(i, v, left);
      const Pair result = finish(v, i);
      if constexpr (O::kType == RN_F32 && kVectorBytes == kLanes * 4) {
        // A whole register beside streamed ones must not fetch the line that they share.
        if (streamed && left == kLanes) {
          stream(out + i, result.a);
          continue;
        }
      }
      store_part<O, kSplit>(out + i, result, left);
    }
  }
}

}  // namespace rmsnorm::RMSNORM_TARGET

#endif  // RMSNORM_CPU_GROUP_INL_H_
