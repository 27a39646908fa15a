// The targets of this build and the one in use.
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "core/status.h"
#include "cpu/target.h"
#include "cpu/target_list.h"  // generated: RMSNORM_TARGETS(DO) is DO(name) for each target, best first

namespace rmsnorm {

#define RMSNORM_DECLARE(name)  \
  namespace name {             \
  extern const Target kTarget; \
  }
RMSNORM_TARGETS(RMSNORM_DECLARE)
#undef RMSNORM_DECLARE

namespace {

#define RMSNORM_ADDRESS(name) &name::kTarget,
constexpr const Target* kTargets[] = {RMSNORM_TARGETS(RMSNORM_ADDRESS)};
#undef RMSNORM_ADDRESS
constexpr int kCount = sizeof kTargets / sizeof kTargets[0];

constexpr char kBest[] = "best supported";
constexpr char kEnvironment[] = "RMSNORM_TARGET";
constexpr char kCall[] = "rn_use_target";

// Chosen at first use. Two threads that choose at once choose the same.
std::atomic<const Target*> chosen{nullptr};
std::atomic<const char*> reason{""};

// The supported target of that name, or the best supported one of that family; null if there is none.
const Target* find(const char* name) {
  for (const Target* target : kTargets) {
    if (std::strcmp(target->name, name) == 0 && target->supported()) return target;
  }
  for (const Target* target : kTargets) {
    if (std::strcmp(target->family, name) == 0 && target->supported()) return target;
  }
  return nullptr;
}

// "avx2, sse4, scalar": what this machine can run.
void list_supported(char* text, size_t size) {
  size_t used = 0;
  text[0] = '\0';
  for (const Target* target : kTargets) {
    if (!target->supported()) continue;
    const int n = std::snprintf(text + used, size - used, "%s%s", used == 0 ? "" : ", ", target->name);
    if (n < 0 || used + static_cast<size_t>(n) >= size) return;
    used += static_cast<size_t>(n);
  }
}

rn_status refuse(const char* function, const char* what, const char* name) {
  char names[128];
  list_supported(names, sizeof names);
  return fail(RN_UNAVAILABLE, "%s: %s is \"%.64s\"; it must be a target that this machine can run: %s", function, what,
              name, names);
}

void use(const Target* target, const char* why) {
  reason.store(why, std::memory_order_relaxed);
  chosen.store(target, std::memory_order_release);
  const char* verbose = std::getenv("RMSNORM_VERBOSE");
  if (verbose != nullptr && std::strcmp(verbose, "1") == 0) {
    std::fprintf(stderr, "rmsnorm %s: target %s (%s): %s\n", RMSNORM_VERSION, target->name, target->description, why);
  }
}

bool in_range(int32_t index) { return index >= 0 && index < kCount; }

}  // namespace

TargetList all_targets() { return {kTargets, kCount}; }

const Target* active_target() {
  const Target* target = chosen.load(std::memory_order_acquire);
  if (target != nullptr) return target;
  const char* name = std::getenv("RMSNORM_TARGET");
  if (name != nullptr && name[0] != '\0') {
    target = find(name);
    if (target == nullptr) {
      refuse("rmsnorm", "the environment variable RMSNORM_TARGET", name);
      return nullptr;
    }
    use(target, kEnvironment);
    return target;
  }
  for (const Target* candidate : kTargets) {
    if (!candidate->supported()) continue;
    use(candidate, kBest);
    return candidate;
  }
  return nullptr;  // not reached: the scalar target runs anywhere
}

}  // namespace rmsnorm

extern "C" {

int32_t rn_target_count(void) { return rmsnorm::kCount; }
const char* rn_target_name(int32_t index) {
  return rmsnorm::in_range(index) ? rmsnorm::kTargets[index]->name : nullptr;
}
const char* rn_target_description(int32_t index) {
  return rmsnorm::in_range(index) ? rmsnorm::kTargets[index]->description : nullptr;
}
int32_t rn_target_supported(int32_t index) {
  return rmsnorm::in_range(index) && rmsnorm::kTargets[index]->supported() ? 1 : 0;
}
const char* rn_target(void) {
  const rmsnorm::Target* target = rmsnorm::active_target();
  return target == nullptr ? nullptr : target->name;
}
const char* rn_target_reason(void) {
  return rmsnorm::active_target() == nullptr ? rmsnorm::last_error() : rmsnorm::reason.load();
}
rn_status rn_use_target(const char* name) {
  if (name == nullptr) return rmsnorm::fail(RN_INVALID_TYPE, "rn_use_target: name is NULL; it must be a target's name");
  const rmsnorm::Target* target = rmsnorm::find(name);
  if (target == nullptr) return rmsnorm::refuse("rn_use_target", "name", name);
  rmsnorm::use(target, rmsnorm::kCall);
  return RN_OK;
}

}  // extern "C"
