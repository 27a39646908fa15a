// A checked call of a backward norm. Plain data without functions, like call.h.
#ifndef RMSNORM_CORE_BACKWARD_CALL_H_
#define RMSNORM_CORE_BACKWARD_CALL_H_

#include "core/call.h"

namespace rmsnorm {

// Rows are summed into dweight and dbias in blocks: each block into f64 sums of its own, then the blocks in order. The
// blocks follow from the number of rows alone, so that threads change no bit.
inline constexpr int64_t kMostBlocks = 64;
inline constexpr int64_t kLeastBlockRows = 8;

inline constexpr int64_t rows_per_block(int64_t rows) {
  const int64_t share = (rows + kMostBlocks - 1) / kMostBlocks;
  return share < kLeastBlockRows ? kLeastBlockRows : share;
}
inline constexpr int64_t block_count(int64_t rows) {
  const int64_t per_block = rows_per_block(rows);
  return (rows + per_block - 1) / per_block;
}

inline constexpr int64_t kSumsPerColumn = 3;

struct BackwardCall : RowShape {
  Norm norm;
  bool epsilon_outside;
  bool accumulate;  // dweight and dbias are added to
  bool stream;
  int64_t partial;
  double epsilon, weight_offset;
  Operand dx, dresidual;  // the same numbers, in types of their own
  Operand dweight, dbias;
  Operand dy, x, d_residual_out, weight, inv;
  bool slice;                                             // x is a slice; what follows is of its whole row, f64
  Operand sum, sum_squares, sum_gradients, sum_products;  // sum and sum_gradients for kLayer only
  int64_t total_cols;                                     // over which means are taken: of all slices, else `partial`
  // [blocks][kSumsPerColumn][cols]: dweight's, dbias's, and room for both in f32; unused where neither is wanted.
  double* sums;
};

}  // namespace rmsnorm

#endif  // RMSNORM_CORE_BACKWARD_CALL_H_
