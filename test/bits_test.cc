// The same bits everywhere: targets, threads, the caller's own parallel_for, layouts, in place, batches and alone.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <optional>
#include <thread>

#include "support/cases.h"
#include "support/environment.h"
#include "support/outcome.h"

namespace rmsnorm::test {
namespace {

using check::Case;
using check::Matrix;
using check::Op;
using check::Operands;

constexpr std::int64_t kWidest = 5000;  // wider rows are compared in WideRows

std::uint64_t outcome_of(const Case& c, const Operands& operands, const rn_execution* execution = nullptr) {
  const rn_status status = check::call(c, operands, execution);
  EXPECT_EQ(status, RN_OK) << check::command_line(c) << "\n    " << rn_last_error();
  EXPECT_EQ(check::damage(c, operands), "") << check::command_line(c);
  return outcome(c, operands);
}

void run_reversed(void*, std::int64_t count, rn_task task, void* data) {
  for (std::int64_t i = count - 1; i >= 0; --i) task(data, i);
}

void run_on_own_threads(void* calls, std::int64_t count, rn_task task, void* data) {
  ++*static_cast<int*>(calls);
  std::vector<std::thread> threads;
  for (std::int64_t i = 0; i < count; ++i) threads.emplace_back(task, data, i);
  for (std::thread& thread : threads) thread.join();
}

class Bits : public testing::TestWithParam<std::tuple<Op, rn_type>> {};

std::string name_of_instance(const testing::TestParamInfo<std::tuple<Op, rn_type>>& instance) {
  return std::string(check::name_of(std::get<0>(instance.param))) + "_" + rn_type_name(std::get<1>(instance.param));
}

#define FOR_ALL_OPS_AND_TYPES(suite)                                                                         \
  INSTANTIATE_TEST_SUITE_P(                                                                                  \
      All, suite,                                                                                            \
      testing::Combine(testing::ValuesIn(check::kAllOps), testing::Values(RN_F32, RN_F16, RN_BF16, RN_F64)), \
      name_of_instance)

// The case as the scalar target computes it: one thread, dense, aligned, separate buffers.
Case plainest(Case c) {
  c.target.clear();
  c.threads = 1;
  c.stride = c.offset = 0;
  c.in_place = false;
  return c;
}

TEST_P(Bits, EqualOnEveryTargetThreadCountAndLayout) {
  const auto [op, type] = GetParam();
  const std::vector<std::string> targets = supported_targets();
  const std::int32_t thread_counts[] = {1, 2, 3, 4, 8, 16};
  int failures = 0;
  std::size_t turn = 0;
  for (Case c : covering_cases(op, type)) {
    if (c.cols > kWidest) continue;
    const UseTarget scalar("scalar");
    const Case plain = plainest(c);
    const Operands values(plain);
    const std::uint64_t expected = outcome_of(plain, values);
    for (const std::string& target : targets) {
      c.target = target;
      c.threads = thread_counts[turn++ % std::size(thread_counts)];
      const UseTarget use(target);
      std::optional<AsIfLarge> large;
      if (turn % 2 == 0) large.emplace();
      if (outcome_of(c, Operands(c, values)) == expected) continue;
      if (++failures <= 20) ADD_FAILURE() << "not the bits of the scalar target: " << check::command_line(c);
    }
  }
  EXPECT_EQ(failures, 0);
}

FOR_ALL_OPS_AND_TYPES(Bits);

// Rows long enough to be split over threads, and batches large enough to be streamed.
TEST(BitsOfLargeCalls, EqualOnEveryTargetAndThreadCount) {
  struct Shape {
    std::int64_t rows, cols;
  };
  const std::vector<Shape> shapes = reduced() ? std::vector<Shape>{{1, 40000}, {300, 100}}
                                              : std::vector<Shape>{{2, 131077}, {1, 1 << 19}, {700, 1100}};
  for (const Op op : check::kAllOps) {
    for (const rn_type type : {RN_F32, RN_BF16, RN_F64}) {
      for (const Shape shape : shapes) {
        Case c = check::make_case(op, type, shape.rows, shape.cols);
        c.values = reference::Values::kLognormal;
        if (op != Op::kCenter) c.weight = RN_F32;
        const Operands values(c);
        std::uint64_t expected = 0;
        bool first = true;
        for (const std::string& target : supported_targets()) {
          const UseTarget use(target);
          c.target = target;
          for (const std::int32_t threads : {1, 4}) {
            c.threads = threads;
            std::optional<AsIfLarge> large;
            if (threads > 1) large.emplace();
            const std::uint64_t found = outcome_of(c, Operands(c, values));
            if (first) expected = found;
            first = false;
            EXPECT_EQ(found, expected) << check::command_line(c);
          }
        }
      }
    }
  }
}

class BitsOfBatches : public testing::TestWithParam<std::tuple<Op, rn_type>> {};

bool same_row(const Matrix& a, std::int64_t row_of_a, const Matrix& b, std::int64_t row_of_b) {
  if (!a.present()) return true;
  for (std::int64_t i = 0; i < a.cols(); ++i) {
    if (reference::canonical_bits(a.type(), a.row(row_of_a), i) !=
        reference::canonical_bits(b.type(), b.row(row_of_b), i)) {
      return false;
    }
  }
  return true;
}

TEST_P(BitsOfBatches, RowAloneOrInAnySplit) {
  const auto [op, type] = GetParam();
  for (const std::int64_t cols : {1, 5, 64, 67, 128, 200, 256, 257, 512, 1000, 2050}) {
    Case c = check::make_case(op, type, reduced() ? 5 : 37, cols);
    c.values = reference::Values::kCauchy;
    if (op != Op::kCenter) c.weight = c.bias = RN_F32;
    Operands whole(c);
    ASSERT_EQ(check::call(c, whole), RN_OK) << rn_last_error();
    for (const std::int64_t rows : {1, 2, 3, 7, 16}) {
      for (std::int64_t begin = 0; begin < c.rows; begin += rows) {
        Case part = c;
        part.rows = std::min(rows, c.rows - begin);
        const Operands piece(part, whole, begin);
        ASSERT_EQ(check::call(part, piece), RN_OK) << rn_last_error();
        for (std::int64_t r = 0; r < part.rows; ++r) {
          EXPECT_TRUE(same_row(piece.out, r, whole.out, begin + r)) << check::command_line(c) << " row " << begin + r;
          EXPECT_TRUE(same_row(piece.residual_out, r, whole.residual_out, begin + r)) << check::command_line(c);
          EXPECT_TRUE(same_row(piece.mean, r, whole.mean, begin + r)) << check::command_line(c);
          EXPECT_TRUE(same_row(piece.inv, r, whole.inv, begin + r)) << check::command_line(c);
        }
      }
    }
  }
}

FOR_ALL_OPS_AND_TYPES(BitsOfBatches);

// Rows without a gap that start between two vectors, written around the caches: lines are joined from two rows. Only
// the group of row 17 goes another way.
TEST(BitsAcross, EqualWhereRowsStartBetweenVectors) {
  const std::vector<std::string> targets = supported_targets();
  const std::int32_t thread_counts[] = {1, 3};
  std::size_t turn = 0;
  for (const Op op : check::kAllOps) {
    for (const rn_type type : {RN_F32, RN_F16, RN_BF16}) {
      for (const std::int64_t cols : {32, 96, 1024}) {
        const Case plain = check::make_case(op, type, 37, cols);
        Operands values(plain);
        reference::store(type, values.x_before.row(17), cols / 2, HUGE_VAL);
        const UseTarget scalar("scalar");
        const std::uint64_t expected = outcome_of(plain, Operands(plain, values));
        for (const std::string& target : targets) {
          for (std::int64_t offset = 1; offset <= 32; offset += reduced() ? 7 : 1) {
            Case c = plain;
            c.target = target;
            c.offset = offset;
            c.threads = thread_counts[turn++ % std::size(thread_counts)];
            c.in_place = turn % 3 == 0;
            const UseTarget use(target);
            const AsIfLarge large;
            EXPECT_EQ(outcome_of(c, Operands(c, values)), expected) << check::command_line(c);
          }
        }
      }
    }
  }
}

TEST(BitsAcross, EqualOnTheCallersOwnThreads) {
  for (const Op op : check::kAllOps) {
    // Several rows, one row that threads share, and rows of an odd width.
    for (const auto& [rows, cols] :
         {std::pair<std::int64_t, std::int64_t>{400, reduced() ? 128 : 1031}, {1, 1 << 18}, {3, 100003}}) {
      Case c = check::make_case(op, RN_BF16, rows, cols);
      const Operands values(c);
      const std::uint64_t expected = outcome_of(c, values);
      int calls = 0;
      const AsIfLarge large;
      for (const std::int32_t threads : {0, 2, 5}) {
        const rn_execution own{threads, run_on_own_threads, &calls};
        EXPECT_EQ(outcome_of(c, Operands(c, values), &own), expected) << check::command_line(c);
        const rn_execution reversed{threads, run_reversed, nullptr};
        EXPECT_EQ(outcome_of(c, Operands(c, values), &reversed), expected) << check::command_line(c);
      }
      EXPECT_GT(calls, 0) << "no call used the caller's threads: " << check::command_line(c);
    }
  }
}

// residual_out and the norm of it, by the fused and by the separate operation.
TEST(BitsAcross, FusedAddEqualsSeparateAddAndNorm) {
  for (const Op op : {Op::kAddRmsNorm, Op::kAddLayerNorm}) {
    for (const rn_type type : {RN_F32, RN_F16, RN_BF16, RN_F64}) {
      for (const Case& fused : covering_cases(op, type)) {
        if (fused.in_place || fused.norm_input != RN_NORM_ROUNDED_SUM || fused.cols > 300) continue;
        if (fused.residual_out != fused.x && fused.rounding == RN_ROUND_BEFORE_WEIGHT) continue;  // rounds to x's type
        Case separate = fused;
        separate.op = op == Op::kAddRmsNorm ? Op::kRmsNorm : Op::kLayerNorm;
        separate.x = fused.residual_out;
        if (fused.residual_out == RN_F32 && fused.out != RN_F32 && fused.x == RN_F32) continue;
        const UseTarget use(fused.target);
        const Operands together(fused);
        ASSERT_EQ(check::call(fused, together), RN_OK) << rn_last_error();
        const Operands apart(separate);
        for (std::int64_t r = 0; r < fused.rows; ++r) {
          std::memcpy(apart.x.row(r), together.residual_out.row(r),
                      static_cast<std::size_t>(fused.cols) * rn_type_size(separate.x));
        }
        ASSERT_EQ(check::call(separate, apart), RN_OK) << rn_last_error();
        EXPECT_EQ(together.out.hash(), apart.out.hash()) << check::command_line(fused);
        EXPECT_EQ(together.inv.hash(), apart.inv.hash()) << check::command_line(fused);
      }
    }
  }
}

// Weights [heads, 1, head_dim] that broadcast over tokens, against one call for each head.
TEST(BitsAcross, WeightViewEqualsOneCallForEachHead) {
  constexpr std::int64_t kTokens = 5, kHeads = 3, kDim = 67;
  for (const rn_type type : {RN_F32, RN_F16, RN_BF16}) {
    const Matrix x(type, kTokens * kHeads, kDim, 0, 0), weight(RN_F32, kHeads, kDim, 0, 1),
        bias(type, kHeads, kDim, 0, 0);
    Matrix fill_x = x.copy(), fill_weight = weight.copy(), fill_bias = bias.copy();
    fill_x.fill(reference::Values::kNormal, 1, reference::Stream::kX);
    fill_weight.fill(reference::Values::kWeight, 1, reference::Stream::kWeight);
    fill_bias.fill(reference::Values::kNormal, 1, reference::Stream::kBias);
    const Matrix together(type, kTokens * kHeads, kDim, 0, 0), apart(type, kTokens * kHeads, kDim, 0, 0);

    const std::int64_t shape[] = {kTokens, kHeads, kDim};
    const auto broadcast = [&](const Matrix& parameter) {
      rn_view view = rn_tensor(parameter.row(0), parameter.type(), 3, shape);
      view.strides[0] = 0;
      view.strides[1] = kDim;
      return view;
    };
    const rn_view in = rn_tensor(fill_x.row(0), type, 3, shape), out = rn_tensor(together.row(0), type, 3, shape);
    const rn_view w = broadcast(fill_weight), b = broadcast(fill_bias);
    ASSERT_EQ(rn_rms_norm(&out, nullptr, &in, &w, &b, nullptr, nullptr), RN_OK) << rn_last_error();
    for (std::int64_t head = 0; head < kHeads; ++head) {
      rn_view one_in = rn_matrix(fill_x.row(head), type, kTokens, kDim);
      rn_view one_out = rn_matrix(apart.row(head), type, kTokens, kDim);
      one_in.strides[0] = one_out.strides[0] = kHeads * kDim;
      const rn_view one_w = rn_vector(fill_weight.row(head), RN_F32, kDim);
      const rn_view one_b = rn_vector(fill_bias.row(head), type, kDim);
      ASSERT_EQ(rn_rms_norm(&one_out, nullptr, &one_in, &one_w, &one_b, nullptr, nullptr), RN_OK) << rn_last_error();
    }
    EXPECT_EQ(together.hash(), apart.hash()) << rn_type_name(type);
  }
}

}  // namespace
}  // namespace rmsnorm::test
