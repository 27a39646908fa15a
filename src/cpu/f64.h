// What the portable kernels of f64 rows share.
#ifndef RMSNORM_CPU_F64_H_
#define RMSNORM_CPU_F64_H_

#include <algorithm>
#include <cmath>

#include "core/call.h"

namespace rmsnorm {

// A number and what its rounding left over (Dekker 1971). An infinity or a NaN may have any rest, which does not count.
struct Twofold {
  double value, rest = 0;

  // A rest of 0 is not added: -0 stays -0.
  double rounded() const { return rest != 0 && std::isfinite(rest) ? value + rest : value; }
};
inline Twofold operator*(Twofold a, double b) {
  const double product = a.value * b;
  return {product, std::fma(a.value, b, -product) + a.rest * b};
}
inline Twofold operator*(Twofold a, Twofold b) {
  const Twofold product = a * b.value;
  return {product.value, product.rest + a.value * b.rest};
}
inline Twofold operator-(Twofold a, Twofold b) {
  const double difference = a.value - b.value, taken = a.value - difference;
  const double error = (a.value - (difference + taken)) + (taken - b.value);
  return {difference, error + (a.rest - b.rest)};
}
inline Twofold operator+(Twofold a, Twofold b) { return a - Twofold{-b.value, -b.rest}; }
inline Twofold operator/(Twofold a, Twofold b) {
  const double quotient = a.value / b.value;
  return {quotient, ((std::fma(-quotient, b.value, a.value) + a.rest) - quotient * b.rest) / b.value};
}
inline Twofold square_root(Twofold a) {
  const double root = std::sqrt(a.value);
  if (root == 0) return {root};
  return {root, (std::fma(-root, root, a.value) + a.rest) / (2 * root)};
}
// A weight plus its offset; the weight's own bits where there is none.
inline Twofold with_offset(double weight, double offset) {
  return offset != 0 ? Twofold{weight} + Twofold{offset} : Twofold{weight};
}
inline Twofold scaled(Twofold a, int exponent) { return {std::ldexp(a.value, exponent), std::ldexp(a.rest, exponent)}; }

// A sum whose rounding errors are kept (Neumaier 1974).
class CompensatedSum {
 public:
  void add(double value) {
    const double sum = sum_ + value;
    error_ += std::fabs(sum_) >= std::fabs(value) ? (sum_ - sum) + value : (value - sum) + sum_;
    sum_ = sum;
  }
  void add(Twofold value) {
    add(value.value);
    if (std::isfinite(value.value) && std::isfinite(value.rest)) add(value.rest);
  }
  // The product of a and b, without its rounding error getting lost.
  void add_product(double a, double b) { add(Twofold{a} * b); }
  // Infinities leave a NaN in the error term; the plain sum says what became of them.
  Twofold twofold() const { return std::isfinite(error_) ? Twofold{sum_} + Twofold{error_} : Twofold{sum_}; }
  double total() const { return twofold().value; }

 private:
  double sum_ = 0;
  double error_ = 0;
};

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

// What a row that was scaled is divided by.
struct F64Inverse {
  Twofold inv;    // 1 / sqrt(mean_square + epsilon) or 1 / (rms + epsilon)
  Twofold slope;  // inv^2, with epsilon outside the root inv / rms: of mean(g x) in the gradient, but for one inv
};

// From the scaled row's mean square.
inline F64Inverse inverse(Twofold mean_square, double epsilon, double scale, bool outside) {
  const double rms = std::sqrt(mean_square.value);
  // Epsilon squared with the scale would be lost beside a row of 1e308 whose elements are equal.
  double root = (outside ? epsilon : std::sqrt(epsilon)) * scale;
  if (epsilon > 0) root = std::max(root, 0x1p-1022);
  constexpr double kFloor = 0x1p-300, kCeiling = 0x1p300;
  if (outside) {
    const Twofold exact = square_root(mean_square);
    const Twofold inv = Twofold{1} / (exact + Twofold{root});
    return {inv, rms == 0 ? Twofold{0} : inv / exact};
  }
  const double sum = mean_square.value + root * root;
  if (!(sum >= kFloor && sum <= kCeiling)) {  // zeros, equal elements, infinities, NaNs
    const double inv = 1 / std::max(rms, root);
    return {{std::isnan(rms) ? rms : inv}, {root > 0 ? std::min(1 / sum, 0x1p1023) : 1 / sum}};
  }
  const Twofold squares = mean_square + Twofold{epsilon * scale * scale};
  return {Twofold{1} / square_root(squares), Twofold{1} / squares};
}

}  // namespace rmsnorm

#endif  // RMSNORM_CPU_F64_H_
