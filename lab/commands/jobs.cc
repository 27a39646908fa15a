#include "lab/commands/jobs.h"

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <map>

#include "tools/error.h"

namespace rmsnorm::lab {

namespace {

constexpr char kProgram[] = "/proc/self/exe";

pid_t start(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "rmsnorm-lab");
  std::vector<char*> pointers;
  for (std::string& argument : arguments) pointers.push_back(argument.data());
  pointers.push_back(nullptr);
  std::fflush(stdout);
  const pid_t parent = ::getpid();
  const pid_t child = ::fork();
  if (child < 0) tools::fail_errno("rmsnorm-lab", "start another process");
  if (child > 0) return child;
  // A run that is killed must not leave others working. The parent may have died before prctl.
  if (::prctl(PR_SET_PDEATHSIG, SIGTERM) != 0 || ::getppid() != parent) ::_exit(EXIT_FAILURE);
  ::execv(kProgram, pointers.data());
  std::perror("rmsnorm-lab: cannot start another process");
  ::_exit(static_cast<int>(tools::ExitCode::kInternal));
}

}  // namespace

std::vector<tools::ExitCode> run_side_by_side(const std::vector<std::vector<std::string>>& arguments, int jobs) {
  std::vector<tools::ExitCode> codes(arguments.size());
  std::map<pid_t, std::size_t> running;
  std::size_t next = 0;
  while (next < arguments.size() || !running.empty()) {
    if (next < arguments.size() && running.size() < static_cast<std::size_t>(jobs)) {
      running[start(arguments[next])] = next;
      ++next;
      continue;
    }
    int status = 0;
    const pid_t ended = ::waitpid(-1, &status, 0);
    if (ended < 0 && errno == EINTR) continue;
    if (ended < 0) tools::fail_errno("rmsnorm-lab", "wait for another process");
    const auto found = running.find(ended);
    if (found == running.end()) continue;
    codes[found->second] =
        WIFEXITED(status) ? static_cast<tools::ExitCode>(WEXITSTATUS(status)) : tools::ExitCode::kInternal;
    running.erase(found);
  }
  return codes;
}

}  // namespace rmsnorm::lab
