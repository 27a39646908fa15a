// Norms of rows whose columns are split over the ranks, on the library's sharded statistics (rmsnorm/sharded.h): what
// travels is one f64 number a row and round.
#ifndef RMSNORM_LAB_TRAIN_SHARDED_NORM_H_
#define RMSNORM_LAB_TRAIN_SHARDED_NORM_H_

#include "lab/models/norm.h"
#include "lab/train/ranks.h"

namespace rmsnorm::lab {

// This rank's columns, [begin, end) of `width`. The ranks' parts differ by at most one column.
struct Slice {
  std::int64_t width, begin, end;

  Slice(std::int64_t columns, const Ranks& ranks)
      : width(columns),
        begin(columns * ranks.rank() / ranks.count()),
        end(columns * (ranks.rank() + 1) / ranks.count()) {}
  std::int64_t size() const { return end - begin; }
};

class ShardedNormImpl : public torch::nn::Module {
 public:
  // kRmsNorm or kLayerNorm, fused, with epsilon inside the root.
  ShardedNormImpl(const NormOptions& options, const Slice& slice, Ranks& ranks);

  // x [.., slice] -> [.., slice]
  torch::Tensor forward(const torch::Tensor& x);

  torch::Tensor weight, bias;  // of the slice; bias: of kLayerNorm

 private:
  NormOptions options_;
  std::int64_t width_;
  Ranks& ranks_;
};
TORCH_MODULE(ShardedNorm);

}  // namespace rmsnorm::lab

#endif  // RMSNORM_LAB_TRAIN_SHARDED_NORM_H_
