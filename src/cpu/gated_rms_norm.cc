#include "cpu/gated_rms_norm.h"

#include <algorithm>

#include "core/backward_call.h"
#include "cpu/block_sums.h"
#include "cpu/fp_environment.h"
#include "cpu/rows.h"
#include "cpu/target.h"
#include "cpu/threads.h"

namespace rmsnorm {

namespace {

struct ForwardTasks {
  const GatedCall& call;
  const Target& target;

  static void rows(const void* data, int64_t begin, int64_t end) {
    const auto& self = *static_cast<const ForwardTasks*>(data);
    (self.call.x.type == RN_F64 ? f64_gated_rows : self.target.gated_rows)(self.call, begin, end);
  }
};

void f64_block(const GatedBackwardCall& call, int64_t block) {
  const int64_t begin = block * rows_per_block(call.rows);
  const int64_t end = std::min(begin + rows_per_block(call.rows), call.rows);
  double* dweight = call.dweight.base == nullptr ? nullptr : call.sums + block * call.cols;
  if (dweight != nullptr) std::fill_n(dweight, call.cols, 0.0);
  f64_gated_backward_rows(call, begin, end, dweight);
}

struct BackwardTasks {
  const GatedBackwardCall& call;
  const Target& target;

  static void block(void* data, int64_t block) {
    const auto& self = *static_cast<const BackwardTasks*>(data);
    (self.call.x.type == RN_F64 ? f64_block : self.target.gated_backward_block)(self.call, block);
  }
  static void columns(const void* data, int64_t begin, int64_t end) {
    const auto& call = static_cast<const BackwardTasks*>(data)->call;
    if (call.dweight.base == nullptr) return;
    add_block_sums(call.dweight, call.accumulate, call.sums, block_count(call.rows), call.cols, begin, end);
  }
};

}  // namespace

rn_status run_gated(GatedCall call, const rn_execution& execution) {
  const Target* target = active_target();
  if (target == nullptr) return RN_UNAVAILABLE;
  const FloatingPointGuard guard;
  const int64_t bytes = total_bytes(call.rows, row_bytes({&call.x, &call.gate, &call.out}, call.cols));
  call.stream = writes_around_caches(bytes);
  const ForwardTasks tasks = {call, *target};
  run_row_ranges(execution, call.rows, pieces_for(execution, bytes), ForwardTasks::rows, &tasks);
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
  BackwardTasks tasks = {call, *target};
  const int64_t blocks = block_count(call.rows);
  const int64_t pieces = pieces_for(execution, bytes);
  if (pieces == 1) {
    for (int64_t block = 0; block < blocks; ++block) BackwardTasks::block(&tasks, block);
    BackwardTasks::columns(&tasks, 0, call.cols);  // without rows: zeros
  } else {
    run_tasks(execution, blocks, BackwardTasks::block, &tasks);
    run_row_ranges(execution, call.cols, std::min<int64_t>(pieces, call.cols), BackwardTasks::columns, &tasks);
  }
  return RN_OK;
}

}  // namespace rmsnorm
