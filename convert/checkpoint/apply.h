// Computes the bytes of one tensor of the output: f64, in blocks of rows, one rounding for each stored value.
#ifndef RMSNORM_CONVERT_CHECKPOINT_APPLY_H_
#define RMSNORM_CONVERT_CHECKPOINT_APPLY_H_

#include <functional>

#include "convert/checkpoint/plan.h"

namespace rmsnorm::convert::checkpoint {

struct ApplyOptions {
  std::size_t memory = 0;       // bytes in flight; one row is always held
  bool carry_rounding = false;  // each rounding error is added to the next value of the same mean
};

// Takes bytes of the tensor at an offset.
using Sink = std::function<void(std::uint64_t offset, std::span<const std::byte> bytes)>;

// The bytes do not depend on options.memory. Refuses with R10 what is not finite.
void apply(const Action& action, const ApplyOptions& options, const Sink& sink);

// b, or V b: what the weight of the term multiplies.
std::vector<double> term_input(const BiasTerm& term, std::size_t memory);

// gain(w): what the norm multiplies by.
std::vector<double> gains(const StoredTensor& weight, Gain gain);

}  // namespace rmsnorm::convert::checkpoint

#endif  // RMSNORM_CONVERT_CHECKPOINT_APPLY_H_
