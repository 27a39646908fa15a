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

// From how many bytes on a call writes around the caches, and how many make a piece worth a thread. Tests lower both, so
// that small calls go the ways of large ones; no result depends on them.
struct CallSizes {
  int64_t streamed, piece;
};
CallSizes& call_sizes();

// Whether a call that moves so many bytes is faster with stores that bypass the caches.
bool writes_around_caches(int64_t bytes);

// How many pieces a call that moves so many bytes is cut into: one where another thread is not worth waking.
int64_t pieces_for(const rn_execution& execution, int64_t bytes);

// Part `index` of `count` things cut into `parts`. Without overflow: rows reach 2^40, parts 2^31.
struct Range {
  int64_t begin, end;
};
Range part_of(int64_t count, int64_t parts, int64_t index);

// Rows begin .. end-1 of what `data` points to.
using RowRange = void (*)(const void* data, int64_t begin, int64_t end);

// Runs `range` over rows 0 .. rows-1, cut into at most `pieces`.
void run_row_ranges(const rn_execution& execution, int64_t rows, int64_t pieces, RowRange range, const void* data);

// Runs task(data, i) for i = 0 .. count-1: on the calling thread where `pieces` is 1.
void run_pieces(const rn_execution& execution, int64_t pieces, int64_t count, rn_task task, void* data);

// Runs a kernel over all rows of a call.
template <class Call>
void run_rows(const rn_execution& execution, const Call& call, int64_t pieces,
              void (*kernel)(const Call& call, int64_t begin, int64_t end)) {
  struct Job {
    const Call& call;
    void (*kernel)(const Call&, int64_t, int64_t);
  };
  const Job job = {call, kernel};
  run_row_ranges(
      execution, call.rows, pieces,
      [](const void* data, int64_t begin, int64_t end) {
        const Job& self = *static_cast<const Job*>(data);
        self.kernel(self.call, begin, end);
      },
      &job);
}

}  // namespace rmsnorm

#endif  // RMSNORM_CPU_ROWS_H_
