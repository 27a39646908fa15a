// What the machine and the caller of the tests allow.
#ifndef RMSNORM_TEST_SUPPORT_ENVIRONMENT_H_
#define RMSNORM_TEST_SUPPORT_ENVIRONMENT_H_

#include <cstdlib>
#include <string>
#include <vector>

#include "cpu/rows.h"
#include "rmsnorm/rmsnorm.h"

namespace rmsnorm::test {

// RMSNORM_TEST_REDUCED=1: for emulators and sanitizers. The same tests on fewer values.
inline bool reduced() {
  const char* value = std::getenv("RMSNORM_TEST_REDUCED");
  return value != nullptr && *value != '\0' && *value != '0';
}

inline std::vector<std::string> supported_targets() {
  std::vector<std::string> names;
  for (int i = 0; i < rn_target_count(); ++i) {
    if (rn_target_supported(i)) names.emplace_back(rn_target_name(i));
  }
  return names;
}

// Uses a target until the end of the scope.
class UseTarget {
 public:
  explicit UseTarget(const std::string& name) : before_(rn_target()) { rn_use_target(name.c_str()); }
  ~UseTarget() { rn_use_target(before_.c_str()); }
  UseTarget(const UseTarget&) = delete;
  UseTarget& operator=(const UseTarget&) = delete;

 private:
  std::string before_;
};

// Until the end of the scope, small calls are shared by threads and written around the caches as large ones are.
class AsIfLarge {
 public:
  AsIfLarge() : before_(call_sizes()) { call_sizes() = {1 << 10, 4 << 10}; }
  ~AsIfLarge() { call_sizes() = before_; }
  AsIfLarge(const AsIfLarge&) = delete;
  AsIfLarge& operator=(const AsIfLarge&) = delete;

 private:
  CallSizes before_;
};

}  // namespace rmsnorm::test

#endif  // RMSNORM_TEST_SUPPORT_ENVIRONMENT_H_
