// The processes of a parallel run. All that they do together is to gather; sums are then taken by each process, in the
// order of the ranks, so that all have the same bits and timing has no say. (MPI_Allreduce promises no order.)
#ifndef RMSNORM_LAB_TRAIN_RANKS_H_
#define RMSNORM_LAB_TRAIN_RANKS_H_

#include <torch/torch.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

namespace rmsnorm::lab {

// What travels, counted apart.
enum class Cargo {
  kNorms,       // statistics of sharded norms, f64
  kProducts,    // partial sums of matrix products
  kGradients,   // of whole parameters
  kScalars,     // losses and the norm of the gradient
  kParameters,  // of a sharded model that is put together
};
inline constexpr std::array<const char*, 5> kCargoNames = {"norms", "products", "gradients", "scalars", "parameters"};

struct Sent {
  std::int64_t rounds = 0;
  std::int64_t bytes = 0;  // from one process to all others
};

class Ranks {
 public:
  virtual ~Ranks() = default;
  virtual int rank() const = 0;
  virtual int count() const = 0;

  // The sum over the ranks, in the tensor's own type.
  torch::Tensor sum(const torch::Tensor& mine, Cargo cargo);
  double sum(double mine, Cargo cargo);

  const Sent& sent(Cargo cargo) const { return sent_[static_cast<std::size_t>(cargo)]; }

  // Runs `work`. If it throws in one of several processes all of them end, with its exit code: the others would wait
  // for ever.
  virtual void run(const std::function<void()>& work) = 0;

 protected:
  // all[rank] = mine, of every rank; `bytes` each.
  virtual void gather(std::byte* all, const std::byte* mine, std::size_t bytes) = 0;

 private:
  std::array<Sent, kCargoNames.size()> sent_;
};

// The processes that mpirun started; one alone without it. Throws in a build without MPI. Once a process.
std::unique_ptr<Ranks> join_mpi();

}  // namespace rmsnorm::lab

#endif  // RMSNORM_LAB_TRAIN_RANKS_H_
