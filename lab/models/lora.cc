// Hu et al. 2021, "LoRA: Low-Rank Adaptation of Large Language Models".
#include "lab/models/lora.h"

#include "lab/models/linear.h"
#include "lab/models/names.h"

namespace rmsnorm::lab {

std::int64_t add_lora(ModelImpl& model, const LoraOptions& options,
                      const std::function<bool(const std::string&)>& chosen) {
  require(options.rank >= 1, "rank of an adapter", options.rank, "at least 1");
  std::vector<LinearImpl*> layers;
  std::vector<std::string> refused;
  for (const auto& module : model.named_modules(std::string(), /*include_self=*/false)) {
    auto* linear = module.value()->as<LinearImpl>();
    if (linear == nullptr) continue;
    if (chosen(module.key())) {
      layers.push_back(linear);
    } else {
      refused.push_back(module.key());
    }
  }
  if (layers.empty()) {
    throw std::invalid_argument(
        fmt::format("lora: no linear layer is chosen; at least one must be, of {}", fmt::join(refused, ", ")));
  }
  for (auto& parameter : model.parameters()) parameter.requires_grad_(false);
  std::int64_t trained = 0;
  for (LinearImpl* layer : layers) {
    layer->add_adapter(options.rank, options.alpha / static_cast<double>(options.rank));
    trained += layer->lora_a.numel() + layer->lora_b.numel();
  }
  return trained;
}

}  // namespace rmsnorm::lab
