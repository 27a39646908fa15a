#include "core/status.h"

#include <cstdarg>
#include <cstdio>

namespace rmsnorm {

namespace {
constexpr int kMessageBytes = 512;
thread_local char message[kMessageBytes] = "";
}  // namespace

rn_status fail(rn_status code, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(message, kMessageBytes, format, arguments);
  va_end(arguments);
  return code;
}

const char* last_error() { return message; }

}  // namespace rmsnorm
