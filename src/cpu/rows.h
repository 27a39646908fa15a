// What every operation over rows decides in the same way: whether to write around the caches, and how rows are cut for
// threads.
#ifndef RMSNORM_CPU_ROWS_H_
#define RMSNORM_CPU_ROWS_H_

#include <cstdint>
#include <initializer_list>

#include "core/call.h"

namespace rmsnorm {

// Bytes of one row of those operands that are there.
int64_t row_bytes(std::initializer_list<const Operand*> operands, int64_t cols);

// rows * bytes, or INT64_MAX.
int64_t total_bytes(int64_t rows, int64_t bytes_per_row);

// Whether a call that moves so many bytes is faster with stores that bypass the caches.
bool writes_around_caches(int64_t bytes);

// How many pieces a call that moves so many bytes is cut into: one where another thread is not worth waking.
int64_t pieces_for(const rn_execution& execution, int64_t bytes);

// Rows begin .. end-1 of the call that `data` points to.
using RowRange = void (*)(const void* data, int64_t begin, int64_t end);

// Runs `range` over rows 0 .. rows-1, cut into at most `pieces`.
void run_row_ranges(const rn_execution& execution, int64_t rows, int64_t pieces, RowRange range, const void* data);

}  // namespace rmsnorm

#endif  // RMSNORM_CPU_ROWS_H_
