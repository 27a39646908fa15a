#include "tools/error.h"

#include <cerrno>
#include <system_error>

namespace rmsnorm::tools {

void fail_errno(std::string_view file, std::string_view action) {
  const int error = errno;
  fail(ExitCode::kInputOutput, "{}: cannot {}: {}", file, action, std::generic_category().message(error));
}

namespace {

void add_escaped(std::string& result, char c) {
  const auto byte = static_cast<unsigned char>(c);
  if (byte < 0x20 || byte >= 0x7f) {
    result += fmt::format("\\x{:02x}", byte);
  } else {
    result += c;
  }
}

}  // namespace

std::string in_quotes(std::string_view text) {
  constexpr std::size_t kMaxShown = 80;
  std::string result = "'";
  for (const char c : text.substr(0, kMaxShown)) add_escaped(result, c);
  result += text.size() > kMaxShown ? "...'" : "'";
  return result;
}

std::string printable(std::string_view text, bool lines) {
  std::string result;
  for (std::size_t i = 0; i < text.size();) {
    const auto byte = [&](std::size_t k) { return k < text.size() ? static_cast<unsigned char>(text[k]) : 0u; };
    const unsigned lead = byte(i);
    std::size_t length = lead < 0x80 ? 1 : lead < 0xc2 ? 0 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : lead < 0xf5 ? 4 : 0;
    for (std::size_t k = 1; k < length; ++k) {
      if ((byte(i + k) & 0xc0) != 0x80) length = 0;
    }
    const bool control = (lead < 0x20 && !(lines && lead == '\n')) || lead == 0x7f ||
                         (lead == 0xc2 && byte(i + 1) < 0xa0);  // with those of 8 bits
    if (length == 0 || control) {
      result += fmt::format("\\x{:02x}", lead);
      ++i;
    } else {
      result += text.substr(i, length);
      i += length;
    }
  }
  return result;
}

}  // namespace rmsnorm::tools
