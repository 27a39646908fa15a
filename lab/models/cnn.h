// Two image networks: a residual one, and the ConvPool network of the RMSNorm paper (Zhang & Sennrich 2019, 4.5).
#ifndef RMSNORM_LAB_MODELS_CNN_H_
#define RMSNORM_LAB_MODELS_CNN_H_

#include "lab/models/model.h"

namespace rmsnorm::lab {

struct CnnOptions {
  std::int64_t channels = 1;
  std::int64_t classes = 10;
  std::int64_t width = 16;  // channels of the first stage; each later one has twice as many
  std::int64_t blocks = 2;  // a stage; there are three
  // The norm of each stage: one for all, or three (the practice report's mix by depth).
  std::vector<NormOptions> norms = {{.kind = NormKind::kBatchNorm}};
};

Model make_residual_cnn(const CnnOptions& options);
Model make_conv_pool(const CnnOptions& options);

}  // namespace rmsnorm::lab

#endif  // RMSNORM_LAB_MODELS_CNN_H_
