// A small network trained as mixed precision does it, with the type of the norms' squares as an argument.
#ifndef RMSNORM_LAB_EXPERIMENTS_HALF_TRAINING_H_
#define RMSNORM_LAB_EXPERIMENTS_HALF_TRAINING_H_

#include "lab/experiments/half_rows.h"
#include "lab/train/data.h"

namespace rmsnorm::lab {

// What the residual stream looks like. Norms do not see a common factor, so the network of a large stream is the same
// function as the ordinary one until a number leaves its type.
struct StreamShape {
  std::string name;
  double scale;   // of all that is added to the stream
  double offset;  // added to every column at the entry, in units of the scale
};

struct HalfTraining {
  RowForm form;
  torch::ScalarType type;     // of activations and of the weights that matrix products read; kFloat: none of this
  torch::ScalarType squares;  // of the norms
  StreamShape stream;
  std::int64_t steps;
  std::uint64_t seed;
};

struct HalfResult {
  double loss;           // held-out, byte_loss()
  std::int64_t skipped;  // steps whose gradient was not finite
};

// Predicts the next byte from the `kWindow` before it: summed embeddings, pre-norm residual blocks of two layers, a
// final norm. Products of 16-bit matrices are summed in f32 and rounded once, as a tensor core does; weights have an
// f32 master copy; f16 has a loss scale, and a step whose gradient is not finite is left out.
inline constexpr std::int64_t kWindow = 8;
HalfResult train_half(const HalfTraining& options, const Data& data);

}  // namespace rmsnorm::lab

#endif  // RMSNORM_LAB_EXPERIMENTS_HALF_TRAINING_H_
