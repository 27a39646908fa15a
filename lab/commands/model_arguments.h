// The options of `rmsnorm-lab` that say which language model is meant.
#ifndef RMSNORM_LAB_COMMANDS_MODEL_ARGUMENTS_H_
#define RMSNORM_LAB_COMMANDS_MODEL_ARGUMENTS_H_

#include <CLI/CLI.hpp>

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "lab/train/exchange.h"

namespace rmsnorm::lab {

// What is not given keeps the model's own default.
struct ModelArguments {
  std::string model = "llama";
  std::string norm, code, placement;
  std::optional<std::int64_t> width, layers, heads, key_value_heads, hidden, context;
  std::optional<double> epsilon;
  std::string dtype = "f32";
  bool untied = false, qk_norm = false, recompute = false;

  void add_to(CLI::App& command);
  LanguageOptions options() const;
  torch::ScalarType type() const;
};

// For checkpoints, which name the model that they belong to.
nlohmann::ordered_json to_json(const LanguageOptions& options);
LanguageOptions language_options_from_json(const nlohmann::json& json);

// Threads of PyTorch's operators; 0 leaves PyTorch's own number.
struct ThreadArguments {
  std::int32_t threads = 0;
  void add_to(CLI::App& command);
  void apply() const;
};

}  // namespace rmsnorm::lab

#endif  // RMSNORM_LAB_COMMANDS_MODEL_ARGUMENTS_H_
