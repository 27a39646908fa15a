#include "lab/train/exchange.h"

#include <nlohmann/json.hpp>

#include "lab/train/tensors.h"
#include "tools/error.h"
#include "tools/formats/output_directory.h"

namespace rmsnorm::lab {

namespace {

using nlohmann::json;
using nlohmann::ordered_json;
using tools::ExitCode;

constexpr const char* kConfig = "config.json";
constexpr const char* kWeights = "model.safetensors";
// Loaders want to know which framework's layouts the tensors have.
const tools::SafetensorsMetadata kMetadata = {{"format", "pt"}};

const NormOptions& norm_of(const LanguageOptions& options) {
  return std::visit([](const auto& o) -> const NormOptions& { return o.norm; }, options);
}

std::string type_name(torch::ScalarType type) {
  switch (type) {
    case torch::kFloat64:
      return "float64";
    case torch::kBFloat16:
      return "bfloat16";
    default:
      return "float32";
  }
}

ordered_json config_of(const LlamaOptions& o, const ModelImpl& model) {
  return {{"architectures", ordered_json::array({"LlamaForCausalLM"})},
          {"model_type", "llama"},
          {"vocab_size", o.vocabulary},
          {"hidden_size", o.width},
          {"intermediate_size", model.named_parameters()["model.layers.0.mlp.gate_proj.weight"].size(0)},
          {"num_hidden_layers", o.layers},
          {"num_attention_heads", o.heads},
          {"num_key_value_heads", o.key_value_heads},
          {"max_position_embeddings", o.context},
          {"rope_theta", o.rope_theta},
          {"rms_norm_eps", o.norm.epsilon},
          {"hidden_act", "silu"},
          {"attention_bias", false},
          {"mlp_bias", false},
          {"tie_word_embeddings", o.tied}};
}

ordered_json config_of(const Gpt2Options& o, const ModelImpl& /*model*/) {
  return {{"architectures", ordered_json::array({"GPT2LMHeadModel"})},
          {"model_type", "gpt2"},
          {"vocab_size", o.vocabulary},
          {"n_embd", o.width},
          {"n_layer", o.layers},
          {"n_head", o.heads},
          {"n_positions", o.context},
          {"layer_norm_epsilon", o.norm.epsilon},
          {"activation_function", "gelu_new"},
          {"resid_pdrop", 0.0},
          {"embd_pdrop", 0.0},
          {"attn_pdrop", 0.0},
          {"tie_word_embeddings", true}};
}

// Fields of a config.json that may lie.
class Config {
 public:
  explicit Config(const std::filesystem::path& folder) : file_((folder / kConfig).string()) {
    const tools::FileSource source(file_);
    constexpr std::uint64_t kLargest = std::uint64_t{1} << 20;
    if (source.size() > kLargest) {
      tools::fail_input("{}: the file has {} bytes; it must have at most {}", file_, source.size(), kLargest);
    }
    std::string text(static_cast<std::size_t>(source.size()), '\0');
    source.read(0, std::as_writable_bytes(std::span(text)));
    json_ = json::parse(text, nullptr, /*allow_exceptions=*/false);
    if (!json_.is_object()) tools::fail_input("{}: the file is no JSON object; it must be one", file_);
  }

  const std::string& file() const { return file_; }

  std::int64_t count(const char* name) const {
    const json& value = field(name);
    if (!value.is_number_integer() || value.get<std::int64_t>() < 1 || value.get<std::int64_t>() > kLargestCount) {
      refuse(name, value, fmt::format("a whole number from 1 to {}", kLargestCount));
    }
    return value.get<std::int64_t>();
  }

  double positive(const char* name) const {
    const json& value = field(name);
    if (!value.is_number() || !(value.get<double>() > 0)) refuse(name, value, "a number above 0");
    return value.get<double>();
  }

  bool flag(const char* name, bool otherwise) const {
    const json& value = json_.contains(name) ? json_[name] : json(otherwise);
    if (!value.is_boolean()) refuse(name, value, "true or false");
    return value.get<bool>();
  }

  std::string text(const char* name) const {
    const json& value = field(name);
    if (!value.is_string()) refuse(name, value, "a string");
    return value.get<std::string>();
  }

  // A field that may be missing or null, and otherwise must have this value.
  void require(const char* name, const json& wanted) const {
    if (!json_.contains(name) || json_[name].is_null() || json_[name] == wanted) return;
    refuse(name, json_[name], wanted.dump());
  }

  [[noreturn]] void refuse(const char* name, const json& value, const std::string& rule) const {
    tools::fail_input("{}: {} is {}; it must be {}", file_, name,
                      tools::in_quotes(value.dump(-1, ' ', true, json::error_handler_t::replace)), rule);
  }

 private:
  static constexpr std::int64_t kLargestCount = std::int64_t{1} << 24;

  const json& field(const char* name) const {
    if (!json_.contains(name)) tools::fail_input("{}: {} is missing; it must be there", file_, name);
    return json_[name];
  }

  std::string file_;
  json json_;
};

LlamaOptions llama_of(const Config& config, NormCode code) {
  LlamaOptions o;
  o.vocabulary = config.count("vocab_size");
  o.width = config.count("hidden_size");
  o.layers = config.count("num_hidden_layers");
  o.heads = config.count("num_attention_heads");
  o.key_value_heads = config.count("num_key_value_heads");
  o.hidden = config.count("intermediate_size");
  o.context = config.count("max_position_embeddings");
  o.rope_theta = config.positive("rope_theta");
  o.tied = config.flag("tie_word_embeddings", false);
  o.norm = {.kind = NormKind::kRmsNorm, .code = code, .epsilon = config.positive("rms_norm_eps")};
  config.require("hidden_act", "silu");
  config.require("attention_bias", false);
  config.require("mlp_bias", false);
  config.require("rope_scaling", nullptr);
  config.require("head_dim", o.width / o.heads);
  return o;
}

Gpt2Options gpt2_of(const Config& config, NormCode code) {
  Gpt2Options o;
  o.vocabulary = config.count("vocab_size");
  o.width = config.count("n_embd");
  o.layers = config.count("n_layer");
  o.heads = config.count("n_head");
  o.context = config.count("n_positions");
  o.norm = {.kind = NormKind::kLayerNorm, .code = code, .epsilon = config.positive("layer_norm_epsilon")};
  config.require("activation_function", "gelu_new");
  config.require("tie_word_embeddings", true);
  config.require("n_inner", 4 * o.width);
  config.require("scale_attn_weights", true);
  config.require("scale_attn_by_inverse_layer_idx", false);
  return o;
}

// The sizes of config.json must be those of the file before any memory is asked for.
void require_shape(const tools::Source& source, const tools::SafetensorsHeader& header, const std::string& name,
                   const tools::Shape& shape) {
  const tools::SafetensorsEntry* entry = header.find(name);
  if (entry == nullptr || entry->shape != shape) {
    tools::fail_input("{}: tensor {} is {}; it must be {}, as config.json has it", source.name(),
                      tools::in_quotes(name), entry == nullptr ? "missing" : tools::shape_text(entry->shape),
                      tools::shape_text(shape));
  }
}

void require_sizes(const tools::Source& source, const tools::SafetensorsHeader& header, const LlamaOptions& o) {
  require_shape(source, header, "model.embed_tokens.weight", {o.vocabulary, o.width});
  require_shape(source, header, fmt::format("model.layers.{}.mlp.up_proj.weight", o.layers - 1), {o.hidden, o.width});
}

void require_sizes(const tools::Source& source, const tools::SafetensorsHeader& header, const Gpt2Options& o) {
  require_shape(source, header, "transformer.wte.weight", {o.vocabulary, o.width});
  require_shape(source, header, "transformer.wpe.weight", {o.context, o.width});
  require_shape(source, header, fmt::format("transformer.h.{}.mlp.c_fc.weight", o.layers - 1), {o.width, 4 * o.width});
}

}  // namespace

Model make_model(const LanguageOptions& options) {
  const auto* llama = std::get_if<LlamaOptions>(&options);
  return llama != nullptr ? make_llama(*llama) : make_gpt2(std::get<Gpt2Options>(options));
}

std::int64_t context_of(const LanguageOptions& options) {
  return std::visit([](const auto& o) { return o.context; }, options);
}

void require_exportable(const LanguageOptions& options) {
  const bool is_llama = std::holds_alternative<LlamaOptions>(options);
  const NormOptions& norm = norm_of(options);
  const NormKind wanted = is_llama ? NormKind::kRmsNorm : NormKind::kLayerNorm;
  const char* who = is_llama ? "LlamaForCausalLM" : "GPT2LMHeadModel";
  if (norm.kind != wanted) {
    tools::fail(ExitCode::kUsage, "norm is {}; it must be {} in the form of {}", name_of(norm.kind), name_of(wanted),
                who);
  }
  const Placement placement = std::visit([](const auto& o) { return o.placement; }, options);
  if (placement != Placement::kPre) {
    tools::fail(ExitCode::kUsage, "placement is {}; it must be {} in the form of {}", name_of(placement),
                name_of(Placement::kPre), who);
  }
  if (!norm.epsilon_inside || !norm.weight || (!is_llama && !norm.bias)) {
    tools::fail(ExitCode::kUsage, "the norm has epsilon outside the root or lacks parameters; it must be as {} has it",
                who);
  }
  if (is_llama && std::get<LlamaOptions>(options).qk_norm) {
    tools::fail(ExitCode::kUsage, "qk_norm is true; it must be false in the form of {}", who);
  }
}

void save_model(const std::filesystem::path& folder, const ModelImpl& model, const LanguageOptions& options) {
  require_exportable(options);
  ordered_json config = std::visit([&](const auto& o) { return config_of(o, model); }, options);
  const NamedTensors tensors = named_parameters_once(model);
  config["torch_dtype"] = type_name(tensors.front().second.scalar_type());
  tools::OutputDirectory out(folder.string());
  out.add(kConfig, config.dump(2) + "\n");
  write_tensors(out, kWeights, tensors, kMetadata);
  out.finish();
  out.publish();
}

LoadedModel load_model(const std::filesystem::path& folder, NormCode code) {
  const Config config(folder);
  const std::string type = config.text("model_type");
  LanguageOptions options;
  if (type == "llama") {
    options = llama_of(config, code);
  } else if (type == "gpt2") {
    options = gpt2_of(config, code);
  } else {
    config.refuse("model_type", type, "llama or gpt2");
  }
  const tools::FileSource source((folder / kWeights).string());
  const tools::SafetensorsHeader header = tools::read_safetensors_header(source);
  std::visit([&](const auto& o) { require_sizes(source, header, o); }, options);
  Model model;
  try {
    model = make_model(options);
  } catch (const std::invalid_argument& error) {  // the rules of the models themselves
    tools::fail_input("{}: {}", config.file(), error.what());
  }
  const NamedTensors tensors = named_parameters_once(*model);
  const tools::SafetensorsEntry* first = header.find(tensors.front().first);
  if (first != nullptr && first->dtype == "F64") model->to(torch::kFloat64);
  read_tensors(source, header, named_parameters_once(*model));
  return {model, options};
}

}  // namespace rmsnorm::lab
