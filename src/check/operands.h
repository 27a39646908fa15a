// The memory of a case: operands filled with its values, fenced by canaries on both sides and between strided rows.
#ifndef RMSNORM_CHECK_OPERANDS_H_
#define RMSNORM_CHECK_OPERANDS_H_

#include <memory>
#include <string>
#include <vector>

#include "check/case.h"

namespace rmsnorm::check {

// Rows of `type`, `stride` elements apart, `offset` elements behind a 64-byte boundary.
class Matrix {
 public:
  Matrix() = default;
  Matrix(rn_type type, std::int64_t rows, std::int64_t cols, std::int64_t stride, std::int64_t offset);

  bool present() const { return rows_ >= 0; }
  rn_type type() const { return type_; }
  std::int64_t rows() const { return rows_; }
  std::int64_t cols() const { return cols_; }
  std::int64_t stride() const { return stride_; }
  char* row(std::int64_t r) const;
  rn_view view() const;
  rn_view vector_view() const;  // one row as [cols], or one column as [rows]: what weight and statistics take

  void fill(reference::Values values, std::uint64_t seed, reference::Stream stream);
  void take_rows(const Matrix& from, std::int64_t begin);  // same type and columns
  void read_row(std::int64_t r, double* values) const;
  bool fences_intact() const;  // nothing outside the elements was written
  std::uint64_t hash() const;  // of the elements
  bool same_bytes(const Matrix& other) const;
  Matrix copy() const;  // same layout, own memory

 private:
  rn_type type_ = RN_F32;
  std::int64_t rows_ = -1;
  std::int64_t cols_ = 0;
  std::int64_t stride_ = 0;
  std::vector<unsigned char> memory_;
  std::size_t start_ = 0;  // of the first element in memory_
};

struct Operands {
  explicit Operands(const Case& c);

  // The layout of c, with the values of another case's inputs from row `begin` on.
  Operands(const Case& c, const Operands& values, std::int64_t begin = 0);

  Matrix x, residual, weight, bias;     // inputs
  Matrix out, residual_out, mean, inv;  // outputs; out and residual_out are absent where written in place
  Matrix x_before, residual_before, weight_before, bias_before;  // what the inputs held before the call

  const Matrix& result(bool in_place) const { return in_place ? x : out; }
  const Matrix& sum(bool in_place) const { return in_place ? residual : residual_out; }

 private:
  void allocate(const Case& c);
  void remember();
};

// Calls the library; a null execution means the case's own thread count on the built-in pool.
rn_status call(const Case& c, const Operands& operands, const rn_execution* execution = nullptr);

// "" or what was written that must not be: an input, or memory outside the operands.
std::string damage(const Case& c, const Operands& operands);

}  // namespace rmsnorm::check

#endif  // RMSNORM_CHECK_OPERANDS_H_
