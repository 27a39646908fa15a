// JSON from strangers: sizes and depths are limited, a key given twice is an error.
#ifndef RMSNORM_CONVERT_CHECKPOINT_JSON_TEXT_H_
#define RMSNORM_CONVERT_CHECKPOINT_JSON_TEXT_H_

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace rmsnorm::convert::checkpoint {

using Json = nlohmann::ordered_json;  // the order of keys is kept

inline constexpr int kMaxJsonDepth = 24;
inline constexpr std::size_t kMaxConfigBytes = std::size_t{4} << 20;
inline constexpr std::size_t kMaxIndexBytes = std::size_t{256} << 20;

// `name` is the file, for messages; what is not JSON within the limits is refused with R14.
Json parse_json(std::string_view text, const std::string& name, std::size_t max_bytes);

// The whole file, at most max_bytes.
std::string read_text(const std::string& path, std::size_t max_bytes);

}  // namespace rmsnorm::convert::checkpoint

#endif  // RMSNORM_CONVERT_CHECKPOINT_JSON_TEXT_H_
