// One training run: AdamW, warm-up and cosine, clipping, accumulation, bf16 autocast, checkpoints, log.
#ifndef RMSNORM_LAB_TRAIN_TRAIN_H_
#define RMSNORM_LAB_TRAIN_TRAIN_H_

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "lab/models/model.h"
#include "lab/train/data.h"
#include "lab/train/workers.h"

namespace rmsnorm::lab {

struct TrainOptions {
  std::int64_t steps = 100;
  std::int64_t batch = 16;        // sequences or images a step, over all parts of it
  std::int64_t accumulation = 1;  // parts a step is taken in
  double learning_rate = 3e-3;
  double final_share = 0.1;  // of the learning rate, at the end of the cosine
  std::int64_t warm_up = 10;
  double weight_decay = 0.1;  // of matrices; vectors have none
  double beta1 = 0.9, beta2 = 0.95;
  double clip = 1.0;                // of the gradient's norm; 0: never
  bool autocast = false;            // bf16
  std::uint64_t seed = 1;           // of the batches; models are initialised by torch::manual_seed before they are made
  std::int64_t evaluate_every = 0;  // steps; 0: at the end only
  std::int64_t evaluate_parts = 8;  // of the held-out data, spread over it; 0: no evaluation at all
  // Where a checkpoint is kept and looked for; empty: none. A run that finds one continues to the same bits.
  std::filesystem::path checkpoint;
  std::int64_t checkpoint_every = 0;  // steps; 0: at the end only
  // What else a checkpoint must have been made with to be continued: the model's options and the data, as text.
  std::string identity;
  std::filesystem::path log;   // JSON lines; empty: none
  bool progress = false;       // a live line when stderr is a terminal
  Workers* workers = nullptr;  // the processes of the run; null: this one
};

// Of step `step`, counted from 0: up in a straight line for `warm_up` steps, then down along half a cosine.
double learning_rate_at(const TrainOptions& options, std::int64_t step);

struct Step {
  std::int64_t step;     // counted from 1
  double loss;           // before the step
  double gradient_norm;  // before clipping
  double seconds;        // forward, backward and update; the batch is made before
};

// On held-out data, in the parameters' own type (no autocast).
struct Evaluation {
  std::int64_t step;
  double loss;
  double accuracy;  // share of right tokens or labels
};

struct TrainResult {
  std::vector<Step> steps;
  std::vector<Evaluation> evaluations;  // the last one is the final model's
  // A loss or gradient was not finite: the run ended at that step, which is in `steps` and was not applied.
  bool diverged = false;
};

// `on_step` is called after every step that this call takes (for what an experiment wants to watch); may be empty. A run
// that was taken up from a checkpoint returns the steps before it, too.
TrainResult train(ModelImpl& model, const Data& data, const TrainOptions& options,
                  const std::function<void(const Step&)>& on_step = {});

Evaluation evaluate(ModelImpl& model, const Data& data, std::int64_t batch, std::int64_t parts);

// Cross entropy of logits against targets, the mean over all of them.
torch::Tensor loss_of(const torch::Tensor& logits, const torch::Tensor& target);

}  // namespace rmsnorm::lab

#endif  // RMSNORM_LAB_TRAIN_TRAIN_H_
