// A Hugging Face directory: config.json, and tensors in one or many safetensors files.
#ifndef RMSNORM_CONVERT_CHECKPOINT_CHECKPOINT_H_
#define RMSNORM_CONVERT_CHECKPOINT_CHECKPOINT_H_

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "convert/checkpoint/json_text.h"
#include "tools/formats/safetensors.h"

namespace rmsnorm::convert::checkpoint {

inline constexpr char kConfigFile[] = "config.json";
inline constexpr char kSingleFile[] = "model.safetensors";
inline constexpr char kIndexFile[] = "model.safetensors.index.json";
inline constexpr char kProvenanceFile[] = "rmsnorm.json";
inline constexpr char kProgramFile[] = "modeling_rmsnorm.py";
inline constexpr char kProvenanceKey[] = "rmsnorm";  // in the metadata of safetensors files
inline constexpr std::size_t kMaxShards = 4096;

class Checkpoint;

struct StoredTensor {
  const Checkpoint* owner = nullptr;
  std::string name;
  std::string dtype;
  tools::Shape shape;
  std::size_t shard = 0;
  std::uint64_t offset = 0;  // in the shard's file
  std::uint64_t bytes = 0;
  // If not empty: its bytes do not lie together but in these pieces (offset in the file, bytes), one after the other.
  std::vector<std::pair<std::uint64_t, std::uint64_t>> pieces = {};

  std::optional<rn_type> row_type() const;  // nothing: no type of floating-point numbers that rows can have
  std::int64_t elements() const { return *tools::element_count(shape); }  // the header reader has checked it
};

struct Shard {
  std::string file;  // a plain name
  std::unique_ptr<tools::FileSource> source;
  tools::SafetensorsHeader header;
};

class Checkpoint {
 public:
  // Every way in which the files can contradict each other is R14. `single` and `index`: their names.
  explicit Checkpoint(std::string folder, const std::string& single = kSingleFile,
                      const std::string& index = kIndexFile);
  // Under other names: `view` gives the tensors that are to be found, from those in the file.
  using View = std::function<std::vector<StoredTensor>(const std::vector<StoredTensor>&)>;
  Checkpoint(std::string folder, const View& view);
  Checkpoint(const Checkpoint&) = delete;  // its tensors point to it
  Checkpoint& operator=(const Checkpoint&) = delete;

  const std::string& folder() const { return folder_; }
  const std::vector<Shard>& shards() const { return shards_; }
  const std::vector<StoredTensor>& tensors() const { return tensors_; }  // by shard and offset
  const StoredTensor* find(std::string_view name) const;
  const Json& index() const { return index_; }  // null: one file

 private:
  void open_shard(const std::string& file);
  void collect();
  void check_index() const;

  std::string folder_;
  std::vector<Shard> shards_;
  std::vector<StoredTensor> tensors_;
  std::unordered_map<std::string, std::size_t> by_name_;
  Json index_;
};

// Bytes of a tensor, from `offset`.
void read_bytes(const StoredTensor& tensor, std::uint64_t offset, std::span<std::byte> out);
// The whole tensor as f64; for vectors.
std::vector<double> read_values(const StoredTensor& tensor);

// config.json of the folder; it must be an object.
Json read_config(const std::string& folder, std::string* text = nullptr);

// Files of the folder that go along: neither weights in any format nor the configuration. `left_out` gets the others.
std::vector<std::string> extra_files(const Checkpoint& checkpoint, std::vector<std::string>& left_out);

}  // namespace rmsnorm::convert::checkpoint

#endif  // RMSNORM_CONVERT_CHECKPOINT_CHECKPOINT_H_
