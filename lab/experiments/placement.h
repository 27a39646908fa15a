#ifndef RMSNORM_LAB_EXPERIMENTS_PLACEMENT_H_
#define RMSNORM_LAB_EXPERIMENTS_PLACEMENT_H_

#include <vector>

#include "lab/report/document.h"
#include "lab/statistics/statistics.h"

namespace rmsnorm::lab {

// How much of the loss hangs on the learning rate: the mean over the learning rates of the final loss less the best of
// them (after Wortsman et al. 2023, "Small-scale proxies for large-scale Transformer training instabilities").
double sensitivity(const std::vector<double>& losses);

// Whether pre-norm is the more stable, from the differences post less pre: of the sensitivity, and of the best final
// loss, in which up to `margin` does not count.
Verdict more_stable(const Interval& sensitivity, const Interval& best, double margin);

}  // namespace rmsnorm::lab

#endif  // RMSNORM_LAB_EXPERIMENTS_PLACEMENT_H_
