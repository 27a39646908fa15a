// Losses of runs that may have gone wrong.
#ifndef RMSNORM_LAB_EXPERIMENTS_BYTE_LOSS_H_
#define RMSNORM_LAB_EXPERIMENTS_BYTE_LOSS_H_

#include <cmath>

namespace rmsnorm::lab {

// A loss in nats a byte, and ln 256, that of knowing nothing, where it is not finite or above: a run that diverged is
// as bad as no training, and no worse, so that one of them does not decide a mean.
inline double byte_loss(double loss) {
  const double nothing_known = std::log(256.0);
  return loss < nothing_known ? loss : nothing_known;  // NaN: the second
}

}  // namespace rmsnorm::lab

#endif  // RMSNORM_LAB_EXPERIMENTS_BYTE_LOSS_H_
