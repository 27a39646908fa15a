// Values of a configuration, conditions on them, and the recipe that fits.
#include <cmath>

#include "convert/checkpoint/fields.h"
#include "convert/checkpoint/recipe.h"

namespace rmsnorm::convert::checkpoint {

namespace {

using tools::fail_input;
using tools::in_quotes;

// The value at a dotted path; nullptr when there is none.
const Json* walk(const Json& json, std::string_view path) {
  const Json* at = &json;
  while (true) {
    if (!at->is_object()) return nullptr;
    const std::size_t dot = path.find('.');
    const auto found = at->find(std::string(path.substr(0, dot)));
    if (found == at->end()) return nullptr;
    at = &*found;
    if (dot == std::string_view::npos) return at;
    path.remove_prefix(dot + 1);
  }
}

template <class Visit>
const Json* first_of(std::string_view keys, const Visit& visit) {
  while (true) {
    const std::size_t bar = keys.find('|');
    if (const Json* value = visit(keys.substr(0, bar))) return value;
    if (bar == std::string_view::npos) return nullptr;
    keys.remove_prefix(bar + 1);
  }
}

bool equal(const Json& value, const Json& wanted) {
  if (value.is_number() && wanted.is_number()) return value.get<double>() == wanted.get<double>();
  return value == wanted;
}

// A list on either side: one of its elements is enough.
bool meets(const Json& value, const Json& wanted) {
  if (wanted.is_array()) {
    for (const auto& one : wanted) {
      if (meets(value, one)) return true;
    }
    return false;
  }
  if (value.is_array() && !wanted.is_array()) {
    for (const auto& one : value) {
      if (equal(one, wanted)) return true;
    }
    return false;
  }
  return equal(value, wanted);
}

bool is_number(const std::string& text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
}

}  // namespace

bool Config::in_file(std::string_view key) const {
  const Json* value = first_of(key, [&](std::string_view one) { return walk(config_, one); });
  return value != nullptr && !value->is_null();
}

Json Config::value(std::string_view key) const {
  const auto in_config = [&](std::string_view one) { return walk(config_, one); };
  // The defaults are one flat object whose keys may hold dots.
  const auto in_defaults = [&](std::string_view one) -> const Json* {
    const auto found = defaults_.find(std::string(one));
    return found == defaults_.end() ? nullptr : &*found;
  };
  const auto either = [&](std::string_view keys) {
    const Json* value = first_of(keys, in_config);
    return value != nullptr ? value : first_of(keys, in_defaults);
  };
  const Json* value = either(key);
  if (value == nullptr) return Json();
  // A default of another key's value; one step, so that no circle is followed.
  if (value->is_object() && value->size() == 1 && value->contains("key") && (*value)["key"].is_string()) {
    value = either((*value)["key"].get<std::string>());
  }
  return value == nullptr ? Json() : *value;
}

bool Config::flag(const std::string& key) const {
  const Json found = value(key);
  if (found.is_null()) return false;
  if (!found.is_boolean()) {
    refuse(RefusalCode::kUnsupportedOption, key, "the configuration says {}; it must be true or false",
           Fields::shown(found));
  }
  return found.get<bool>();
}

std::int64_t Config::integer(const std::string& key_or_number, std::string_view what) const {
  constexpr std::int64_t kMost = std::int64_t{1} << 40;
  const Json found = is_number(key_or_number) ? Json::parse(key_or_number) : value(key_or_number);
  if (!found.is_number_integer() || found < 0 || found > kMost) {
    refuse(RefusalCode::kUnknown, key_or_number, "the configuration says {} for the {}; it must be a whole number",
           found.is_null() ? "nothing" : Fields::shown(found), what);
  }
  return found.get<std::int64_t>();
}

double Config::epsilon(const Json& key_or_number, std::string_view site) const {
  const Json found = key_or_number.is_string() ? value(key_or_number.get<std::string>()) : key_or_number;
  if (!found.is_number() || !(found.get<double>() > 0) || !std::isfinite(found.get<double>())) {
    refuse(RefusalCode::kNormKind, site, "epsilon ({}) is {}; it must be a number above 0, in the configuration",
           key_or_number.is_string() ? key_or_number.get<std::string>() : "in the recipe", Fields::shown(found));
  }
  return found.get<double>();
}

bool holds(const Json& condition, const Config& config) {
  if (condition.is_null()) return true;
  for (const auto& [key, wanted] : condition.items()) {
    bool met = false;
    if (key == "any") {
      for (const auto& one : wanted) met = met || holds(one, config);
    } else if (key == "all") {
      met = true;
      for (const auto& one : wanted) met = met && holds(one, config);
    } else if (key == "not") {
      met = !holds(wanted, config);
    } else if (wanted.is_object() && wanted.contains("present")) {
      met = config.in_file(key) == wanted["present"].get<bool>();
    } else if (wanted.is_object()) {
      met = equal(config.value(key), config.value(wanted["key"].get<std::string>()));
    } else {
      if (wanted.is_boolean()) config.flag(key);  // 1 and "false" are neither
      met = meets(config.value(key), wanted);
    }
    if (!met) return false;
  }
  return true;
}

Recipe choose_recipe(const Json& config, const std::string& path) {
  if (!path.empty()) return parse_recipe(read_text(path, kMaxRecipeBytes), path);
  const Json* type = walk(config, "model_type");
  if (type == nullptr || !type->is_string()) {
    refuse(RefusalCode::kUnknown, "model_type",
           "config.json has no model_type; it must name a family, or --recipe a file");
  }
  std::string known;
  for (const RecipeText& text : built_in_recipes()) {
    Recipe recipe = parse_recipe(text.text, std::string(text.name));
    for (const std::string& name : recipe.model_types) {
      known += (known.empty() ? "" : ", ") + name;
      if (name == *type && holds(recipe.select, Config(config, recipe.defaults))) return recipe;
    }
  }
  refuse(RefusalCode::kUnknown, "model_type",
         "{} is no family with a recipe ({}); write one and give it with --recipe, see docs/recipes.md",
         in_quotes(type->get<std::string>()), known);
}

}  // namespace rmsnorm::convert::checkpoint
