#include "lab/train/sharded_llama.h"

#include "lab/models/attention.h"
#include "lab/models/rotation.h"
#include "lab/train/sharded_norm.h"
#include "lab/train/tensors.h"
#include "tools/error.h"

namespace rmsnorm::lab {

namespace {

using torch::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct RanksHolder : torch::CustomClassHolder {
  explicit RanksHolder(Ranks& r) : ranks(r) {}
  Ranks& ranks;
};
using Holder = c10::intrusive_ptr<RanksHolder>;

// Forward the sum over the ranks; backward nothing, since all ranks go on with the same.
class SumOverRanks : public torch::autograd::Function<SumOverRanks> {
 public:
  static Tensor forward(AutogradContext* /*context*/, const Tensor& mine, const Holder& holder) {
    return holder->ranks.sum(mine, Cargo::kProducts);
  }
  static variable_list backward(AutogradContext* /*context*/, variable_list gradients) {
    return {gradients[0], Tensor()};
  }
};

// Forward nothing; backward the sum over the ranks, each of which took it to other columns.
class ToAllRanks : public torch::autograd::Function<ToAllRanks> {
 public:
  static Tensor forward(AutogradContext* context, const Tensor& x, const Holder& holder) {
    context->saved_data["ranks"] = c10::IValue::make_capsule(holder);
    return x.view_as(x);
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const auto holder = c10::static_intrusive_pointer_cast<RanksHolder>(context->saved_data["ranks"].toCapsule());
    return {holder->ranks.sum(gradients[0], Cargo::kProducts), Tensor()};
  }
};

// A matrix alone, under the name "weight".
class MatrixImpl : public torch::nn::Module {
 public:
  MatrixImpl(std::int64_t rows, std::int64_t columns) {
    weight = register_parameter("weight", torch::empty({rows, columns}));
  }
  Tensor weight;
};
TORCH_MODULE(Matrix);

class AttentionImpl : public torch::nn::Module {
 public:
  AttentionImpl(const LlamaOptions& options, const Slice& slice, Holder ranks)
      : heads_(options.heads), key_value_heads_(options.key_value_heads), ranks_(std::move(ranks)) {
    const std::int64_t key_width = options.width / heads_ * key_value_heads_;
    q_proj_ = register_module("q_proj", Matrix(options.width, slice.size()));
    k_proj_ = register_module("k_proj", Matrix(key_width, slice.size()));
    v_proj_ = register_module("v_proj", Matrix(key_width, slice.size()));
    o_proj_ = register_module("o_proj", Matrix(slice.size(), options.width));
  }

  Tensor forward(const Tensor& x, const Rotation& rotation) {
    // Queries, keys and values travel in one round.
    const Tensor mine = torch::linear(x, torch::cat({q_proj_->weight, k_proj_->weight, v_proj_->weight}));
    const std::vector<Tensor> qkv =
        SumOverRanks::apply(mine, ranks_)
            .split_with_sizes({q_proj_->weight.size(0), k_proj_->weight.size(0), v_proj_->weight.size(0)}, -1);
    const Tensor q = rotation(split_heads(qkv[0], heads_).transpose(1, 2));
    Tensor k = rotation(split_heads(qkv[1], key_value_heads_).transpose(1, 2));
    Tensor v = split_heads(qkv[2], key_value_heads_).transpose(1, 2);
    if (const std::int64_t group = heads_ / key_value_heads_; group > 1) {
      k = k.repeat_interleave(group, 1);
      v = v.repeat_interleave(group, 1);
    }
    return torch::linear(ToAllRanks::apply(attend(q, k, v, /*causal=*/true), ranks_), o_proj_->weight);
  }

 private:
  std::int64_t heads_, key_value_heads_;
  Holder ranks_;
  Matrix q_proj_{nullptr}, k_proj_{nullptr}, v_proj_{nullptr}, o_proj_{nullptr};
};
TORCH_MODULE(Attention);

class SwigluImpl : public torch::nn::Module {
 public:
  SwigluImpl(std::int64_t hidden, const Slice& slice, Holder ranks) : ranks_(std::move(ranks)) {
    gate_proj_ = register_module("gate_proj", Matrix(hidden, slice.size()));
    up_proj_ = register_module("up_proj", Matrix(hidden, slice.size()));
    down_proj_ = register_module("down_proj", Matrix(slice.size(), hidden));
  }

  Tensor forward(const Tensor& x) {
    const Tensor mine = torch::linear(x, torch::cat({gate_proj_->weight, up_proj_->weight}));
    const std::vector<Tensor> both = SumOverRanks::apply(mine, ranks_).chunk(2, -1);
    return torch::linear(ToAllRanks::apply(torch::silu(both[0]) * both[1], ranks_), down_proj_->weight);
  }

 private:
  Holder ranks_;
  Matrix gate_proj_{nullptr}, up_proj_{nullptr}, down_proj_{nullptr};
};
TORCH_MODULE(Swiglu);

class BlockImpl : public torch::nn::Module {
 public:
  BlockImpl(const LlamaOptions& options, std::int64_t hidden, const Slice& slice, const Holder& ranks) {
    before_attention_ = register_module("input_layernorm", ShardedNorm(options.norm, slice, ranks->ranks));
    attention_ = register_module("self_attn", Attention(options, slice, ranks));
    before_mlp_ = register_module("post_attention_layernorm", ShardedNorm(options.norm, slice, ranks->ranks));
    mlp_ = register_module("mlp", Swiglu(hidden, slice, ranks));
  }

  Tensor forward(const Tensor& input, const Rotation& rotation) {
    const Tensor x = input + attention_->forward(before_attention_->forward(input), rotation);
    return x + mlp_->forward(before_mlp_->forward(x));
  }

 private:
  ShardedNorm before_attention_{nullptr}, before_mlp_{nullptr};
  Attention attention_{nullptr};
  Swiglu mlp_{nullptr};
};
TORCH_MODULE(Block);

class DecoderImpl : public torch::nn::Module {
 public:
  DecoderImpl(const LlamaOptions& options, std::int64_t hidden, const Slice& slice, const Holder& ranks)
      : rotation_(options.context, options.width / options.heads, options.rope_theta) {
    embed_tokens = register_module("embed_tokens", Matrix(options.vocabulary, slice.size()));
    blocks_ = register_module("layers", torch::nn::ModuleList());
    for (std::int64_t i = 0; i < options.layers; ++i) blocks_->push_back(Block(options, hidden, slice, ranks));
    norm_ = register_module("norm", ShardedNorm(options.norm, slice, ranks->ranks));
  }

  Tensor forward(const Tensor& tokens) {
    Tensor x = torch::embedding(embed_tokens->weight, tokens);
    for (const auto& block : *blocks_) x = block->as<BlockImpl>()->forward(x, rotation_);
    return norm_->forward(x);
  }

  Matrix embed_tokens{nullptr};

 private:
  Rotation rotation_;
  torch::nn::ModuleList blocks_{nullptr};
  ShardedNorm norm_{nullptr};
};
TORCH_MODULE(Decoder);

class ShardedLlamaImpl : public ModelImpl {
 public:
  ShardedLlamaImpl(const LlamaOptions& options, std::int64_t hidden, const Slice& slice, Ranks& ranks)
      : options_(options), ranks_(c10::make_intrusive<RanksHolder>(ranks)) {
    decoder_ = register_module("model", Decoder(options, hidden, slice, ranks_));
    if (!options.tied) lm_head_ = register_module("lm_head", Matrix(options.vocabulary, slice.size()));
  }

  Tensor forward(const Tensor& tokens) override {
    check_tokens(tokens, options_.vocabulary, options_.context);
    const Tensor& weight = options_.tied ? decoder_->embed_tokens->weight : lm_head_->weight;
    return SumOverRanks::apply(torch::linear(decoder_->forward(tokens), weight), ranks_);
  }

 private:
  LlamaOptions options_;
  Holder ranks_;
  Decoder decoder_{nullptr};
  Matrix lm_head_{nullptr};
};

// This rank's part of a parameter of the whole model: rows of what writes to the stream and of norms, columns of what
// reads it.
Tensor slice_of(const std::string& name, const Tensor& whole, const Slice& slice) {
  const bool rows = whole.dim() == 1 || name.ends_with("o_proj.weight") || name.ends_with("down_proj.weight");
  return whole.slice(rows ? 0 : 1, slice.begin, slice.end);
}

// Pairs of a slice of the whole model's parameter and this rank's own.
std::vector<std::pair<Tensor, Tensor>> pairs_of(const ModelImpl& whole, const ModelImpl& sharded, const Ranks& ranks) {
  const auto all = whole.named_parameters();
  const Slice slice(all["model.norm.weight"].size(0), ranks);
  std::vector<std::pair<Tensor, Tensor>> pairs;
  for (const auto& [name, mine] : named_parameters_once(sharded)) {
    pairs.emplace_back(slice_of(name, all[name].detach(), slice), mine.detach());
  }
  return pairs;
}

}  // namespace

Model make_sharded_llama(const LlamaOptions& options, const ModelImpl& whole, Ranks& ranks) {
  if (options.placement != Placement::kPre || options.qk_norm || options.recompute) {
    tools::fail(tools::ExitCode::kUsage,
                "the sharded Llama has placement {}, qk_norm {}, recompute {}; it must have pre, false, false",
                name_of(options.placement), options.qk_norm, options.recompute);
  }
  if (options.width < ranks.count()) {
    tools::fail(tools::ExitCode::kUsage, "width is {}; it must be at least {}, a column for each process",
                options.width, ranks.count());
  }
  const std::int64_t hidden = whole.named_parameters()["model.layers.0.mlp.gate_proj.weight"].size(0);
  auto model = std::make_shared<ShardedLlamaImpl>(options, hidden, Slice(options.width, ranks), ranks);
  model->to(whole.parameters().front().scalar_type());
  for (auto& [of_whole, mine] : pairs_of(whole, *model, ranks)) mine.copy_(of_whole);
  return model;
}

void collect_slices(const ModelImpl& sharded, Ranks& ranks, ModelImpl& whole) {
  // Zeros, with this rank's slices in their places, summed over the ranks: exact.
  const torch::NoGradGuard no_grad;
  for (auto& parameter : whole.parameters()) parameter.zero_();
  for (auto& [of_whole, mine] : pairs_of(whole, sharded, ranks)) of_whole.copy_(mine);
  for (auto& parameter : whole.parameters()) parameter.copy_(ranks.sum(parameter, Cargo::kParameters));
}

}  // namespace rmsnorm::lab
