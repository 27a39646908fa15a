#include "tools/formats/temporaries.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <climits>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>

namespace rmsnorm::tools {

namespace {

// Paths that a signal handler may remove. A slot is claimed by the main code and only read by the handler.
constexpr int kSlots = 8;
struct Slot {
  std::atomic<bool> active{false};
  bool folder = false;
  char path[PATH_MAX];
};
std::array<Slot, kSlots> slots;

// Unlinks what lies in the open folder; returns the number of things removed. readdir may allocate, which a signal
// handler must not: the system call does not.
int empty_folder(int folder, int depth) {
  struct Entry {
    std::uint64_t inode;
    std::int64_t offset;
    unsigned short length;
    unsigned char type;
    char name[1];
  };
  alignas(Entry) char buffer[8192];
  int removed = 0;
  while (true) {
    const long got = ::syscall(SYS_getdents64, folder, buffer, sizeof(buffer));
    if (got <= 0) return removed;
    for (long at = 0; at < got;) {
      const Entry* entry = reinterpret_cast<const Entry*>(buffer + at);
      const char* name = buffer + at + offsetof(Entry, name);
      at += entry->length;
      if (std::strcmp(name, ".") == 0 || std::strcmp(name, "..") == 0) continue;
      if (::unlinkat(folder, name, 0) == 0) {
        ++removed;
        continue;
      }
      const int inner = depth == 0 ? -1 : ::openat(folder, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
      if (inner < 0) continue;
      while (empty_folder(inner, depth - 1) > 0) ::lseek(inner, 0, SEEK_SET);
      ::close(inner);
      if (::unlinkat(folder, name, AT_REMOVEDIR) == 0) ++removed;
    }
  }
}

extern "C" void remove_temporaries(int signal_number) {
  for (Slot& slot : slots) {
    if (!slot.active.load()) continue;
    if (slot.folder) {
      remove_folder(slot.path);
    } else {
      ::unlink(slot.path);
    }
  }
  // The handler was installed with SA_RESETHAND: this ends the process as the signal would have.
  ::raise(signal_number);
}

}  // namespace

int register_temporary(const std::string& path, bool folder) {
  for (int i = 0; i < kSlots; ++i) {
    Slot& slot = slots[static_cast<std::size_t>(i)];
    if (slot.active.load() || path.size() >= sizeof(slot.path)) continue;
    std::memcpy(slot.path, path.c_str(), path.size() + 1);
    slot.folder = folder;
    slot.active.store(true);
    return i;
  }
  return -1;
}

void unregister_temporary(int slot) {
  if (slot >= 0) slots[static_cast<std::size_t>(slot)].active.store(false);
}

void remove_folder(const char* path) {
  const int folder = ::open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
  if (folder < 0) return;
  // Removal while reading may hide entries: read again until nothing is found.
  while (empty_folder(folder, 1) > 0) ::lseek(folder, 0, SEEK_SET);
  ::close(folder);
  ::rmdir(path);
}

SignalsBlocked::SignalsBlocked() {
  static_assert(sizeof(sigset_t) <= sizeof(before_) && alignof(sigset_t) <= 16);
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, reinterpret_cast<sigset_t*>(before_));
}

SignalsBlocked::~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, reinterpret_cast<sigset_t*>(before_), nullptr); }

bool take_new_name(const std::string& temporary, const std::string& path) {
  if (::renameat2(AT_FDCWD, temporary.c_str(), AT_FDCWD, path.c_str(), RENAME_NOREPLACE) == 0) return true;
  if (errno != EINVAL && errno != ENOSYS) return false;
  // A file system without this promise.
  struct stat status;
  if (::lstat(path.c_str(), &status) == 0) {
    errno = EEXIST;
    return false;
  }
  return ::rename(temporary.c_str(), path.c_str()) == 0;
}

void install_signal_handlers() {
  struct sigaction action = {};
  action.sa_handler = remove_temporaries;
  action.sa_flags = SA_RESETHAND;
  sigfillset(&action.sa_mask);
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) {
    struct sigaction present;
    // A signal that the parent ignores (nohup) stays ignored.
    if (::sigaction(number, nullptr, &present) == 0 && present.sa_handler != SIG_IGN) {
      ::sigaction(number, &action, nullptr);
    }
  }
  ::signal(SIGXFSZ, SIG_IGN);
}

}  // namespace rmsnorm::tools
