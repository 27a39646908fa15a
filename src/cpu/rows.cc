#include "cpu/rows.h"

#include <algorithm>

#include "cpu/threads.h"
#include "cpu/thresholds.h"

namespace rmsnorm {

namespace {

int64_t stream_bytes() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  return __builtin_cpu_is("amd") ? kStreamBytesZen : kStreamBytes;
#else
  return kStreamBytes;
#endif
}

struct RangeTasks {
  RowRange range;
  const void* data;
  int64_t rows, pieces;

  static void run(void* tasks, int64_t piece) {
    const auto& self = *static_cast<const RangeTasks*>(tasks);
    const Range rows = part_of(self.rows, self.pieces, piece);
    self.range(self.data, rows.begin, rows.end);
  }
};

}  // namespace

int64_t row_bytes(std::initializer_list<const Operand*> operands, int64_t cols) {
  int64_t bytes = 0;
  for (const Operand* operand : operands) {
    if (operand->base != nullptr) bytes += cols * static_cast<int64_t>(rn_type_size(operand->type));
  }
  return bytes;
}

int64_t total_bytes(int64_t rows, int64_t bytes_per_row) {
  return bytes_per_row > INT64_MAX / std::max<int64_t>(rows, 1) ? INT64_MAX : bytes_per_row * rows;
}

CallSizes& call_sizes() {
  static CallSizes sizes = {stream_bytes(), kBytesPerThread};
  return sizes;
}

bool writes_around_caches(int64_t bytes) { return bytes > call_sizes().streamed; }

int64_t pieces_for(const rn_execution& execution, int64_t bytes) {
  const int64_t wanted = std::max<int64_t>(1, bytes / call_sizes().piece);
  return wanted == 1 ? 1 : std::min<int64_t>(wanted, thread_limit(execution));
}

Range part_of(int64_t count, int64_t parts, int64_t index) {
  const int64_t share = count / parts, extra = count % parts;
  const int64_t begin = index * share + std::min(index, extra);
  return {begin, begin + share + (index < extra ? 1 : 0)};
}

void run_pieces(const rn_execution& execution, int64_t pieces, int64_t count, rn_task task, void* data) {
  if (pieces > 1) return run_tasks(execution, count, task, data);
  for (int64_t i = 0; i < count; ++i) task(data, i);
}

void run_row_ranges(const rn_execution& execution, int64_t rows, int64_t pieces, RowRange range, const void* data) {
  RangeTasks tasks = {range, data, rows, std::min(pieces, rows)};
  if (tasks.pieces <= 1) {
    range(data, 0, rows);
  } else {
    run_tasks(execution, tasks.pieces, RangeTasks::run, &tasks);
  }
}

}  // namespace rmsnorm
