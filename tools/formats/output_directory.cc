#include "tools/formats/output_directory.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>

#include "tools/error.h"
#include "tools/formats/temporaries.h"

namespace rmsnorm::tools {

namespace {

std::string parent_of(const std::string& path) {
  const std::string folder = std::filesystem::path(path).parent_path().string();
  return folder.empty() ? "." : folder;
}

bool is_taken(const std::string& path) {
  struct stat status;
  return ::lstat(path.c_str(), &status) == 0;
}

[[noreturn]] void fail_exists(const std::string& path) {
  fail(ExitCode::kInputOutput, "{}: output exists; it must be a new name", path);
}

// File systems that cannot promise that a name survives a power cut refuse; nothing can be done then.
void sync_folder(const std::string& path) {
  const int folder = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder < 0) return;
  ::fsync(folder);
  ::close(folder);
}

mode_t mode_left_by_umask(mode_t wanted) {
  const mode_t mask = ::umask(0);
  ::umask(mask);
  return wanted & ~mask;
}

}  // namespace

OutputDirectory::File::File(std::string path, std::string shown, std::uint64_t size) : shown_(std::move(shown)) {
  descriptor_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666);
  if (descriptor_ < 0) fail_errno(shown_, "write");
  if (::ftruncate(descriptor_, static_cast<off_t>(size)) != 0) {
    const int error = errno;
    ::close(descriptor_);
    errno = error;
    fail_errno(shown_, "write");
  }
}

OutputDirectory::File::~File() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void OutputDirectory::File::write(std::uint64_t offset, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t put = ::pwrite(descriptor_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) fail_errno(shown_, "write");
    bytes = bytes.subspan(static_cast<std::size_t>(put));
    offset += static_cast<std::uint64_t>(put);
  }
}

void OutputDirectory::File::finish() {
  if (::fsync(descriptor_) != 0) fail_errno(shown_, "write");
  const int closed = ::close(descriptor_);
  descriptor_ = -1;
  if (closed != 0) fail_errno(shown_, "write");
}

OutputDirectory::OutputDirectory(std::string path) : path_(std::move(path)) {
  while (path_.size() > 1 && path_.ends_with('/')) path_.pop_back();
  if (path_.empty()) fail(ExitCode::kUsage, "OUT is empty; it must name a new folder");
  if (is_taken(path_)) fail_exists(path_);
  const std::string name = std::filesystem::path(path_).filename().string();
  std::string temporary = parent_of(path_) + "/." + name.substr(0, 100) + ".rmsnorm-XXXXXX";
  int error = 0;
  {
    const SignalsBlocked blocked;
    if (::mkdtemp(temporary.data()) == nullptr) {
      error = errno;
    } else {
      slot_ = register_temporary(temporary, true);
      temporary_ = temporary;
    }
  }
  if (temporary_.empty()) {
    errno = error;
    fail_errno(path_, "write");
  }
  ::chmod(temporary_.c_str(), mode_left_by_umask(0777));
}

OutputDirectory::~OutputDirectory() {
  files_.clear();
  if (!temporary_.empty()) remove_folder(temporary_.c_str());
  unregister_temporary(slot_);
}

OutputDirectory::File& OutputDirectory::add(const std::string& name, std::uint64_t size) {
  files_.push_back(std::make_unique<File>(temporary_ + "/" + name, path_ + "/" + name, size));
  return *files_.back();
}

void OutputDirectory::add(const std::string& name, const std::string& text) {
  add(name, text.size()).write(0, std::as_bytes(std::span(text)));
}

void OutputDirectory::add_folder(const std::string& name) {
  if (::mkdir((temporary_ + "/" + name).c_str(), 0777) != 0) fail_errno(path_ + "/" + name, "write");
  folders_.push_back(name);
}

void OutputDirectory::finish() {
  for (const auto& file : files_) file->finish();
  for (const auto& folder : folders_) sync_folder(temporary_ + "/" + folder);
  sync_folder(temporary_);
}

void OutputDirectory::publish() {
  if (!take_new_name(temporary_, path_)) {
    if (errno == EEXIST || errno == ENOTEMPTY) fail_exists(path_);
    fail_errno(path_, "write");
  }
  temporary_.clear();
  unregister_temporary(slot_);
  slot_ = -1;
  sync_folder(parent_of(path_));
}

}  // namespace rmsnorm::tools
