#include "tools/formats/tensor.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <new>

#include "tools/error.h"

namespace rmsnorm::tools {

Buffer::Buffer(std::size_t size) : size_(size) {
  constexpr std::size_t kAlignment = 64;
  if (size > SIZE_MAX - kAlignment) throw std::bad_alloc();
  const std::size_t padded = (size + kAlignment) / kAlignment * kAlignment;  // never 0 bytes
  data_.reset(static_cast<std::byte*>(std::aligned_alloc(kAlignment, padded)));
  if (!data_) throw std::bad_alloc();
}

std::optional<std::int64_t> element_count(const Shape& shape) {
  std::int64_t product = 1;
  bool empty = false;
  for (const std::int64_t length : shape) {
    if (length == 0) {
      empty = true;
    } else if (__builtin_mul_overflow(product, length, &product)) {
      return std::nullopt;
    }
  }
  return empty ? 0 : product;
}

Tensor make_tensor(rn_type type, const Shape& shape) {
  const auto count = element_count(shape);
  std::int64_t bytes = 0;
  if (!count || __builtin_mul_overflow(*count, static_cast<std::int64_t>(rn_type_size(type)), &bytes)) {
    fail_input("tensor: shape is {}; it must have less than 2^63 bytes", shape_text(shape));
  }
  return {type, shape, Buffer(static_cast<std::size_t>(bytes))};
}

std::optional<rn_type> type_from_name(std::string_view name) {
  for (const rn_type type : kRowTypes) {
    if (name == rn_type_name(type)) return type;
  }
  return std::nullopt;
}

std::string type_names() {
  std::string names;
  for (const rn_type type : kRowTypes) {
    names += fmt::format("{}{}", names.empty() ? "" : (type == RN_F64 ? " or " : ", "), rn_type_name(type));
  }
  return names;
}

std::string shape_text(const Shape& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

}  // namespace rmsnorm::tools
