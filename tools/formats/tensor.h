// A dense tensor in memory, and the arithmetic of shapes from files that may lie.
#ifndef RMSNORM_TOOLS_FORMATS_TENSOR_H_
#define RMSNORM_TOOLS_FORMATS_TENSOR_H_

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "rmsnorm/rmsnorm.h"

namespace rmsnorm::tools {

using Shape = std::vector<std::int64_t>;

// The largest number of axes read from a file: NumPy's own limit.
inline constexpr std::size_t kMaxRank = 64;

// Bytes on the heap, aligned for every vector load, not initialised.
class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(std::size_t size);  // throws std::bad_alloc

  std::byte* data() { return data_.get(); }
  const std::byte* data() const { return data_.get(); }
  std::size_t size() const { return size_; }
  std::span<std::byte> bytes() { return {data(), size()}; }
  std::span<const std::byte> bytes() const { return {data(), size()}; }

 private:
  struct Free {
    void operator()(std::byte* p) const { std::free(p); }
  };
  std::unique_ptr<std::byte, Free> data_;
  std::size_t size_ = 0;
};

// Row-major, without gaps.
struct Tensor {
  rn_type type = RN_F32;
  Shape shape;
  Buffer data;
};

// The product of the axes; nothing if it, or the product of the axes that are not 0, does not fit into 63 bits.
std::optional<std::int64_t> element_count(const Shape& shape);

// A tensor of that type and shape with uninitialised elements.
Tensor make_tensor(rn_type type, const Shape& shape);

// The types that a row of x can have.
inline constexpr rn_type kRowTypes[] = {RN_F32, RN_F16, RN_BF16, RN_F64};

// "f32" -> RN_F32; nothing for a name that is none of them.
std::optional<rn_type> type_from_name(std::string_view name);

// "f32, f16, bf16 or f64": for messages and help.
std::string type_names();

// "[2, 3]"
std::string shape_text(const Shape& shape);

}  // namespace rmsnorm::tools

#endif  // RMSNORM_TOOLS_FORMATS_TENSOR_H_
