#include "lab/experiments/half_training.h"

#include <cmath>

#include "lab/experiments/byte_loss.h"

namespace rmsnorm::lab {
namespace {

constexpr std::int64_t kVocabulary = 256, kWidth = 64, kHidden = 128, kBlocks = 3, kBatch = 128;
constexpr double kEpsilon = 1e-5, kLearningRate = 3e-3, kLossScale = 1024, kClip = 1;
constexpr std::int64_t kHeldOutParts = 4, kHeldOutBatch = 512;

class HalfNetwork : public torch::nn::Module {
 public:
  explicit HalfNetwork(const HalfTraining& options) : options_(options) {
    embedding_ = parameter("embedding", {kWindow * kVocabulary, kWidth}, 1.0 / std::sqrt(kWindow));
    for (std::int64_t i = 0; i < kBlocks; ++i) {
      up_.push_back(parameter("up" + std::to_string(i), {kHidden, kWidth}, 1 / std::sqrt(kWidth)));
      down_.push_back(parameter("down" + std::to_string(i), {kWidth, kHidden}, 1 / std::sqrt(kHidden)));
    }
    for (std::int64_t i = 0; i <= kBlocks; ++i) {
      gain_.push_back(register_parameter("gain" + std::to_string(i), torch::ones(kWidth)));
    }
    output_ = parameter("output", {kVocabulary, kWidth}, 1 / std::sqrt(kWidth));
  }

  // bytes [batch, kWindow] to logits [batch, kVocabulary] in f32.
  torch::Tensor forward(const torch::Tensor& bytes) {
    const torch::Tensor places = bytes + torch::arange(kWindow) * kVocabulary;
    const torch::Tensor entry = torch::embedding(embedding_, places).sum(1) + options_.stream.offset;
    torch::Tensor x = (entry * options_.stream.scale).to(options_.type);
    for (std::int64_t i = 0; i < kBlocks; ++i) {
      const torch::Tensor branch = linear(torch::gelu(linear(norm(x, i), up_[i])), down_[i]);
      x = x + branch * options_.stream.scale;
    }
    return linear(norm(x, kBlocks), output_).to(torch::kFloat);
  }

 private:
  torch::Tensor parameter(const std::string& name, torch::IntArrayRef shape, double deviation) {
    return register_parameter(name, torch::randn(shape) * deviation);
  }
  torch::Tensor norm(const torch::Tensor& x, std::int64_t index) const {
    return normalise(options_.form, x, options_.squares, kEpsilon) * gain_[index].to(options_.type);
  }
  torch::Tensor linear(const torch::Tensor& x, const torch::Tensor& weight) const {
    const torch::Tensor rounded = weight.to(options_.type).to(torch::kFloat);
    return x.to(torch::kFloat).matmul(rounded.t()).to(options_.type);
  }

  HalfTraining options_;
  torch::Tensor embedding_, output_;
  std::vector<torch::Tensor> up_, down_, gain_;
};

torch::Tensor loss_of_last(HalfNetwork& network, const Batch& batch) {
  return torch::cross_entropy_loss(network.forward(batch.input), batch.target.select(1, kWindow - 1));
}

double held_out_loss(HalfNetwork& network, const Data& data) {
  const torch::NoGradGuard no_gradient;
  const std::int64_t parts = std::min(kHeldOutParts, data.parts(kHeldOutBatch));
  double sum = 0;
  for (std::int64_t i = 0; i < parts; ++i) {
    sum += loss_of_last(network, data.held_out(i, kHeldOutBatch)).item<double>();
  }
  return byte_loss(sum / static_cast<double>(parts));
}

}  // namespace

HalfResult train_half(const HalfTraining& options, const Data& data) {
  torch::manual_seed(options.seed);
  HalfNetwork network(options);
  torch::optim::AdamW optimizer(network.parameters(), torch::optim::AdamWOptions(kLearningRate).betas({0.9, 0.95}));
  const double scale = options.type == torch::kHalf ? kLossScale : 1;
  std::int64_t skipped = 0;
  for (std::int64_t step = 0; step < options.steps; ++step) {
    // Falls to a tenth, as a cosine does, without warm-up: Adam's first steps are small enough here.
    const double share = 0.1 + 0.45 * (1 + std::cos(M_PI * static_cast<double>(step) / options.steps));
    for (auto& group : optimizer.param_groups()) group.options().set_lr(kLearningRate * share);
    optimizer.zero_grad();
    (loss_of_last(network, data.train(options.seed, step, kBatch)) * scale).backward();
    const torch::NoGradGuard no_gradient;
    for (auto& parameter : network.parameters()) parameter.mutable_grad().div_(scale);
    const double norm = torch::nn::utils::clip_grad_norm_(network.parameters(), kClip);
    if (std::isfinite(norm)) {
      optimizer.step();
    } else {
      ++skipped;
    }
  }
  return {held_out_loss(network, data), skipped};
}

}  // namespace rmsnorm::lab
