#include "cpu/gated_rms_norm.h"

#include <algorithm>

#include "cpu/block_sums.h"
#include "cpu/fp_environment.h"
#include "cpu/rows.h"
#include "cpu/target.h"

namespace rmsnorm {

namespace {

void f64_block(const GatedBackwardCall& call, int64_t block) {
  const Range rows = rows_of_block(call, block);
  double* dweight = call.dweight.base == nullptr ? nullptr : call.sums + block * call.cols;
  if (dweight != nullptr) std::fill_n(dweight, call.cols, 0.0);
  f64_gated_backward_rows(call, rows.begin, rows.end, dweight);
}

void add_parameters(const GatedBackwardCall& call, int64_t begin, int64_t end) {
  if (call.dweight.base == nullptr) return;
  add_block_sums(call.dweight, call.accumulate, call.sums, block_count(call.rows), call.cols, begin, end);
}

}  // namespace

rn_status run_gated(GatedCall call, const rn_execution& execution) {
  const Target* target = active_target();
  if (target == nullptr) return RN_UNAVAILABLE;
  const FloatingPointGuard guard;
  const int64_t bytes = total_bytes(call.rows, row_bytes({&call.x, &call.gate, &call.out}, call.cols));
  call.stream = writes_around_caches(bytes);
  run_rows(execution, call, pieces_for(execution, bytes), call.x.type == RN_F64 ? f64_gated_rows : target->gated_rows);
  return RN_OK;
}

rn_status run_gated_backward(GatedBackwardCall call, const rn_execution& execution) {
  if (call.rows == 0 && call.accumulate) return RN_OK;
  const Target* target = active_target();
  if (target == nullptr) return RN_UNAVAILABLE;
  const FloatingPointGuard guard;
  const int64_t bytes =
      total_bytes(call.rows, row_bytes({&call.x, &call.gate, &call.dy, &call.dx, &call.dgate}, call.cols));
  call.stream = writes_around_caches(bytes);
  run_blocks(execution, call, pieces_for(execution, bytes),
             call.x.type == RN_F64 ? f64_block : target->gated_backward_block, add_parameters);
  return RN_OK;
}

}  // namespace rmsnorm
