// How the processes of a run share a step: each has some rows of the batch (data parallel), or some columns of the
// hidden axis (models/sharded_llama.h).
#ifndef RMSNORM_LAB_TRAIN_PARALLEL_H_
#define RMSNORM_LAB_TRAIN_PARALLEL_H_

#include "lab/train/ranks.h"
#include "lab/train/workers.h"

namespace rmsnorm::lab {

// Every process has the whole model. Gradients are summed, all parameters in one round.
class DataWorkers : public Workers {
 public:
  explicit DataWorkers(Ranks& ranks) : ranks_(ranks) {}
  bool writes() const override { return ranks_.rank() == 0; }
  std::pair<std::int64_t, std::int64_t> rows(std::int64_t batch) const override;
  double loss(double mine) override { return ranks_.sum(mine, Cargo::kScalars); }
  void add_gradients(const std::vector<torch::Tensor>& parameters) override;

 private:
  Ranks& ranks_;
};

// Every process has all rows, and a slice of every parameter; the model itself makes the processes' logits and losses
// the same.
class HiddenWorkers : public Workers {
 public:
  explicit HiddenWorkers(Ranks& ranks) : ranks_(ranks) {}
  bool writes() const override { return ranks_.rank() == 0; }
  bool has_whole_model() const override { return ranks_.count() == 1; }
  double squared_norm(double mine) override { return ranks_.sum(mine, Cargo::kScalars); }

 private:
  Ranks& ranks_;
};

}  // namespace rmsnorm::lab

#endif  // RMSNORM_LAB_TRAIN_PARALLEL_H_
