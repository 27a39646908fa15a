#include "tools/formats/location.h"

#include <sys/stat.h>

#include <memory>

#include "tools/error.h"
#include "tools/formats/npy.h"
#include "tools/formats/output_file.h"
#include "tools/formats/safetensors.h"

namespace rmsnorm::tools {

namespace {

constexpr std::string_view kNpy = ".npy";
constexpr std::string_view kSafetensors = ".safetensors";

bool exists(const std::string& path) {
  struct stat status;
  return ::stat(path.c_str(), &status) == 0;
}

}  // namespace

Location parse_location(std::string_view text) {
  const std::size_t colon = text.find(std::string(kSafetensors) + ":");
  if (colon != std::string_view::npos) {
    const std::size_t end = colon + kSafetensors.size();
    if (text.size() > end + 1) return {std::string(text.substr(0, end)), std::string(text.substr(end + 1))};
    text = text.substr(0, end);
  }
  if (text.ends_with(kNpy)) return {std::string(text), {}};
  if (text.ends_with(kSafetensors)) {
    std::string names = "FILE.safetensors:TENSOR";
    if (exists(std::string(text))) {
      const FileSource source{std::string(text)};
      for (const auto& entry : read_safetensors_header(source).entries) {
        names += fmt::format("\n  {} {} {}", in_quotes(entry.name), entry.dtype, shape_text(entry.shape));
      }
    }
    fail(ExitCode::kUsage, "{}: no tensor is named; it must be {}", text, names);
  }
  fail(ExitCode::kUsage, "{}: the name is {}; it must end in .npy, or be FILE.safetensors:TENSOR", text,
       in_quotes(text));
}

Tensor read_tensor(const Location& location, std::optional<rn_type> raw_type, bool* raw_used) {
  const FileSource source(location.file);
  if (location.is_npy()) return read_npy(source, raw_type, raw_used);
  return read_safetensors(source, read_safetensors_header(source), location.tensor);
}

bool same_file(const Location& a, const Location& b) {
  struct stat first;
  struct stat second;
  return ::stat(a.file.c_str(), &first) == 0 && ::stat(b.file.c_str(), &second) == 0 && first.st_dev == second.st_dev &&
         first.st_ino == second.st_ino;
}

void OutputSet::add(Location location, const Tensor& tensor) {
  for (const Output& other : outputs_) {
    const bool same = other.location.file == location.file || same_file(other.location, location);
    if (same && other.location.tensor == location.tensor) {
      fail(ExitCode::kUsage, "{}: two outputs have this name; it must be given once", location.file);
    }
    if (same) location.file = other.location.file;  // two tensors of one file are written together
  }
  outputs_.push_back({std::move(location), &tensor});
}

void OutputSet::commit() {
  std::vector<std::unique_ptr<OutputFile>> files;
  std::vector<bool> done(outputs_.size(), false);
  for (std::size_t i = 0; i < outputs_.size(); ++i) {
    if (done[i]) continue;
    const Location& location = outputs_[i].location;
    OutputFile& file = *files.emplace_back(std::make_unique<OutputFile>(location.file));
    if (location.is_npy()) {
      const std::string header = npy_header(outputs_[i].tensor->type, outputs_[i].tensor->shape);
      file.write(std::as_bytes(std::span(header)));
      file.write(outputs_[i].tensor->data.bytes());
    } else {
      std::vector<NamedTensor> tensors;
      for (std::size_t j = i; j < outputs_.size(); ++j) {
        if (outputs_[j].location.file != location.file) continue;
        tensors.push_back({outputs_[j].location.tensor, outputs_[j].tensor});
        done[j] = true;
      }
      std::unique_ptr<FileSource> base;
      if (exists(location.file)) base = std::make_unique<FileSource>(location.file);
      write_safetensors(file, base.get(), tensors);
    }
    file.finish();
  }
  for (const auto& file : files) file->publish();
}

}  // namespace rmsnorm::tools
