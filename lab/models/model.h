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

// forward takes tokens [batch, time] (i64) and gives logits [batch, time, vocabulary], or images [batch, channels,
// height, width] and gives logits [batch, classes].
class ModelImpl : public torch::nn::Module {
 public:
  virtual torch::Tensor forward(const torch::Tensor& input) = 0;

  // Every norm, in the order of the forward pass, with its name ("layers.0.input_layernorm").
  std::vector<std::pair<std::string, NormImpl*>> norms();
  std::int64_t parameter_count() const;
};

using Model = std::shared_ptr<ModelImpl>;

}  // namespace rmsnorm::lab

#endif  // RMSNORM_LAB_MODELS_MODEL_H_
