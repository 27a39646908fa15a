// A small vision transformer: patches, a class token, learned positions, pre-norm blocks.
#ifndef RMSNORM_LAB_MODELS_VIT_H_
#define RMSNORM_LAB_MODELS_VIT_H_

#include "lab/models/model.h"

namespace rmsnorm::lab {

struct VitOptions {
  std::int64_t image = 28;
  std::int64_t channels = 1;
  std::int64_t patch = 7;
  std::int64_t classes = 10;
  std::int64_t width = 64;
  std::int64_t layers = 4;
  std::int64_t heads = 4;
  NormOptions norm = {.kind = NormKind::kLayerNorm};
};

// Parameter names are those of transformers' ViTForImageClassification.
Model make_vit(const VitOptions& options);

}  // namespace rmsnorm::lab

#endif  // RMSNORM_LAB_MODELS_VIT_H_
