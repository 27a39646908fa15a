// What the front ends hand to the kernels: one checked call, with views collapsed and strides in bytes.
// Plain data without functions, because files compiled for different instruction sets share it.
#ifndef RMSNORM_CORE_CALL_H_
#define RMSNORM_CORE_CALL_H_

#include <stdint.h>

#include "rmsnorm/rmsnorm.h"

namespace rmsnorm {

// Leading axes of a view; the normalised one comes on top.
inline constexpr int kMaxLeading = RN_MAX_RANK - 1;

enum class Norm : uint8_t {
  kRms,     // x * inv_rms
  kLayer,   // (x - mean) * inv_std
  kCenter,  // x - mean
};

// One operand: row (i0, .., in) starts at base + sum of i_k * strides[k]. base is null where the operand is absent.
struct Operand {
  char* base;
  rn_type type;
  int64_t strides[kMaxLeading];  // bytes
};

// The rows of x, numbered in row-major order of shape[0 .. leading-1].
struct RowShape {
  int leading;
  int64_t shape[kMaxLeading];
  int64_t rows;
  int64_t cols;
};

// A checked call of a forward norm.
struct NormCall : RowShape {
  Norm norm;
  bool add;            // s = x + residual is normalised; residual and residual_out are present
  bool unrounded_sum;  // with add: the norm reads s before rounding
  bool epsilon_outside;
  bool stream;  // outputs are larger than the caches: write around them
  rn_rounding rounding;
  int64_t partial;  // columns in the mean square, 1 .. cols
  double epsilon;
  double weight_offset;
  Operand out, residual_out, mean, inv;  // inv: inv_rms or inv_std; mean and inv have one element per row
  Operand x, residual, weight, bias;
  int64_t total_cols;        // of a slice: the columns of all slices; 0: x is the whole row
  Operand sum, sum_squares;  // of a slice: f64, of all slices together; sum for kLayer only
};

}  // namespace rmsnorm

#endif  // RMSNORM_CORE_CALL_H_
