// The message that rn_last_error() returns.
#ifndef RMSNORM_CORE_STATUS_H_
#define RMSNORM_CORE_STATUS_H_

#include "rmsnorm/rmsnorm.h"

namespace rmsnorm {

// Formats the calling thread's message (printf rules, cut at the size of a fixed buffer) and returns `code`.
[[gnu::format(printf, 2, 3)]] rn_status fail(rn_status code, const char* format, ...);

const char* last_error();

}  // namespace rmsnorm

#endif  // RMSNORM_CORE_STATUS_H_
