// A GPT-2 (Radford et al. 2019, "Language Models are Unsupervised Multitask Learners").
#include "lab/models/gpt2.h"

#include "lab/models/attention.h"
#include "lab/models/linear.h"
#include "lab/models/residual.h"

namespace rmsnorm::lab {
namespace {

using torch::Tensor;

// Its linear layers have a bias and weights [in, out].
Linear conv1d(std::int64_t in, std::int64_t out, double deviation = kInitialDeviation) {
  return Linear(in, out, LinearOptions{.bias = true, .transposed = true, .deviation = deviation});
}

// Queries, keys and values come from one projection, side by side.
class AttentionImpl : public torch::nn::Module {
 public:
  explicit AttentionImpl(const Gpt2Options& options) : heads_(options.heads) {
    c_attn_ = register_module("c_attn", conv1d(options.width, 3 * options.width));
    c_proj_ = register_module("c_proj", conv1d(options.width, options.width, residual_deviation(options.layers)));
  }

  Tensor forward(const Tensor& x, const std::optional<CachedTokens>& cached) {
    const auto qkv = c_attn_->forward(x).chunk(3, -1);
    const auto of_heads = [this](const Tensor& part) { return split_heads(part, heads_).transpose(1, 2); };
    const Tensor q = of_heads(qkv[0]), k = of_heads(qkv[1]), v = of_heads(qkv[2]);
    return c_proj_->forward(cached ? attend_cached(q, k, v, *cached) : attend(q, k, v, /*causal=*/true));
  }

 private:
  std::int64_t heads_;
  Linear c_attn_{nullptr}, c_proj_{nullptr};
};
TORCH_MODULE(Attention);

// The hidden layer is four times as wide; GELU by its tanh formula.
class MlpImpl : public torch::nn::Module {
 public:
  explicit MlpImpl(const Gpt2Options& options) {
    c_fc_ = register_module("c_fc", conv1d(options.width, 4 * options.width));
    c_proj_ = register_module("c_proj", conv1d(4 * options.width, options.width, residual_deviation(options.layers)));
  }

  Tensor forward(const Tensor& x) { return c_proj_->forward(torch::gelu(c_fc_->forward(x), "tanh")); }

 private:
  Linear c_fc_{nullptr}, c_proj_{nullptr};
};
TORCH_MODULE(Mlp);

// Pre:   x = x + attention(norm(x)),        x = x + mlp(norm(x))
// Post:  x = norm(x + attention(x)),        x = norm(x + mlp(x))
// Both:  x = x + norm(attention(norm(x))),  x = x + norm(mlp(norm(x)))
class BlockImpl : public torch::nn::Module {
 public:
  explicit BlockImpl(const Gpt2Options& options) {
    const bool before = options.placement != Placement::kPost, after = options.placement != Placement::kPre;
    const auto norm = [&](const char* name) { return register_module(name, Norm(options.norm, options.width)); };
    // GPT-2's names; a second norm of a sub-layer, which GPT-2 does not have, is its "_out".
    if (before) before_attention_ = norm("ln_1");
    attention_ = register_module("attn", Attention(options));
    if (after) after_attention_ = norm(before ? "ln_1_out" : "ln_1");
    if (before) before_mlp_ = norm("ln_2");
    mlp_ = register_module("mlp", Mlp(options));
    if (after) after_mlp_ = norm(before ? "ln_2_out" : "ln_2");
  }

  Stream forward(const Stream& stream, const std::optional<CachedTokens>& cached) {
    const Stream middle = sub_layer(stream, before_attention_, after_attention_,
                                    [&](const Tensor& x) { return attention_->forward(x, cached); });
    return sub_layer(middle, before_mlp_, after_mlp_, [&](const Tensor& x) { return mlp_->forward(x); });
  }

 private:
  Attention attention_{nullptr};
  Mlp mlp_{nullptr};
  Norm before_attention_{nullptr}, after_attention_{nullptr}, before_mlp_{nullptr}, after_mlp_{nullptr};
};
TORCH_MODULE(Block);

// Embeddings of tokens and positions, blocks, final norm: transformers' GPT2Model. After blocks that end with a norm on
// the stream (post) there is none.
class DecoderImpl : public torch::nn::Module {
 public:
  explicit DecoderImpl(const Gpt2Options& options) : context_(options.context) {
    wte = register_module("wte", make_embedding(options.vocabulary, options.width));
    wpe_ = register_module("wpe", make_embedding(options.context, options.width));
    blocks_ = register_module("h", torch::nn::ModuleList());
    for (std::int64_t i = 0; i < options.layers; ++i) blocks_->push_back(Block(options));
    if (options.placement != Placement::kPost) {
      norm_ = register_module("ln_f", Norm(options.norm, options.width));
    }
  }

  Tensor forward(const Tensor& tokens, KeyValueCache* cache = nullptr) {
    const std::int64_t first = cache == nullptr ? 0 : cache->length;
    Stream stream = {wte->forward(tokens) + wpe_->weight.narrow(0, first, tokens.size(1)), {}};
    for (std::size_t i = 0; i < blocks_->size(); ++i) {
      stream = blocks_->ptr<BlockImpl>(i)->forward(stream, cached_tokens(cache, i, context_));
    }
    if (cache != nullptr) cache->length += tokens.size(1);
    return norm_.is_empty() ? stream.sum() : stream.normalised(norm_);
  }

  torch::nn::Embedding wte{nullptr};

 private:
  std::int64_t context_;
  torch::nn::Embedding wpe_{nullptr};
  torch::nn::ModuleList blocks_{nullptr};
  Norm norm_{nullptr};
};
TORCH_MODULE(Decoder);

// The embedding of the tokens is the output matrix, too.
class Gpt2Impl : public ModelImpl {
 public:
  explicit Gpt2Impl(const Gpt2Options& options) : options_(options) {
    decoder_ = register_module("transformer", Decoder(options));
  }

  Tensor forward(const Tensor& tokens) override {
    check_tokens(tokens, options_.vocabulary, options_.context);
    return torch::linear(decoder_->forward(tokens), decoder_->wte->weight);
  }

  Tensor forward_cached(const Tensor& tokens, KeyValueCache& cache) override {
    const torch::NoGradGuard no_gradient;
    check_tokens(tokens, options_.vocabulary, options_.context, cache.length);
    return torch::linear(decoder_->forward(tokens, &cache), decoder_->wte->weight);
  }

 private:
  Gpt2Options options_;
  Decoder decoder_{nullptr};
};

}  // namespace

Model make_gpt2(const Gpt2Options& options) {
  require(options.vocabulary >= 1, "vocabulary", options.vocabulary, "at least 1");
  require(options.layers >= 1, "layers", options.layers, "at least 1");
  require(options.context >= 1, "context", options.context, "at least 1");
  require_heads(options.width, options.heads);
  return std::make_shared<Gpt2Impl>(options);
}

}  // namespace rmsnorm::lab
