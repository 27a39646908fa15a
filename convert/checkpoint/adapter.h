// LoRA adapters of a model that is converted: W + s B A becomes W' + s B' A', so that the adapter fits the new model.
#ifndef RMSNORM_CONVERT_CHECKPOINT_ADAPTER_H_
#define RMSNORM_CONVERT_CHECKPOINT_ADAPTER_H_

#include <string>
#include <vector>

#include "convert/checkpoint/plan.h"

namespace rmsnorm::convert::checkpoint {

inline constexpr char kAdapterFolder[] = "adapter";  // in OUT
inline constexpr char kAdapterConfig[] = "adapter_config.json";
inline constexpr char kAdapterFile[] = "adapter_model.safetensors";

struct AdapterPlan {
  std::vector<Action> actions;
  Json config;
};

// A' = A diag(gain); B' = M B, or M diag(l) B / s; the norm's bias becomes one of B, which PEFT calls lora_bias.
AdapterPlan plan_adapter(const Checkpoint& adapter, const Json& config, const Model& model, const Plan& plan);

}  // namespace rmsnorm::convert::checkpoint

#endif  // RMSNORM_CONVERT_CHECKPOINT_ADAPTER_H_
