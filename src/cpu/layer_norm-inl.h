// LayerNorm and centring: from a row's sums to its mean and scale. The passes are in moments-inl.h and apply-inl.h.
#ifndef RMSNORM_CPU_LAYER_NORM_INL_H_
#define RMSNORM_CPU_LAYER_NORM_INL_H_

#include "core/call.h"
#include "cpu/exact_sum.h"
#include "cpu/rms_norm-inl.h"
#include "cpu/target.h"
#include "cpu/thresholds.h"

namespace rmsnorm::RMSNORM_TARGET {

struct MeanAndVariance {
  double mean;
  double variance;
  double correction;  // belongs to the mean, whose last bits it holds
};

// Whether a row needs its mean from an exact sum (kMeanReach). Not with an infinity or a NaN. group_scales has the same
// operations for several rows.
inline bool near_an_element(double mean, double mean_square) {
  const double scaled = mean * kEightBits;
  const double apart = mean - (scaled - (scaled - mean));
  return apart * apart < kMeanReach * mean_square;
}

// The largest and the smallest magnitude of some numbers, but for zeros.
class Magnitudes {
 public:
  void take(const float* x, int64_t n) {
    int64_t i = 0;
    for (; i + kLanes <= n; i += kLanes) take(load(x + i));
    if (i == n) return;
    float last[kLanes];
    for (int k = 0; k < kLanes; ++k) last[k] = x[i + k < n ? i + k : i];
    take(load(last));
  }

  // Whether any sum of `count` numbers is exact in f64: each is 0 or a multiple of 2^-24 of the smallest, or of 2^-149.
  bool exact_in_f64(int64_t count) const {
    float largest[kLanes], smallest[kLanes];
    store(largest, largest_);
    store(smallest, smallest_);
    float high = largest[0], low = smallest[0];
    for (int k = 1; k < kLanes; ++k) {
      high = largest[k] > high ? largest[k] : high;
      low = smallest[k] < low ? smallest[k] : low;
    }
    return static_cast<double>(count) * static_cast<double>(high) <= 0x1p29 * static_cast<double>(low);
  }

 private:
  [[gnu::always_inline]] void take(F v) {
    const I bits = magnitude_bits(v), infinity = as_int(splat(__builtin_inff()));
    const F without_zeros = as_float(bit_or(bits, bit_and(less(bits, splat(1)), infinity)));
    largest_ = larger(as_float(bits), largest_);
    smallest_ = smaller(without_zeros, smallest_);
  }

  F largest_ = splat(0.0f), smallest_ = splat(__builtin_inff());
};

// SumMode::kExact. for_each(take) hands the row's columns to take(const float*, n), in stretches.
template <class ForEach>
inline Moments exact_mean(int64_t cols, double sum, const ForEach& for_each) {
  Magnitudes magnitudes;
  for_each([&](const float* x, int64_t n) { magnitudes.take(x, n); });
  ExactMean result;
  if (magnitudes.exact_in_f64(cols)) {
    result = mean_of(sum, cols);
  } else {
    ExactSum exact;
    for_each([&](const float* x, int64_t n) { add_exactly(exact, x, n); });
    result = mean_of(exact, cols);
  }
  return {result.mean, result.rest};
}

// raw: the row's sums in f64 lanes; sum(mode, centre) sums again. One pass serves while the mean is not large beside
// the deviation: squares of f32 are exact in f64, so E[x^2] - mean^2 keeps 40 bits at the limit. Other rows get the
// corrected two-pass algorithm.
template <class Sum>
inline MeanAndVariance mean_and_variance(const RowShape& call, const Moments& raw, const Sum& sum) {
  const double d = static_cast<double>(call.cols), mean_square = raw.square / d;
  double mean = raw.sum / d, rest = 0;
  const bool exact = near_an_element(mean, mean_square);
  if (__builtin_expect(exact, 0)) {
    const Moments found = sum(SumMode::kExact, raw.sum);
    mean = found.sum;
    rest = found.square;
  }
  const double variance = mean_square - mean * mean;
  if (mean * mean <= kOffsetLimit * variance) return {mean, variance, rest};
  if (!(mean - mean == 0)) return {mean, mean - mean, 0};  // an infinity or a NaN: there is nothing to correct
  const Moments centred = sum(SumMode::kCentre, mean);
  const double correction = centred.sum / d;
  const double corrected = centred.square / d - correction * correction;
  return {mean, corrected < 0 ? 0 : corrected, exact ? rest : correction};
}

template <class Sum>
inline RowScale layer_scale(const NormCall& call, const Moments& raw, const Sum& sum) {
  const MeanAndVariance row = mean_and_variance(call, raw, sum);
  const double inv = 1 / __builtin_sqrt(row.variance + call.epsilon);
  const double mean = row.mean + row.correction, rest = (row.mean - mean) + row.correction;
  return {mean, inv, needs_wide_pass(call, inv, raw.square / static_cast<double>(call.cols)), rest};
}

template <class Sum>
inline RowScale center_scale(const NormCall& call, const Moments& raw, const Sum& sum) {
  const MeanAndVariance row = mean_and_variance(call, raw, sum);
  return {row.mean, 1, true, row.correction};
}

}  // namespace rmsnorm::RMSNORM_TARGET

#endif  // RMSNORM_CPU_LAYER_NORM_INL_H_
