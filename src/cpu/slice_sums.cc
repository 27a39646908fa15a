#include "cpu/slice_sums.h"

#include "cpu/f64.h"
#include "cpu/fp_environment.h"
#include "cpu/rows.h"
#include "cpu/target.h"

namespace rmsnorm {

namespace {

// f64 rows: portable and compensated, scaled by a power of two so that no square overflows unless the sum does.
class F64Slice {
 public:
  F64Slice(const SliceSumCall& call, int64_t row)
      : call_(call),
        row_(row),
        x_(row_address(call, call.x, row)),
        dy_(row_address(call, call.dy, row)),
        sum_(row_address(call, call.sum, row)) {}

  void run() {
    find_scale();
    CompensatedSum total, gradients;
    for (int64_t i = 0; i < call_.cols; ++i) {
      const double centred = (read(x_, RN_F64, i) * scale_ - mean_) - correction_;
      if (call_.what == SliceSum::kSum) {
        total.add(centred);
      } else if (call_.what == SliceSum::kSquares) {
        total.add_product(centred, centred);
      } else {
        const double dy = read(dy_, call_.dy.type, i), factor = weight(i);
        const double g = dy * factor;
        gradients.add_product(dy, factor);
        total.add_product(g, centred);
        if (std::isfinite(g * centred)) total.add(std::fma(dy, factor, -g) * centred);
      }
    }
    double result = total.total() / scale_;
    if (call_.what == SliceSum::kSquares) result /= scale_;
    write(row_address(call_, call_.result, row_), RN_F64, 0, result);
    if (call_.gradients.base != nullptr) {
      write(row_address(call_, call_.gradients, row_), RN_F64, 0, gradients.total());
    }
  }

 private:
  double weight(int64_t i) const {
    if (call_.weight.base == nullptr) return 1;
    const double w = read(call_.weight.base, call_.weight.type, i);
    return call_.weight_offset != 0 ? w + call_.weight_offset : w;
  }

  void find_scale() {
    double peak = 0;
    for (int64_t i = 0; i < call_.cols; ++i) {
      const double magnitude = std::fabs(read(x_, RN_F64, i));
      if (magnitude < HUGE_VAL) peak = std::max(peak, magnitude);
    }
    const double d = static_cast<double>(call_.total_cols);
    if (sum_ != nullptr) {
      const double magnitude = std::fabs(read(sum_, RN_F64, 0)) / d;
      if (magnitude < HUGE_VAL) peak = std::max(peak, magnitude);
    }
    scale_ = scale_for(peak);
    if (sum_ == nullptr) return;
    const double sum = read(sum_, RN_F64, 0) * scale_;
    mean_ = sum / d;
    correction_ = std::isfinite(mean_) ? std::fma(-mean_, d, sum) / d : 0;
  }

  const SliceSumCall& call_;
  int64_t row_;
  const char *x_, *dy_, *sum_;
  double scale_ = 1, mean_ = 0, correction_ = 0;
};

void f64_slices(const SliceSumCall& call, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row) F64Slice(call, row).run();
}

}  // namespace

rn_status run_slice_sums(const SliceSumCall& call, const rn_execution& execution) {
  if (call.rows == 0) return RN_OK;
  const Target* target = active_target();
  if (target == nullptr) return RN_UNAVAILABLE;
  const FloatingPointGuard guard;
  const int64_t bytes = total_bytes(call.rows, row_bytes({&call.x, &call.dy}, call.cols));
  run_rows(execution, call, pieces_for(execution, bytes), call.x.type == RN_F64 ? f64_slices : target->slice_sums);
  return RN_OK;
}

}  // namespace rmsnorm
