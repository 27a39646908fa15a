// What the portable kernels of f64 rows share.
#ifndef RMSNORM_CPU_F64_H_
#define RMSNORM_CPU_F64_H_

#include <algorithm>
#include <cmath>

#include "core/call.h"

namespace rmsnorm {

// A sum whose rounding errors are kept (Neumaier 1974).
class CompensatedSum {
 public:
  void add(double value) {
    const double sum = sum_ + value;
    error_ += std::fabs(sum_) >= std::fabs(value) ? (sum_ - sum) + value : (value - sum) + sum_;
    sum_ = sum;
  }
  // The product of a and b, without its rounding error getting lost.
  void add_product(double a, double b) {
    const double product = a * b;
    add(product);
    if (std::isfinite(product)) error_ += std::fma(a, b, -product);
  }
  // Infinities leave a NaN in the error term; the plain sum says what became of them.
  double total() const { return std::isfinite(error_) ? sum_ + error_ : sum_; }

 private:
  double sum_ = 0;
  double error_ = 0;
};

// a - b less its rounded value `difference`, exactly (Knuth's two-sum).
inline double difference_error(double a, double b, double difference) {
  const double taken = a - difference;
  return (a - (difference + taken)) + (taken - b);
}

// An operand's element as f64.
inline double read(const char* row, rn_type type, int64_t i) {
  return type == RN_F64 ? reinterpret_cast<const double*>(row)[i]
                        : static_cast<double>(reinterpret_cast<const float*>(row)[i]);
}
inline void write(char* row, rn_type type, int64_t i, double value) {
  if (type == RN_F64) {
    reinterpret_cast<double*>(row)[i] = value;
  } else {
    reinterpret_cast<float*>(row)[i] = static_cast<float>(value);
  }
}

inline char* row_address(const RowShape& shape, const Operand& operand, int64_t row) {
  if (operand.base == nullptr) return nullptr;
  char* p = operand.base;
  for (int axis = shape.leading - 1; axis >= 0; --axis) {
    p += row % shape.shape[axis] * operand.strides[axis];
    row /= shape.shape[axis];
  }
  return p;
}

// The power of two that brings `peak` near 1, so that no square overflows.
inline double scale_for(double peak) {
  int exponent = 0;
  if (peak > 0 && peak <= 0x1.fffffffffffffp1023) std::frexp(peak, &exponent);
  return std::ldexp(1.0, std::clamp(-exponent, -1000, 1000));
}

// 1 / sqrt(rms^2 + epsilon) or 1 / (rms + epsilon), from the scaled rms and the root of epsilon (outside: epsilon).
// Epsilon is never squared with the scale, which would lose it beside a row of 1e308.
inline double inverse(double rms, double root, double scale, bool outside) {
  double scaled_root = root * scale;
  if (root > 0) scaled_root = std::max(scaled_root, 0x1p-1022);
  if (outside) return 1 / (rms + scaled_root);
  const double large = scaled_root > rms ? scaled_root : rms;
  if (large == 0 || large > 0x1.fffffffffffffp1023) return 1 / large;
  const double ratio = (scaled_root > rms ? rms : scaled_root) / large;
  return 1 / (large * std::sqrt(1 + ratio * ratio));
}

}  // namespace rmsnorm

#endif  // RMSNORM_CPU_F64_H_
