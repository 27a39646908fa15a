#include "cpu/norm.h"

#include <algorithm>

#include "cpu/fp_environment.h"
#include "cpu/rows.h"
#include "cpu/target.h"
#include "cpu/threads.h"
#include "cpu/thresholds.h"

namespace rmsnorm {

namespace {

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
    if (mode == SumMode::kExact) return self.target_.segment_sums(self.call_, self.row_, 0, mode, centre);
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

  const int64_t bytes =
      total_bytes(call.rows, row_bytes({&call.x, &call.residual, &call.out, &call.residual_out}, call.cols));
  call.stream = writes_around_caches(bytes);
  const int64_t pieces = pieces_for(execution, bytes);
  if (pieces > call.rows && call.cols >= kSharedRowColumns && call.x.type != RN_F64 && call.total_cols == 0) {
    SharedRow shared(call, *target, execution, pieces);
    for (int64_t row = 0; row < call.rows; ++row) shared.run(row);
    return RN_OK;
  }
  const auto rows = call.total_cols != 0 ? target->slices : target->rows;
  run_rows(execution, call, pieces, call.x.type == RN_F64 ? f64_rows : rows);
  return RN_OK;
}

}  // namespace rmsnorm
