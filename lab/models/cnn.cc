#include "lab/models/cnn.h"

#include <cmath>

#include "lab/models/linear.h"

namespace rmsnorm::lab {
namespace {

using torch::Tensor;

constexpr std::int64_t kStages = 3;

// Weights as He et al. 2015 draw them for what ReLU follows, by the fan out, as torchvision's ResNet.
torch::nn::Conv2d convolution(std::int64_t in, std::int64_t out, std::int64_t size, std::int64_t stride,
                              std::int64_t padding, bool bias) {
  torch::nn::Conv2d layer(torch::nn::Conv2dOptions(in, out, size).stride(stride).padding(padding).bias(bias));
  const torch::NoGradGuard guard;
  layer->weight.normal_(0, std::sqrt(2.0 / static_cast<double>(out * size * size)));
  if (bias) layer->bias.zero_();
  return layer;
}

CnnOptions checked(CnnOptions options) {
  require(options.channels >= 1, "channels", options.channels, "at least 1");
  require(options.width >= 1, "width", options.width, "at least 1");
  require(options.blocks >= 1, "blocks", options.blocks, "at least 1");
  const auto count = static_cast<std::int64_t>(options.norms.size());
  require(count == 1 || count == kStages, "number of norms", count, "1 or 3, one for each stage");
  if (count == 1) options.norms.resize(kStages, options.norms[0]);
  return options;
}

bool wants_bias(const NormOptions& options) { return !Norm(options, options.groups)->bias.defined(); }

// ---- Residual network ----------------------------------------------------------------------------------------------

Tensor activated(Norm& norm, const Tensor& x) {
  const Tensor y = norm->forward(x);
  return norm->options().threshold ? y : torch::relu(y);
}

// x + conv(act(norm(conv(act(norm(x)))))). Where the shape changes, x is the 1 x 1 convolution of act(norm(x)).
class ResidualBlockImpl : public torch::nn::Module {
 public:
  ResidualBlockImpl(std::int64_t in, std::int64_t out, std::int64_t stride, const NormOptions& norm) {
    const bool bias = wants_bias(norm);
    norm1_ = register_module("norm1", Norm(norm, in));
    conv1_ = register_module("conv1", convolution(in, out, 3, stride, 1, bias));
    norm2_ = register_module("norm2", Norm(norm, out));
    conv2_ = register_module("conv2", convolution(out, out, 3, 1, 1, bias));
    if (in != out || stride != 1) shortcut_ = register_module("shortcut", convolution(in, out, 1, stride, 0, false));
  }

  Tensor forward(const Tensor& x) {
    const Tensor a = activated(norm1_, x);
    const Tensor y = conv2_->forward(activated(norm2_, conv1_->forward(a)));
    return (shortcut_.is_empty() ? x : shortcut_->forward(a)) + y;
  }

 private:
  Norm norm1_{nullptr}, norm2_{nullptr};
  torch::nn::Conv2d conv1_{nullptr}, conv2_{nullptr}, shortcut_{nullptr};
};
TORCH_MODULE(ResidualBlock);

// 3 x 3 convolution, three stages of blocks, of which the second and third halve the image; norm, mean over the pixels,
// classifier.
class ResidualCnnImpl : public ModelImpl {
 public:
  explicit ResidualCnnImpl(const CnnOptions& options) : channels_(options.channels) {
    stem_ = register_module("stem", convolution(channels_, options.width, 3, 1, 1, wants_bias(options.norms[0])));
    blocks_ = register_module("blocks", torch::nn::ModuleList());
    std::int64_t in = options.width;
    for (std::int64_t stage = 0; stage < kStages; ++stage) {
      const std::int64_t out = options.width << stage;
      for (std::int64_t i = 0; i < options.blocks; ++i) {
        blocks_->push_back(ResidualBlock(in, out, stage > 0 && i == 0 ? 2 : 1, options.norms[stage]));
        in = out;
      }
    }
    norm_ = register_module("norm", Norm(options.norms.back(), in));
    classifier_ = register_module("classifier", Linear(in, options.classes, LinearOptions{.bias = true}));
  }

  Tensor forward(const Tensor& images) override {
    check_images(images, channels_);
    Tensor x = stem_->forward(images);
    for (const auto& block : *blocks_) x = block->as<ResidualBlockImpl>()->forward(x);
    return classifier_->forward(activated(norm_, x).mean({2, 3}));
  }

 private:
  std::int64_t channels_;
  torch::nn::Conv2d stem_{nullptr};
  torch::nn::ModuleList blocks_{nullptr};
  Norm norm_{nullptr};
  Linear classifier_{nullptr};
};

// ---- ConvPool ------------------------------------------------------------------------------------------------------

constexpr double kSlope = 0.1;  // of leaky ReLU

struct ConvPoolLayer {
  std::int64_t stage;
  std::int64_t width;    // times that of the first stage
  std::int64_t size;     // of the kernel
  std::int64_t padding;  // 0: the image loses its border
  bool pool;             // 2 x 2 maximum behind it
};

// ConvPool-CNN-C of Springenberg et al. 2015 ("Striving for Simplicity") in the form of Salimans & Kingma 2016 ("Weight
// Normalization", table 2 of the appendix), with widths 96, 192, 192. Their dropout and input noise are left out: runs
// here are to be a function of weights and batch.
constexpr ConvPoolLayer kConvPool[] = {
    {0, 1, 3, 1, false}, {0, 1, 3, 1, false}, {0, 1, 3, 1, true},   // 32 x 32 -> 16 x 16
    {1, 2, 3, 1, false}, {1, 2, 3, 1, false}, {1, 2, 3, 1, true},   // 16 x 16 -> 8 x 8
    {2, 2, 3, 0, false}, {2, 2, 1, 0, false}, {2, 2, 1, 0, false},  // 8 x 8 -> 6 x 6
};
constexpr std::int64_t kSmallestConvPoolImage = 12;  // two halvings and a lost border of one leave at least one pixel

// Each convolution is followed by a norm and leaky ReLU; at the end the mean over the pixels and the classifier.
class ConvPoolImpl : public ModelImpl {
 public:
  explicit ConvPoolImpl(const CnnOptions& options) : channels_(options.channels) {
    layers_ = register_module("layers", torch::nn::ModuleList());
    std::int64_t in = channels_;
    for (const ConvPoolLayer& layer : kConvPool) {
      const std::int64_t out = layer.width * options.width;
      const NormOptions& norm = options.norms[layer.stage];
      layers_->push_back(convolution(in, out, layer.size, 1, layer.padding, wants_bias(norm)));
      layers_->push_back(Norm(norm, out));
      in = out;
    }
    classifier_ = register_module("classifier", Linear(in, options.classes, LinearOptions{.bias = true}));
  }

  Tensor forward(const Tensor& images) override {
    check_images(images, channels_);
    const std::int64_t side = std::min(images.size(2), images.size(3));
    require(side >= kSmallestConvPoolImage, "side of an image", side,
            "at least " + std::to_string(kSmallestConvPoolImage));
    Tensor x = images;
    for (std::size_t i = 0; i < std::size(kConvPool); ++i) {
      auto* norm = layers_[2 * i + 1]->as<NormImpl>();
      x = norm->forward(layers_[2 * i]->as<torch::nn::Conv2dImpl>()->forward(x));
      if (!norm->options().threshold) x = torch::leaky_relu(x, kSlope);
      if (kConvPool[i].pool) x = torch::max_pool2d(x, 2);
    }
    return classifier_->forward(x.mean({2, 3}));
  }

 private:
  std::int64_t channels_;
  torch::nn::ModuleList layers_{nullptr};
  Linear classifier_{nullptr};
};

}  // namespace

Model make_residual_cnn(const CnnOptions& options) { return std::make_shared<ResidualCnnImpl>(checked(options)); }
Model make_conv_pool(const CnnOptions& options) { return std::make_shared<ConvPoolImpl>(checked(options)); }

}  // namespace rmsnorm::lab
