// Models in Hugging Face's form: a folder with config.json and model.safetensors, which `transformers` loads as
// LlamaForCausalLM or GPT2LMHeadModel, and which the lab loads back.
#ifndef RMSNORM_LAB_TRAIN_EXCHANGE_H_
#define RMSNORM_LAB_TRAIN_EXCHANGE_H_

#include <filesystem>
#include <variant>

#include "lab/models/gpt2.h"
#include "lab/models/llama.h"

namespace rmsnorm::lab {

using LanguageOptions = std::variant<LlamaOptions, Gpt2Options>;

Model make_model(const LanguageOptions& options);
std::int64_t context_of(const LanguageOptions& options);

// Refuses what those classes cannot express: a Llama must have RMSNorm before each sub-layer and no QK-norm, a GPT-2
// LayerNorm before each sub-layer; with epsilon inside the root. The folder must be new, and appears whole or not at
// all.
void require_exportable(const LanguageOptions& options);
void save_model(const std::filesystem::path& folder, const ModelImpl& model, const LanguageOptions& options);

struct LoadedModel {
  Model model;
  LanguageOptions options;
};

// Refuses what the lab's models cannot be: other types, activations, biases, scaled positions.
LoadedModel load_model(const std::filesystem::path& folder, NormCode code = NormCode::kFused);

}  // namespace rmsnorm::lab

#endif  // RMSNORM_LAB_TRAIN_EXCHANGE_H_
