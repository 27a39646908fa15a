// The kernels of one target. Compiled once for each, with RMSNORM_TARGET and the target's flags (RmsnormTargets.cmake).
#include "cpu/add-inl.h"
#include "cpu/apply-inl.h"
#include "cpu/group-inl.h"
#include "cpu/layer_norm-inl.h"
#include "cpu/moments-inl.h"
#include "cpu/rms_norm-inl.h"
#include "cpu/row-inl.h"
#include "cpu/simd.h"
#include "cpu/stage-inl.h"
#include "cpu/target.h"

namespace rmsnorm::RMSNORM_TARGET {

void backward_block(const BackwardCall& call, int64_t block);        // backward_kernels.cc
void gated_rows(const GatedCall& call, int64_t begin, int64_t end);  // gated_rms_norm_kernels.cc, as the next two
void gated_backward_block(const GatedBackwardCall& call, int64_t block);
void silu(float* out, const float* gate, int64_t n);
void quantize_rows(const QuantizeCall& call, int64_t begin, int64_t end);  // quantize_kernels.cc, as is the next
void quantize_array(uint8_t* out, const float* in, rn_type type, float scale, int64_t n);
void qk_norm_rope(const QkNormRopeCall& call, int64_t begin, int64_t end);              // qk_norm_rope_kernels.cc
void slice_sums(const SliceSumCall& call, int64_t begin, int64_t end);                  // slice_sum_kernels.cc
void channel_tiles(const ChannelCall& call, int64_t begin, int64_t end, double* sums);  // channel_kernels.cc
ChannelSums channel_sums(const ChannelCall& call, int64_t image, int64_t channel);
double channel_factor(const ChannelCall& call, int64_t channel);
void apply_group(const ChannelCall& call, int64_t image, int64_t begin, int64_t end, const GroupScale& scale);

namespace {

template <Norm kNorm, class Sum>
inline RowScale row_scale(const NormCall& call, SumMode mode, const Moments& first, const Sum& sum) {
  if constexpr (kNorm == Norm::kRms) return rms_scale(call, mode, first, sum);
  if constexpr (kNorm == Norm::kLayer) return layer_scale(call, first, sum);
  return center_scale(call, first, sum);
}

// Of a slice: from the totals of its row.
template <Norm kNorm>
inline RowScale slice_scale(const NormCall& call, const char* sum, const char* sum_squares) {
  const double d = static_cast<double>(call.total_cols);
  const double mean_square = *reinterpret_cast<const double*>(sum_squares) / d;
  const double inv = inverse_rms(call, mean_square);
  if constexpr (kNorm != Norm::kLayer) return {0, inv, needs_wide_pass(call, inv, mean_square)};
  const ExactMean mean = mean_of(*reinterpret_cast<const double*>(sum), call.total_cols);
  return {mean.mean, inv, needs_wide_pass(call, inv, mean_square + mean.mean * mean.mean), mean.rest};
}

// std::conditional_t, which this file must not instantiate (simd.h).
template <bool kFirst, class A, class B>
struct Choose {
  using Type = A;
};
template <class A, class B>
struct Choose<false, A, B> {
  using Type = B;
};

// Whether a target has registers for the lanes of a sum of squares: then rows go in groups.
constexpr bool kGroups = kWideLanes / (kLanes / 2) <= kRegisterCount / 2;

void store_statistics(const Row& row, const RowScale& scale) {
  if (row.mean != nullptr) *reinterpret_cast<float*>(row.mean) = static_cast<float>(scale.mean);
  if (row.inv != nullptr) *reinterpret_cast<float*>(row.inv) = static_cast<float>(scale.inv);
}

// One combination of types and options.
template <class X, class O, bool kSplit, Norm kNorm, Style kStyle, class Source>
struct Kernel {
  static constexpr bool kWithSum = kNorm != Norm::kRms;

  static SumMode first_mode(const NormCall& call) {
    const bool fast = Source::kFastSum && kNorm == Norm::kRms && fast_sum_allowed(call);
    return fast ? SumMode::kFast : SumMode::kWide;
  }

  // The row's columns that count, through its segments, as SharedRow in norm.cc sums them with several threads.
  [[gnu::noinline]] static Moments moments(const NormCall& call, const Source& source, SumMode mode, double centre) {
    if constexpr (kWithSum) {
      if (__builtin_expect(mode == SumMode::kExact, 0)) return exact(call, source, centre);
    }
    const int64_t columns = call.partial;
    const int64_t segment = segment_columns(columns);
    Moments total = {0, 0};
    for (int64_t i = 0; i < columns; i += segment) {
      const int64_t stop = columns - i < segment ? columns : i + segment;
      const Moments part = segment_moments<kWithSum>(source, i, stop, mode, centre);
      total.sum += part.sum;
      total.square += part.square;
    }
    return total;
  }

  [[gnu::noinline]] static Moments exact(const NormCall& call, const Source& source, double sum) {
    return exact_mean(call.cols, sum, [&](const auto& take) {
      float values[kPair];
      for (int64_t i = 0; i < call.cols; i += kPair) {
        const int left = call.cols - i < kPair ? static_cast<int>(call.cols - i) : kPair;
        const Pair v = left == kPair ? source.template load<false>(i) : source.template load_part<false>(i, left);
        F32::store<false>(values, v, false);
        take(values, left);
      }
    });
  }

  // The second pass, with what is known of the parameters. Returns the sums that Lanes takes of `ahead`.
  template <class Lanes>
  static Moments apply_with(const NormCall& call, Given known, const Row& row, Source source, Source ahead,
                            const RowScale& scale, int64_t begin, int64_t end) {
    if (known == Given::kWeight) {
      return apply_row<X, O, kSplit, kStyle, Given::kWeight, Lanes>(call, row, source, ahead, scale, begin, end);
    }
    if constexpr (X::kNarrow && !kSplit) {
      if (known == Given::kWideWeight) {
        return apply_row<X, O, kSplit, kStyle, Given::kWideWeight, Lanes>(call, row, source, ahead, scale, begin, end);
      }
    }
    if constexpr (kNorm == Norm::kLayer) {
      if (known == Given::kWeightAndBias) {
        return apply_row<X, O, kSplit, kStyle, Given::kWeightAndBias, Lanes>(call, row, source, ahead, scale, begin,
                                                                             end);
      }
    }
    if constexpr (Lanes::kNone) {
      return apply_row<X, O, kSplit, kStyle, Given::kAny, Lanes>(call, row, source, ahead, scale, begin, end);
    }
    __builtin_unreachable();
  }

  // A row whose second pass runs in f64 (`exact`, centring, and rows at the ends of the range) takes the slow way.
  [[gnu::noinline]] static void apply(const NormCall& call, Given known, const Row& row, Source source,
                                      const RowScale& scale, int64_t begin, int64_t end) {
    if (kStyle == Style::kWide || __builtin_expect(scale.wide, 0)) {
      apply_row<X, O, false, Style::kWide, Given::kAny, NoLanes>(call, row, source, source, scale, begin, end);
    } else {
      apply_with<NoLanes>(call, known, row, source, source, scale, begin, end);
    }
  }

  // Whether apply_with has this case beside a sum.
  static bool supported_beside(Given known) {
    switch (known) {
      case Given::kWeight:
        return true;
      case Given::kWideWeight:
        return X::kNarrow && !kSplit;
      case Given::kWeightAndBias:
        return kNorm == Norm::kLayer;
      default:
        return false;
    }
  }

  // Writes one row and returns the first sums of another, side by side where that is possible.
  static Moments apply_and_sum(const NormCall& call, Given known, SumMode mode, const Row& row, const Row& next,
                               const RowScale& scale) {
    const Source source(call, row), ahead(call, next);
    if constexpr (kSumsBeside && kStyle != Style::kWide && X::kType == O::kType) {
      // The usual types and parameters: code has a size.
      using Lanes = UsualLanes;
      const bool usual = supported_beside(known) && mode == kUsualMode;
      if (__builtin_expect(usual && !scale.wide && call.partial == call.cols && call.cols <= kOneSegment, 1)) {
        return apply_with<SumLanes<Lanes>>(call, known, row, source, ahead, scale, 0, call.cols);
      }
    }
    apply(call, known, row, source, scale, 0, call.cols);
    return moments(call, ahead, mode, 0);
  }

  // The lanes that the first pass uses as a rule.
  static constexpr bool kFastAsRule = Source::kFastSum && O::kNarrow && kNorm == Norm::kRms;
  using UsualLanes = typename Choose<kFastAsRule, FastLanes<Source>, WideLanes<kWithSum, Source>>::Type;
  // Whether there are registers for them beside those of a second pass.
  static constexpr bool kSumsBeside = kGroups && !UsualLanes::kByPasses;
  static constexpr SumMode kUsualMode = kFastAsRule ? SumMode::kFast : SumMode::kWide;

  // Whether rows can go through group-inl.h.
  static bool groupable(const NormCall& call, SumMode mode) {
    if (!kGroups || kStyle == Style::kWide || X::kType != O::kType) return false;
    bool shared = kNorm == Norm::kLayer || call.bias.base == nullptr;
    for (int axis = 0; axis < call.leading; ++axis) {
      shared &= (call.weight.base == nullptr || call.weight.strides[axis] == 0) &&
                (call.bias.base == nullptr || call.bias.strides[axis] == 0);
    }
    return shared && call.cols <= kMaxGroupColumns && call.partial == call.cols && mode == kUsualMode &&
           call.rounding != RN_ROUND_EXACT;
  }

  // Whether every row of what is written starts where stores can go around the caches.
  static bool streamable(const NormCall& call) {
    uint64_t bits = reinterpret_cast<uintptr_t>(call.out.base) | reinterpret_cast<uintptr_t>(call.residual_out.base);
    for (int axis = 0; axis < call.leading; ++axis) {
      bits |= static_cast<uint64_t>(call.out.strides[axis]);
      if (call.residual_out.base != nullptr) bits |= static_cast<uint64_t>(call.residual_out.strides[axis]);
    }
    return call.stream && bits % kVectorBytes == 0;
  }

  // How the rows of a group are written.
  static Stores stores(const NormCall& call, RowStream& rows) {
    if (!call.stream) return Stores::kOrdinary;
    if (streamable(call)) return Stores::kStreamed;
    if constexpr (kJoins) {
      const int64_t row = call.cols * static_cast<int64_t>(sizeof(typename O::Storage));
      const bool worth = kNorm != Norm::kLayer || !X::kNarrow || call.cols >= kJoinedColumns;
      const bool whole = call.leading == 1 && call.out.strides[0] == row && call.cols % kPair == 0;
      rows.behind = static_cast<int>(reinterpret_cast<uintptr_t>(call.out.base) % kVectorBytes);
      if (worth && whole && rows.behind != 0 && rows.behind % kJoinBytes == 0) return Stores::kJoined;
    }
    return Stores::kOrdinary;
  }

  // The parameters of all rows, as apply_group reads them.
  static void prepare(const NormCall& call, GroupParameters& to) {
    const auto fill = [&](const Operand& from, float absent, float offset, float* values) {
      for (int64_t i = 0; i < call.cols; i += kPair) {
        Pair v = splat_pair(absent);
        if (from.base != nullptr) {
          const int64_t left = call.cols - i;
          const Any any{from.base, from.type};
          v = left >= kPair ? load_any<kSplit>(any, i) : load_any_part<kSplit>(any, i, static_cast<int>(left));
          if (call.weight_offset != 0 && values == to.weight) v = add(v, splat_pair(offset));
        }
        F32::store<false>(values + i, v, false);
      }
    };
    fill(call.weight, 1, static_cast<float>(call.weight_offset), to.weight);
    if constexpr (kNorm == Norm::kLayer) fill(call.bias, -0.0f, 0, to.bias);
  }

  // Of rows that are near an element, most have exact sums and means, which an exact sum would give again: then they
  // are usual. The others go one by one.
  [[gnu::noinline]] static void keep_exact_means(const NormCall& call, const Row* rows, int count,
                                                 const GroupMoments& moments, GroupScales& scales) {
    if constexpr (kWithSum) {
      for (int k = 0; k < count && scales.usual; ++k) {
        if (!near_an_element(scales.mean[k], moments.square[k] / static_cast<double>(call.cols))) continue;
        const Moments found = exact(call, Source(call, rows[k]), moments.sum[k]);
        scales.usual = found.sum == scales.mean[k] && found.square == 0;
      }
    }
  }

  // `rows` for calls that are groupable.
  [[gnu::noinline]] static void grouped_rows(const NormCall& call, SumMode mode, int64_t begin, int64_t end) {
    if constexpr (kGroups && kStyle != Style::kWide && X::kType == O::kType) {
      using BesideLanes = typename Choose<kSumsBeside, UsualLanes, NoLanes>::Type;
      const Given known = given<X>(call);
      RowStream stream;
      const Stores stores = Kernel::stores(call, stream);
      const int group = rows_per_group(call.cols);
      GroupParameters parameters;
      prepare(call, parameters);
      Cursor cursor(call, begin);
      Row rows[2][kGroup];
      GroupLanes lanes;
      GroupMoments moments;
      GroupScales scales;
      const auto gather = [&](Row * to, int64_t from) __attribute__((always_inline)) {
        const int count = static_cast<int>(end - from < group ? end - from : group);
        if (count > 0) cursor.take(to, count);
        return count;
      };
      Row* now = rows[0];
      Row* next = rows[1];
      int count = gather(now, begin);
      sum_group<UsualLanes, Source>(call, now, count, lanes);
      for (int64_t r = begin; r < end; r += group) {
        moments.template fold<kWithSum>(lanes, count);
        group_scales<kNorm>(call, mode, moments, scales);
        if (scales.near) keep_exact_means(call, now, count, moments, scales);
        const int following = gather(next, r + group);
        if (__builtin_expect(scales.usual, 1)) {
          if (call.mean.base != nullptr || call.inv.base != nullptr) {
            for (int k = 0; k < count; ++k) {
              store_statistics(now[k], {kWithSum ? scales.mean[k] : 0, scales.inv[k], false});
            }
          }
          // Where no row follows, the same one is summed again, for nothing.
          for (int k = following > 0 ? following : 0; k < count; ++k) next[k] = now[k];
          apply_group<X, O, kSplit, kNorm, kStyle, BesideLanes, Source>(call, now, next, count, parameters, scales,
                                                                        stores, stream, lanes);
          if (!kSumsBeside && following > 0) sum_group<UsualLanes, Source>(call, next, following, lanes);
        } else {
          stream.close();
          for (int k = 0; k < count; ++k) {
            const Source source(call, now[k]);
            const Moments sums = {kWithSum ? moments.sum[k] : 0, moments.square[k]};
            const RowScale scale = row_scale<kNorm>(call, mode, sums, [&](SumMode again, double centre) {
              return Kernel::moments(call, source, again, centre);
            });
            store_statistics(now[k], scale);
            apply(call, known, now[k], source, scale, 0, call.cols);
          }
          if (following > 0) sum_group<UsualLanes, Source>(call, next, following, lanes);
        }
        Row* const written = now;
        now = next;
        next = written;
        count = following;
      }
      stream.close();
      if (call.stream) fence();
    }
  }

  // Whether rows can go through added_rows.
  static bool addable(const NormCall& call) {
    return X::kType == O::kType && kStyle != Style::kWide && call.add && call.residual.type == X::kType &&
           call.residual_out.type == X::kType && !call.unrounded_sum && call.partial == call.cols &&
           call.cols <= kMaxKeptColumns;
  }

  template <bool kStreamed>
  using AddingLanes = typename Choose<kFastAsRule, FastLanes<AddingSource<X, kStreamed>>,
                                      WideLanes<kWithSum, AddingSource<X, kStreamed>>>::Type;

  template <bool kStreamed>
  static Moments add_one(const NormCall& call, SumMode mode, const Row& row, char* to) {
    using Adding = AddingSource<X, kStreamed>;
    const Adding source(row, to);
    if (mode == kUsualMode) return add_row<AddingLanes<kStreamed>>(source, call.cols);
    return add_row<WideLanes<kWithSum, Adding>>(source, call.cols);
  }

  template <bool kStreamed>
  [[gnu::noinline]] static void add_group(const NormCall& call, const Row* rows, int count, char* to, int64_t step,
                                          GroupLanes& lanes) {
    for (int k = 0; k < count; ++k) {
      const AddingSource<X, kStreamed> source(rows[k], to + k * step);
      sum_short_row<true, AddingLanes<kStreamed>>(source, call.cols, lanes, k, [](int64_t) {});
    }
  }

  // 16-bit rows whose sums want f64 in memory order are added in a pass of their own: rounded sums that come back from
  // their registers or from the store just made keep the f64 lanes waiting.
  static constexpr bool kAddsFirst = kWithSum && X::kNarrow;
  template <bool kStreamed>
  [[gnu::noinline]] static void add_only(const Row& row, int64_t cols, char* to) {
    constexpr bool kOrder = AddingSource<X, kStreamed>::kSplitSum;
    const AddingSource<X, kStreamed> source(row, to);
    int64_t i = 0;
    for (; i + kPair <= cols; i += kPair) {
      source.template fetch<kPair>(i);
      source.template load<kOrder>(i);
    }
    if (i < cols) source.template load_part<kOrder>(i, static_cast<int>(cols - i));
  }

  // `rows` for calls that are addable.
  [[gnu::noinline]] static void added_rows(const NormCall& call, SumMode mode, int64_t begin, int64_t end) {
    if constexpr (X::kType == O::kType && kStyle != Style::kWide) {
      using Plain = Kernel<X, O, kSplit, kNorm, kStyle, PlainSource<X>>;
      const Given known = given<X>(call);
      RowStream stream;
      const Stores stores = Kernel::stores(call, stream);
      const bool streamed = stores == Stores::kStreamed;
      const bool grouped = end - begin >= kFewestGrouped && groupable(call, mode);
      const int group = rows_per_group(call.cols);
      const auto step = whole_blocks(call.cols) * static_cast<int64_t>(sizeof(typename X::Storage));
      alignas(64) char kept[(kMaxKeptColumns + kMaxGroup * kBlock) * sizeof(typename X::Storage)];
      GroupParameters parameters;
      if (grouped) prepare(call, parameters);
      GroupLanes lanes;
      GroupMoments moments;
      GroupScales scales;
      Cursor cursor(call, begin);
      for (int64_t r = begin; r < end; r += group) {
        const int count = static_cast<int>(end - r < group ? end - r : group);
        Row rows[kMaxGroup];
        cursor.take(rows, count);
        if constexpr (kAddsFirst) {
          for (int k = 0; k < count; ++k) {
            char* const to = kept + k * step;
            streamed ? add_only<true>(rows[k], call.cols, to) : add_only<false>(rows[k], call.cols, to);
            rows[k].x = to;
          }
          if (grouped) sum_group<typename Plain::UsualLanes, PlainSource<X>>(call, rows, count, lanes);
        } else if (grouped) {
          streamed ? add_group<true>(call, rows, count, kept, step, lanes)
                   : add_group<false>(call, rows, count, kept, step, lanes);
        }
        if (grouped) {
          moments.template fold<kWithSum>(lanes, count);
          group_scales<kNorm>(call, mode, moments, scales);
          for (int k = 0; k < count; ++k) rows[k].x = kept + k * step;
          if (scales.near) Plain::keep_exact_means(call, rows, count, moments, scales);
        }
        for (int k = 0; k < count; ++k) {
          char* const to = kept + k * step;
          Moments sums;
          if (grouped) {
            sums = {kWithSum ? moments.sum[k] : 0, moments.square[k]};
          } else if constexpr (kAddsFirst) {
            sums = Plain::moments(call, PlainSource<X>(call, rows[k]), mode, 0);
          } else {
            sums = streamed ? add_one<true>(call, mode, rows[k], to) : add_one<false>(call, mode, rows[k], to);
          }
          rows[k].x = to;
          if (grouped && scales.usual) {
            store_statistics(rows[k], {kWithSum ? scales.mean[k] : 0, scales.inv[k], false});
            continue;
          }
          const PlainSource<X> source(call, rows[k]);
          const RowScale scale = row_scale<kNorm>(call, mode, sums, [&](SumMode again, double centre) {
            return Plain::moments(call, source, again, centre);
          });
          store_statistics(rows[k], scale);
          Plain::apply(call, known, rows[k], source, scale, 0, call.cols);
        }
        if (grouped && scales.usual) {
          apply_group<X, O, kSplit, kNorm, kStyle, NoLanes, PlainSource<X>>(call, rows, rows, count, parameters, scales,
                                                                            stores, stream, lanes);
        } else {
          stream.close();
        }
      }
      stream.close();
      if (call.stream) fence();
    }
  }

  // Rows go in groups: sums of all rows of a group, then their scales, whose square roots and divisions overlap, then
  // the second pass over each, which sums the corresponding row of the next group meanwhile.
  static void rows(const NormCall& call, int64_t begin, int64_t end) {
    const Given known = given<X>(call);
    const SumMode mode = first_mode(call);
    if constexpr (Source::kAdds) {
      if (addable(call)) return added_rows(call, mode, begin, end);
    }
    if (end - begin >= kFewestGrouped && groupable(call, mode)) return grouped_rows(call, mode, begin, end);
    const int group = rows_per_group(call.cols);
    Cursor cursor(call, begin);
    Row rows[kMaxGroup], next[kMaxGroup];
    Moments sums[kMaxGroup];
    RowScale scales[kMaxGroup];
    const auto gather = [&](Row * to, int64_t from) __attribute__((always_inline)) {
      const int count = static_cast<int>(end - from < group ? end - from : group);
      cursor.take(to, count);
      return count;
    };
    int count = gather(rows, begin);
    for (int k = 0; k < count; ++k) sums[k] = moments(call, Source(call, rows[k]), mode, 0);
    for (int64_t r = begin; r < end; r += group) {
      for (int k = 0; k < count; ++k) {
        scales[k] = row_scale<kNorm>(call, mode, sums[k], [&](SumMode again, double centre) {
          return moments(call, Source(call, rows[k]), again, centre);
        });
        store_statistics(rows[k], scales[k]);
      }
      const int following = r + group < end ? gather(next, r + group) : 0;
      for (int k = 0; k < following; ++k) sums[k] = apply_and_sum(call, known, mode, rows[k], next[k], scales[k]);
      for (int k = following; k < count; ++k) {
        apply(call, known, rows[k], Source(call, rows[k]), scales[k], 0, call.cols);
      }
      for (int k = 0; k < following; ++k) rows[k] = next[k];
      count = following;
    }
    if (call.stream) fence();
  }

  // Slices of rows: the statistics of the whole rows are given.
  static void slices(const NormCall& call, int64_t begin, int64_t end) {
    const Given known = given<X>(call);
    const Operand* const statistics[] = {&call.sum, &call.sum_squares};
    Cursor cursor(call, begin);
    Walk<2> totals(call, statistics, begin);
    for (int64_t r = begin; r < end; ++r, cursor.advance(), totals.advance()) {
      const Row row = cursor.row();
      const RowScale scale = slice_scale<kNorm>(call, totals[0], totals[1]);
      store_statistics(row, scale);
      apply(call, known, row, Source(call, row), scale, 0, call.cols);
    }
    if (call.stream) fence();
  }

  static Moments segment_sums(const NormCall& call, int64_t index, int64_t segment, SumMode mode, double centre) {
    const int64_t width = segment_columns(call.partial);
    const int64_t begin = segment * width;
    const int64_t end = call.partial - begin < width ? call.partial : begin + width;
    const Source source(call, Cursor(call, index).row());
    if constexpr (kWithSum) {
      if (mode == SumMode::kExact) return exact(call, source, centre);  // of the whole row
    }
    return segment_moments<kWithSum>(source, begin, end, mode, centre);
  }

  static void part(const NormCall& call, int64_t index, int64_t begin, int64_t end, const RowScale& scale) {
    const Row row = Cursor(call, index).row();
    apply(call, given<X>(call), row, Source(call, row), scale, begin, end);
    if (call.stream) fence();
  }

  static RowScale scale(const NormCall& call, SegmentSum sum, void* data) {
    const SumMode mode = first_mode(call);
    return row_scale<kNorm>(call, mode, sum(data, mode, 0),
                            [&](SumMode again, double centre) { return sum(data, again, centre); });
  }
};

// Names the functions of a Kernel without naming its type.
struct Entry {
  void (*rows)(const NormCall&, int64_t, int64_t);
  void (*slices)(const NormCall&, int64_t, int64_t);
  Moments (*segment_sums)(const NormCall&, int64_t, int64_t, SumMode, double);
  void (*part)(const NormCall&, int64_t, int64_t, int64_t, const RowScale&);
  RowScale (*scale)(const NormCall&, SegmentSum, void*);
};
template <class K>
constexpr Entry kEntry = {K::rows, K::slices, K::segment_sums, K::part, K::scale};

// From run-time values to one Kernel, a parameter at a time.
template <class X, class O, bool kSplit, class Source>
Entry find_style(const NormCall& call) {
  switch (call.norm) {
    case Norm::kCenter:
      return kEntry<Kernel<X, O, false, Norm::kCenter, Style::kWide, Source>>;
    case Norm::kLayer:
      return kEntry<Kernel<X, O, kSplit, Norm::kLayer, Style::kCentredScale, Source>>;
    default:
      if (call.rounding == RN_ROUND_BEFORE_WEIGHT && X::kNarrow) {
        return kEntry<Kernel<X, O, kSplit, Norm::kRms, Style::kRoundedScale, Source>>;
      }
      return kEntry<Kernel<X, O, kSplit, Norm::kRms, Style::kScale, Source>>;
  }
}

template <class X, class O, bool kSplit>
Entry find_source(const NormCall& call) {
  return call.add ? find_style<X, O, kSplit, SumSource<X>>(call) : find_style<X, O, kSplit, PlainSource<X>>(call);
}

// Split order pays where every operand of the second pass is bf16.
bool all_bf16(const NormCall& call) {
  const Operand* const operands[] = {&call.residual, &call.residual_out, &call.weight, &call.bias};
  for (const Operand* operand : operands) {
    if (operand->base != nullptr && operand->type != RN_BF16) return false;
  }
  return true;
}

Entry find(const NormCall& call) {
  switch (call.x.type) {
    case RN_F16:
      return call.out.type == RN_F16 ? find_source<F16, F16, false>(call) : find_source<F16, F32, false>(call);
    case RN_BF16:
      if (call.out.type == RN_F32) return find_source<BF16, F32, false>(call);
      return all_bf16(call) ? find_source<BF16, BF16, true>(call) : find_source<BF16, BF16, false>(call);
    default:
      if (call.out.type == RN_F16) return find_source<F32, F16, false>(call);
      if (call.out.type == RN_BF16) return find_source<F32, BF16, false>(call);
      return find_source<F32, F32, false>(call);
  }
}

void rows(const NormCall& call, int64_t begin, int64_t end) { find(call).rows(call, begin, end); }
void slices(const NormCall& call, int64_t begin, int64_t end) { find(call).slices(call, begin, end); }
Moments segment_sums(const NormCall& call, int64_t row, int64_t segment, SumMode mode, double centre) {
  return find(call).segment_sums(call, row, segment, mode, centre);
}
RowScale scale(const NormCall& call, SegmentSum sum, void* data) { return find(call).scale(call, sum, data); }
void apply(const NormCall& call, int64_t row, int64_t begin, int64_t end, const RowScale& scale) {
  const Row at = Cursor(call, row).row();
  if (begin == 0) store_statistics(at, scale);
  find(call).part(call, row, begin, end, scale);
}

template <class T>
void widen_all(float* out, const uint16_t* in, int64_t n) {
  int64_t i = 0;
  for (; i + kPair <= n; i += kPair) F32::store<false>(out + i, T::template load<false>(in + i), false);
  if (i < n)
    store_part<F32, false>(out + i, load_part<T, false>(in + i, static_cast<int>(n - i)), static_cast<int>(n - i));
}
template <class T>
void narrow_all(uint16_t* out, const float* in, int64_t n) {
  int64_t i = 0;
  for (; i + kPair <= n; i += kPair) T::template store<false>(out + i, F32::load<false>(in + i), false);
  if (i < n)
    store_part<T, false>(out + i, load_part<F32, false>(in + i, static_cast<int>(n - i)), static_cast<int>(n - i));
}
void widen_array(float* out, const uint16_t* in, rn_type type, int64_t n) {
  type == RN_F16 ? widen_all<F16>(out, in, n) : widen_all<BF16>(out, in, n);
}
void narrow_array(uint16_t* out, const float* in, rn_type type, int64_t n) {
  type == RN_F16 ? narrow_all<F16>(out, in, n) : narrow_all<BF16>(out, in, n);
}

// Two cache lines a turn: enough to keep the write-combining buffers full.
void stream_copy(void* out, const void* in, size_t bytes) {
  auto* to = static_cast<float*>(out);
  const auto* from = static_cast<const float*>(in);
  const size_t floats = bytes / sizeof(float);
  size_t i = 0;
  if (reinterpret_cast<uintptr_t>(to) % kVectorBytes == 0) {
    for (; i + kPair <= floats; i += kPair) F32::store<false>(to + i, F32::load<false>(from + i), true);
    fence();
  }
  memcpy(to + i, from + i, bytes - i * sizeof(float));
}

}  // namespace

#define RMSNORM_TEXT_(x) #x
#define RMSNORM_TEXT(x) RMSNORM_TEXT_(x)
extern const Target kTarget;
const Target kTarget = {RMSNORM_TEXT(RMSNORM_TARGET),
                        kFamily,
                        kDescription,
                        supported,
                        rows,
                        slices,
                        segment_sums,
                        scale,
                        apply,
                        backward_block,
                        quantize_rows,
                        qk_norm_rope,
                        gated_rows,
                        gated_backward_block,
                        slice_sums,
                        channel_tiles,
                        channel_sums,
                        channel_factor,
                        apply_group,
                        fence,
                        widen_array,
                        narrow_array,
                        quantize_array,
                        silu,
                        stream_copy};

}  // namespace rmsnorm::RMSNORM_TARGET
