#include "convert/checkpoint/checkpoint.h"

#include <algorithm>
#include <filesystem>
#include <set>

#include "convert/checkpoint/fields.h"
#include "convert/checkpoint/numbers.h"
#include "convert/refusal.h"
#include "tools/formats/safetensors_dtype.h"

namespace rmsnorm::convert::checkpoint {

namespace {

namespace fs = std::filesystem;
using tools::in_quotes;

constexpr std::string_view kWeightEndings[] = {".safetensors", ".bin", ".pt",   ".pth",  ".ckpt",   ".h5",
                                               ".msgpack",     ".ot",  ".gguf", ".onnx", ".tflite", ".onnx_data"};

bool exists(const std::string& path) {
  std::error_code error;
  return fs::exists(path, error);
}

// A shard lies in the folder itself: a name that leads anywhere else is an attack or an accident.
void check_shard_name(const std::string& file, const std::string& index) {
  const bool plain = !file.empty() && file.find('/') == std::string::npos && file.find('\\') == std::string::npos &&
                     file.find('\0') == std::string::npos && file.front() != '.' && file.size() < 256;
  if (!plain || !file.ends_with(".safetensors")) {
    refuse(RefusalCode::kMalformed, index, "a shard is {}; it must be a plain file name that ends in .safetensors",
           in_quotes(file));
  }
}

[[noreturn]] void refuse_without_safetensors(const std::string& folder, const std::string& single,
                                             const std::string& index) {
  std::string other;
  std::error_code error;
  for (const auto& item : fs::directory_iterator(folder, error)) {
    const std::string name = item.path().filename().string();
    if (name.ends_with(".bin") || name.ends_with(".pt") || name.ends_with(".pth")) other = name;
  }
  refuse(RefusalCode::kMalformed, folder, "there is neither {} nor {}; {}", single, index,
         other.empty() ? std::string("one must be there")
                       : in_quotes(other) +
                             " is a pickle file of PyTorch, which is never read: save the model with "
                             "save_pretrained(.., safe_serialization=True) first");
}

}  // namespace

std::optional<rn_type> StoredTensor::row_type() const {
  const auto* found = tools::find_safetensors_dtype(dtype);
  if (found == nullptr || !found->type) return std::nullopt;
  const auto known = std::find(std::begin(tools::kRowTypes), std::end(tools::kRowTypes), *found->type);
  return known == std::end(tools::kRowTypes) ? std::nullopt : std::optional(*found->type);
}

Checkpoint::Checkpoint(std::string folder, const std::string& single, const std::string& index_name)
    : folder_(std::move(folder)) {
  const std::string index_path = folder_ + "/" + index_name;
  const bool has_single = exists(folder_ + "/" + single);
  if (!exists(index_path)) {
    if (!has_single) refuse_without_safetensors(folder_, single, index_name);
    open_shard(single);
    collect();
    return;
  }
  index_ = parse_json(read_text(index_path, kMaxIndexBytes), index_path, kMaxIndexBytes);
  if (!index_.is_object() || !index_.contains("weight_map") || !index_["weight_map"].is_object()) {
    refuse(RefusalCode::kMalformed, index_path, "there is no weight_map; it must be an object");
  }
  std::set<std::string> files;
  for (const auto& [name, file] : index_["weight_map"].items()) {
    if (!file.is_string()) {
      refuse(RefusalCode::kMalformed, index_path, "the shard of {} is {}; it must be a text", in_quotes(name),
             Fields::shown(file));
    }
    check_shard_name(file.get_ref<const std::string&>(), index_path);
    files.insert(file.get<std::string>());
    if (files.size() > kMaxShards) {
      refuse(RefusalCode::kMalformed, index_path, "there are more than {} shards; that is the limit", kMaxShards);
    }
  }
  if (has_single && !files.contains(single)) {
    refuse(RefusalCode::kMalformed, folder_, "there are {} and {}, which does not name it; remove one of them", single,
           index_name);
  }
  for (const std::string& file : files) {
    if (!exists(folder_ + "/" + file)) {
      refuse(RefusalCode::kMalformed, index_path, "shard {} is not in the folder; it must be there", in_quotes(file));
    }
    open_shard(file);
  }
  collect();
  check_index();
}

Checkpoint::Checkpoint(std::string folder, const View& view) : Checkpoint(std::move(folder)) {
  if (!view) return;
  tensors_ = view(tensors_);
  by_name_.clear();
  for (std::size_t t = 0; t < tensors_.size(); ++t) by_name_.emplace(tensors_[t].name, t);
}

void Checkpoint::open_shard(const std::string& file) {
  Shard shard;
  shard.file = file;
  shard.source = std::make_unique<tools::FileSource>(folder_ + "/" + file);
  try {
    shard.header = tools::read_safetensors_header(*shard.source);
  } catch (const tools::ToolError& error) {
    if (error.code() != tools::ExitCode::kBadInput) throw;
    refuse(RefusalCode::kMalformed, file, "{}", error.what());
  }
  shards_.push_back(std::move(shard));
}

void Checkpoint::collect() {
  for (std::size_t s = 0; s < shards_.size(); ++s) {
    const auto& header = shards_[s].header;
    for (const auto& entry : header.entries) {
      const auto [at, fresh] = by_name_.emplace(entry.name, tensors_.size());
      if (!fresh) {
        refuse(RefusalCode::kMalformed, entry.name, "{} and {} both hold it; one must", shards_[s].file,
               shards_[tensors_[at->second].shard].file);
      }
      tensors_.push_back(
          {this, entry.name, entry.dtype, entry.shape, s, header.data_start + entry.begin, entry.end - entry.begin});
    }
  }
}

void Checkpoint::check_index() const {
  const Json& map = index_["weight_map"];
  for (const auto& [name, file] : map.items()) {
    const StoredTensor* tensor = find(name);
    if (tensor == nullptr || shards_[tensor->shard].file != file) {
      refuse(RefusalCode::kMalformed, name, "the index says that shard {} holds it; {}",
             in_quotes(file.get<std::string>()),
             tensor == nullptr ? "none does" : "it is in " + in_quotes(shards_[tensor->shard].file));
    }
  }
  if (map.size() == tensors_.size()) return;
  for (const auto& tensor : tensors_) {  // every name of the index was found, so one of these is not in it
    if (!map.contains(tensor.name)) {
      refuse(RefusalCode::kMalformed, tensor.name, "shard {} holds it and the index does not name it; it must",
             in_quotes(shards_[tensor.shard].file));
    }
  }
}

const StoredTensor* Checkpoint::find(std::string_view name) const {
  const auto found = by_name_.find(std::string(name));
  return found == by_name_.end() ? nullptr : &tensors_[found->second];
}

void read_bytes(const StoredTensor& tensor, std::uint64_t offset, std::span<std::byte> out) {
  const tools::FileSource& file = *tensor.owner->shards()[tensor.shard].source;
  if (tensor.pieces.empty()) {
    file.read(tensor.offset + offset, out);
    return;
  }
  for (const auto& [at, bytes] : tensor.pieces) {
    const std::uint64_t skip = std::min(offset, bytes);
    const auto part = out.first(static_cast<std::size_t>(std::min<std::uint64_t>(bytes - skip, out.size())));
    if (!part.empty()) file.read(at + skip, part);
    out = out.subspan(part.size());
    offset -= skip;
  }
}

std::vector<double> read_values(const StoredTensor& tensor) {
  const auto type = tensor.row_type();
  if (!type) {
    refuse(RefusalCode::kQuantisedWriter, tensor.name, "its type is {}; it must be F32, F16, BF16 or F64",
           in_quotes(tensor.dtype));
  }
  tools::Buffer buffer(static_cast<std::size_t>(tensor.bytes));
  read_bytes(tensor, 0, buffer.bytes());
  std::vector<double> values(static_cast<std::size_t>(tensor.elements()));
  decode(*type, buffer.data(), values);
  return values;
}

Json read_config(const std::string& folder, std::string* text) {
  const std::string path = folder + "/" + kConfigFile;
  if (!exists(path)) {
    refuse(RefusalCode::kUnknown, path, "there is no such file; a checkpoint must have one, it says what the model is");
  }
  std::string read = read_text(path, kMaxConfigBytes);
  Json config = parse_json(read, path, kMaxConfigBytes);
  if (!config.is_object()) refuse(RefusalCode::kMalformed, path, "the JSON must be an object");
  if (text != nullptr) *text = std::move(read);
  return config;
}

std::vector<std::string> extra_files(const Checkpoint& checkpoint, std::vector<std::string>& left_out) {
  std::vector<std::string> files;
  for (const auto& item : fs::directory_iterator(checkpoint.folder())) {
    const std::string name = item.path().filename().string();
    const bool written = name == kConfigFile || name == kIndexFile || name == kProvenanceFile ||
                         std::any_of(checkpoint.shards().begin(), checkpoint.shards().end(),
                                     [&](const auto& shard) { return shard.file == name; });
    if (written) continue;
    const bool weights = std::any_of(std::begin(kWeightEndings), std::end(kWeightEndings),
                                     [&](const auto ending) { return name.ends_with(ending); }) ||
                         name.find(".index.json") != std::string::npos;
    std::error_code error;  // links are followed: the caches of hubs are made of them
    (!weights && fs::is_regular_file(item.path(), error) && !name.starts_with('.') ? files : left_out).push_back(name);
  }
  std::sort(files.begin(), files.end());
  std::sort(left_out.begin(), left_out.end());
  return files;
}

}  // namespace rmsnorm::convert::checkpoint
