#include "convert/checkpoint/adapter.h"

#include <algorithm>
#include <unordered_map>

#include "convert/checkpoint/apply.h"
#include "convert/checkpoint/fields.h"

namespace rmsnorm::convert::checkpoint {

namespace {

using tools::in_quotes;

constexpr std::string_view kWrapper = "base_model.model.";

struct Kind {
  std::string_view ending;
  bool is_b;
};
constexpr Kind kKinds[] = {
    {".lora_A.weight", false}, {".lora_B.weight", true}, {".lora_embedding_A", false}, {".lora_embedding_B", true}};

void check_config(const Json& config) {
  const auto want = [&](const char* key, const Json& value, const char* why) {
    if (config.contains(key) && config[key] != value) {
      refuse(RefusalCode::kUnsupportedOption, fmt::format("{}: {}", kAdapterConfig, key), "it is {}; it must be {}: {}",
             Fields::shown(config[key]), value.dump(), why);
    }
  };
  want("peft_type", "LORA", "only LoRA adapters are converted; merge others into the model first");
  want("use_dora", false, "its magnitudes are of the whole weight; merge the adapter into the model first");
  want("bias", "none", "the adapter would bring biases of the original; merge it into the model first");
  want("lora_bias", false, "the adapter has biases already; merge it into the model first");
}

const StoredTensor* weight_of(const Model& model, const std::string& module) {
  for (const std::string& prefix : model.recipe.prefixes) {
    if (!module.starts_with(prefix)) continue;
    if (const StoredTensor* found = model.find(module.substr(prefix.size()) + ".weight")) return found;
  }
  return nullptr;
}

Action copy_of(const StoredTensor& tensor) {
  Action action;
  action.name = tensor.name;
  action.source = &tensor;
  action.shard = tensor.shard;
  action.dtype = tensor.dtype;
  action.shape = tensor.shape;
  action.finite = true;
  return action;
}

// B A is the product; one without the other is a file that was cut.
void check_pairs(const Checkpoint& adapter) {
  for (const StoredTensor& tensor : adapter.tensors()) {
    for (std::size_t k = 0; k < std::size(kKinds); ++k) {
      if (!tensor.name.ends_with(kKinds[k].ending)) continue;
      const std::string other = tensor.name.substr(0, tensor.name.size() - kKinds[k].ending.size()) +
                                std::string(kKinds[k ^ 1].ending);  // A and B are neighbours
      if (adapter.find(other) == nullptr) {
        refuse(RefusalCode::kUnknown, tensor.name, "the adapter does not hold {}, which it is multiplied with",
               in_quotes(other));
      }
    }
  }
}

// A b, where b was folded out of what the module reads: A is small.
std::vector<double> bias_through(const StoredTensor& a, const std::vector<double>& bias) {
  const std::vector<double> weight = read_values(a);
  const std::size_t rank = static_cast<std::size_t>(a.shape[0]);
  const std::size_t inputs = static_cast<std::size_t>(a.shape[1]);
  std::vector<double> result(rank, 0.0);
  for (std::size_t r = 0; r < rank; ++r) {
    for (std::size_t i = 0; i < inputs; ++i) result[r] += weight[r * inputs + i] * bias[i];
  }
  return result;
}

}  // namespace

AdapterPlan plan_adapter(const Checkpoint& adapter, const Json& config, const Model& model, const Plan& plan) {
  check_config(config);
  AdapterPlan result;
  result.config = config;
  std::unordered_map<std::string, const Action*> base;
  std::unordered_map<std::string, std::vector<double>> shifts;  // what was folded out of the inputs of a weight
  for (const Action& action : plan.actions) {
    base[action.name] = &action;
    for (const BiasTerm& term : action.terms) {
      shifts[term.weight->name] = term_input(term, kDefaultChunkBytes);
      if (term.values == nullptr) continue;
      BiasTerm values = term;
      values.values = nullptr;
      shifts[term.values->name] = term_input(values, kDefaultChunkBytes);
    }
  }
  check_pairs(adapter);
  std::vector<Action> biases;
  for (const StoredTensor& tensor : adapter.tensors()) {
    const auto kind = std::find_if(std::begin(kKinds), std::end(kKinds),
                                   [&](const Kind& k) { return tensor.name.ends_with(k.ending); });
    if (kind == std::end(kKinds) || !tensor.name.starts_with(kWrapper) || tensor.shape.size() != 2) {
      refuse(RefusalCode::kUnknown, tensor.name, "it is no matrix A or B of LoRA (base_model.model.*.lora_A.weight)");
    }
    const std::string stem = tensor.name.substr(0, tensor.name.size() - kind->ending.size());
    const StoredTensor* weight = weight_of(model, stem.substr(kWrapper.size()));
    if (weight == nullptr) refuse(RefusalCode::kUnknown, tensor.name, "the model has no such module");
    const Action& change = *base.at(weight->name);
    Action& action = result.actions.emplace_back(copy_of(tensor));
    action.matrix = matrix_of(Layout::kLinear, tensor.shape);
    const bool changes = !change.folds.empty() || !change.centre.empty() || change.scale != nullptr;
    if (changes && !tensor.row_type()) {
      refuse(RefusalCode::kQuantisedWriter, tensor.name, "its type is {}; it must be F32, F16, BF16 or F64",
             in_quotes(tensor.dtype));
    }
    if (!kind->is_b) {
      if (!change.folds.empty() && tensor.shape[1] != change.matrix.inputs()) {
        refuse(RefusalCode::kUnknown, tensor.name, "its shape is {}; it must be [rank, {}]",
               tools::shape_text(tensor.shape), change.matrix.inputs());
      }
      for (const Fold& fold : change.folds) {
        if (fold.outputs.end - fold.outputs.begin != change.matrix.outputs()) {
          refuse(RefusalCode::kUnsafePath, tensor.name, "only some rows of {} read the norm; use --affine keep",
                 in_quotes(weight->name));
        }
        action.folds.push_back({fold.weight, fold.gain, {0, tensor.shape[0]}, fold.chunks});
      }
      continue;
    }
    const std::int64_t outputs = change.matrix.outputs();
    if (changes && tensor.shape[0] != outputs) {
      refuse(RefusalCode::kUnknown, tensor.name, "its shape is {}; it must be [{}, rank]",
             tools::shape_text(tensor.shape), outputs);
    }
    action.scale = change.scale;
    action.divisor = change.divisor;
    action.centre = change.centre;
    const std::string a_name = stem + ".lora_A.weight";
    const StoredTensor* a = adapter.find(a_name);
    if (a == nullptr || kind->ending != ".lora_B.weight") continue;
    Action& bias = biases.emplace_back();  // of every module, if of any
    bias.name = stem + ".lora_B.bias";
    bias.dtype = tensor.dtype;
    bias.shard = tensor.shard;
    bias.shape = {tensor.shape[0]};
    bias.matrix = matrix_of(Layout::kTable, bias.shape);
    const auto shift = shifts.find(weight->name);
    if (shift == shifts.end()) continue;
    const auto inputs = static_cast<std::int64_t>(shift->second.size());
    if (a->shape.size() != 2 || a->shape[0] != tensor.shape[1] || a->shape[1] != inputs) {
      refuse(RefusalCode::kUnknown, a_name, "its shape is {}; it must be [{}, {}]", tools::shape_text(a->shape),
             tensor.shape[1], inputs);
    }
    bias.terms.push_back({&tensor,
                          matrix_of(Layout::kLinear, tensor.shape),
                          nullptr,
                          {0, tensor.shape[0]},
                          1,
                          bias_through(*a, shift->second)});
    bias.centre = action.centre;
  }
  const bool any = std::any_of(biases.begin(), biases.end(), [](const Action& b) { return !b.terms.empty(); });
  if (any) {
    result.config["lora_bias"] = true;
    for (Action& bias : biases) result.actions.push_back(std::move(bias));
  }
  return result;
}

}  // namespace rmsnorm::convert::checkpoint
