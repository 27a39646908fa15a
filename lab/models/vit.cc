// A vision transformer (Dosovitskiy et al. 2021, "An Image is Worth 16x16 Words").
#include "lab/models/vit.h"

#include "lab/models/attention.h"
#include "lab/models/linear.h"
#include "lab/models/residual.h"

namespace rmsnorm::lab {
namespace {

using torch::Tensor;

Linear linear(std::int64_t in, std::int64_t out, double deviation = kInitialDeviation) {
  return Linear(in, out, LinearOptions{.bias = true, .deviation = deviation});
}

// The image as a row of vectors: a class token, then a linear map of each patch; to each the vector of its place.
class EmbeddingsImpl : public torch::nn::Module {
 public:
  explicit EmbeddingsImpl(const VitOptions& options) {
    const std::int64_t side = options.image / options.patch, width = options.width;
    const auto random = [width](std::int64_t rows) { return torch::randn({1, rows, width}) * kInitialDeviation; };
    class_token_ = register_parameter("cls_token", random(1));
    positions_ = register_parameter("position_embeddings", random(side * side + 1));
    // The convolution under the name that it has there, "patch_embeddings.projection".
    auto patches = register_module("patch_embeddings", std::make_shared<torch::nn::Module>());
    projection_ = patches->register_module(
        "projection",
        torch::nn::Conv2d(torch::nn::Conv2dOptions(options.channels, width, options.patch).stride(options.patch)));
    const torch::NoGradGuard guard;
    projection_->weight.normal_(0, kInitialDeviation);
    projection_->bias.zero_();
  }

  Tensor forward(const Tensor& images) {
    const Tensor patches = projection_->forward(images).flatten(2).transpose(1, 2);
    const Tensor first = class_token_.to(patches.scalar_type()).expand({images.size(0), 1, -1});
    return torch::cat({first, patches}, 1) + positions_;
  }

 private:
  Tensor class_token_, positions_;
  torch::nn::Conv2d projection_{nullptr};
};
TORCH_MODULE(Embeddings);

// A chain of modules that only gives the last of them its name in a checkpoint: attention.output.dense.
struct Named : torch::nn::Module {};

class BlockImpl : public torch::nn::Module {
 public:
  explicit BlockImpl(const VitOptions& options) : heads_(options.heads) {
    const std::int64_t width = options.width;
    const auto within = [](torch::nn::Module& parent, const char* name) {
      return parent.register_module(name, std::make_shared<Named>());
    };
    before_attention_ = register_module("layernorm_before", Norm(options.norm, width));
    const auto attention = within(*this, "attention");
    const auto projections = within(*attention, "attention");
    query_ = projections->register_module("query", linear(width, width));
    key_ = projections->register_module("key", linear(width, width));
    value_ = projections->register_module("value", linear(width, width));
    const double deviation = residual_deviation(options.layers);
    out_ = within(*attention, "output")->register_module("dense", linear(width, width, deviation));
    before_mlp_ = register_module("layernorm_after", Norm(options.norm, width));
    up_ = within(*this, "intermediate")->register_module("dense", linear(width, 4 * width));
    down_ = within(*this, "output")->register_module("dense", linear(4 * width, width, deviation));
  }

  // x = x + attention(norm(x)), x = x + mlp(norm(x))
  Stream forward(const Stream& stream) {
    Norm none{nullptr};
    const Stream middle = sub_layer(stream, before_attention_, none, [this](const Tensor& x) { return attention(x); });
    return sub_layer(middle, before_mlp_, none,
                     [this](const Tensor& x) { return down_->forward(torch::gelu(up_->forward(x))); });
  }

 private:
  Tensor attention(const Tensor& x) {
    const auto of_heads = [this](const Tensor& part) { return split_heads(part, heads_).transpose(1, 2); };
    return out_->forward(attend(of_heads(query_->forward(x)), of_heads(key_->forward(x)), of_heads(value_->forward(x)),
                                /*causal=*/false));
  }

  std::int64_t heads_;
  Norm before_attention_{nullptr}, before_mlp_{nullptr};
  Linear query_{nullptr}, key_{nullptr}, value_{nullptr}, out_{nullptr}, up_{nullptr}, down_{nullptr};
};
TORCH_MODULE(Block);

// The class token, after the last norm, is what the classifier sees.
class VitImpl : public ModelImpl {
 public:
  explicit VitImpl(const VitOptions& options) : options_(options) {
    const auto vit = register_module("vit", std::make_shared<Named>());
    embeddings_ = vit->register_module("embeddings", Embeddings(options));
    const auto encoder = vit->register_module("encoder", std::make_shared<Named>());
    blocks_ = encoder->register_module("layer", torch::nn::ModuleList());
    for (std::int64_t i = 0; i < options.layers; ++i) blocks_->push_back(Block(options));
    norm_ = vit->register_module("layernorm", Norm(options.norm, options.width));
    classifier_ = register_module("classifier", linear(options.width, options.classes));
  }

  Tensor forward(const Tensor& images) override {
    check_images(images, options_.channels);
    require(images.size(2) == options_.image, "height", images.size(2), std::to_string(options_.image));
    require(images.size(3) == options_.image, "width", images.size(3), std::to_string(options_.image));
    Stream stream = {embeddings_->forward(images), {}};
    for (const auto& block : *blocks_) stream = block->as<BlockImpl>()->forward(stream);
    return classifier_->forward(stream.normalised(norm_).select(1, 0));
  }

 private:
  VitOptions options_;
  Embeddings embeddings_{nullptr};
  torch::nn::ModuleList blocks_{nullptr};
  Norm norm_{nullptr};
  Linear classifier_{nullptr};
};

}  // namespace

Model make_vit(const VitOptions& options) {
  require(options.patch >= 1 && options.image >= 1 && options.image % options.patch == 0, "image", options.image,
          "a multiple of the patch, " + std::to_string(options.patch));
  require(options.channels >= 1, "channels", options.channels, "at least 1");
  require(options.layers >= 1, "layers", options.layers, "at least 1");
  require_heads(options.width, options.heads);
  return std::make_shared<VitImpl>(options);
}

}  // namespace rmsnorm::lab
