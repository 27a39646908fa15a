// The sums of slices (sharded.h) on one target, compiled as kernels.cc is. Lanes, chunks and segments are those of whole
// rows, so that a slice that is one has the sums of rms_norm.
#include "core/slice_sum_call.h"
#include "cpu/exact_sum.h"
#include "cpu/moments-inl.h"
#include "cpu/stage-inl.h"

namespace rmsnorm::RMSNORM_TARGET {

namespace {

struct SliceSums {
  double result, gradients, deviations = 0;  // deviations: of x from the mean
};

// Sums of g and of g (x - mean), g = dy w, over a staged stretch. Behind its end g is zero.
[[gnu::noinline]] SliceSums products(const float* x, const float* dy, const float* w, double mean, int64_t n) {
  constexpr int kHalf = kLanes / 2;
  constexpr int kRegisters = kWideLanes / kHalf;
  D sums[kRegisters], gradients[kRegisters];
  for (int r = 0; r < kRegisters; ++r) sums[r] = gradients[r] = splat(0.0);
  const D centre = splat(mean);
  const int64_t end = whole_blocks(n);
  for (int64_t i = 0; i < end; i += kWideLanes) {
#pragma GCC unroll 16
    for (int r = 0; r < kRegisters; ++r) {
      const int64_t at = i + r * kHalf;
      const D g = mul(load_wide(dy + at), load_wide(w + at));
      sums[r] = add(sums[r], mul(g, sub(load_wide(x + at), centre)));
      gradients[r] = add(gradients[r], g);
    }
  }
  return {fold(sums), fold(gradients)};
}

class Slices {
 public:
  explicit Slices(const SliceSumCall& call)
      : call_(call), weight_(call.weight.type, static_cast<float>(call.weight_offset)) {}

  void run(int64_t begin, int64_t end) {
    const Operand* const operands[] = {&call_.result, &call_.gradients, &call_.x, &call_.dy, &call_.sum};
    Walk<5> walk(call_, operands, begin);
    for (int64_t r = begin; r < end; ++r, walk.advance()) {
      ExactMean mean = {0, 0};
      if (walk[4] != nullptr) mean = mean_of(*reinterpret_cast<const double*>(walk[4]), call_.total_cols);
      SliceSums sums = row(walk[2], walk[3], walk[4] != nullptr, mean.mean);
      const double rest = mean.rest;
      if (rest != 0) {
        // The sums are around the rounded mean. With a large one its rounding shows.
        if (call_.what == SliceSum::kProducts) sums.result -= rest * sums.gradients;
        if (call_.what == SliceSum::kSquares) {
          sums.result += rest * (static_cast<double>(call_.cols) * rest - 2 * sums.deviations);
        }
      }
      *reinterpret_cast<double*>(walk[0]) = sums.result;
      if (walk[1] != nullptr) *reinterpret_cast<double*>(walk[1]) = sums.gradients;
    }
  }

 private:
  static int64_t bytes(rn_type type) { return type == RN_F32 ? 4 : 2; }

  SliceSums row(const char* x, const char* dy, bool centred, double mean) {
    const int64_t segment = segment_columns(call_.cols);
    SliceSums total = {0, 0};
    for (int64_t begin = 0; begin < call_.cols; begin += segment) {
      const int64_t end = call_.cols - begin < segment ? call_.cols : begin + segment;
      SliceSums part = {0, 0};
      for (int64_t i = begin; i < end; i += kStage) {
        const SliceSums chunk = stretch(x, dy, centred, mean, i, end - i < kStage ? end - i : kStage);
        part.result += chunk.result;
        part.gradients += chunk.gradients;
        part.deviations += chunk.deviations;
      }
      total.result += part.result;
      total.gradients += part.gradients;
      total.deviations += part.deviations;
    }
    return total;
  }

  SliceSums stretch(const char* x_row, const char* dy_row, bool centred, double mean, int64_t i, int64_t n) {
    const float* x = stage(x_, x_row + i * bytes(call_.x.type), call_.x.type, n);
    const StagedSource source{x};
    switch (call_.what) {
      case SliceSum::kSum:
        return {chunk_moments<WideLanes<true, StagedSource>>(source, 0, n).sum, 0};
      case SliceSum::kSquares:
        if (centred) {
          const Moments around = centred_chunk(source, 0, n, mean);
          return {around.square, 0, around.sum};
        }
        return {chunk_moments<WideLanes<false, StagedSource>>(source, 0, n).square, 0};
      default: {
        const float* dy = stage(dy_, dy_row + i * bytes(call_.dy.type), call_.dy.type, n);
        return products(x, dy, weight_.at(call_.weight.base, call_.cols, i, n), mean, n);
      }
    }
  }

  const SliceSumCall& call_;
  StagedParameter weight_;
  Stage x_, dy_;
};

}  // namespace

void slice_sums(const SliceSumCall& call, int64_t begin, int64_t end) { Slices(call).run(begin, end); }

}  // namespace rmsnorm::RMSNORM_TARGET
