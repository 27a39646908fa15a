// What the norms of a model are given to normalise.
#ifndef RMSNORM_LAB_EXPERIMENTS_NORM_INPUTS_H_
#define RMSNORM_LAB_EXPERIMENTS_NORM_INPUTS_H_

#include <filesystem>
#include <string>
#include <vector>

#include "lab/models/model.h"

namespace rmsnorm::lab {

// mean(x)^2 / mean(x^2) of each row, averaged over the rows that are not zero.
double mean_share(const torch::Tensor& x);

struct NormInput {
  std::string name;
  double mean_share;
  double rms;  // of all elements
};

// One forward pass without gradients; the norms in its order.
std::vector<NormInput> norm_inputs(ModelImpl& model, const torch::Tensor& input);

// Rows recorded inside a published model, SmolLM2-135M-Instruct, on the opening of Moby-Dick (examples/data).
struct RecordedNorm {
  std::string name;
  torch::Tensor x;       // [192, 576] f32
  torch::Tensor weight;  // [576]
};
std::vector<RecordedNorm> recorded_norms();
inline constexpr double kRecordedEpsilon = 1e-5;

}  // namespace rmsnorm::lab

#endif  // RMSNORM_LAB_EXPERIMENTS_NORM_INPUTS_H_
