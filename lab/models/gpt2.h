// A GPT-2: learned positions, LayerNorm before each sub-layer, attention with one packed projection, GELU.
#ifndef RMSNORM_LAB_MODELS_GPT2_H_
#define RMSNORM_LAB_MODELS_GPT2_H_

#include "lab/models/model.h"

namespace rmsnorm::lab {

struct Gpt2Options {
  std::int64_t vocabulary = 256;
  std::int64_t width = 128;
  std::int64_t layers = 4;
  std::int64_t heads = 4;
  std::int64_t context = 256;
  Placement placement = Placement::kPre;
  NormOptions norm = {.kind = NormKind::kLayerNorm};
};

// Parameter names and layouts are those of transformers' GPT2LMHeadModel (Conv1D weights [in, out]).
Model make_gpt2(const Gpt2Options& options);

}  // namespace rmsnorm::lab

#endif  // RMSNORM_LAB_MODELS_GPT2_H_
