// One object of a recipe, read key by key: a wrong type and a key that nobody asked for are errors that name them.
#ifndef RMSNORM_CONVERT_CHECKPOINT_FIELDS_H_
#define RMSNORM_CONVERT_CHECKPOINT_FIELDS_H_

#include <set>
#include <string>
#include <vector>

#include "convert/checkpoint/json_text.h"
#include "tools/error.h"

namespace rmsnorm::convert::checkpoint {

class Fields {
 public:
  // `place` is where in the recipe the object stands, for messages.
  Fields(const Json& object, std::string place) : object_(object), place_(std::move(place)) {
    if (!object.is_object()) tools::fail_input("{} is {}; it must be an object", place_, shown(object));
  }

  const std::string& place() const { return place_; }
  std::string place(std::string_view key) const { return place_ + "." + std::string(key); }

  // The value; null when the key is absent.
  const Json* find(const char* key) {
    known_.insert(key);
    const auto found = object_.find(key);
    return found == object_.end() ? nullptr : &*found;
  }
  const Json& need(const char* key) {
    const Json* value = find(key);
    if (value == nullptr) tools::fail_input("{} is missing; it must be there", place(key));
    return *value;
  }
  Json json(const char* key) {
    const Json* value = find(key);
    return value == nullptr ? Json() : *value;
  }
  std::string text(const char* key, const std::string& otherwise = "") {
    const Json* value = find(key);
    return value == nullptr ? otherwise : text_of(*value, place(key));
  }
  int number(const char* key, int otherwise, int least, int most) {
    const Json* value = find(key);
    if (value == nullptr) return otherwise;
    if (!value->is_number_integer() || *value < least || *value > most) {
      tools::fail_input("{} is {}; it must be a whole number from {} to {}", place(key), shown(*value), least, most);
    }
    return value->get<int>();
  }
  bool flag(const char* key) {
    const Json* value = find(key);
    if (value == nullptr) return false;
    if (!value->is_boolean()) tools::fail_input("{} is {}; it must be true or false", place(key), shown(*value));
    return value->get<bool>();
  }
  std::vector<std::string> texts(const char* key) {
    std::vector<std::string> result;
    for_each(key, [&](const Json& value, const std::string& at) { result.push_back(text_of(value, at)); });
    return result;
  }
  // Calls visit(value, place) for each element of a list that may be absent.
  template <class Visit>
  void for_each(const char* key, const Visit& visit) {
    const Json* value = find(key);
    if (value == nullptr) return;
    if (!value->is_array()) tools::fail_input("{} is {}; it must be a list", place(key), shown(*value));
    for (std::size_t i = 0; i < value->size(); ++i) visit((*value)[i], fmt::format("{}[{}]", place(key), i));
  }

  // Nothing else may be there.
  void finish() const {
    for (const auto& [key, value] : object_.items()) {
      if (known_.contains(key)) continue;
      std::string names;
      for (const auto& name : known_) names += (names.empty() ? "" : ", ") + name;
      tools::fail_input("{} has the key {}; it must be one of {}", place_, tools::in_quotes(key), names);
    }
  }

  static std::string text_of(const Json& value, const std::string& place) {
    if (!value.is_string() || value.get_ref<const std::string&>().empty()) {
      tools::fail_input("{} is {}; it must be a text", place, shown(value));
    }
    return value.get<std::string>();
  }
  static std::string shown(const Json& value) {
    return tools::in_quotes(value.dump(-1, ' ', true, Json::error_handler_t::replace));
  }

 private:
  const Json& object_;
  std::string place_;
  std::set<std::string> known_;
};

}  // namespace rmsnorm::convert::checkpoint

#endif  // RMSNORM_CONVERT_CHECKPOINT_FIELDS_H_
