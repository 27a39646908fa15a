// Attention of heads, as all transformers here have it.
#ifndef RMSNORM_LAB_MODELS_ATTENTION_H_
#define RMSNORM_LAB_MODELS_ATTENTION_H_

#include <torch/torch.h>

#include <cstdint>
#include <optional>

#include "lab/models/model.h"

namespace rmsnorm::lab {

// [batch, time, heads * head_width] -> [batch, time, heads, head_width]
inline torch::Tensor split_heads(const torch::Tensor& x, std::int64_t heads) {
  return x.unflatten(-1, {heads, x.size(-1) / heads});
}

// softmax(q k^T / sqrt(head_width)) v. q, k, v are [batch, heads, time, head_width]; the result is [batch, time,
// heads * head_width]. Causal: a token sees itself and those before it.
inline torch::Tensor attend(const torch::Tensor& q, const torch::Tensor& k, const torch::Tensor& v, bool causal) {
  const torch::Tensor y = torch::scaled_dot_product_attention(q, k, v, std::nullopt, /*dropout_p=*/0, causal);
  return y.transpose(1, 2).flatten(2);
}

// The part of a cache that is one block's: new tokens go behind the first `length` of `room` places.
struct CachedTokens {
  KeyValueCache::Block* block;
  std::int64_t length, room;
};

// Without a cache there is none.
inline std::optional<CachedTokens> cached_tokens(KeyValueCache* cache, std::size_t block, std::int64_t room) {
  if (cache == nullptr) return std::nullopt;
  if (cache->blocks.size() <= block) cache->blocks.resize(block + 1);
  return CachedTokens{&cache->blocks[block], cache->length, room};
}

// attend, causal, for tokens that follow cached ones, which are read from the cache. k and v [batch, key_value_heads,
// time, head_width] of the new tokens join it; each of their heads serves a group of q's.
inline torch::Tensor attend_cached(const torch::Tensor& q, const torch::Tensor& k, const torch::Tensor& v,
                                   const CachedTokens& cached) {
  const std::int64_t time = q.size(2), seen = cached.length + time, group = q.size(1) / k.size(1);
  KeyValueCache::Block& block = *cached.block;
  if (!block.keys.defined()) {
    for (torch::Tensor* part : {&block.keys, &block.values}) {
      *part = torch::empty({k.size(0), k.size(1), cached.room, k.size(3)}, k.options());
    }
  }
  block.keys.narrow(2, cached.length, time).copy_(k);
  block.values.narrow(2, cached.length, time).copy_(v);
  const torch::Tensor keys = block.keys.narrow(2, 0, seen), values = block.values.narrow(2, 0, seen);
  // The queries of a group stand side by side in the place of time: [batch, key_value_heads, group * time, head_width].
  // Token t of each sees what is cached and the new ones up to itself; a single one sees all.
  std::optional<torch::Tensor> mask;
  if (time > 1) {
    mask = torch::ones({time, seen}, torch::kBool).tril(cached.length).repeat({group, 1});
  }
  const torch::Tensor grouped = q.unflatten(1, {k.size(1), group}).flatten(2, 3);
  const torch::Tensor y = torch::scaled_dot_product_attention(grouped, keys, values, mask);
  return y.unflatten(2, {group, time}).flatten(1, 2).transpose(1, 2).flatten(2);
}

}  // namespace rmsnorm::lab

#endif  // RMSNORM_LAB_MODELS_ATTENTION_H_
