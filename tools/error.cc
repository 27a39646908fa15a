#include "tools/error.h"

#include <cerrno>
#include <system_error>

namespace rmsnorm::tools {

void fail_errno(std::string_view file, std::string_view action) {
  const int error = errno;
  fail(ExitCode::kInputOutput, "{}: cannot {}: {}", file, action, std::generic_category().message(error));
}

std::string in_quotes(std::string_view text) {
  constexpr std::size_t kMaxShown = 80;
  std::string result = "'";
  for (const char c : text.substr(0, kMaxShown)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte >= 0x7f) {
      result += fmt::format("\\x{:02x}", byte);
    } else {
      result += c;
    }
  }
  result += text.size() > kMaxShown ? "...'" : "'";
  return result;
}

}  // namespace rmsnorm::tools
