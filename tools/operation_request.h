// From a command line to a request of an operation: settings, types and presence of operands.
#ifndef RMSNORM_TOOLS_OPERATION_REQUEST_H_
#define RMSNORM_TOOLS_OPERATION_REQUEST_H_

#include <CLI/CLI.hpp>

#include <map>
#include <string>

#include "check/operation.h"

namespace rmsnorm::tools {

// The settings of one operation, each an option of its own.
class SettingArguments {
 public:
  void add_to(CLI::App& command, const check::Operation& op);
  void apply(const check::Operation& op, check::Request& request) const;

 private:
  std::map<std::string, std::string, std::less<>> given_;
};

// Takes "NAME=TYPE", "NAME=absent" or "NAME=present" over.
void apply_operand(const check::Operation& op, const std::string& text, check::Request& request);

// Takes "NAME=VALUE" over, a setting.
void apply_setting(const check::Operation& op, const std::string& name, const std::string& value,
                   check::Request& request);

// The operation's operands for the request; a shape it cannot take is a usage error.
std::vector<check::Slot> slots_of(const check::Operation& op, const check::Request& request);

// "rms_norm_backward, ..": for help.
std::string operation_names();

}  // namespace rmsnorm::tools

#endif  // RMSNORM_TOOLS_OPERATION_REQUEST_H_
