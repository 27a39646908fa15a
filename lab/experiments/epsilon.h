// The rules of experiment 4.
#ifndef RMSNORM_LAB_EXPERIMENTS_EPSILON_H_
#define RMSNORM_LAB_EXPERIMENTS_EPSILON_H_

#include <vector>

#include "lab/report/document.h"

namespace rmsnorm::lab {

// "The epsilons of the range are the best": `others` are the intervals of the final loss with each epsilon outside the
// range, less the loss with the best one inside. Holds when all lie above 0; refuted when one lies below `margin`, so
// that an epsilon outside is as good; otherwise not settled.
Verdict best_range(const std::vector<Interval>& others, double margin);

// "The smallest epsilon explodes", in one place: it does when something is not finite with it and everything is with
// the usual one. Where the usual one fails, too, the place says nothing about epsilon.
Verdict explodes(bool smallest_finite, bool usual_finite);

}  // namespace rmsnorm::lab

#endif  // RMSNORM_LAB_EXPERIMENTS_EPSILON_H_
