// The verdict of experiment 10 that is no interval's.
#ifndef RMSNORM_LAB_EXPERIMENTS_VIT_H_
#define RMSNORM_LAB_EXPERIMENTS_VIT_H_

#include <vector>

#include "lab/report/document.h"

namespace rmsnorm::lab {

// "A trained model needs fine-tuning to get RMSNorm", from what exact conversion does to it in every seed: the share of
// pictures with the same label, and the largest change of a logit over the largest logit. Refuted where all shares are
// at least 0.999 and all changes at most 0.001, holds where all shares are below.
Verdict needs_fine_tuning(const std::vector<double>& same_labels, const std::vector<double>& logit_differences);

}  // namespace rmsnorm::lab

#endif  // RMSNORM_LAB_EXPERIMENTS_VIT_H_
