// A stored matrix, read some rows at a time as f64.
#ifndef RMSNORM_CONVERT_CHECKPOINT_BLOCKS_H_
#define RMSNORM_CONVERT_CHECKPOINT_BLOCKS_H_

#include <algorithm>
#include <vector>

#include "convert/checkpoint/checkpoint.h"
#include "convert/checkpoint/numbers.h"

namespace rmsnorm::convert::checkpoint {

class Blocks {
 public:
  // `memory` bounds what block() holds; one row is always held. `also`: bytes per element that the caller holds.
  Blocks(const StoredTensor& tensor, std::int64_t cols, std::size_t memory, std::size_t also = 0)
      : tensor_(tensor), type_(tensor.row_type().value()), cols_(cols) {
    const std::size_t element = rn_type_size(type_) + sizeof(double) + also;
    const std::size_t row = std::max<std::size_t>(1, static_cast<std::size_t>(cols) * element);
    rows_ = static_cast<std::int64_t>(std::max<std::size_t>(1, memory / row));
  }

  std::int64_t rows() const { return rows_; }  // of a whole block

  // Rows begin .. end, at most rows() of them; valid until the next call.
  std::span<double> block(std::int64_t begin, std::int64_t end) {
    const std::size_t count = static_cast<std::size_t>((end - begin) * cols_);
    const std::size_t bytes = count * rn_type_size(type_);
    if (stored_.size() < bytes) stored_ = tools::Buffer(bytes);
    values_.resize(count);
    read_bytes(tensor_, static_cast<std::uint64_t>(begin * cols_) * rn_type_size(type_), stored_.bytes().first(bytes));
    decode(type_, stored_.data(), values_);
    return values_;
  }

  // Calls visit(row, values) for rows begin .. end.
  template <class Visit>
  void for_rows(std::int64_t begin, std::int64_t end, const Visit& visit) {
    for (std::int64_t at = begin; at < end; at += rows_) {
      const std::int64_t to = std::min(end, at + rows_);
      const std::span<double> values = block(at, to);
      for (std::int64_t r = at; r < to; ++r) {
        visit(r, values.subspan(static_cast<std::size_t>((r - at) * cols_), static_cast<std::size_t>(cols_)));
      }
    }
  }

 private:
  const StoredTensor& tensor_;
  rn_type type_;
  std::int64_t cols_;
  std::int64_t rows_;
  tools::Buffer stored_;
  std::vector<double> values_;
};

}  // namespace rmsnorm::convert::checkpoint

#endif  // RMSNORM_CONVERT_CHECKPOINT_BLOCKS_H_
