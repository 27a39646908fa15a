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

std::optional<std::size_t> Planner::find_action(const std::string& name) const {
  for (const std::string& known : model_.known_as(name)) {
    for (const std::string& prefix : model_.recipe.prefixes) {
      const auto found = by_name_.find(prefix + known);
      if (found != by_name_.end()) return found->second;
    }
  }
  return {};
}

// New tensors are of its type.
const StoredTensor& Planner::first_writer() const {
  if (model_.streams.empty() || model_.streams.front().writers.empty()) {
    refuse(RefusalCode::kUnknown, "targets", "the recipe's first stream must have a writer");
  }
  return *model_.streams.front().writers.front().weight;
}

void Planner::add_ones(const TargetRule& rule) {
  const StoredTensor& like = first_writer();
  for (const std::string& pattern : rule.ones) {
    for (const Indices& indices : all_indices(pattern, model_)) {
      add_action(fill(pattern, indices), nullptr, like, {model_.streams.front().width}).fill = 1;
    }
  }
}

// Zeros beside other parts, or an identity matrix. `like`: a part that is no constant; null: there is none.
Action Planner::constant_part(const TargetPiece& piece, const Action* like) const {
  const bool zeros = !piece.zeros.empty();
  const std::int64_t size = model_.config.integer(zeros ? piece.zeros : piece.identity, "size of a constant");
  constexpr std::int64_t kMost = 1 << 16;
  if (size > kMost) tools::fail_input("recipe: a constant has {} rows; it must have at most {}", size, kMost);
  Action constant;
  constant.name = zeros ? "zeros" : "identity";
  constant.fill = zeros ? 0 : 1;
  constant.diagonal = !zeros;
  constant.dtype = like != nullptr ? like->dtype : first_writer().dtype;
  constant.shape = {size, size};
  if (like == nullptr) return constant;
  constant.shape = like->shape;
  constant.shape[join_axis(constant.shape)] = size;
  return constant;
}

// The parts of one tensor of the target's class. False: it may be missing, and there is nothing to make it of.
bool Planner::join(const TargetName& target, Action& whole, std::set<std::size_t>& used) {
  std::vector<std::optional<Action>> parts;
  const Action* like = nullptr;
  std::string missing;
  bool any = false;
  for (std::size_t p = 0; p < target.of.size(); ++p) {
    std::optional<Action>& part = parts.emplace_back();
    if (target.of[p].empty()) continue;
    const auto found = find_action(target.of[p]);
    if (!found) {
      missing = target.of[p];
      continue;
    }
    any = true;
    used.insert(*found);
    part = plan_.actions[*found];
    const TargetPiece& piece = target.rule->of[p];
    if (piece.from == 0 && !piece.to) continue;
    std::int64_t& rows = part->shape.at(join_axis(part->shape));
    const std::int64_t to = piece.to.value_or(rows);
    if (piece.from >= to || to > rows) {
      refuse(RefusalCode::kUnknown, part->name, "it has {} rows; rows {} to {} must be there", rows, piece.from, to);
    }
    part->rows = Range{piece.from, to};
    rows = to - piece.from;
  }
  if (!missing.empty() && !any && target.optional) return false;
  if (!missing.empty()) {
    refuse(RefusalCode::kUnknown, target.name, "{} is part of it and not in the files; it must be there", missing);
  }
  for (const auto& part : parts) {
    if (like == nullptr && part) like = &*part;
  }
  whole.name = target.name;
  for (std::size_t p = 0; p < parts.size(); ++p) {
    whole.parts.push_back(parts[p] ? *parts[p] : constant_part(target.rule->of[p], like));
  }
  whole.shape = whole.parts.front().shape;
  if (whole.parts.size() == 1) return true;
  const std::size_t axis = join_axis(whole.shape);
  std::int64_t length = 0;
  for (const Action& part : whole.parts) {
    tools::Shape shape = part.shape;
    const bool fits = shape.size() == whole.shape.size() && !shape.empty();
    if (fits) {
      length += shape[axis];
      shape[axis] = whole.shape[axis];
    }
    // What lies before the axis must be 1: then the parts lie one after the other in memory.
    const bool first = std::all_of(shape.begin(), shape.begin() + static_cast<std::ptrdiff_t>(fits ? axis : 0),
                                   [](std::int64_t n) { return n == 1; });
    if (!fits || !first || shape != whole.shape) {
      refuse(RefusalCode::kUnknown, target.name, "{} of shape {} and {} of shape {} cannot be joined",
             whole.parts.front().name, tools::shape_text(whole.parts.front().shape), part.name,
             tools::shape_text(part.shape));
    }
  }
  whole.shape[axis] = length;
  return true;
}

// Biases that went into readers need no place; all else does, unless the recipe leaves it out.
void Planner::refuse_leftovers(const TargetRule& rule, const std::set<std::size_t>& used) {
  std::string left_out;
  for (std::size_t a = 0; a < plan_.actions.size(); ++a) {
    const std::string& name = plan_.actions[a].name;
    if (used.contains(a) || tabulated_.contains(name)) continue;
    const auto site = std::find_if(plan_.sites.begin(), plan_.sites.end(), [&](const SitePlan& planned) {
      return planned.site->bias != nullptr && planned.site->bias->name == name;
    });
    if (site != plan_.sites.end()) {
      if (site->folded != Folded::kNone) continue;
      refuse(RefusalCode::kUnsupportedOption, name, "the norms of the target's class have no bias, and this one {}",
             site->note.empty() ? "is not folded; use --affine bias" : site->note);
    }
    if (!is_left_out(rule, model_, name)) {
      refuse(RefusalCode::kUnsupportedOption, name, "the target's class has no place for it");
    }
    left_out += (left_out.empty() ? "" : ", ") + name;
  }
  if (!left_out.empty()) plan_.warnings.push_back("left out, the target's class does not have it: " + left_out);
}

// The tensors of the target's class in place of the original's.
void Planner::rearrange(const TargetRule& rule) {
  if (!request_.adapter.empty()) {
    refuse(RefusalCode::kUnsupportedOption, "--adapter", "the target's class has other modules; convert without it");
  }
  std::vector<Action> tensors;
  std::set<std::size_t> used;
  std::set<std::string> names;
  for (const TargetName& target : target_tensors(rule, model_)) {
    Action whole;
    if (!join(target, whole, used)) continue;
    if (!names.insert(whole.name).second) tools::fail_input("recipe: {} is made twice", in_quotes(whole.name));
    tensors.push_back(std::move(whole));
  }
  refuse_leftovers(rule, used);
  plan_.actions = std::move(tensors);
  by_name_.clear();
  plan_.output_prefix.clear();
  plan_.one_file = true;
}

void Planner::plan_class(const TargetRule& rule) {
  for (const Rule& refusal : rule.refusals) {
    if (holds(refusal.when, model_.config)) refuse(refusal.code, refusal.site, "{}", refusal.text);
  }
  if (!holds(rule.when, model_.config)) {
    refuse(RefusalCode::kUnsupportedOption, "--target", "{}", rule.unless_text);
  }
  for (const StreamPlan& stream : plan_.streams) {
    if (stream.op) {
      refuse(RefusalCode::kOpaqueEntry, stream.stream->stream->name,
             "the target class has no operation at the entry; use --entry weights");
    }
  }
  if (!rule.ones.empty()) add_ones(rule);
  if (!rule.tensors.empty()) rearrange(rule);
  if (!tabulated_.empty()) remove_actions(tabulated_);
  const Json config = target_config(rule, model_);
  if (!config.is_null()) {
    plan_.config = config;
    plan_.config_changed = true;
  }
  for (const auto& [key, value] : rule.set.items()) {
    const bool copied = value.is_object() && value.size() == 1 && value.contains("key");
    set_config(key, copied ? model_.config.value(value["key"].get<std::string>()) : value);
  }
  for (const std::string& key : rule.remove) {
    if (plan_.config.erase(key) > 0) plan_.config_changed = true;
  }
  for (const Rule& warning : rule.warnings) {
    if (holds(warning.when, model_.config)) plan_.warnings.push_back(warning.text);
  }
}

void Planner::plan_target() {
  if (purpose_ == Purpose::kFold) return;
  for (const std::vector<std::string>& module : plan_.new_biases) {
    plan_.warnings.push_back(
        fmt::format("{} has a bias now, for which the model's own class has no place: only the class in {} "
                    "(trust_remote_code=True) computes the same",
                    module.front(), kProgramFile));
  }
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
    case Target::kLlama:
    case Target::kTimm:
      if (target_ == nullptr) {
        refuse(RefusalCode::kUnsupportedOption, "--target", "no class of {} is known that can compute {}",
               target_name(request_.target), model_.recipe.family);
      }
      plan_class(*target_);
      return;
    default:
      refuse(RefusalCode::kUnsupportedOption, "--target",
             "it does not apply to a checkpoint of {}; it must be stock, hf, timm or llama", model_.recipe.family);
  }
}

}  // namespace rmsnorm::convert::checkpoint
