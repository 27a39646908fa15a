#include "tools/operation_request.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "tools/arguments.h"
#include "tools/error.h"

namespace rmsnorm::tools {

using check::option_name;

void SettingArguments::add_to(CLI::App& command, const check::Operation& op) {
  for (const check::Setting& s : op.settings()) {
    std::string help(s.help);
    if (!s.choices.empty()) {
      help += fmt::format(": {}; default {}", fmt::join(s.choices, ", "), s.choices[static_cast<std::size_t>(s.value)]);
    } else {
      help += fmt::format("; default {}", s.value);
    }
    command.add_option(option_name(s.name), given_[std::string(s.name)], help)
        ->type_name(s.choices.empty() ? "N" : "NAME");
  }
}

void SettingArguments::apply(const check::Operation& op, check::Request& request) const {
  for (const auto& [name, value] : given_) {
    if (!value.empty()) apply_setting(op, name, value, request);
  }
}

void apply_setting(const check::Operation& op, const std::string& name, const std::string& value,
                   check::Request& request) {
  for (const check::Setting& s : op.settings()) {
    if (s.name != name) continue;
    if (!s.choices.empty()) {
      const auto found = std::find(s.choices.begin(), s.choices.end(), value);
      if (found == s.choices.end()) {
        fail(ExitCode::kUsage, "{} is {}; it must be one of {}", option_name(name), in_quotes(value),
             fmt::join(s.choices, ", "));
      }
      request.settings[name] = static_cast<double>(found - s.choices.begin());
      return;
    }
    double number = 0;
    const char* const end = value.data() + value.size();
    const auto [stop, error] = std::from_chars(value.data(), end, number);
    const bool whole = std::trunc(number) == number && std::fabs(number) < 0x1p53;
    if (error != std::errc() || stop != end || (s.whole && !whole)) {
      fail(ExitCode::kUsage, "{} is {}; it must be a {}number", option_name(name), in_quotes(value),
           s.whole ? "whole " : "");
    }
    request.settings[name] = number;
    return;
  }
  std::vector<std::string> names;
  for (const check::Setting& s : op.settings()) names.emplace_back(s.name);
  fail(ExitCode::kUsage, "{}: setting is {}; it must be one of {}", op.name(), in_quotes(name), fmt::join(names, ", "));
}

void apply_operand(const check::Operation& op, const std::string& text, check::Request& request) {
  const std::size_t equals = text.find('=');
  const std::string name = text.substr(0, equals);
  const std::string value = equals == std::string::npos ? "" : text.substr(equals + 1);
  const auto optional = op.optional();
  const bool may_be_absent =
      std::any_of(optional.begin(), optional.end(), [&](const auto& entry) { return entry.first == name; });
  if (may_be_absent && (value == "absent" || value == "present")) {
    request.present[name] = value == "present";
    return;
  }
  const std::vector<rn_type> allowed = op.types(name, request.x);
  if (allowed.empty()) {
    fail(ExitCode::kUsage, "operand is {}; {} has no such operand beside x", in_quotes(text), op.name());
  }
  for (const rn_type type : allowed) {
    if (value != rn_type_name(type)) continue;
    request.types[name] = type;
    if (may_be_absent) request.present[name] = true;
    return;
  }
  std::vector<std::string> names;
  for (const rn_type type : allowed) names.emplace_back(rn_type_name(type));
  if (may_be_absent) names.emplace_back("absent");
  fail(ExitCode::kUsage, "{} is {}; it must be one of {} where x is {}", name, in_quotes(value), fmt::join(names, ", "),
       rn_type_name(request.x));
}

std::vector<check::Slot> slots_of(const check::Operation& op, const check::Request& request) {
  try {
    return op.slots(request);
  } catch (const std::invalid_argument& error) {
    fail(ExitCode::kUsage, "{}: {}", op.name(), error.what());
  }
}

std::string operation_names() {
  std::string names;
  for (const check::Operation* op : check::operations()) {
    names += (names.empty() ? "" : ", ") + std::string(op->name());
  }
  return names;
}

}  // namespace rmsnorm::tools
