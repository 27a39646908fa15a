// A checked call for the sums of slices. Plain data without functions, like call.h.
#ifndef RMSNORM_CORE_SLICE_SUM_CALL_H_
#define RMSNORM_CORE_SLICE_SUM_CALL_H_

#include "core/call.h"

namespace rmsnorm {

enum class SliceSum : uint8_t {
  kSum,       // x
  kSquares,   // (x - mean)^2
  kProducts,  // g (x - mean) and, where it is wanted, g = dy (weight + weight_offset)
};

// mean is sum / total_cols where sum is given, else 0.
struct SliceSumCall : RowShape {
  SliceSum what;
  double weight_offset;
  int64_t total_cols;
  Operand result, gradients;  // f64, one element a row; gradients: the sum of g
  Operand x, dy, weight, sum;
};

}  // namespace rmsnorm

#endif  // RMSNORM_CORE_SLICE_SUM_CALL_H_
