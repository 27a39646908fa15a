// The last step of gradients of parameters: the sums of all blocks of rows (core/backward_call.h) into the gradient.
#ifndef RMSNORM_CPU_BLOCK_SUMS_H_
#define RMSNORM_CPU_BLOCK_SUMS_H_

#include "core/backward_call.h"
#include "cpu/rows.h"

namespace rmsnorm {

// Columns begin .. end-1 of `gradient`: sums[block * stride + column] of all blocks in order, and what it held before
// if `accumulate`, with one rounding.
void add_block_sums(const Operand& gradient, bool accumulate, const double* sums, int64_t blocks, int64_t stride,
                    int64_t begin, int64_t end);

// The rows of a block.
template <class Call>
Range rows_of_block(const Call& call, int64_t block) {
  const int64_t height = rows_per_block(call.rows), begin = block * height;
  return {begin, call.rows - begin < height ? call.rows : begin + height};
}

// Runs the blocks of rows of a backward call, then `finish` over its columns, where the blocks' sums are added up.
// Without rows there is only the latter.
template <class Call>
void run_blocks(const rn_execution& execution, const Call& call, int64_t pieces,
                void (*block)(const Call& call, int64_t block),
                void (*finish)(const Call& call, int64_t begin, int64_t end)) {
  struct Job {
    const Call& call;
    void (*block)(const Call&, int64_t);
    void (*finish)(const Call&, int64_t, int64_t);
  };
  Job job = {call, block, finish};
  const auto run_block = [](void* data, int64_t number) {
    const Job& self = *static_cast<const Job*>(data);
    self.block(self.call, number);
  };
  const auto run_columns = [](const void* data, int64_t begin, int64_t end) {
    const Job& self = *static_cast<const Job*>(data);
    self.finish(self.call, begin, end);
  };
  run_pieces(execution, pieces, block_count(call.rows), run_block, &job);
  run_row_ranges(execution, call.cols, pieces, run_columns, &job);
}

}  // namespace rmsnorm

#endif  // RMSNORM_CPU_BLOCK_SUMS_H_
