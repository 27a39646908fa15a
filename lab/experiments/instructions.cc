#include "lab/experiments/instructions.h"

#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

namespace rmsnorm::lab {

namespace {

[[noreturn]] void child(const std::function<void()>& work) {
  work();
  if (::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) ::_exit(1);
  ::raise(SIGSTOP);
  work();
  ::raise(SIGSTOP);
  ::_exit(0);
}

// Between the child's two stops.
std::optional<std::int64_t> steps_between_stops(pid_t pid) {
  int status = 0;
  if (::waitpid(pid, &status, 0) != pid || !WIFSTOPPED(status) || WSTOPSIG(status) != SIGSTOP) return std::nullopt;
  for (std::int64_t steps = 0;; ++steps) {
    if (::ptrace(PTRACE_SINGLESTEP, pid, nullptr, nullptr) != 0) return std::nullopt;
    if (::waitpid(pid, &status, 0) != pid || !WIFSTOPPED(status)) return std::nullopt;
    if (WSTOPSIG(status) == SIGSTOP) return steps;
    if (WSTOPSIG(status) != SIGTRAP) return std::nullopt;
  }
}

std::optional<std::int64_t> count(const std::function<void()>& work) {
  const pid_t pid = ::fork();
  if (pid < 0) return std::nullopt;
  if (pid == 0) child(work);
  const std::optional<std::int64_t> steps = steps_between_stops(pid);
  ::kill(pid, SIGKILL);
  ::waitpid(pid, nullptr, 0);
  return steps;
}

}  // namespace

std::optional<std::int64_t> count_instructions(const std::function<void()>& work) {
  const std::optional<std::int64_t> nothing = count([] {}), all = count(work);
  if (!nothing || !all) return std::nullopt;
  return *all - *nothing;
}

}  // namespace rmsnorm::lab
