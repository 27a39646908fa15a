#ifndef RMSNORM_LAB_EXPERIMENTS_PLACEMENT_H_
#define RMSNORM_LAB_EXPERIMENTS_PLACEMENT_H_

#include <vector>

namespace rmsnorm::lab {

// How much of the loss hangs on the learning rate: the mean over the learning rates of the final loss less the best of
// them (after Wortsman et al. 2023, "Small-scale proxies for large-scale Transformer training instabilities").
double sensitivity(const std::vector<double>& losses);

}  // namespace rmsnorm::lab

#endif  // RMSNORM_LAB_EXPERIMENTS_PLACEMENT_H_
