// The norm that every model of the lab takes as an argument.
#ifndef RMSNORM_LAB_MODELS_NORM_H_
#define RMSNORM_LAB_MODELS_NORM_H_

#include <torch/torch.h>

#include <cstdint>
#include <functional>
#include <string>
#include <utility>

namespace rmsnorm::lab {

// The scope that NormImpl::forward opens for PyTorch's record functions, so that a profile finds the norms.
inline constexpr char kNormScope[] = "rmsnorm_lab::norm";

enum class NormKind {
  kNone,            // the identity
  kLayerNorm,       // (x - mean) / sqrt(var + e) * weight + bias, over the last axis
  kRmsNorm,         // x / sqrt(mean(x^2) + e) * weight
  kPartialRmsNorm,  // kRmsNorm with the mean over the first share of the columns
  // for [N, C, H, W]:
  kBatchNorm,          // PyTorch's, per channel over the batch
  kGroupNorm,          // PyTorch's, mean and variance over groups of channels and all pixels
  kChannelRmsNorm,     // RMS over the channels, at each pixel
  kGroupRmsNorm,       // RMS over groups of channels and all pixels
  kPerChannelRmsNorm,  // RMS over the pixels of one channel of one image, as the practice report writes it
};

// What has no such implementation is refused when a norm is made: kBatchNorm and kGroupNorm fused; kPartialRmsNorm and
// the RMS forms for images native; epsilon outside the root wherever the function has no option for it.
enum class NormCode {
  kFused,  // this library's operator
  kEager,  // written out in tensor operations, as the articles do; 16-bit rows are widened to f32, as transformers does
  kNative,  // PyTorch's own function
};

struct NormOptions {
  NormKind kind = NormKind::kRmsNorm;
  NormCode code = NormCode::kFused;
  double epsilon = 1e-5;
  bool epsilon_inside = true;  // sqrt(mean(x^2) + e); otherwise sqrt(mean(x^2)) + e
  double share = 0.0625;       // of kPartialRmsNorm
  std::int64_t groups = 1;     // of kGroupNorm and kGroupRmsNorm
  bool weight = true;
  bool bias = true;        // of the kinds that have one: kLayerNorm, kBatchNorm, kGroupNorm
  bool threshold = false;  // kPerChannelRmsNorm: max(y, t) with a learned t per channel (filter response normalisation)
};

// The names of kinds and codes on the command line and in logs: "layer_norm", "rms_norm", "partial_rms_norm",
// "batch_norm", ..; "fused", "eager", "native". Unknown names throw std::invalid_argument, which lists the known ones.
std::string name_of(NormKind kind);
std::string name_of(NormCode code);
NormKind norm_kind(const std::string& name);
NormCode norm_code(const std::string& name);

// One norm over `width` columns (or channels), with its parameters `weight` and `bias` as torch.nn has them.
class NormImpl : public torch::nn::Module {
 public:
  NormImpl(const NormOptions& options, std::int64_t width);

  torch::Tensor forward(const torch::Tensor& x);

  // The residual form, {norm(x + residual), x + residual}: one operator when fused.
  std::pair<torch::Tensor, torch::Tensor> forward(const torch::Tensor& x, const torch::Tensor& residual);

  const NormOptions& options() const { return options_; }
  torch::Tensor weight, bias, threshold;    // undefined where the options leave them out
  torch::Tensor running_mean, running_var;  // of kBatchNorm: what it divides by outside training
  // Is given every x that is normalised (the sum, in the residual form); empty: nobody looks.
  std::function<void(const torch::Tensor& x)> observer;

 private:
  void check(const torch::Tensor& x) const;

  NormOptions options_;
  std::int64_t width_;
};
TORCH_MODULE(Norm);

}  // namespace rmsnorm::lab

#endif  // RMSNORM_LAB_MODELS_NORM_H_
