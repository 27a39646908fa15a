// Two image networks: a residual one with pre-activation (He et al. 2016, "Identity Mappings in Deep Residual
// Networks"), and the ConvPool network of the RMSNorm paper (Zhang & Sennrich 2019, 4.5).
#ifndef RMSNORM_LAB_MODELS_CNN_H_
#define RMSNORM_LAB_MODELS_CNN_H_

#include "lab/models/model.h"

namespace rmsnorm::lab {

struct CnnOptions {
  std::int64_t channels = 1;
  std::int64_t classes = 10;
  std::int64_t width =
      16;  // channels of the first of three stages: then 2 and 4 times (ConvPool: 2 and 2 times) as many
  std::int64_t blocks = 2;  // a stage; ConvPool has three convolutions a stage
  // The norm of each stage: one for all, or three (the practice report's mix by depth). ReLU follows a norm, unless the
  // norm has a threshold, which is its activation. Convolutions have a bias where the norms of their stage have none.
  std::vector<NormOptions> norms = {{.kind = NormKind::kBatchNorm, .code = NormCode::kNative}};
};

Model make_residual_cnn(const CnnOptions& options);
Model make_conv_pool(const CnnOptions& options);

}  // namespace rmsnorm::lab

#endif  // RMSNORM_LAB_MODELS_CNN_H_
