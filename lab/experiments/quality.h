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

}  // namespace rmsnorm::lab

#endif  // RMSNORM_LAB_EXPERIMENTS_QUALITY_H_
