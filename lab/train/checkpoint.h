// The state of a run in one file, DIR/checkpoint.safetensors: parameters, buffers and AdamW's averages as tensors; in
// the metadata, as JSON, the run's options, the steps so far and the state of PyTorch's random generator. The file is
// replaced whole or not at all, so a run that is killed at any moment leaves the last one that was complete.
#ifndef RMSNORM_LAB_TRAIN_CHECKPOINT_H_
#define RMSNORM_LAB_TRAIN_CHECKPOINT_H_

#include <torch/torch.h>

#include "lab/train/train.h"

namespace rmsnorm::lab {

struct RunState {
  std::int64_t step = 0;  // steps taken
  TrainResult result;
};

void save_checkpoint(const TrainOptions& options, const ModelImpl& model, torch::optim::AdamW& optimiser,
                     const RunState& state);

// False where there is no checkpoint. One of another run (other options, identity, or tensors), or a damaged one, is
// refused and changes nothing. Removes what killed runs left half written.
bool load_checkpoint(const TrainOptions& options, ModelImpl& model, torch::optim::AdamW& optimiser, RunState& state);

// The identity that the checkpoint in `folder` was made with, and its parameters and buffers alone. Both throw where there
// is no checkpoint.
std::string checkpoint_identity(const std::filesystem::path& folder);
void load_parameters(const std::filesystem::path& folder, ModelImpl& model);

}  // namespace rmsnorm::lab

#endif  // RMSNORM_LAB_TRAIN_CHECKPOINT_H_
