// Attention of heads, as all transformers here have it.
#ifndef RMSNORM_LAB_MODELS_ATTENTION_H_
#define RMSNORM_LAB_MODELS_ATTENTION_H_

#include <torch/torch.h>

#include <cstdint>

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

}  // namespace rmsnorm::lab

#endif  // RMSNORM_LAB_MODELS_ATTENTION_H_
