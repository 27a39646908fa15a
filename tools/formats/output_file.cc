#include "tools/formats/output_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <filesystem>

#include "tools/error.h"
#include "tools/formats/temporaries.h"
#include "tools/progress.h"

namespace rmsnorm::tools {

namespace {

// The new file gets the rights of the one it replaces, or those that the umask leaves.
mode_t wanted_mode(const std::string& path) {
  struct stat status;
  if (::stat(path.c_str(), &status) == 0) return status.st_mode & 07777;
  const mode_t mask = ::umask(0);
  ::umask(mask);
  return 0666 & ~mask;
}

std::string resolve(const std::string& path) {
  struct stat status;
  if (::stat(path.c_str(), &status) == 0) {
    if (!S_ISREG(status.st_mode)) {
      fail(ExitCode::kInputOutput, "{}: output is {}; it must be a regular file or a new name", path,
           S_ISDIR(status.st_mode) ? "a directory" : "a device, pipe or socket");
    }
    char real[PATH_MAX];
    if (::realpath(path.c_str(), real) == nullptr) fail_errno(path, "write");
    return real;
  }
  if (errno != ENOENT) fail_errno(path, "write");
  if (::lstat(path.c_str(), &status) == 0) {
    fail(ExitCode::kInputOutput, "{}: output is a link to nothing; it must be a regular file or a new name", path);
  }
  return path;
}

std::string folder_of(const std::string& path) {
  const std::string folder = std::filesystem::path(path).parent_path().string();
  return folder.empty() ? "." : folder;
}

}  // namespace

OutputFile::OutputFile(std::string path) : path_(std::move(path)), final_(resolve(path_)) {
  const std::string name = std::filesystem::path(final_).filename().string();
  std::string temporary = folder_of(final_) + "/." + name.substr(0, 100) + ".rmsnorm-XXXXXX";
  const mode_t mode = wanted_mode(final_);
  int error = 0;
  {
    // A signal between the creation and the registration would leave the file.
    const SignalsBlocked blocked;
    descriptor_ = ::mkostemp(temporary.data(), O_CLOEXEC);
    error = errno;
    if (descriptor_ >= 0) slot_ = register_temporary(temporary, false);
  }
  if (descriptor_ < 0) {
    errno = error;
    fail_errno(path_, "write");
  }
  temporary_ = temporary;
  ::fchmod(descriptor_, mode);  // a file system without rights keeps its own
}

OutputFile::~OutputFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
  unregister_temporary(slot_);
}

void OutputFile::write(std::span<const std::byte> bytes) {
  constexpr std::size_t kChunk = std::size_t{16} << 20;
  Progress progress("writing " + path_, bytes.size());
  while (!bytes.empty()) {
    const ssize_t put = ::write(descriptor_, bytes.data(), std::min(bytes.size(), kChunk));
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) fail_errno(path_, "write");
    bytes = bytes.subspan(static_cast<std::size_t>(put));
    progress.advance(static_cast<std::uint64_t>(put));
  }
}

void OutputFile::finish() {
  if (::fsync(descriptor_) != 0) fail_errno(path_, "write");
  const int closed = ::close(descriptor_);
  descriptor_ = -1;
  if (closed != 0) fail_errno(path_, "write");
}

void OutputFile::publish() {
  if (::rename(temporary_.c_str(), final_.c_str()) != 0) fail_errno(path_, "write");
  published();
}

void OutputFile::publish_new() {
  if (!take_new_name(temporary_, final_)) {
    if (errno == EEXIST) fail(ExitCode::kInputOutput, "{}: output exists; it must be a new name", path_);
    fail_errno(path_, "write");
  }
  published();
}

void OutputFile::published() {
  temporary_.clear();
  unregister_temporary(slot_);
  slot_ = -1;
  // The name itself must survive a power cut, too; file systems that cannot promise it refuse, and nothing can be done.
  const int folder = ::open(folder_of(final_).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder >= 0) {
    ::fsync(folder);
    ::close(folder);
  }
}

void make_folder(const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) {
    fail(ExitCode::kInputOutput, "{}: cannot make the folder: {}", printable(folder.string()), error.message());
  }
}

}  // namespace rmsnorm::tools
