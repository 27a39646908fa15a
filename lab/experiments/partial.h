// The rules of experiment 13.
#ifndef RMSNORM_LAB_EXPERIMENTS_PARTIAL_H_
#define RMSNORM_LAB_EXPERIMENTS_PARTIAL_H_

#include "lab/experiments/support.h"

namespace rmsnorm::lab {

// What "as good" may differ by, in nats a byte of the held-out loss; 1 % of a loss of 2.
inline constexpr double kAsGoodMargin = 0.02;

// "The partial norm is as good as the full one": partial minus full, by seed. Better than the full one is as good, too.
Verdict as_good(const std::vector<double>& differences);

// "A bad start hurts LayerNorm more than RMSNorm": what it costs LayerNorm, minus what it costs RMSNorm, by seed.
Verdict more_robust(const std::vector<double>& differences);

// The most that the mean of `window` losses ever lies above the lowest one before it: how far a training fell back.
double largest_rise(const std::vector<double>& losses, int window);

}  // namespace rmsnorm::lab

#endif  // RMSNORM_LAB_EXPERIMENTS_PARTIAL_H_
