// A Llama, from the tokens to the logits (Touvron et al. 2023, "LLaMA: Open and Efficient Foundation Language Models").
#include "lab/models/llama.h"

#include "lab/models/attention.h"
#include "lab/models/linear.h"
#include "lab/models/recompute.h"
#include "lab/models/residual.h"
#include "lab/models/rotation.h"

namespace rmsnorm::lab {
namespace {

using torch::Tensor;

// ---- Attention with grouped heads (Ainslie et al. 2023) ------------------------------------------------------------

class AttentionImpl : public torch::nn::Module {
 public:
  explicit AttentionImpl(const LlamaOptions& options)
      : heads_(options.heads), key_value_heads_(options.key_value_heads) {
    const std::int64_t width = options.width, head_width = width / heads_;
    q_proj_ = register_module("q_proj", Linear(width, width));
    k_proj_ = register_module("k_proj", Linear(width, key_value_heads_ * head_width));
    v_proj_ = register_module("v_proj", Linear(width, key_value_heads_ * head_width));
    if (options.qk_norm) {
      NormOptions norm = options.norm;
      norm.kind = NormKind::kRmsNorm;
      q_norm_ = register_module("q_norm", Norm(norm, head_width));
      k_norm_ = register_module("k_norm", Norm(norm, head_width));
    }
    o_proj_ =
        register_module("o_proj", Linear(width, width, LinearOptions{.deviation = residual_deviation(options.layers)}));
  }

  Tensor forward(const Tensor& x, const Rotation& rotation, const std::optional<CachedTokens>& cached) {
    Tensor q = split_heads(q_proj_->forward(x), heads_);
    Tensor k = split_heads(k_proj_->forward(x), key_value_heads_);
    Tensor v = split_heads(v_proj_->forward(x), key_value_heads_).transpose(1, 2);
    if (!q_norm_.is_empty()) {
      q = q_norm_->forward(q);
      k = k_norm_->forward(k);
    }
    const std::int64_t first = cached ? cached->length : 0;
    q = rotation(q.transpose(1, 2), first);
    k = rotation(k.transpose(1, 2), first);
    if (cached) return o_proj_->forward(attend_cached(q, k, v, *cached));
    // Each key and value head serves a group of query heads.
    if (const std::int64_t group = heads_ / key_value_heads_; group > 1) {
      k = k.repeat_interleave(group, 1);
      v = v.repeat_interleave(group, 1);
    }
    return o_proj_->forward(attend(q, k, v, /*causal=*/true));
  }

 private:
  std::int64_t heads_, key_value_heads_;
  Linear q_proj_{nullptr}, k_proj_{nullptr}, v_proj_{nullptr}, o_proj_{nullptr};
  Norm q_norm_{nullptr}, k_norm_{nullptr};
};
TORCH_MODULE(Attention);

// ---- SwiGLU (Shazeer 2020): down(silu(gate(x)) * up(x)) ------------------------------------------------------------

class SwigluImpl : public torch::nn::Module {
 public:
  explicit SwigluImpl(const LlamaOptions& options) {
    gate_proj_ = register_module("gate_proj", Linear(options.width, options.hidden));
    up_proj_ = register_module("up_proj", Linear(options.width, options.hidden));
    down_proj_ = register_module("down_proj", Linear(options.hidden, options.width,
                                                     LinearOptions{.deviation = residual_deviation(options.layers)}));
  }

  Tensor forward(const Tensor& x) {
    return down_proj_->forward(torch::silu(gate_proj_->forward(x)) * up_proj_->forward(x));
  }

 private:
  Linear gate_proj_{nullptr}, up_proj_{nullptr}, down_proj_{nullptr};
};
TORCH_MODULE(Swiglu);

// ---- The block -----------------------------------------------------------------------------------------------------

// Pre:   x = x + attention(norm(x)),        x = x + swiglu(norm(x))
// Post:  x = norm(x + attention(x)),        x = norm(x + swiglu(x))
// Both:  x = x + norm(attention(norm(x))),  x = x + norm(swiglu(norm(x)))
class BlockImpl : public torch::nn::Module {
 public:
  explicit BlockImpl(const LlamaOptions& options) {
    const bool before = options.placement != Placement::kPost, after = options.placement != Placement::kPre;
    const auto norm = [&](const char* name) { return register_module(name, Norm(options.norm, options.width)); };
    // Llama's names; with norms on both sides those of Gemma 2, where the second one of Llama's stands elsewhere.
    if (before) before_attention_ = norm("input_layernorm");
    attention_ = register_module("self_attn", Attention(options));
    if (after) after_attention_ = norm("post_attention_layernorm");
    if (before) before_mlp_ = norm(after ? "pre_feedforward_layernorm" : "post_attention_layernorm");
    mlp_ = register_module("mlp", Swiglu(options));
    if (after) after_mlp_ = norm("post_feedforward_layernorm");
  }

  Stream forward(const Stream& stream, const Rotation& rotation, const std::optional<CachedTokens>& cached) {
    const Stream middle = sub_layer(stream, before_attention_, after_attention_,
                                    [&](const Tensor& x) { return attention_->forward(x, rotation, cached); });
    return sub_layer(middle, before_mlp_, after_mlp_, [&](const Tensor& x) { return mlp_->forward(x); });
  }

 private:
  Attention attention_{nullptr};
  Swiglu mlp_{nullptr};
  Norm before_attention_{nullptr}, after_attention_{nullptr}, before_mlp_{nullptr}, after_mlp_{nullptr};
};
TORCH_MODULE(Block);

// The same block, of which only its input is kept for the backward pass.
Stream recomputed_block(Block block, const Stream& stream, const Rotation& rotation) {
  std::vector<Tensor> trained;
  for (const Tensor& parameter : block->parameters()) {
    if (parameter.requires_grad()) trained.push_back(parameter);
  }
  const auto in = [](const Stream& s) {
    return s.branch.defined() ? std::vector<Tensor>{s.x, s.branch} : std::vector<Tensor>{s.x};
  };
  const auto out = [](const std::vector<Tensor>& t) { return Stream{t[0], t.size() > 1 ? t[1] : Tensor()}; };
  const auto work = [block, rotation, in, out](const std::vector<Tensor>& inputs) mutable {
    return in(block->forward(out(inputs), rotation, std::nullopt));
  };
  return out(recomputed(work, in(stream), trained));
}

// ---- The model -----------------------------------------------------------------------------------------------------

LlamaOptions checked(LlamaOptions options) {
  require(options.vocabulary >= 1, "vocabulary", options.vocabulary, "at least 1");
  require(options.layers >= 1, "layers", options.layers, "at least 1");
  require(options.context >= 1, "context", options.context, "at least 1");
  require(options.heads >= 1 && options.width >= 1 && options.width % (2 * options.heads) == 0, "width", options.width,
          "a multiple of twice the heads, " + std::to_string(options.heads));
  require(options.key_value_heads >= 1 && options.heads % options.key_value_heads == 0, "key_value_heads",
          options.key_value_heads, "a divisor of the heads, " + std::to_string(options.heads));
  require(options.hidden >= 0, "hidden", options.hidden, "at least 0");
  if (options.hidden == 0) options.hidden = (options.width * 8 + 3 * 32 - 1) / (3 * 32) * 32;
  return options;
}

// Embedding, blocks, final norm: transformers' LlamaModel. After blocks that end with a norm on the stream (post) there
// is none.
class DecoderImpl : public torch::nn::Module {
 public:
  explicit DecoderImpl(const LlamaOptions& options)
      : recompute_(options.recompute),
        context_(options.context),
        rotation_(options.context, options.width / options.heads, options.rope_theta) {
    embed_tokens = register_module("embed_tokens", make_embedding(options.vocabulary, options.width));
    blocks_ = register_module("layers", torch::nn::ModuleList());
    for (std::int64_t i = 0; i < options.layers; ++i) blocks_->push_back(Block(options));
    if (options.placement != Placement::kPost) {
      norm_ = register_module("norm", Norm(options.norm, options.width));
    }
  }

  Tensor forward(const Tensor& tokens, KeyValueCache* cache = nullptr) {
    Stream stream = {embed_tokens->forward(tokens), {}};
    for (std::size_t i = 0; i < blocks_->size(); ++i) {
      Block block(blocks_->ptr<BlockImpl>(i));
      const auto cached = cached_tokens(cache, i, context_);
      stream = recompute_ && !cached ? recomputed_block(block, stream, rotation_)
                                     : block->forward(stream, rotation_, cached);
    }
    if (cache != nullptr) cache->length += tokens.size(1);
    return norm_.is_empty() ? stream.sum() : stream.normalised(norm_);
  }

  torch::nn::Embedding embed_tokens{nullptr};

 private:
  bool recompute_;
  std::int64_t context_;
  Rotation rotation_;
  torch::nn::ModuleList blocks_{nullptr};
  Norm norm_{nullptr};
};
TORCH_MODULE(Decoder);

class LlamaImpl : public ModelImpl {
 public:
  explicit LlamaImpl(const LlamaOptions& options) : options_(options) {
    decoder_ = register_module("model", Decoder(options));
    if (!options.tied) lm_head_ = register_module("lm_head", Linear(options.width, options.vocabulary));
  }

  Tensor forward(const Tensor& tokens) override {
    check_tokens(tokens, options_.vocabulary, options_.context);
    return logits(decoder_->forward(tokens));
  }

  Tensor forward_cached(const Tensor& tokens, KeyValueCache& cache) override {
    const torch::NoGradGuard no_gradient;
    check_tokens(tokens, options_.vocabulary, options_.context, cache.length);
    return logits(decoder_->forward(tokens, &cache));
  }

 private:
  Tensor logits(const Tensor& x) {
    return options_.tied ? torch::linear(x, decoder_->embed_tokens->weight) : lm_head_->forward(x);
  }

  LlamaOptions options_;
  Decoder decoder_{nullptr};
  Linear lm_head_{nullptr};
};

}  // namespace

Model make_llama(const LlamaOptions& options) { return std::make_shared<LlamaImpl>(checked(options)); }

}  // namespace rmsnorm::lab
