// Small runs that the tests of training share.
#ifndef RMSNORM_TEST_LAB_TRAIN_RUNS_H_
#define RMSNORM_TEST_LAB_TRAIN_RUNS_H_

#include <torch/torch.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "lab/models/llama.h"
#include "lab/train/tensors.h"
#include "lab/train/train.h"

namespace rmsnorm::lab {

inline constexpr std::int64_t kTime = 24;

inline LlamaOptions tiny_llama() {
  LlamaOptions options;
  options.width = 32;
  options.layers = 2;
  options.context = kTime;
  return options;
}

inline Model make_tiny(const LlamaOptions& options = tiny_llama(), torch::ScalarType type = torch::kFloat32) {
  torch::manual_seed(7);
  Model model = make_llama(options);
  model->to(type);
  return model;
}

inline TrainOptions tiny_run(std::int64_t steps) {
  TrainOptions options;
  options.steps = steps;
  options.batch = 8;
  options.warm_up = 2;
  options.evaluate_parts = 2;
  return options;
}

// Largest difference of any parameter. Names and shapes must agree.
inline double largest_difference(const ModelImpl& a, const ModelImpl& b) {
  double largest = 0;
  const auto of_b = b.named_parameters();
  for (const auto& [name, tensor] : named_parameters_once(a)) {
    largest = std::max(largest, (tensor - of_b[name]).abs().max().item<double>());
  }
  return largest;
}

inline bool same_bits(const ModelImpl& a, const ModelImpl& b) {
  const auto of_b = b.named_parameters();
  for (const auto& [name, tensor] : named_parameters_once(a)) {
    if (!torch::equal(tensor, of_b[name])) return false;
  }
  return true;
}

// A folder of this test's own, removed at its end.
class Folder {
 public:
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "rmsnorm-lab-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("no folder for the test");
    path_ = name;
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

inline std::string text_of(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

inline void write_text(const std::filesystem::path& file, const std::string& text) {
  std::ofstream(file, std::ios::binary) << text;
}

}  // namespace rmsnorm::lab

#endif  // RMSNORM_TEST_LAB_TRAIN_RUNS_H_
