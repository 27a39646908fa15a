#include "convert/checkpoint/target.h"

#include <cmath>
#include <filesystem>

#include "convert/checkpoint/fields.h"

namespace rmsnorm::convert::checkpoint {

using tools::fail_input;
using tools::in_quotes;

namespace {

Json value_of(const Json& value, const Model& model);

// The number of hidden units by the width, as a program that cuts width * ratio to a whole number gets it back.
Json ratio_of(const Json& numbers, const Model& model) {
  const Json over = value_of(numbers[0], model);
  const Json under = value_of(numbers[1], model);
  if (!over.is_number_integer() || !under.is_number_integer() || over <= 0 || under <= 0) {
    refuse(RefusalCode::kUnsupportedOption, "--target", "the ratio of {} and {} is needed; both must be whole numbers",
           Fields::shown(over), Fields::shown(under));
  }
  const double wanted = over.get<double>();
  double ratio = wanted / under.get<double>();
  while (std::trunc(ratio * under.get<double>()) < wanted) ratio = std::nextafter(ratio, 2 * ratio);
  return ratio;
}

// A key of another file of the folder; null where there is none.
Json value_in_file(const Json& value, const Model& model) {
  const std::string path = model.checkpoint.folder() + "/" + value["file"].get<std::string>();
  if (!std::filesystem::exists(path)) return Json();
  const Json json = parse_json(read_text(path, kMaxConfigBytes), path, kMaxConfigBytes);
  return json.is_object() ? json.value(value["key"].get<std::string>(), Json()) : Json();
}

Json value_of(const Json& value, const Model& model) {
  if (value.is_array()) {
    Json list = Json::array();
    for (const Json& one : value) list.push_back(value_of(one, model));
    return list;
  }
  if (!value.is_object()) return value;
  if (value.contains("file")) return value_in_file(value, model);
  if (value.contains("key")) return model.config.value(value["key"].get<std::string>());
  if (value.contains("ratio")) return ratio_of(value["ratio"], model);
  const StoredTensor* tensor = model.find(value["length"].get<std::string>());
  const std::size_t axis = value.value("axis", std::size_t{0});
  return tensor == nullptr || axis >= tensor->shape.size() ? Json() : Json(tensor->shape[axis]);
}

void set_at(Json& json, const std::string& path, const Json& value) {
  Json* at = &json;
  std::size_t from = 0;
  for (std::size_t dot = path.find('.'); dot != std::string::npos; dot = path.find('.', from)) {
    at = &(*at)[path.substr(from, dot - from)];
    if (!at->is_object()) *at = Json::object();
    from = dot + 1;
  }
  (*at)[path.substr(from)] = value;
}

}  // namespace

const char* target_name(Target target) { return name_of(kTargets, target == Target::kAuto ? Target::kHf : target); }

const TargetRule* find_target(const Recipe& recipe, const std::string& name) {
  const auto found = recipe.targets.find(name);
  return found == recipe.targets.end() ? nullptr : &found->second;
}

std::vector<Indices> all_indices(const std::string& pattern, const Model& model) {
  const std::string letters = index_letters(pattern);
  if (letters.empty()) return {{}};
  if (model.streams.empty()) refuse(RefusalCode::kUnknown, "targets", "the recipe must have a stream");
  const std::map<char, std::string>& counts = model.streams.front().stream->counts;
  if (letters.size() > 1 || !counts.contains(letters[0])) {
    fail_input("recipe: targets has {}; it must have at most one index, of counts", in_quotes(pattern));
  }
  const std::int64_t end = model.config.integer(counts.at(letters[0]), "number of " + pattern);
  if (end > kMaxIndex) {
    fail_input("recipe: {} is {} tensors; it must be at most {}", in_quotes(pattern), end, kMaxIndex);
  }
  std::vector<Indices> all;
  for (std::int64_t i = 0; i < end; ++i) all.push_back({{letters[0], i}});
  return all;
}

std::vector<TargetName> target_tensors(const TargetRule& rule, const Model& model) {
  std::vector<TargetName> names;
  for (const TargetTensor& tensor : rule.tensors) {
    if (!holds(tensor.when, model.config)) continue;
    for (const Indices& indices : all_indices(tensor.name, model)) {
      for (const char* suffix : {".weight", ".bias"}) {
        TargetName& name = names.emplace_back();
        name.rule = &tensor;
        name.name = fill(tensor.name, indices) + (tensor.module ? suffix : "");
        name.optional = tensor.module && std::string_view(suffix) == ".bias";
        for (const TargetPiece& piece : tensor.of) {
          name.of.push_back(piece.name.empty() ? "" : fill(piece.name, indices) + (tensor.module ? suffix : ""));
        }
        if (!tensor.module) break;
      }
    }
  }
  return names;
}

Json target_config(const TargetRule& rule, const Model& model) {
  if (rule.config.empty()) return Json();
  Json config = Json::object();
  for (const TargetConfig& part : rule.config) {
    if (!holds(part.when, model.config)) continue;
    for (const auto& [path, value] : part.set.items()) {
      const Json set = value_of(value, model);
      if (!set.is_null()) set_at(config, path, set);
    }
  }
  return config;
}

std::size_t join_axis(const tools::Shape& shape) { return shape.size() < 2 ? 0 : shape.size() - 2; }

bool is_left_out(const TargetRule& rule, const Model& model, const std::string& name) {
  for (const std::string& pattern : rule.left_out) {
    for (const std::string& known : model.known_as(pattern)) {
      for (const std::string& prefix : model.recipe.prefixes) {
        if (matches(prefix + known, name)) return true;
      }
    }
  }
  return false;
}

}  // namespace rmsnorm::convert::checkpoint
