// What programs want beside the tensors.
#include "convert/checkpoint/fields.h"
#include "convert/checkpoint/planner.h"

namespace rmsnorm::convert::checkpoint {

using tools::in_quotes;

namespace {

struct AutoClass {
  std::string_view ending;  // of an architecture
  const char* name;         // of the Auto class
};
constexpr AutoClass kAutoClasses[] = {
    {"LMHeadModel", "AutoModelForCausalLM"},
    {"ForCausalLM", "AutoModelForCausalLM"},
    {"ForSpeechSeq2Seq", "AutoModelForSpeechSeq2Seq"},
    {"ForConditionalGeneration", "AutoModelForSeq2SeqLM"},
    {"ForMaskedLM", "AutoModelForMaskedLM"},
    {"ForCTC", "AutoModelForCTC"},
    {"ForAudioClassification", "AutoModelForAudioClassification"},
    {"ForSequenceClassification", "AutoModelForSequenceClassification"},
    {"ForTokenClassification", "AutoModelForTokenClassification"},
    {"ForQuestionAnswering", "AutoModelForQuestionAnswering"},
    {"ForImageClassification", "AutoModelForImageClassification"},
    {"ForImageClassificationWithTeacher", "AutoModelForImageClassification"},
    {"ForMaskedImageModeling", "AutoModelForMaskedImageModeling"},
    {"ForSemanticSegmentation", "AutoModelForSemanticSegmentation"},
    {"ForPreTraining", "AutoModelForPreTraining"},
    {"Model", "AutoModel"},
};
constexpr std::string_view kClassPrefix = "modeling_rmsnorm.Rmsnorm";

Json auto_map(const Json& architectures) {
  Json map = Json::object();
  if (!architectures.is_array()) return map;
  for (const Json& architecture : architectures) {
    if (!architecture.is_string()) continue;
    const std::string& name = architecture.get_ref<const std::string&>();
    bool found = false;
    for (const AutoClass& known : kAutoClasses) {
      if (!name.ends_with(known.ending)) continue;
      const std::string stem = name.substr(0, name.size() - known.ending.size());
      const char* key = name.starts_with("Whisper") && known.ending == "ForConditionalGeneration"
                            ? "AutoModelForSpeechSeq2Seq"
                            : known.name;
      map.emplace(key, std::string(kClassPrefix) + name);
      map.emplace("AutoModel", std::string(kClassPrefix) + stem + "Model");
      found = true;
      break;
    }
    if (!found) map.emplace("AutoModel", std::string(kClassPrefix) + name);
  }
  return map;
}

}  // namespace

void Planner::plan_llama(const TargetRule& rule) {
  for (const StreamPlan& stream : plan_.streams) {
    if (stream.op) {
      refuse(RefusalCode::kOpaqueEntry, stream.stream->stream->name,
             "the target class has no operation at the entry; use --entry weights");
    }
  }
  const StoredTensor* like =
      model_.streams.front().writers.empty() ? nullptr : model_.streams.front().writers[0].weight;
  if (like == nullptr) refuse(RefusalCode::kUnknown, "targets", "the first stream must have a writer");
  const std::map<char, std::string>& counts = model_.streams.front().stream->counts;
  for (const std::string& pattern : rule.ones) {
    const std::string letters = index_letters(pattern);
    if (letters.size() > 1 || (!letters.empty() && !counts.contains(letters[0]))) {
      tools::fail_input("recipe: targets.llama.ones has {}; it must have at most one index, of counts",
                        in_quotes(pattern));
    }
    const std::int64_t end = letters.empty() ? 1 : model_.config.integer(counts.at(letters[0]), "number of " + pattern);
    if (end > kMaxIndex)
      tools::fail_input("recipe: {} is {} tensors; it must be at most {}", in_quotes(pattern), end, kMaxIndex);
    for (std::int64_t i = 0; i < end; ++i) {
      Indices indices;
      if (!letters.empty()) indices[letters[0]] = i;
      add_action(fill(pattern, indices), nullptr, *like, {model_.streams.front().width}).fill = 1;
    }
  }
  for (const auto& [key, value] : rule.set.items()) {
    const bool copied = value.is_object() && value.size() == 1 && value.contains("key");
    set_config(key, copied ? model_.config.value(value["key"].get<std::string>()) : value);
  }
  for (const std::string& key : rule.remove) {
    if (plan_.config.erase(key) > 0) plan_.config_changed = true;
  }
}

void Planner::plan_target() {
  if (purpose_ == Purpose::kFold) return;
  switch (request_.target) {
    case Target::kStock:
      return;
    case Target::kAuto:
    case Target::kHf: {
      const Json map = auto_map(model_.config.json().value("architectures", Json()));
      if (map.empty()) {
        plan_.warnings.push_back("config.json names no architecture: no auto_map is written, load the stock class");
      } else {
        set_config("auto_map", map);
      }
      return;
    }
    case Target::kLlama: {
      const auto rule = model_.recipe.targets.find("llama");
      if (rule == model_.recipe.targets.end()) {
        refuse(RefusalCode::kUnsupportedOption, "--target", "a Llama class cannot compute {}", model_.recipe.family);
      }
      if (!holds(rule->second.when, model_.config)) {
        refuse(RefusalCode::kUnsupportedOption, "--target", "{}", rule->second.unless_text);
      }
      plan_llama(rule->second);
      return;
    }
    default:
      refuse(RefusalCode::kUnsupportedOption, "--target",
             "it does not apply to a checkpoint of {}; it must be stock, hf or llama", model_.recipe.family);
  }
}

}  // namespace rmsnorm::convert::checkpoint
