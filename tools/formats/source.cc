#include "tools/formats/source.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "tools/error.h"

namespace rmsnorm::tools {

FileSource::FileSource(std::string path) : path_(std::move(path)) {
  // Without O_NONBLOCK the opening of a FIFO would wait for a writer before anything could be said about it.
  descriptor_ = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor_ < 0) fail_errno(path_, "open");
  struct stat status;
  if (::fstat(descriptor_, &status) != 0) {
    ::close(descriptor_);
    fail_errno(path_, "read");
  }
  if (!S_ISREG(status.st_mode)) {
    ::close(descriptor_);
    fail(ExitCode::kInputOutput, "{}: this is {}; it must be a regular file", path_,
         S_ISDIR(status.st_mode) ? "a directory" : "a device, pipe or socket");
  }
  size_ = static_cast<std::uint64_t>(status.st_size);
}

FileSource::~FileSource() { ::close(descriptor_); }

void FileSource::read(std::uint64_t offset, std::span<std::byte> out) const {
  constexpr std::size_t kChunk = std::size_t{16} << 20;
  Progress progress("reading " + path_, out.size());
  while (!out.empty()) {
    const ssize_t got = ::pread(descriptor_, out.data(), std::min(out.size(), kChunk), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail_errno(path_, "read");
    if (got == 0) fail(ExitCode::kInputOutput, "{}: the file became shorter while it was read", path_);
    offset += static_cast<std::uint64_t>(got);
    out = out.subspan(static_cast<std::size_t>(got));
    progress.advance(static_cast<std::uint64_t>(got));
  }
}

void MemorySource::read(std::uint64_t offset, std::span<std::byte> out) const {
  if (offset > bytes_.size() || out.size() > bytes_.size() - offset) {
    fail(ExitCode::kInternal, "{}: bytes {} + {} were asked for; there are {}", name_, offset, out.size(),
         bytes_.size());
  }
  if (!out.empty()) std::memcpy(out.data(), bytes_.data() + offset, out.size());
}

}  // namespace rmsnorm::tools
