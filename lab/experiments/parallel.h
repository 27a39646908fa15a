// What experiment 12 counts, and its verdicts.
#ifndef RMSNORM_LAB_EXPERIMENTS_PARALLEL_H_
#define RMSNORM_LAB_EXPERIMENTS_PARALLEL_H_

#include <cstdint>

#include "lab/report/document.h"

namespace rmsnorm::lab {

// A norm whose columns are spread over ranks, forward and backward.
struct SpreadNorm {
  double rounds = 0;   // exchanges that wait for each other
  double numbers = 0;  // f64, that each rank gives, a token
  double error = 0;  // of output and gradient against one process: the largest difference over the row's largest value
};

// The largest error that counts as equal: 4 units in the last place, in f32, of the row's largest value.
inline constexpr double kEqualRows = 4 * 0x1p-23;

// "RMSNorm sends less": holds where it sends fewer numbers in no more rounds, refuted where it does not; not settled
// where one of the two does not compute what one process computes.
Verdict sends_less(const SpreadNorm& rms_norm, const SpreadNorm& layer_norm);

// The least bytes that a rank sends for a token in a layer, forward and backward, besides the norms' numbers, where the
// stream is spread over the ranks: the inputs of the two sub-layers are gathered and their outputs are summed and
// scattered, 4 times (ranks - 1) / ranks of the width forward, and as much backward.
double activation_bytes(std::int64_t width, int ranks, double element_bytes);

// Bytes of a layer's two norms: every rank sends its numbers to all others.
double norm_bytes(const SpreadNorm& norm, int ranks);

// The share of all bytes of a layer that RMSNorm saves.
double saved_share(const SpreadNorm& rms_norm, const SpreadNorm& layer_norm, std::int64_t width, int ranks,
                   double element_bytes);

}  // namespace rmsnorm::lab

#endif  // RMSNORM_LAB_EXPERIMENTS_PARALLEL_H_
