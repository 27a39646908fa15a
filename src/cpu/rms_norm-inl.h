// RMSNorm: from the sum of squares to a row's scale. The passes are in moments-inl.h and apply-inl.h.
#ifndef RMSNORM_CPU_RMS_NORM_INL_H_
#define RMSNORM_CPU_RMS_NORM_INL_H_

#include "core/call.h"
#include "cpu/target.h"
#include "cpu/thresholds.h"

namespace rmsnorm::RMSNORM_TARGET {

// Whether a row may be summed in f32 lanes: its elements are exact in 16 bits, and so is what is wanted of it.
inline bool fast_sum_allowed(const NormCall& call) {
  const bool narrow_row = !call.add || (call.residual_out.type == call.x.type && !call.unrounded_sum);
  return narrow_row && call.out.type != RN_F32 && call.rounding != RN_ROUND_EXACT;
}

inline bool needs_wide_pass(const NormCall& call, double inv, double mean_square) {
  const bool safe = inv >= kInvFloor && inv <= kInvCeiling && mean_square >= kSmallestMeanSquare;
  return call.rounding == RN_ROUND_EXACT || !safe;
}

// Whether a sum of squares in f32 lanes, folded after each of `chunks` chunks, lost nothing.
inline bool fast_sum_usable(double square, int64_t chunks) {
  return square >= kFastSumFloor * static_cast<double>(chunks) && square <= kLargestSum;
}

inline double inverse_rms(const NormCall& call, double mean_square) {
  return call.epsilon_outside ? 1 / (__builtin_sqrt(mean_square) + call.epsilon)
                              : 1 / __builtin_sqrt(mean_square + call.epsilon);
}

// first: the row's Moments over its first call.partial columns, summed in `mode`; sum(mode, centre) sums them again.
template <class Sum>
inline RowScale rms_scale(const NormCall& call, SumMode mode, const Moments& first, const Sum& sum) {
  double square = first.square;
  if (mode == SumMode::kFast) {
    const int64_t chunks = (call.partial + kChunk - 1) / kChunk;
    const bool usable = fast_sum_usable(square, chunks);
    if (__builtin_expect(!usable, 0)) square = sum(SumMode::kWide, 0.0).square;
  }
  const double mean_square = square / static_cast<double>(call.partial);
  const double inv = inverse_rms(call, mean_square);
  return {0, inv, needs_wide_pass(call, inv, mean_square)};
}

}  // namespace rmsnorm::RMSNORM_TARGET

#endif  // RMSNORM_CPU_RMS_NORM_INL_H_
