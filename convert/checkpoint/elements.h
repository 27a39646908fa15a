// Every element of a changed tensor against its exact value, for verify: by the definition, in f64.
#ifndef RMSNORM_CONVERT_CHECKPOINT_ELEMENTS_H_
#define RMSNORM_CONVERT_CHECKPOINT_ELEMENTS_H_

#include <vector>

#include "convert/checkpoint/compare.h"

namespace rmsnorm::convert::checkpoint {

// What a reader takes over of its norm, for these outputs: W' = W diag(factor), c' = c + W shift.
struct Folding {
  Range outputs;
  std::vector<double> factor;  // by input
  std::vector<double> shift;
  std::vector<double> sizes = {};  // magnitudes of what shift is the sum of; empty: those of shift itself
};

// converted is M l (W diag(factor)), each element within one rounding of that; `centred` says where M is.
void compare_weights(const Comparison& comparison, const Folding* folding, Worst& worst);
// The bias likewise: M l (c + W shift). No bias is one of zeros.
void compare_biases(const Comparison& comparison, const Folding* folding, Worst& worst);

}  // namespace rmsnorm::convert::checkpoint

#endif  // RMSNORM_CONVERT_CHECKPOINT_ELEMENTS_H_
