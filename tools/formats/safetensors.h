// safetensors files: a JSON header that names tensors and their byte ranges, then the bytes.
// https://github.com/huggingface/safetensors (its description of the format)
#ifndef RMSNORM_TOOLS_FORMATS_SAFETENSORS_H_
#define RMSNORM_TOOLS_FORMATS_SAFETENSORS_H_

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tools/formats/output_directory.h"
#include "tools/formats/output_file.h"
#include "tools/formats/source.h"
#include "tools/formats/tensor.h"

namespace rmsnorm::tools {

// Longer headers are refused, as by the format's own library.
inline constexpr std::uint64_t kMaxSafetensorsHeaderBytes = 100'000'000;

// The one key of the header that names no tensor.
inline constexpr std::string_view kSafetensorsMetadata = "__metadata__";

struct SafetensorsEntry {
  std::string name;
  std::string dtype;  // as in the file, for instance "BF16"; also types that this program does not know
  Shape shape;
  std::uint64_t begin = 0;  // bytes, from data_start
  std::uint64_t end = 0;
};

using SafetensorsMetadata = std::vector<std::pair<std::string, std::string>>;

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> entries;  // in the order of their bytes
  std::optional<SafetensorsMetadata> metadata;
  std::uint64_t data_start = 0;

  const SafetensorsEntry* find(std::string_view name) const;
};

// Reads the header and checks it against the file: no duplicate, hole, overlap or size that does not fit.
SafetensorsHeader read_safetensors_header(const Source& source);

// Reads one tensor. Its type must be one of rn_type.
Tensor read_safetensors(const Source& source, const SafetensorsHeader& header, std::string_view name);

// True where `a` stands in front of `b` in a file of the format's own library: large elements first, so that each
// tensor is aligned; then by name.
bool safetensors_before(const SafetensorsEntry& a, const SafetensorsEntry& b);

// The header with its length before it. The entries come in their order and one behind the other; of `begin` and `end`
// only the difference counts.
std::string safetensors_head(std::span<const SafetensorsEntry> entries,
                             const std::optional<SafetensorsMetadata>& metadata);

// Values of `added` in place of those with the same key, or behind the others.
void merge_metadata(SafetensorsMetadata& metadata, const SafetensorsMetadata& added);

struct NamedTensor {
  std::string name;
  const Tensor* tensor;
};

// Writes the tensors of `base` (may be null), byte for byte, with `tensors` added or put in place of those with the
// same name; metadata likewise.
void write_safetensors(OutputFile& out, const Source* base, std::span<const NamedTensor> tensors,
                       const SafetensorsMetadata& metadata = {});

// The file `name` of a new folder.
void write_safetensors(OutputDirectory& out, const std::string& name, std::span<const NamedTensor> tensors,
                       const SafetensorsMetadata& metadata = {});

}  // namespace rmsnorm::tools

#endif  // RMSNORM_TOOLS_FORMATS_SAFETENSORS_H_
