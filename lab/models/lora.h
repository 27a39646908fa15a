// Low-rank adapters on linear layers: y = W x + (alpha / rank) B A x, with W frozen.
#ifndef RMSNORM_LAB_MODELS_LORA_H_
#define RMSNORM_LAB_MODELS_LORA_H_

#include <functional>

#include "lab/models/model.h"

namespace rmsnorm::lab {

struct LoraOptions {
  std::int64_t rank = 4;
  double alpha = 8;
};

// Puts an adapter on every linear layer whose name `chosen` accepts, freezes all other parameters, and returns how many
// parameters train. B starts at zero, so the function is unchanged.
std::int64_t add_lora(ModelImpl& model, const LoraOptions& options,
                      const std::function<bool(const std::string&)>& chosen);

}  // namespace rmsnorm::lab

#endif  // RMSNORM_LAB_MODELS_LORA_H_
