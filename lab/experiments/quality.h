// Comparisons of quality from paired numbers, one for each seed: differences are ours minus theirs, positive is better.
#ifndef RMSNORM_LAB_EXPERIMENTS_QUALITY_H_
#define RMSNORM_LAB_EXPERIMENTS_QUALITY_H_

#include <string>
#include <vector>

#include "lab/report/document.h"

namespace rmsnorm::lab {

// "better": holds where the 95 % interval lies above zero; refuted where it lies below `margin` but not above zero (an
// advantage, if there is one, is smaller than what would matter); else not settled.
Verdict better(const std::vector<double>& differences, double margin);

// "better than each of them": holds where it is better than all, refuted where "better" is refuted for one.
Verdict better_than_all(const std::vector<std::vector<double>>& differences, double margin);

// A difference of two shares: "1.2 [0.3, 2.1] points".
std::string points(const Interval& difference);

// Learning rates: each arm learns with the best of three for itself, found with a seed that is not among those that are
// compared. A factor on the experiment's own rate.
inline constexpr double kRateFactors[] = {1.0 / 3, 1, 3};
inline constexpr int kSeedApart = 1001;

// The place of the best: the largest quality that is finite. Throws std::runtime_error when there is none.
std::size_t best_rate(const std::vector<double>& qualities);

// For the design.
inline constexpr char kTuning[] =
    "Each arm learns with the best of three learning rates (a third of the experiment's own, that, three times that), "
    "found with one seed that is not among those that are compared. ";

}  // namespace rmsnorm::lab

#endif  // RMSNORM_LAB_EXPERIMENTS_QUALITY_H_
