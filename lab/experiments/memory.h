// The rules of experiment 8.
#ifndef RMSNORM_LAB_EXPERIMENTS_MEMORY_H_
#define RMSNORM_LAB_EXPERIMENTS_MEMORY_H_

#include "lab/experiments/support.h"

namespace rmsnorm::lab {

// An interval grows where RMSNorm needs at most the first share of LayerNorm's bytes or seconds, and does not where it
// needs the second or more.
inline constexpr double kWorthALongerInterval = 0.95;
inline constexpr double kNoDifference = 0.99;

// Bytes are counted, so there is no interval: RMSNorm's over LayerNorm's.
Verdict fewer_bytes(double ratio);

// The factor by which recomputation lengthens a step, RMSNorm's over LayerNorm's.
Verdict cheaper_recomputation(const Interval& ratio);

// Bytes kept with a checkpoint every `interval` blocks: the stream at each checkpoint, and one stretch of blocks whole.
double bytes_with_interval(double blocks, double interval, double stream_bytes, double block_bytes);

}  // namespace rmsnorm::lab

#endif  // RMSNORM_LAB_EXPERIMENTS_MEMORY_H_
