#include "cpu/norm.h"

#include <algorithm>

#include "cpu/fp_environment.h"
#include "cpu/target.h"
#include "cpu/threads.h"
#include "cpu/thresholds.h"

namespace rmsnorm {

namespace {

// Bytes that a call must read and write: each row of each operand once.
int64_t bytes_moved(const NormCall& call) {
  int64_t row = 0;
  for (const Operand* operand : {&call.x, &call.residual, &call.out, &call.residual_out}) {
    if (operand->base != nullptr) row += call.cols * static_cast<int64_t>(rn_type_size(operand->type));
  }
  return row > INT64_MAX / std::max<int64_t>(call.rows, 1) ? INT64_MAX : row * call.rows;
}

int64_t stream_bytes() {
#if defined(__x86_64__)
  static const int64_t limit = [] {
    __builtin_cpu_init();
    return __builtin_cpu_is("amd") ? kStreamBytesZen : kStreamBytes;
  }();
  return limit;
#else
  return kStreamBytes;
#endif
}

// Rows begin .. end-1 of any call.
void run_rows(const NormCall& call, const Target& target, int64_t begin, int64_t end) {
  (call.x.type == RN_F64 ? f64_rows : target.rows)(call, begin, end);
}

struct RowTasks {
  const NormCall& call;
  const Target& target;
  int64_t pieces;

  static void run(void* data, int64_t piece) {
    const auto& self = *static_cast<const RowTasks*>(data);
    // Without overflow: rows reach 2^40, pieces 2^31.
    const int64_t share = self.call.rows / self.pieces;
    const int64_t extra = self.call.rows % self.pieces;
    const int64_t begin = piece * share + std::min(piece, extra);
    run_rows(self.call, self.target, begin, begin + share + (piece < extra ? 1 : 0));
  }
};

// One row shared by several threads: segments are summed side by side, their sums added in order, and the second pass
// is cut at chunk boundaries. The bits are those of one thread, because the sums are cut the same way there.
class SharedRow {
 public:
  SharedRow(const NormCall& call, const Target& target, const rn_execution& execution, int64_t pieces)
      : call_(call), target_(target), execution_(execution), pieces_(pieces) {}

  void run(int64_t row) {
    row_ = row;
    scale_ = target_.scale(call_, sum, this);
    run_tasks(execution_, pieces_, apply, this);
  }

 private:
  static Moments sum(void* data, SumMode mode, double centre) {
    auto& self = *static_cast<SharedRow*>(data);
    self.mode_ = mode;
    self.centre_ = centre;
    const int64_t width = segment_columns(self.call_.partial);
    const int64_t segments = (self.call_.partial + width - 1) / width;
    run_tasks(self.execution_, segments, sum_segment, &self);
    Moments total = {0, 0};
    for (int64_t i = 0; i < segments; ++i) {
      total.sum += self.sums_[i].sum;
      total.square += self.sums_[i].square;
    }
    return total;
  }

  static void sum_segment(void* data, int64_t segment) {
    auto& self = *static_cast<SharedRow*>(data);
    self.sums_[segment] = self.target_.segment_sums(self.call_, self.row_, segment, self.mode_, self.centre_);
  }

  static void apply(void* data, int64_t piece) {
    auto& self = *static_cast<SharedRow*>(data);
    const int64_t chunks = (self.call_.cols + kChunk - 1) / kChunk;
    const int64_t begin = chunks * piece / self.pieces_ * kChunk;
    const int64_t end = std::min(chunks * (piece + 1) / self.pieces_ * kChunk, self.call_.cols);
    if (begin < end) self.target_.apply(self.call_, self.row_, begin, end, self.scale_);
  }

  const NormCall& call_;
  const Target& target_;
  const rn_execution& execution_;
  int64_t pieces_;
  int64_t row_ = 0;
  RowScale scale_ = {};
  SumMode mode_ = SumMode::kWide;
  double centre_ = 0;
  Moments sums_[kMaxSegments];
};

}  // namespace

rn_status run_norm(NormCall call, const rn_execution& execution) {
  if (call.rows == 0) return RN_OK;
  const Target* target = active_target();
  if (target == nullptr) return RN_UNAVAILABLE;
  const FloatingPointGuard guard;

  const int64_t bytes = bytes_moved(call);
  call.stream = bytes > stream_bytes();
  const int64_t wanted = std::max<int64_t>(1, bytes / kBytesPerThread);
  const int64_t pieces = wanted == 1 ? 1 : std::min<int64_t>(wanted, thread_limit(execution));
  if (pieces > call.rows && call.cols >= kSharedRowColumns && call.x.type != RN_F64) {
    SharedRow shared(call, *target, execution, pieces);
    for (int64_t row = 0; row < call.rows; ++row) shared.run(row);
    return RN_OK;
  }
  RowTasks tasks = {call, *target, std::min(pieces, call.rows)};
  if (tasks.pieces == 1) {
    run_rows(call, *target, 0, call.rows);
  } else {
    run_tasks(execution, tasks.pieces, RowTasks::run, &tasks);
  }
  return RN_OK;
}

}  // namespace rmsnorm
