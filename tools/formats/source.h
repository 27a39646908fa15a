// Bytes with a name: a file, or a piece of memory in tests and fuzzers.
#ifndef RMSNORM_TOOLS_FORMATS_SOURCE_H_
#define RMSNORM_TOOLS_FORMATS_SOURCE_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "tools/progress.h"

namespace rmsnorm::tools {

class Source {
 public:
  virtual ~Source() = default;
  virtual const std::string& name() const = 0;
  virtual std::uint64_t size() const = 0;
  // Fills `out` with the bytes from `offset`; the range must lie inside size(). Throws if the bytes cannot be had.
  virtual void read(std::uint64_t offset, std::span<std::byte> out) const = 0;
};

// A regular file. It is read, not mapped: a mapped file that somebody shortens would kill the process.
class FileSource : public Source {
 public:
  explicit FileSource(std::string path);
  ~FileSource() override;
  FileSource(const FileSource&) = delete;
  FileSource& operator=(const FileSource&) = delete;

  const std::string& name() const override { return path_; }
  std::uint64_t size() const override { return size_; }
  void read(std::uint64_t offset, std::span<std::byte> out) const override;

 private:
  std::string path_;
  int descriptor_;
  std::uint64_t size_;
};

class MemorySource : public Source {
 public:
  MemorySource(std::string name, std::span<const std::byte> bytes) : name_(std::move(name)), bytes_(bytes) {}
  const std::string& name() const override { return name_; }
  std::uint64_t size() const override { return bytes_.size(); }
  void read(std::uint64_t offset, std::span<std::byte> out) const override;

 private:
  std::string name_;
  std::span<const std::byte> bytes_;
};

}  // namespace rmsnorm::tools

#endif  // RMSNORM_TOOLS_FORMATS_SOURCE_H_
