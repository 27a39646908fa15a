#include "lab/experiments/turn.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "tools/error.h"

namespace rmsnorm::lab {

namespace {

namespace fs = std::filesystem;

int open_locked(const fs::path& path, int operation) {
  const int file = ::open(path.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0666);
  if (file < 0) tools::fail_errno(tools::printable(path.string()), "open");
  while (::flock(file, operation) != 0) {
    if (errno == EINTR) continue;
    const int error = errno;
    ::close(file);
    errno = error;
    tools::fail_errno(tools::printable(path.string()), "lock");
  }
  return file;
}

}  // namespace

Turn::Turn(const fs::path& folder, bool alone) {
  // Who waits to be alone holds the gate meanwhile: without it, those that work side by side could follow each other
  // for ever.
  const int gate = open_locked(folder / ".gate", LOCK_EX);
  try {
    turn_ = open_locked(folder / ".turn", alone ? LOCK_EX : LOCK_SH);
  } catch (...) {
    ::close(gate);
    throw;
  }
  ::close(gate);
}

Turn::~Turn() { ::close(turn_); }

}  // namespace rmsnorm::lab
