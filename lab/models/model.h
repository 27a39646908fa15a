// What training and experiments know of a model.
#ifndef RMSNORM_LAB_MODELS_MODEL_H_
#define RMSNORM_LAB_MODELS_MODEL_H_

#include <torch/torch.h>

#include <memory>
#include <string>
#include <vector>

#include "lab/models/norm.h"

namespace rmsnorm::lab {

// Where a block has its norms: before each sub-layer (on the branch), after it (on the stream), or both (on the
// branch, before and behind the sub-layer).
enum class Placement { kPre, kPost, kBoth };

std::string name_of(Placement placement);
Placement placement(const std::string& name);

// Keys and values of the tokens that a model has read, so that it reads each of them once.
struct KeyValueCache {
  struct Block {
    torch::Tensor keys, values;  // [batch, heads, room, head_width]
  };
  std::vector<Block> blocks;
  std::int64_t length = 0;  // tokens that are in it; a smaller number forgets the last ones
};

// forward takes tokens [batch, time] (i64) and gives logits [batch, time, vocabulary], or images [batch, channels,
// height, width] and gives logits [batch, classes].
class ModelImpl : public torch::nn::Module {
 public:
  virtual torch::Tensor forward(const torch::Tensor& input) = 0;

  // The logits of tokens [batch, time] that follow those in the cache, which they join: what forward gives for them
  // when it reads all. Without gradients. An empty cache begins a text; batch and type stay those of its first tokens.
  // Llama and GPT-2 have it; another model throws std::logic_error.
  virtual torch::Tensor forward_cached(const torch::Tensor& tokens, KeyValueCache& cache);

  // Every norm, in the order of the forward pass, with its name ("model.layers.0.input_layernorm").
  std::vector<std::pair<std::string, NormImpl*>> norms();
  std::int64_t parameter_count() const;
};

using Model = std::shared_ptr<ModelImpl>;

// What every forward begins with; throws std::invalid_argument for an input of another kind. time_limit 0: any time.
// `before` tokens are in the cache.
void check_tokens(const torch::Tensor& tokens, std::int64_t vocabulary, std::int64_t time_limit,
                  std::int64_t before = 0);
void check_images(const torch::Tensor& images, std::int64_t channels);

// "X is V; it must be RULE".
void require(bool holds, const char* what, std::int64_t value, const std::string& rule);
void require_heads(std::int64_t width, std::int64_t heads);  // the width is a multiple of them

}  // namespace rmsnorm::lab

#endif  // RMSNORM_LAB_MODELS_MODEL_H_
