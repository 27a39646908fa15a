// RMSNorm with a quantised output. A row is staged as f32 in L1: widened (and added to) once, summed, normalised where
// it lies, then divided by its scale. It is never written in between. Short rows go in groups: each step is done for all
// rows of a group, so that their square roots, divisions and folds overlap. Rows longer than the buffer are staged, and
// normalised, again for each pass.
#ifndef RMSNORM_CPU_QUANTIZE_INL_H_
#define RMSNORM_CPU_QUANTIZE_INL_H_

#include "core/quantize_call.h"
#include "cpu/float8-inl.h"
#include "cpu/group-inl.h"
#include "cpu/moments-inl.h"
#include "cpu/normalise-inl.h"
#include "cpu/rms_norm-inl.h"
#include "cpu/row-inl.h"
#include "cpu/stage-inl.h"

namespace rmsnorm::RMSNORM_TARGET {

inline float scale_for_peak(const QuantizeCall& call, float peak) {
  if (peak == 0) return 1;
  if (peak > kLargestScale) return call.power_of_two ? kLargestPowerOfTwoScale : kLargestScale;
  float scale = peak / call.largest;
  if (scale < kSmallestScale) scale = kSmallestScale;
  if (!call.power_of_two) return scale;
  uint32_t bits;
  memcpy(&bits, &scale, sizeof bits);
  bits = (bits + 0x7fffff) & 0x7f800000;  // up, unless it is one
  memcpy(&scale, &bits, sizeof bits);
  return scale;
}

// The addresses of one row; null where absent. Eight of them: see Cursor.
struct QuantizeRow {
  char *out, *residual_out, *scale, *none, *x, *residual, *weight, *bias;
};

class QuantizeRows {
 public:
  explicit QuantizeRows(const QuantizeCall& call)
      : call_(call),
        held_(call.cols <= kHeldColumns),
        rounds_(call.rounding == RN_ROUND_BEFORE_WEIGHT && call.x.type != RN_F32),
        wide_(!rounds_ && (call.bias.base != nullptr || call.rounding == RN_ROUND_EXACT)),
        offset_(wide_ && call.weight.base != nullptr ? call.weight_offset : 0),
        weight_(call.weight.type, wide_ ? 0 : static_cast<float>(call.weight_offset)),
        bias_(call.bias.type, 0) {}

  void run(int64_t begin, int64_t end) {
    const Operand none = {};
    Cursor cursor(
        call_,
        {&call_.out, &call_.residual_out, &call_.scale, &none, &call_.x, &call_.residual, &call_.weight, &call_.bias},
        begin);
    const int together = rows_together();
    QuantizeRow rows[2][kGroup];
    QuantizeRow *now = rows[0], *next = rows[1];
    const auto gather = [&](QuantizeRow* to, int64_t from) {
      const int count = static_cast<int>(end - from < together ? end - from : together);
      if (count > 0) cursor.take(to, count);
      return count;
    };
    int count = gather(now, begin);
    for (int64_t r = begin; r < end; r += together) {
      const int following = gather(next, r + together);
      for (int k = following > 0 ? following : 0; k < count; ++k) next[k] = now[k];
      if (call_.cols > kStage) {
        select(now[0], next[0]);
        one();
      } else {
        group(now, next, count);
      }
      QuantizeRow* const done = now;
      now = next;
      next = done;
      count = following;
    }
    if (call_.stream) fence();
  }

 private:
  // Columns of a row that stays in the buffer: with as many bytes of weights L1 is full.
  static constexpr int64_t kHeldColumns = 4 * kStage;

  static int64_t bytes(rn_type type) { return type == RN_F32 ? 4 : 2; }
  int64_t stop(int64_t i) const { return call_.cols - i < kStage ? call_.cols - i : kStage; }
  float* buffer(int64_t i) { return buffer_ + (held_ ? i : 0); }

  // Rows in a group: one unless they share their parameters, of which one row's are kept.
  int rows_together() const {
    for (int axis = 0; axis < call_.leading; ++axis) {
      if (call_.weight.base != nullptr && call_.weight.strides[axis] != 0) return 1;
      if (call_.bias.base != nullptr && call_.bias.strides[axis] != 0) return 1;
    }
    return rows_per_group(call_.cols);
  }

  // Reading and normalising are about `row` from here on; `next` is fetched meanwhile.
  void select(const QuantizeRow& row, const QuantizeRow& next) {
    row_ = row;
    ahead_ = ahead(next);
  }
  Ahead ahead(const QuantizeRow& next) const {
    return {next.x, next.residual, static_cast<int>(bytes(call_.x.type)), static_cast<int>(bytes(call_.residual.type))};
  }

  // `count` rows of at most kStage columns.
  void group(const QuantizeRow* rows, const QuantizeRow* next, int count) {
    const int64_t cols = call_.cols, step = whole_blocks(cols);
    const bool fixed = call_.scale.base == nullptr;
    const int64_t own = fixed ? cols : call_.group;  // columns that share a scale
    const float* x[kGroup];
    for (int k = 0; k < count; ++k) {
      buffer_ = row_buffer_ + k * step;
      row_ = rows[k];
      x[k] = entering(0, cols, true);
    }
    GroupLanes lanes;
    GroupMoments moments;
    GroupScales scales;
    sum_staged(x, count, lanes);
    moments.template fold<false>(lanes, count);
    group_scales<Norm::kRms>(call_, SumMode::kWide, moments, scales);
    const float* const weight = weight_.at(rows[0].weight, cols, 0, cols);
    const float* const bias = rows[0].bias == nullptr ? nullptr : bias_.at(rows[0].bias, cols, 0, cols);
    for (int k = 0; k < count; ++k) {
      RowScale scale = {0, scales.inv[k], false};
      if (__builtin_expect(!scales.usual, 0)) {
        const Moments sums = {0, moments.square[k]};
        scale = rms_scale(call_, SumMode::kWide, sums, [&](SumMode, double) { return sums; });
      }
      NormStretch s = {x[k], weight, bias, row_buffer_ + k * step, offset_, ahead(next[k])};
      for (int64_t at = 0; at < cols; at += own) {
        const float peak = normalise_any(shifted(s, at), scale, cols - at < own ? cols - at : own);
        if (!fixed) *scale_of(rows[k], at / own) = scale_for_peak(call_, peak);
      }
    }
    for (int k = 0; k < count; ++k) {
      auto* const out = reinterpret_cast<uint8_t*>(rows[k].out);
      for (int64_t at = 0; at < cols; at += own) {
        quantize_stretch(out + at, call_.out.type, row_buffer_ + k * step + at,
                         fixed ? call_.static_scale : *scale_of(rows[k], at / own), cols - at < own ? cols - at : own,
                         call_.stream);
      }
    }
  }

  [[gnu::noinline]] void sum_staged(const float* const* x, int count, GroupLanes& lanes) const {
    for (int k = 0; k < count; ++k) {
      sum_short_row<true, WideLanes<false, StagedSource>>(StagedSource{x[k]}, call_.partial, lanes, k, [](int64_t) {});
    }
  }

  // Columns i .. i+n-1 of what the norm reads. `first`: they are read for the first time; `last`: for the last.
  const float* read(int64_t i, int64_t n, bool first, bool last) {
    if (held_ && !first) return staged_[i / kStage];
    const float* x = entering(i, n, held_ || last);
    if (held_) staged_[i / kStage] = x;
    return x;
  }

  // The same of row_, staged again. `write`: the sum is written, too.
  const float* entering(int64_t i, int64_t n, bool write) {
    const rn_type type = call_.x.type, sum_type = call_.residual_out.type;
    float* const to = buffer(i);
    const char* const x = row_.x + i * bytes(type);
    if (!call_.add) return stage(*reinterpret_cast<Stage*>(to), x, type, n);
    const char* const residual = row_.residual + i * bytes(call_.residual.type);
    char* const sum = write ? row_.residual_out + i * bytes(sum_type) : nullptr;
    if (call_.residual.type == type && sum_type == type) {
      if (type == RN_F16) return add_rows<F16>(to, x, residual, sum, n);
      if (type == RN_BF16) return add_rows<BF16>(to, x, residual, sum, n);
      return add_rows<F32>(to, x, residual, sum, n);
    }
    const float* const staged = stage(*reinterpret_cast<Stage*>(to), x, type, n);
    add_staged(to, staged, stage(residual_, residual, call_.residual.type, n), whole_blocks(n));
    if (sum != nullptr) unstage(sum, sum_type, to, n, call_.stream);
    return to;
  }

  // x + residual where both and the written sum are of one type: a single pass.
  template <class T>
  [[gnu::noinline]] const float* add_rows(float* to, const char* from, const char* with, char* sum, int64_t n) const {
    using Storage = typename T::Storage;
    const auto* const x = reinterpret_cast<const Storage*>(from);
    const auto* const residual = reinterpret_cast<const Storage*>(with);
    auto* const out = reinterpret_cast<Storage*>(sum);
    const bool streamed = call_.stream, round = !call_.unrounded_sum;
    const auto part = [=](int64_t i, int count) {
      const Pair v = add(load_part<T, false>(x + i, count), load_part<T, false>(residual + i, count));
      F32::store<false>(to + i, round ? T::round(v) : v, false);
      if (out != nullptr) store_part<T, false>(out + i, v, count);
    };
    int64_t i = 0;
    const uintptr_t misaligned = reinterpret_cast<uintptr_t>(out) % kVectorBytes;
    if (streamed && misaligned != 0) {
      const auto head = static_cast<int64_t>((kVectorBytes - misaligned) / sizeof *out);
      i = head < n ? head : n;
      part(0, static_cast<int>(i));
    }
    for (; i + kPair <= n; i += kPair) {
      const Pair v = add(T::template load<false>(x + i), T::template load<false>(residual + i));
      F32::store<false>(to + i, round ? T::round(v) : v, false);
      if (out != nullptr) T::template store<false>(out + i, v, streamed);
    }
    if (i < n) part(i, static_cast<int>(n - i));
    for (int64_t k = n; k < whole_blocks(n); ++k) to[k] = 0;
    return to;
  }

  void add_staged(float* to, const float* x, const float* residual, int64_t end) const {
    const bool round = !call_.unrounded_sum;
    if (round && call_.residual_out.type == RN_F16) {
      add_rounded<F16>(to, x, residual, end);
    } else if (round && call_.residual_out.type == RN_BF16) {
      add_rounded<BF16>(to, x, residual, end);
    } else {
      add_rounded<F32>(to, x, residual, end);
    }
  }

  template <class T>
  [[gnu::noinline]] static void add_rounded(float* to, const float* x, const float* residual, int64_t end) {
    for (int64_t i = 0; i < end; i += kPair) {
      F32::store<false>(to + i, T::round(add(F32::load<false>(x + i), F32::load<false>(residual + i))), false);
    }
  }

  RowScale row_scale() {
    Moments total = {0, 0};
    for (int64_t i = 0; i < call_.cols; i += kStage) {
      const int64_t n = stop(i);
      const float* x = read(i, n, true, false);
      const int64_t counted = call_.partial - i < n ? call_.partial - i : n;
      if (counted > 0)
        total.square += chunk_moments<WideLanes<false, StagedSource>>(StagedSource{x}, 0, counted).square;
    }
    return rms_scale(call_, SumMode::kWide, total, [&](SumMode, double) { return total; });
  }

  // Normalises n columns from column i + at on, which lie at x + at, into the buffer.
  float normalise_group(const float* x, const RowScale& scale, int64_t i, int64_t at, int64_t n) {
    const int64_t columns = stop(i);
    NormStretch s = {x,
                     weight_.at(row_.weight, call_.cols, i, columns),
                     row_.bias == nullptr ? nullptr : bias_.at(row_.bias, call_.cols, i, columns),
                     buffer(i),
                     offset_,
                     ahead_};
    s.ahead.x += i * s.ahead.x_bytes;
    if (s.ahead.residual != nullptr) s.ahead.residual += i * s.ahead.residual_bytes;
    return normalise_any(shifted(s, at), scale, n);
  }
  static NormStretch shifted(NormStretch s, int64_t at) {
    s.x += at;
    s.weight += at;
    if (s.bias != nullptr) s.bias += at;
    s.y += at;
    s.ahead.x += at * s.ahead.x_bytes;
    if (s.ahead.residual != nullptr) s.ahead.residual += at * s.ahead.residual_bytes;
    return s;
  }
  float normalise_any(const NormStretch& s, const RowScale& scale, int64_t n) const {
    if (rounds_) return call_.x.type == RN_F16 ? normalise_as<F16>(s, scale, n) : normalise_as<BF16>(s, scale, n);
    return scale.wide || wide_ ? normalise<F32, true>(s, scale.inv, n) : normalise<F32, false>(s, scale.inv, n);
  }
  template <class T>
  static float normalise_as(const NormStretch& s, const RowScale& scale, int64_t n) {
    return scale.wide ? normalise<T, true>(s, scale.inv, n) : normalise<T, false>(s, scale.inv, n);
  }

  void one() {
    const RowScale scale = row_scale();
    const int64_t group = call_.group;
    if (row_.scale != nullptr && group == call_.cols) return one_scale(scale);
    for (int64_t i = 0; i < call_.cols; i += kStage) {
      const int64_t n = stop(i);
      const float* x = read(i, n, false, true);
      if (row_.scale == nullptr) {
        normalise_group(x, scale, i, 0, n);
        write_codes(i, 0, call_.static_scale, n);
      } else {
        for (int64_t at = 0; at < n; at += group) {
          const int64_t columns = n - at < group ? n - at : group;
          const float own = scale_for_peak(call_, normalise_group(x, scale, i, at, columns));
          *scale_of(row_, (i + at) / group) = own;
          write_codes(i, at, own, columns);
        }
      }
    }
  }

  void one_scale(const RowScale& scale) {
    float peak = 0;
    for (int64_t i = 0; i < call_.cols; i += kStage) {
      const int64_t n = stop(i);
      const float here = normalise_group(read(i, n, false, false), scale, i, 0, n);
      peak = here > peak ? here : peak;
    }
    const float own = scale_for_peak(call_, peak);
    *scale_of(row_, 0) = own;
    for (int64_t i = 0; i < call_.cols; i += kStage) {
      const int64_t n = stop(i);
      if (!held_) normalise_group(read(i, n, false, true), scale, i, 0, n);
      write_codes(i, 0, own, n);
    }
  }

  float* scale_of(const QuantizeRow& row, int64_t group) const {
    return reinterpret_cast<float*>(row.scale + group * call_.scale_stride);
  }

  // Of columns i + at .. i + at + n - 1.
  void write_codes(int64_t i, int64_t at, float scale, int64_t n) {
    quantize_stretch(reinterpret_cast<uint8_t*>(row_.out) + i + at, call_.out.type, buffer(i) + at, scale, n,
                     call_.stream);
  }

  const QuantizeCall& call_;
  bool held_;
  bool rounds_;    // y has the type of x, which is a 16-bit one
  bool wide_;      // y of every row is formed in f64: beside a bias, which may take digits away, and on demand
  double offset_;  // of the weights in f64
  QuantizeRow row_;
  Ahead ahead_;
  StagedParameter weight_, bias_;
  const float* staged_[kHeldColumns / kStage];
  Stage residual_;
  float* buffer_ = row_buffer_;
  alignas(64) float row_buffer_[kHeldColumns + kBlock];
};

}  // namespace rmsnorm::RMSNORM_TARGET

#endif  // RMSNORM_CPU_QUANTIZE_INL_H_
