// LayerNorm and centring: from a row's sums to its mean and scale. The passes are in moments-inl.h and apply-inl.h.
#ifndef RMSNORM_CPU_LAYER_NORM_INL_H_
#define RMSNORM_CPU_LAYER_NORM_INL_H_

#include "core/call.h"
#include "cpu/rms_norm-inl.h"
#include "cpu/target.h"
#include "cpu/thresholds.h"

namespace rmsnorm::RMSNORM_TARGET {

struct MeanAndVariance {
  double mean;
  double variance;
  double correction;  // belongs to the mean, whose last bits it holds
};

// raw: the row's sums in f64 lanes; sum(mode, centre) sums again. One pass serves while the mean is not large beside
// the deviation: squares of f32 are exact in f64, so E[x^2] - mean^2 keeps 40 bits at the limit. Other rows get the
// corrected two-pass algorithm.
template <class Sum>
inline MeanAndVariance mean_and_variance(const RowShape& call, const Moments& raw, const Sum& sum) {
  const double d = static_cast<double>(call.cols);
  const double mean = raw.sum / d;
  const double variance = raw.square / d - mean * mean;
  if (mean * mean <= kOffsetLimit * variance) return {mean, variance, 0};
  if (!(mean - mean == 0)) return {mean, mean - mean, 0};  // an infinity or a NaN: there is nothing to correct
  const Moments centred = sum(SumMode::kCentre, mean);
  const double correction = centred.sum / d;
  const double corrected = centred.square / d - correction * correction;
  return {mean, corrected < 0 ? 0 : corrected, correction};
}

template <class Sum>
inline RowScale layer_scale(const NormCall& call, const Moments& raw, const Sum& sum) {
  const MeanAndVariance row = mean_and_variance(call, raw, sum);
  const double inv = 1 / __builtin_sqrt(row.variance + call.epsilon);
  return {row.mean + row.correction, inv, needs_wide_pass(call, inv, raw.square / static_cast<double>(call.cols))};
}

template <class Sum>
inline RowScale center_scale(const NormCall& call, const Moments& raw, const Sum& sum) {
  const MeanAndVariance row = mean_and_variance(call, raw, sum);
  return {row.mean, 1, true, row.correction};
}

}  // namespace rmsnorm::RMSNORM_TARGET

#endif  // RMSNORM_CPU_LAYER_NORM_INL_H_
