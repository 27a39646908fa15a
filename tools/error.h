// The exception of the command line: a message for the user and the exit code that goes with it.
#ifndef RMSNORM_TOOLS_ERROR_H_
#define RMSNORM_TOOLS_ERROR_H_

#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <string_view>

#include "tools/exit_code.h"

namespace rmsnorm::tools {

class ToolError : public std::runtime_error {
 public:
  ToolError(ExitCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  ExitCode code() const { return code_; }

 private:
  ExitCode code_;
};

template <class... Args>
[[noreturn]] void fail(ExitCode code, fmt::format_string<Args...> format, Args&&... args) {
  throw ToolError(code, fmt::format(format, std::forward<Args>(args)...));
}

template <class... Args>
[[noreturn]] void fail_input(fmt::format_string<Args...> format, Args&&... args) {
  throw ToolError(ExitCode::kBadInput, fmt::format(format, std::forward<Args>(args)...));
}

// "<file>: cannot <action>: <reason of errno>".
[[noreturn]] void fail_errno(std::string_view file, std::string_view action);

// Text from a file, fit for a terminal: in quotes, control characters and bytes outside ASCII escaped, cut when long.
std::string in_quotes(std::string_view text);

// The same for messages and paths: whole, and UTF-8 stays; control characters and what is no UTF-8 are escaped. With
// `lines`, line ends stay.
std::string printable(std::string_view text, bool lines = false);

}  // namespace rmsnorm::tools

#endif  // RMSNORM_TOOLS_ERROR_H_
