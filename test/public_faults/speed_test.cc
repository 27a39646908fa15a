// Public faults of group N about time. Absolute times say little on a shared machine, so every limit is one on the ratio
// of two calls of this process, measured by turns, each by its least time. A neighbour that disturbs one attempt does not
// disturb all of them; a slow path is slow in each.
#include <time.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <vector>

#include "public_faults/rows.h"
#include "support/environment.h"

namespace rmsnorm::test {
namespace {

using check::Case;
using check::Op;
using reference::Values;

constexpr int kAttempts = 12;
constexpr int kTurns = 15;            // of each call in one attempt
constexpr double kLeastTime = 50e-6;  // a turn repeats its call for about so many seconds

double seconds(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

class Timer {
 public:
  Timer(std::function<void()> call, clockid_t clock) : call_(std::move(call)), clock_(clock) {
    call_();  // wakes the pool, touches the memory
    while (turn() < kLeastTime && repeats_ < 1 << 20) repeats_ *= 2;
  }
  void take_turn() { least_ = std::min(least_, turn() / repeats_); }
  double least() const { return least_; }

 private:
  double turn() const {
    const double start = seconds(clock_);
    for (int i = 0; i < repeats_; ++i) call_();
    return seconds(clock_) - start;
  }

  std::function<void()> call_;
  clockid_t clock_;
  int repeats_ = 1;
  double least_ = std::numeric_limits<double>::infinity();
};

// Expects `call` to take at most `limit` times as long as `other`.
testing::AssertionResult at_most(double limit, const std::function<void()>& call, const std::function<void()>& other,
                                 clockid_t clock = CLOCK_THREAD_CPUTIME_ID, int attempts = kAttempts) {
  auto result = testing::AssertionFailure() << "the ratio of times must be at most " << limit << "; it was";
  for (int attempt = 0; attempt < attempts; ++attempt) {
    Timer first(call, clock), second(other, clock);
    for (int turn = 0; turn < kTurns; ++turn) {
      first.take_turn();
      second.take_turn();
    }
    const double ratio = first.least() / second.least();
    if (ratio <= limit) return testing::AssertionSuccess() << ratio;
    result << " " << ratio;
  }
  return result;
}

// One call on memory of its own, with a weight of the type of x.
class Work {
 public:
  Work(Op op, rn_type type, std::int64_t rows, std::int64_t cols, std::int32_t threads = 1, std::int64_t offset = 0)
      : case_(make(op, type, rows, cols, threads, offset)), operands_(case_) {}

  std::function<void()> call() const {
    return [this] { ASSERT_EQ(check::call(case_, operands_), RN_OK) << rn_last_error(); };
  }
  rn_status run(const rn_execution& execution) const { return check::call(case_, operands_, &execution); }

 private:
  static Case make(Op op, rn_type type, std::int64_t rows, std::int64_t cols, std::int32_t threads,
                   std::int64_t offset) {
    Case c = check::make_case(op, type, rows, cols);
    c.weight = type;
    c.values = Values::kWhole;  // quickly made
    c.threads = threads;
    c.offset = offset;
    return c;
  }

  Case case_;
  check::Operands operands_;
};

// Many short rows ran at a tenth of the bandwidth of wide ones.
TEST(PublicFaults, BL52_short_rows_are_about_as_fast_as_wide_ones) {
  constexpr std::int64_t kTokens = 512, kHeads = 32, kDim = 128, kPacked = 3 * kHeads * kDim;
  const Work wide(Op::kRmsNorm, RN_BF16, kTokens, kHeads * kDim);
  const Work heads(Op::kRmsNorm, RN_BF16, kTokens * kHeads, kDim),
      narrow(Op::kRmsNorm, RN_BF16, 2 * kTokens * kHeads, 64);
  EXPECT_TRUE(at_most(3, heads.call(), wide.call()));
  EXPECT_TRUE(at_most(4, narrow.call(), wide.call()));

  Tensor qkv = Tensor::filled(RN_BF16, kTokens, kPacked, Values::kWhole), out(RN_BF16, kTokens, kHeads * kDim);
  Tensor weight(RN_BF16, 1, kDim, 1.5);
  const std::int64_t shape[] = {kTokens, kHeads, kDim};
  rn_view q = rn_tensor(qkv.data(), RN_BF16, 3, shape);
  q.strides[0] = kPacked;
  const rn_view o = rn_tensor(out.data(), RN_BF16, 3, shape), w = weight.vector();
  const rn_execution one_thread{1, nullptr, nullptr};
  const auto packed = [&] {
    ASSERT_EQ(rn_rms_norm(&o, nullptr, &q, &w, nullptr, nullptr, &one_thread), RN_OK) << rn_last_error();
  };
  EXPECT_TRUE(at_most(3, packed, wide.call()));
}

// A sum of squares that adds one element after the other waits for each addition.
void sum_in_order(float* out, const float* x, const float* weight, std::int64_t cols) {
  float sum = 0;
  for (std::int64_t i = 0; i < cols; ++i) sum += x[i] * x[i];
  const float inv = 1 / std::sqrt(sum / static_cast<float>(cols) + 1e-6f);
  for (std::int64_t i = 0; i < cols; ++i) out[i] = x[i] * inv * weight[i];
}

TEST(PublicFaults, BL53_one_row_is_summed_in_vectors) {
  constexpr std::int64_t kCols = 8192;
  const std::string target = rn_target();
  if (target == "scalar") GTEST_SKIP() << "the only target has no vectors";
  std::vector<float> x(kCols, 1.25f), weight(kCols, 0.75f), out(kCols);
  const Work ours(Op::kRmsNorm, RN_F32, 1, kCols);
  EXPECT_TRUE(at_most(0.6, ours.call(), [&] { sum_in_order(out.data(), x.data(), weight.data(), kCols); })) << target;
}

TEST(PublicFaults, BL53_16_bit_rows_are_converted_in_vectors) {
  const std::string target = rn_target();
  if (target == "scalar" || target == "sse4") GTEST_SKIP() << target << " converts f16 with integer arithmetic";
  // Element by element (the scalar target) bf16 takes 8 times as long as f32 in vectors, f16 25 times. On AVX2, which has
  // no instruction that rounds to bf16, bf16 takes up to 1.6 times as long.
  constexpr double kLimit = 2;
  for (const std::int64_t rows : {1, 8}) {
    for (const std::int64_t cols : {2048, 8192, 16384}) {
      const Work wide(Op::kRmsNorm, RN_F32, rows, cols);
      for (const rn_type type : {RN_BF16, RN_F16}) {
        const Work narrow(Op::kRmsNorm, type, rows, cols);
        EXPECT_TRUE(at_most(kLimit, narrow.call(), wide.call())) << rn_type_name(type) << " " << rows << "x" << cols;
      }
    }
  }
}

// Waking a thread costs more than a row, so a call for one token must not try.
TEST(PublicFaults, BL53_one_row_wakes_no_thread) {
  int calls = 0;
  const rn_execution own{64,
                         [](void* context, std::int64_t count, rn_task task, void* data) {
                           ++*static_cast<int*>(context);
                           for (std::int64_t i = 0; i < count; ++i) task(data, i);
                         },
                         &calls};
  for (const Op op : check::kAllOps) {
    for (const rn_type type : {RN_F32, RN_BF16, RN_F16}) {
      for (const std::int64_t cols : {2048, 4096, 8192, 16384}) {
        ASSERT_EQ(Work(op, type, 1, cols).run(own), RN_OK) << rn_last_error();
        EXPECT_EQ(calls, 0) << check::name_of(op) << " " << rn_type_name(type) << " " << cols;
      }
    }
  }
  ASSERT_EQ(Work(Op::kRmsNorm, RN_F32, 512, 4096).run(own), RN_OK);
  EXPECT_EQ(calls, 1);
}

// Where the other CPUs are busy, threads gain nothing and waking them costs up to 1.8 times the work of the smallest
// call that wakes one; the fault was a multiple that grew with the threads.
TEST(PublicFaults, BL53_more_threads_are_not_far_slower_than_one) {
  for (const std::int64_t rows : {1, 2, 4, 8}) {
    for (const std::int64_t cols : {2048, 16384}) {
      for (const rn_type type : {RN_F32, RN_BF16}) {
        const Work one(Op::kAddRmsNorm, type, rows, cols, 1), all(Op::kAddRmsNorm, type, rows, cols, 0);
        EXPECT_TRUE(at_most(2.5, all.call(), one.call(), CLOCK_MONOTONIC))
            << rn_type_name(type) << " " << rows << "x" << cols;
      }
    }
  }
}

constexpr std::int64_t kModelWidths[] = {1024, 1152, 1536, 2880, 4096, 4544, 6272, 7200, 8192};

// In a few places out of a hundred a row's addresses and the stack's meet in the low 12 bits, and the norm takes up to a
// fifth longer. A slow path is slow wherever the rows lie.
testing::AssertionResult not_slower(rn_type type, std::int64_t rows, std::int64_t cols) {
  auto result = testing::AssertionFailure();
  for (const std::int64_t offset : {0, 64, 192, 448}) {
    const Work rms(Op::kRmsNorm, type, rows, cols, 1, offset), layer(Op::kLayerNorm, type, rows, cols, 1, offset);
    const auto here = at_most(1.05, rms.call(), layer.call(), CLOCK_THREAD_CPUTIME_ID, kAttempts / 4);
    if (here) return here;
    result << here.message() << " at offset " << offset << "; ";
  }
  return result;
}

TEST(PublicFaults, BL54_rms_norm_is_not_slower_than_layer_norm) {
  for (const std::int64_t rows : {1, 64}) {
    for (const std::int64_t cols : kModelWidths) {
      for (const rn_type type : {RN_F32, RN_BF16}) {
        EXPECT_TRUE(not_slower(type, rows, cols)) << rn_type_name(type) << " " << rows << "x" << cols;
      }
    }
  }
}

// Widths that are no power of two were 5 to 16 times slower.
TEST(PublicFaults, BL54_no_width_is_far_slower_than_the_next) {
  for (const std::int64_t rows : {1, 64}) {
    for (const rn_type type : {RN_F32, RN_BF16}) {
      for (std::size_t i = 1; i < std::size(kModelWidths); ++i) {
        const std::int64_t less = kModelWidths[i - 1], more = kModelWidths[i];
        const Work smaller(Op::kRmsNorm, type, rows, less), larger(Op::kRmsNorm, type, rows, more);
        const double elements = static_cast<double>(more) / static_cast<double>(less);
        EXPECT_TRUE(at_most(2 * elements, larger.call(), smaller.call())) << rows << "x" << more << " and x" << less;
        EXPECT_TRUE(at_most(2 / elements, smaller.call(), larger.call())) << rows << "x" << less << " and x" << more;
      }
    }
  }
}

// The chain of whole-array steps that a framework runs without a fused norm: square, mean, scale, weight.
TEST(PublicFaults, BL54_the_norm_is_faster_than_its_steps) {
  constexpr std::int64_t kRows = 64;
  for (const std::int64_t cols : kModelWidths) {
    const std::size_t size = static_cast<std::size_t>(kRows * cols);
    std::vector<float> x(size, 1.25f), squares(size), scaled(size), out(size);
    std::vector<float> weight(static_cast<std::size_t>(cols), 0.75f);
    const auto steps = [&] {
      for (std::size_t i = 0; i < size; ++i) squares[i] = x[i] * x[i];
      for (std::size_t r = 0; r < size; r += static_cast<std::size_t>(cols)) {
        float lanes[16] = {};
        for (std::size_t i = 0; i < static_cast<std::size_t>(cols); ++i) lanes[i % 16] += squares[r + i];
        float sum = 0;
        for (const float lane : lanes) sum += lane;
        const float inv = 1 / std::sqrt(sum / static_cast<float>(cols) + 1e-6f);
        for (std::size_t i = 0; i < static_cast<std::size_t>(cols); ++i) scaled[r + i] = x[r + i] * inv;
      }
      for (std::size_t r = 0; r < size; r += static_cast<std::size_t>(cols)) {
        for (std::size_t i = 0; i < static_cast<std::size_t>(cols); ++i) out[r + i] = scaled[r + i] * weight[i];
      }
    };
    const Work fused(Op::kRmsNorm, RN_F32, kRows, cols);
    EXPECT_TRUE(at_most(1, fused.call(), steps)) << cols;
  }
}

}  // namespace
}  // namespace rmsnorm::test
