#include "cpu/backward.h"

#include <algorithm>

#include "cpu/block_sums.h"
#include "cpu/fp_environment.h"
#include "cpu/rows.h"
#include "cpu/target.h"

namespace rmsnorm {

namespace {

void f64_block(const BackwardCall& call, int64_t block) {
  const Range rows = rows_of_block(call, block);
  double* dweight = call.dweight.base == nullptr ? nullptr : call.sums + kSumsPerColumn * block * call.cols;
  double* dbias = call.dbias.base == nullptr ? nullptr : call.sums + (kSumsPerColumn * block + 1) * call.cols;
  for (double* sums : {dweight, dbias}) {
    if (sums != nullptr) std::fill_n(sums, call.cols, 0.0);
  }
  f64_backward_rows(call, rows.begin, rows.end, dweight, dbias);
}

// The sums of all blocks, columns begin .. end-1, into dweight (0) or dbias (1).
void add_blocks(const BackwardCall& call, const Operand& gradient, int64_t which, int64_t begin, int64_t end) {
  // Without rows there are no blocks, and scratch may be null.
  const double* sums = call.rows == 0 ? nullptr : call.sums + which * call.cols;
  add_block_sums(gradient, call.accumulate, sums, block_count(call.rows), kSumsPerColumn * call.cols, begin, end);
}

void add_parameters(const BackwardCall& call, int64_t begin, int64_t end) {
  if (call.dweight.base != nullptr) add_blocks(call, call.dweight, 0, begin, end);
  if (call.dbias.base != nullptr) add_blocks(call, call.dbias, 1, begin, end);
}

}  // namespace

rn_status run_backward(BackwardCall call, const rn_execution& execution) {
  if (call.rows == 0 && call.accumulate) return RN_OK;
  const Target* target = active_target();
  if (target == nullptr) return RN_UNAVAILABLE;
  const FloatingPointGuard guard;
  const int64_t bytes = total_bytes(
      call.rows, row_bytes({&call.x, &call.dy, &call.d_residual_out, &call.dx, &call.dresidual}, call.cols));
  call.stream = writes_around_caches(bytes);
  run_blocks(execution, call, pieces_for(execution, bytes), call.x.type == RN_F64 ? f64_block : target->backward_block,
             add_parameters);
  return RN_OK;
}

}  // namespace rmsnorm
