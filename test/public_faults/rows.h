// Short calls for tests that write their numbers out: one matrix in, one out, everything in plain vectors.
#ifndef RMSNORM_TEST_PUBLIC_FAULTS_ROWS_H_
#define RMSNORM_TEST_PUBLIC_FAULTS_ROWS_H_

#include <gtest/gtest.h>

#include <vector>

#include "check/operands.h"
#include "reference/hash.h"
#include "reference/ulp.h"
#include "reference/values.h"

namespace rmsnorm::test {

// Elements of a type, row-major, that hand themselves out as views.
class Tensor {
 public:
  Tensor(rn_type type, std::int64_t rows, std::int64_t cols, double value = 0)
      : type_(type), rows_(rows), cols_(cols), bytes_(static_cast<std::size_t>(rows * cols) * rn_type_size(type)) {
    for (std::int64_t i = 0; i < rows * cols; ++i) reference::store(type, bytes_.data(), i, value);
  }
  Tensor(rn_type type, std::int64_t rows, std::int64_t cols, const std::vector<double>& values)
      : Tensor(type, rows, cols) {
    for (std::int64_t i = 0; i < rows * cols; ++i) set(i, values[static_cast<std::size_t>(i)]);
  }

  static Tensor filled(rn_type type, std::int64_t rows, std::int64_t cols, reference::Values values,
                       std::uint64_t seed = 1, reference::Stream stream = reference::Stream::kX) {
    Tensor t(type, rows, cols);
    for (std::int64_t r = 0; r < rows; ++r) reference::fill_row(t.row(r), values, type, seed, stream, r, cols);
    return t;
  }

  rn_type type() const { return type_; }
  std::int64_t rows() const { return rows_; }
  std::int64_t cols() const { return cols_; }
  std::int64_t size() const { return rows_ * cols_; }
  char* data() { return bytes_.data(); }
  char* row(std::int64_t r) { return data() + static_cast<std::size_t>(r * cols_) * rn_type_size(type_); }
  double operator[](std::int64_t i) const { return reference::load(type_, bytes_.data(), i); }
  void set(std::int64_t i, double value) { reference::store(type_, bytes_.data(), i, value); }
  rn_view matrix() { return rn_matrix(data(), type_, rows_, cols_); }
  rn_view vector() { return rn_vector(data(), type_, size()); }
  std::uint64_t hash() const {
    return reference::hash_elements(reference::kHashSeed, type_, bytes_.data(), rows_ * cols_);
  }

 private:
  rn_type type_;
  std::int64_t rows_, cols_;
  std::vector<char> bytes_;
};

inline rn_rms_norm_options rms_options(double epsilon, rn_rounding rounding = RN_ROUND_ONCE) {
  rn_rms_norm_options options = rn_rms_norm_defaults();
  options.epsilon = epsilon;
  options.rounding = rounding;
  return options;
}

inline Tensor rms_norm(Tensor& x, Tensor* weight, const rn_rms_norm_options& options, Tensor* bias = nullptr) {
  Tensor out(x.type(), x.rows(), x.cols(), -77);
  const rn_view o = out.matrix(), i = x.matrix();
  const rn_view w = weight ? weight->vector() : rn_view{}, b = bias ? bias->vector() : rn_view{};
  EXPECT_EQ(rn_rms_norm(&o, nullptr, &i, weight ? &w : nullptr, bias ? &b : nullptr, &options, nullptr), RN_OK)
      << rn_last_error();
  return out;
}

inline Tensor layer_norm(Tensor& x, double epsilon, Tensor* weight = nullptr, Tensor* bias = nullptr) {
  Tensor out(x.type(), x.rows(), x.cols(), -77);
  const rn_layer_norm_options options{epsilon, 0};
  const rn_view o = out.matrix(), i = x.matrix();
  const rn_view w = weight ? weight->vector() : rn_view{}, b = bias ? bias->vector() : rn_view{};
  EXPECT_EQ(rn_layer_norm(&o, nullptr, nullptr, &i, weight ? &w : nullptr, bias ? &b : nullptr, &options, nullptr),
            RN_OK)
      << rn_last_error();
  return out;
}

}  // namespace rmsnorm::test

#endif  // RMSNORM_TEST_PUBLIC_FAULTS_ROWS_H_
