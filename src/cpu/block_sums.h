// The last step of gradients of parameters: the sums of all blocks of rows (core/backward_call.h) into the gradient.
#ifndef RMSNORM_CPU_BLOCK_SUMS_H_
#define RMSNORM_CPU_BLOCK_SUMS_H_

#include "core/call.h"

namespace rmsnorm {

// Columns begin .. end-1 of `gradient`: sums[block * stride + column] of all blocks in order, and what it held before
// if `accumulate`, with one rounding.
void add_block_sums(const Operand& gradient, bool accumulate, const double* sums, int64_t blocks, int64_t stride,
                    int64_t begin, int64_t end);

}  // namespace rmsnorm

#endif  // RMSNORM_CPU_BLOCK_SUMS_H_
