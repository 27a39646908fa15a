#include "lab/commands/model_arguments.h"

#include "tools/error.h"

namespace rmsnorm::lab {

namespace {

using nlohmann::json;
using nlohmann::ordered_json;
using tools::ExitCode;

template <class T>
void set(T& target, const std::optional<T>& given) {
  if (given) target = *given;
}

ordered_json norm_json(const NormOptions& norm) {
  return {{"norm", name_of(norm.kind)}, {"code", name_of(norm.code)}, {"epsilon", norm.epsilon}};
}

void read_norm(NormOptions& norm, const json& from) {
  norm.kind = norm_kind(from.at("norm").get<std::string>());
  norm.code = norm_code(from.at("code").get<std::string>());
  norm.epsilon = from.at("epsilon").get<double>();
}

}  // namespace

void ModelArguments::add_to(CLI::App& command) {
  const LlamaOptions llama;
  const auto size = [&](const char* name, std::optional<std::int64_t>& value, const std::string& text) {
    command.add_option(name, value, text)->group("Model")->type_name("N");
  };
  command.add_option("--model", model, "llama or gpt2")->capture_default_str()->group("Model");
  command.add_option("--norm", norm, "layer_norm, rms_norm, partial_rms_norm or none (default: the model's own)")
      ->group("Model");
  command.add_option("--code", code, "fused (this library), eager (tensor operations) or native (PyTorch's)")
      ->group("Model");
  command.add_option("--epsilon", epsilon, fmt::format("of the norms (default {})", llama.norm.epsilon))
      ->group("Model");
  command.add_option("--placement", placement, "of the norms in a block: pre, post or both")->group("Model");
  size("--width", width, fmt::format("of the residual stream (default {})", llama.width));
  size("--layers", layers, fmt::format("blocks (default {})", llama.layers));
  size("--heads", heads, fmt::format("of attention (default {})", llama.heads));
  size("--key-value-heads", key_value_heads, fmt::format("llama only (default {})", llama.key_value_heads));
  size("--hidden", hidden, "of SwiGLU, llama only (default: 8/3 of the width, up to a multiple of 32)");
  size("--context", context, fmt::format("tokens of a row (default {})", llama.context));
  command.add_option("--dtype", dtype, "of parameters: f32 or f64")->capture_default_str()->group("Model");
  command.add_flag("--untied", untied, "an output matrix of its own, llama only")->group("Model");
  command.add_flag("--qk-norm", qk_norm, "RMSNorm of queries and keys, llama only")->group("Model");
  command.add_flag("--recompute", recompute, "compute activations again in the backward pass, llama only")
      ->group("Model");
}

LanguageOptions ModelArguments::options() const {
  const auto common = [&](auto options) {
    set(options.width, width);
    set(options.layers, layers);
    set(options.heads, heads);
    set(options.context, context);
    set(options.norm.epsilon, epsilon);
    if (!norm.empty()) options.norm.kind = norm_kind(norm);
    if (!code.empty()) options.norm.code = norm_code(code);
    if (!placement.empty()) options.placement = lab::placement(placement);
    return options;
  };
  if (model == "llama") {
    LlamaOptions options = common(LlamaOptions{});
    set(options.hidden, hidden);
    // As many as the heads where the default does not divide them.
    if (options.heads % options.key_value_heads != 0) options.key_value_heads = options.heads;
    set(options.key_value_heads, key_value_heads);
    options.tied = !untied;
    options.qk_norm = qk_norm;
    options.recompute = recompute;
    return options;
  }
  if (model != "gpt2")
    tools::fail(ExitCode::kUsage, "--model is {}; it must be llama or gpt2", tools::in_quotes(model));
  const std::pair<const char*, bool> of_llama[] = {{"--hidden", hidden.has_value()},
                                                   {"--key-value-heads", key_value_heads.has_value()},
                                                   {"--untied", untied},
                                                   {"--qk-norm", qk_norm},
                                                   {"--recompute", recompute}};
  for (const auto& [name, given] : of_llama) {
    if (given) tools::fail(ExitCode::kUsage, "{} is given with --model gpt2; it must be left out there", name);
  }
  return common(Gpt2Options{});
}

torch::ScalarType ModelArguments::type() const {
  if (dtype == "f32") return torch::kFloat32;
  if (dtype == "f64") return torch::kFloat64;
  tools::fail(ExitCode::kUsage, "--dtype is {}; it must be f32 or f64", tools::in_quotes(dtype));
}

nlohmann::ordered_json to_json(const LanguageOptions& options) {
  if (const auto* o = std::get_if<LlamaOptions>(&options)) {
    ordered_json result = {
        {"model", "llama"},         {"vocabulary", o->vocabulary}, {"width", o->width},
        {"layers", o->layers},      {"heads", o->heads},           {"key_value_heads", o->key_value_heads},
        {"hidden", o->hidden},      {"context", o->context},       {"rope_theta", o->rope_theta},
        {"tied", o->tied},          {"qk_norm", o->qk_norm},       {"placement", name_of(o->placement)},
        {"recompute", o->recompute}};
    result.update(norm_json(o->norm));
    return result;
  }
  const auto& o = std::get<Gpt2Options>(options);
  ordered_json result = {{"model", "gpt2"},
                         {"vocabulary", o.vocabulary},
                         {"width", o.width},
                         {"layers", o.layers},
                         {"heads", o.heads},
                         {"context", o.context},
                         {"placement", name_of(o.placement)}};
  result.update(norm_json(o.norm));
  return result;
}

LanguageOptions language_options_from_json(const nlohmann::json& from) {
  const auto common = [&](auto options) {
    options.vocabulary = from.at("vocabulary").get<std::int64_t>();
    options.width = from.at("width").get<std::int64_t>();
    options.layers = from.at("layers").get<std::int64_t>();
    options.heads = from.at("heads").get<std::int64_t>();
    options.context = from.at("context").get<std::int64_t>();
    options.placement = placement(from.at("placement").get<std::string>());
    read_norm(options.norm, from);
    return options;
  };
  if (from.at("model") != "llama") return common(Gpt2Options{});
  LlamaOptions options = common(LlamaOptions{});
  options.key_value_heads = from.at("key_value_heads").get<std::int64_t>();
  options.hidden = from.at("hidden").get<std::int64_t>();
  options.rope_theta = from.at("rope_theta").get<double>();
  options.tied = from.at("tied").get<bool>();
  options.qk_norm = from.at("qk_norm").get<bool>();
  options.recompute = from.at("recompute").get<bool>();
  return options;
}

void ThreadArguments::add_to(CLI::App& command) {
  command.add_option("--threads", threads, "of PyTorch's operators (default: PyTorch's own number)")
      ->check(CLI::Range(1, 1024))
      ->type_name("N");
}

void ThreadArguments::apply() const {
  if (threads > 0) torch::set_num_threads(threads);
}

}  // namespace rmsnorm::lab
