// What lies beside the tensors: rmsnorm.json, config.json and the program must be what `convert` or `fold` would write
// with the operations that rmsnorm.json declares. Whether the tensors bear these out is for the rest of the proof.
#include <filesystem>

#include "convert/checkpoint/fields.h"
#include "convert/checkpoint/report.h"
#include "convert/checkpoint/verifier.h"

namespace rmsnorm::convert::checkpoint {

using tools::in_quotes;

namespace {

using Differences = std::vector<std::string>;

void add_differences(const Json& wanted, const Json& found, const std::string& at, Differences& list) {
  if (wanted == found) return;  // in this order, too: nearly always
  if (wanted.is_object() && found.is_object()) {
    for (const auto& [key, value] : wanted.items()) {
      if (!found.contains(key)) {
        list.push_back(fmt::format("{}{} is missing; it must be {}", at, key, Fields::shown(value)));
      } else {
        add_differences(value, found[key], at + key + ".", list);
      }
    }
    for (const auto& [key, value] : found.items()) {
      if (!wanted.contains(key)) list.push_back(fmt::format("{}{} is new: {}", at, key, Fields::shown(value)));
    }
    return;
  }
  if (wanted.is_array() && found.is_array() && wanted.size() == found.size()) {
    for (std::size_t i = 0; i < wanted.size(); ++i)
      add_differences(wanted[i], found[i], fmt::format("{}{}.", at, i), list);
    return;
  }
  list.push_back(
      fmt::format("{} is {}; it must be {}", at.substr(0, at.size() - 1), Fields::shown(found), Fields::shown(wanted)));
}

Differences differences(const Json& wanted, const Json& found, const std::string& file) {
  Differences list;
  add_differences(wanted, found, "", list);
  for (std::string& line : list) line = file + ": " + line;
  return list;
}

template <class Value>
bool read_name(const Json& operations, const char* key, Names<Value> names, Value& value) {
  const Json text = operations.value(key, Json());
  const auto found = text.is_string() ? value_named(names, text.get_ref<const std::string&>()) : std::nullopt;
  value = found.value_or(value);
  return found.has_value();
}

constexpr Name<std::optional<rn_type>> kTypeList[] = {
    {"same", std::nullopt}, {"f32", RN_F32}, {"f16", RN_F16}, {"bf16", RN_BF16}};
constexpr Names<std::optional<rn_type>> kTypes = kTypeList;

// Not part of what is computed: the program that wrote it, and from where.
Json without_origin(Json document) {
  for (const char* key : {"version", "source"}) document.erase(key);
  return document;
}

}  // namespace

// The options that rmsnorm.json declares; false: it does not.
bool Verifier::read_operations(Request& declared) {
  const Json operations = provenance_.value("operations", Json());
  const auto wrong = [&](const char* key) {
    fail(fmt::format("{}: operations.{} is {}; no command writes that", kProvenanceFile, key,
                     operations.is_object() ? Fields::shown(operations.value(key, Json())) : "missing"));
    return false;
  };
  if (!operations.is_object()) return wrong("command");
  const Json command = operations.value("command", Json());
  if (command != "fold" && (command != "convert" || original_.recipe.rms)) return wrong("command");
  if (!read_name(operations, "affine", kDecidedAffines, declared.affine)) return wrong("affine");
  if (!read_name(operations, "target", kCheckpointTargets, declared.target)) return wrong("target");
  if (!read_name(operations, "dtype", kTypes, declared.type)) return wrong("dtype");
  if (!operations.value("carry_rounding", Json()).is_boolean()) return wrong("carry_rounding");
  // `fold` without --affine leaves out what cannot be folded, which --affine full would refuse.
  if (fold_ && declared.affine == Affine::kFull) declared.affine = Affine::kAuto;
  // So does what another class asks for by itself.
  if (target_ != nullptr && declared.affine == target_->affine) declared.affine = Affine::kAuto;
  declared.carry_rounding = carried_;
  return true;
}

// --entry and the options of ties are seen in their effect only: the plan of one of them must fit.
void Verifier::check_document() {
  if (provenance_.empty()) {
    fail(fmt::format("{} is missing; a program cannot know which norms to replace", kProvenanceFile));
    return;
  }
  Request declared;
  declared.input = original_.checkpoint.folder();
  declared.chunk = request_.chunk;
  if (!read_operations(declared)) return;
  const Purpose purpose = fold_ ? Purpose::kFold : Purpose::kConvert;
  std::optional<Differences> fewest;
  std::string refused;
  for (const Entry entry : {Entry::kAuto, Entry::kOp, Entry::kWeights}) {
    for (const Tie tie : {Tie::kAuto, Tie::kUntie, Tie::kKeep}) {
      declared.entry = entry;
      declared.tie = tie;
      try {
        Plan plan = make_plan(original_, declared, purpose);
        const Json wanted = provenance_of(original_, plan, declared, purpose);
        Differences found = differences(without_origin(wanted), without_origin(provenance_), kProvenanceFile);
        for (std::string& line : differences(plan.config, config_, kConfigFile)) found.push_back(std::move(line));
        if (fewest && fewest->size() <= found.size()) continue;
        fewest = std::move(found);
        plan_ = std::move(plan);
        if (fewest->empty()) break;
      } catch (const Refusal& refusal) {
        if (refused.empty()) refused = refusal.what();
      }
    }
    if (fold_ || (fewest && fewest->empty())) break;
  }
  if (!fewest) {
    fail(fmt::format("{}: its operations cannot be: {}", kProvenanceFile, refused));
    return;
  }
  for (const std::string& line : *fewest) fail(line);
  check_program();
}

// The class that auto_map names is this program's.
void Verifier::check_program() {
  const Json map = config_.value("auto_map", Json());
  const std::string module = std::string(kProgramFile, sizeof(kProgramFile) - sizeof(".py")) + ".";
  if (!map.is_object()) return;
  const bool named = std::any_of(map.begin(), map.end(), [&](const Json& name) {
    return name.is_string() && name.get_ref<const std::string&>().starts_with(module);
  });
  if (!named) return;
  const std::string path = request_.output + "/" + kProgramFile;
  if (!std::filesystem::is_regular_file(path)) {
    fail(fmt::format("{} is missing; auto_map in {} names it", kProgramFile, kConfigFile));
  } else if (std::filesystem::file_size(path) != modeling_program().size() ||
             read_text(path, modeling_program().size()) != modeling_program()) {
    fail(fmt::format("{} is not the program that this version writes", kProgramFile));
  }
}

// Names, types and shapes; what needs no change is the same byte by byte, what was folded is constant.
void Verifier::check_stored(std::vector<std::function<void()>>& jobs) {
  // Under names of another class: the view and what is said of each tensor there stand for it (verify_target.cc).
  if (!plan_ || (target_ != nullptr && !target_->tensors.empty())) return;
  for (const Action& action : plan_->actions) {
    const std::string name = plan_->output_name(action);
    const StoredTensor* found = checkpoint_.find(name);
    if (found == nullptr) {
      fail(fmt::format("{}: it is missing", name));
      continue;
    }
    if (found->dtype != action.dtype || found->shape != action.shape) {
      fail(fmt::format("{}: it is {} {}; it must be {} {}", name, found->dtype, tools::shape_text(found->shape),
                       action.dtype, tools::shape_text(action.shape)));
      continue;
    }
    if (action.fill) {
      jobs.emplace_back([this, &action, found] {
        const std::vector<double> values = read_values(*found);
        const double wanted = *action.fill;
        if (!std::all_of(values.begin(), values.end(), [&](double value) { return value == wanted; })) {
          fail(fmt::format("{}: it changed, and each of its values must be {}", found->name, wanted));
        }
      });
    } else if (action.copied()) {
      if (counterpart(action.source->name) == found) looked_at_.insert(action.source->name);  // read once is enough
      jobs.emplace_back([this, &action, found] {
        if (!same_bytes(*action.source, *found, memory_)) {
          fail(fmt::format("{}: it changed, and it must be the same byte by byte", found->name));
        }
      });
    }
  }
}

}  // namespace rmsnorm::convert::checkpoint
