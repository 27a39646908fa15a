// Options that several subcommands share, and what turns the library's answers into exit codes.
#ifndef RMSNORM_TOOLS_ARGUMENTS_H_
#define RMSNORM_TOOLS_ARGUMENTS_H_

#include <CLI/CLI.hpp>

#include <optional>
#include <string>

#include "check/case.h"

namespace rmsnorm::tools {

// The options of the operations. What is not given keeps the operation's own default.
struct OptionArguments {
  std::optional<double> epsilon;
  std::optional<double> weight_offset;
  std::optional<std::int64_t> partial;
  std::string epsilon_placement;
  std::string rounding;
  std::string norm_input;

  void add_to(CLI::App& command);
  // Throws for an option that `op` does not have.
  void apply(check::Case& c) const;
};

struct ExecutionArguments {
  std::int32_t threads = 0;
  std::string target;

  void add_to(CLI::App& command);
  // Chooses the target. Throws with ExitCode::kUnavailable for one that this machine or this build lacks.
  void apply() const;
};

// "rms_norm, layer_norm, ..": for help.
std::string op_names();

check::Op parse_op(const std::string& name);
rn_type parse_type(const std::string& option, const std::string& name);

// Throws the library's message unless the call succeeded.
void require(rn_status status);

}  // namespace rmsnorm::tools

#endif  // RMSNORM_TOOLS_ARGUMENTS_H_
