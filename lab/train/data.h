// The data of the lab: text as tokens, images with labels.
#ifndef RMSNORM_LAB_TRAIN_DATA_H_
#define RMSNORM_LAB_TRAIN_DATA_H_

#include <torch/torch.h>

#include <filesystem>
#include <string>
#include <utility>

namespace rmsnorm::lab {

struct Batch {
  torch::Tensor input;   // tokens [batch, time] i64, or images [batch, channels, height, width] f32 in [-1, 1]
  torch::Tensor target;  // the next tokens [batch, time], or labels [batch], i64
};

// A source of batches. The batch of a step depends on `seed` and `step` alone, so that a run can be taken up anywhere.
class Data {
 public:
  virtual ~Data() = default;
  virtual Batch train(std::uint64_t seed, std::int64_t step, std::int64_t batch) const = 0;
  // Part `index` of the held-out data, always the same; parts() of them.
  virtual Batch held_out(std::int64_t index, std::int64_t batch) const = 0;
  virtual std::int64_t parts(std::int64_t batch) const = 0;
  virtual std::int64_t classes() const = 0;  // or the vocabulary
};

// Bytes of a text file; the last tenth is held out. `time` tokens a row.
std::unique_ptr<Data> text_data(const std::filesystem::path& file, std::int64_t time);

// Fashion-MNIST (Debian's dataset-fashion-mnist) where it is installed; nullptr where it is not. At most `limit`
// training images, 0: all.
std::unique_ptr<Data> fashion_mnist(std::int64_t limit);

// Moby-Dick, in the repository; the folder is compiled in, RMSNORM_LAB_DATA overrides it.
std::filesystem::path moby_dick();

}  // namespace rmsnorm::lab

#endif  // RMSNORM_LAB_TRAIN_DATA_H_
