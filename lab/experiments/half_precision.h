// The rules of experiment 7.
#ifndef RMSNORM_LAB_EXPERIMENTS_HALF_PRECISION_H_
#define RMSNORM_LAB_EXPERIMENTS_HALF_PRECISION_H_

#include "lab/experiments/half_rows.h"
#include "lab/experiments/support.h"

namespace rmsnorm::lab {

// RMSNorm's error is smaller than LayerNorm's where it is below this share of it.
inline constexpr double kSmallerError = 0.5;
// What a 16-bit training may lose to one in f32 by one norm more than by the other, and still be called the same: nats
// a byte.
inline constexpr double kSameLoss = 0.02;

// "RMSNorm is right over a wider range of magnitudes": one octave more at one end and none less at the other.
Verdict wider_range(const Octaves& rms, const Octaves& layer);

// "RMSNorm's error is smaller". An error that is not finite is larger than any that is.
Verdict smaller_error(double rms, double layer);

// "Going to 16 bits costs LayerNorm more than RMSNorm", differences of the two costs by seed, LayerNorm's minus
// RMSNorm's.
Verdict costs_more(const std::vector<double>& differences);

}  // namespace rmsnorm::lab

#endif  // RMSNORM_LAB_EXPERIMENTS_HALF_PRECISION_H_
