// The processes of a run, as one step of training sees them.
#ifndef RMSNORM_LAB_TRAIN_WORKERS_H_
#define RMSNORM_LAB_TRAIN_WORKERS_H_

#include <torch/torch.h>

#include <cstdint>
#include <utility>
#include <vector>

namespace rmsnorm::lab {

// This class is a run of one process. parallel.h has those of several; all of them leave the same bits in every process,
// because they add in the order of the ranks.
class Workers {
 public:
  Workers() = default;
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;
  virtual ~Workers() = default;

  // One process writes logs, checkpoints and progress.
  virtual bool writes() const { return true; }

  // Whether this process's parameters are the whole model's, so that a checkpoint of them is one of the run.
  virtual bool has_whole_model() const { return true; }

  // The rows of a step's batch that this process computes, [first, second).
  virtual std::pair<std::int64_t, std::int64_t> rows(std::int64_t batch) const { return {0, batch}; }

  // The loss of the whole batch, from this process's part of the mean.
  virtual double loss(double mine) { return mine; }

  // Makes the gradients of this process's rows those of the whole batch.
  virtual void add_gradients(const std::vector<torch::Tensor>& /*parameters*/) {}

  // The squared norm of the whole model's gradient, from that of this process's parameters.
  virtual double squared_norm(double mine) { return mine; }
};

}  // namespace rmsnorm::lab

#endif  // RMSNORM_LAB_TRAIN_WORKERS_H_
