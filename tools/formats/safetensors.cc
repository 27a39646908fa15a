#include "tools/formats/safetensors.h"

#include <nlohmann/json.hpp>

#include <algorithm>

#include "tools/error.h"
#include "tools/formats/safetensors_dtype.h"

namespace rmsnorm::tools {

namespace {

constexpr std::size_t kSafetensorsAlignment = 8;

// One tensor of the file to write, and where its bytes are.
struct Part {
  SafetensorsEntry entry;
  const Tensor* tensor;  // null: the bytes entry.begin .. entry.end of the base file
};

std::string head_of(const std::vector<Part>& parts, std::optional<SafetensorsMetadata> metadata,
                    const SafetensorsMetadata& added) {
  std::vector<SafetensorsEntry> entries;
  for (const Part& part : parts) entries.push_back(part.entry);
  if (!added.empty()) {
    if (!metadata) metadata.emplace();
    merge_metadata(*metadata, added);
  }
  return safetensors_head(entries, metadata);
}

void copy_bytes(OutputFile& out, const Source& base, std::uint64_t offset, std::uint64_t size) {
  constexpr std::uint64_t kChunk = std::uint64_t{16} << 20;
  Buffer buffer(static_cast<std::size_t>(std::min(size, kChunk)));
  while (size > 0) {
    const auto piece = buffer.bytes().first(static_cast<std::size_t>(std::min(size, kChunk)));
    base.read(offset, piece);
    out.write(piece);
    offset += piece.size();
    size -= piece.size();
  }
}

// What of `base` stays, and the new tensors, in the order of the file.
std::vector<Part> parts_of(const SafetensorsHeader& base, std::span<const NamedTensor> tensors) {
  std::vector<Part> parts;
  for (const auto& entry : base.entries) {
    const bool replaced =
        std::any_of(tensors.begin(), tensors.end(), [&](const auto& t) { return t.name == entry.name; });
    if (!replaced) parts.push_back({entry, nullptr});
  }
  for (const auto& [name, tensor] : tensors) {
    if (name == kSafetensorsMetadata) {
      fail(ExitCode::kUsage, "safetensors: tensor is {}; it must be another name, this one is the format's own", name);
    }
    parts.push_back(
        {{name, std::string(safetensors_name(tensor->type)), tensor->shape, 0, tensor->data.size()}, tensor});
  }
  std::sort(parts.begin(), parts.end(),
            [](const Part& a, const Part& b) { return safetensors_before(a.entry, b.entry); });
  return parts;
}

}  // namespace

bool safetensors_before(const SafetensorsEntry& a, const SafetensorsEntry& b) {
  const int bits_a = safetensors_bits(a.dtype).value_or(0), bits_b = safetensors_bits(b.dtype).value_or(0);
  return bits_a != bits_b ? bits_a > bits_b : a.name < b.name;
}

std::string safetensors_head(std::span<const SafetensorsEntry> entries,
                             const std::optional<SafetensorsMetadata>& metadata) {
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  if (metadata) {
    auto& object = json[std::string(kSafetensorsMetadata)] = nlohmann::ordered_json::object();
    for (const auto& [key, value] : *metadata) object[key] = value;
  }
  std::uint64_t offset = 0;
  for (const SafetensorsEntry& entry : entries) {
    const std::uint64_t size = entry.end - entry.begin;
    // ordered_json looks keys up one by one; names are known to be unique, so they are appended without a look.
    json.get_ref<nlohmann::ordered_json::object_t&>().push_back(
        {entry.name, {{"dtype", entry.dtype}, {"shape", entry.shape}, {"data_offsets", {offset, offset + size}}}});
    offset += size;
  }
  std::string text;
  try {
    text = json.dump();
  } catch (const nlohmann::json::type_error&) {  // a name from the command line
    fail(ExitCode::kUsage, "safetensors: the name of a tensor to write is not valid UTF-8; it must be");
  }
  text.append((kSafetensorsAlignment - text.size() % kSafetensorsAlignment) % kSafetensorsAlignment, ' ');
  std::string length(8, '\0');
  for (std::size_t i = 0; i < length.size(); ++i) length[i] = static_cast<char>(text.size() >> (8 * i));
  return length + text;
}

void merge_metadata(SafetensorsMetadata& metadata, const SafetensorsMetadata& added) {
  for (const auto& [key, value] : added) {
    const auto found =
        std::find_if(metadata.begin(), metadata.end(), [&name = key](const auto& old) { return old.first == name; });
    if (found == metadata.end()) {
      metadata.emplace_back(key, value);
    } else {
      found->second = value;
    }
  }
}

Tensor read_safetensors(const Source& source, const SafetensorsHeader& header, std::string_view name) {
  const SafetensorsEntry* entry = header.find(name);
  if (entry == nullptr) {
    constexpr std::size_t kMaxListed = 8;
    std::string names;
    for (std::size_t i = 0; i < std::min(kMaxListed, header.entries.size()); ++i) {
      names += (i == 0 ? "" : ", ") + in_quotes(header.entries[i].name);
    }
    if (header.entries.size() > kMaxListed) names += fmt::format(" and {} more", header.entries.size() - kMaxListed);
    fail_input("{}: tensor is {}; it must be one of {}", source.name(), in_quotes(name),
               names.empty() ? "none (the file holds no tensor)" : names);
  }
  const SafetensorsDtype* dtype = find_safetensors_dtype(entry->dtype);
  if (dtype == nullptr || !dtype->type) {
    fail_input("{}: type of tensor {} is {}; it must be F32, F16, BF16 or F64", source.name(), in_quotes(name),
               in_quotes(entry->dtype));
  }
  Tensor tensor = make_tensor(*dtype->type, entry->shape);  // check_size compared its bytes with the offsets
  source.read(header.data_start + entry->begin, tensor.data.bytes());
  return tensor;
}

void write_safetensors(OutputFile& out, const Source* base, std::span<const NamedTensor> tensors,
                       const SafetensorsMetadata& metadata) {
  SafetensorsHeader header;
  if (base != nullptr) header = read_safetensors_header(*base);
  const std::vector<Part> parts = parts_of(header, tensors);
  const std::string head = head_of(parts, header.metadata, metadata);
  out.write(std::as_bytes(std::span(head)));
  for (const Part& part : parts) {
    if (part.tensor != nullptr) {
      out.write(part.tensor->data.bytes());
    } else {
      copy_bytes(out, *base, header.data_start + part.entry.begin, part.entry.end - part.entry.begin);
    }
  }
}

void write_safetensors(OutputDirectory& out, const std::string& name, std::span<const NamedTensor> tensors,
                       const SafetensorsMetadata& metadata) {
  const std::vector<Part> parts = parts_of({}, tensors);
  const std::string head = head_of(parts, {}, metadata);
  std::uint64_t size = head.size();
  for (const Part& part : parts) size += part.entry.end;
  OutputDirectory::File& file = out.add(name, size);
  file.write(0, std::as_bytes(std::span(head)));
  std::uint64_t offset = head.size();
  for (const Part& part : parts) {
    file.write(offset, part.tensor->data.bytes());
    offset += part.entry.end;
  }
}

}  // namespace rmsnorm::tools
