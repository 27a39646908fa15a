// A Llama: token embedding, blocks of attention with rotary positions and grouped heads and of SwiGLU, a final norm.
#ifndef RMSNORM_LAB_MODELS_LLAMA_H_
#define RMSNORM_LAB_MODELS_LLAMA_H_

#include "lab/models/model.h"

namespace rmsnorm::lab {

struct LlamaOptions {
  std::int64_t vocabulary = 256;
  std::int64_t width = 128;
  std::int64_t layers = 4;
  std::int64_t heads = 4;
  std::int64_t key_value_heads = 2;
  std::int64_t hidden = 0;  // of SwiGLU; 0: 8/3 of the width, up to a multiple of 32
  std::int64_t context = 256;
  double rope_theta = 10000;
  bool tied = true;      // the embedding is the output matrix, too
  bool qk_norm = false;  // RMSNorm of every query and key head, as Qwen 3 has it
  Placement placement = Placement::kPre;
  bool recompute = false;  // activations of a block are computed again in the backward pass
  NormOptions norm;
};

// Parameter names are those of transformers' LlamaForCausalLM ("model.layers.0.self_attn.q_proj.weight").
Model make_llama(const LlamaOptions& options);

}  // namespace rmsnorm::lab

#endif  // RMSNORM_LAB_MODELS_LLAMA_H_
