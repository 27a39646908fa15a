// Rows whose mean a plain f64 sum loses: numbers that are 2^50 times the others and more, and cancel, or add up to a
// multiple of one of them. What is left is small whole numbers, of which every exact result is known.
#include <gtest/gtest.h>

#include <cmath>

#include "check/judge.h"
#include "cpu/exact_sum.h"
#include "public_faults/rows.h"
#include "reference/center.h"
#include "reference/layer_norm.h"
#include "support/environment.h"

namespace rmsnorm::test {
namespace {

using check::Op;
using reference::Quad;
using reference::Values;

constexpr double kUnit = 0x1p-40;  // of the small numbers

// Small numbers k * kUnit, and large ones whose sum is `d` times `mean`.
struct LargeAndSmall {
  std::vector<double> x;
  double mean = 0;  // of the large ones: 0 or one of them
  std::int64_t sum = 0;

  double d() const { return static_cast<double>(x.size()); }
  // x[i] less the mean, which is mean + sum / d * kUnit: one rounding of whole numbers where x[i] is small or the mean.
  double centred(std::size_t i) const {
    if (std::fabs(x[i]) > 1 && x[i] != mean) return x[i] - mean;
    const double small = x[i] == mean ? 0 : x[i] / kUnit;
    return mean != 0 && x[i] != mean ? -mean : (small * d() - static_cast<double>(sum)) / d() * kUnit;
  }
};

LargeAndSmall row_of(std::int64_t cols, bool cancels, double large, std::uint64_t seed) {
  LargeAndSmall row;
  row.x.resize(static_cast<std::size_t>(cols));
  const auto at = [&](std::uint64_t n) {
    return reference::scatter(seed * 1000 + n) % static_cast<std::uint64_t>(cols);
  };
  const std::size_t first = at(1), second = at(2) != first ? at(2) : (first + 1) % row.x.size();
  for (std::size_t i = 0; i < row.x.size(); ++i) {
    if (i == first || i == second) continue;
    const auto k = static_cast<std::int64_t>(reference::scatter(seed + i) % 100) - 30;
    row.x[i] = static_cast<double>(k) * kUnit;
    row.sum += k;
  }
  row.x[first] = large;
  row.x[second] = cancels ? -large : large * (static_cast<double>(cols) - 1);
  row.mean = cancels ? 0 : large;
  return row;
}

// Less one, each has at most 8 bits, so that bf16 has the second of the large numbers, too.
constexpr std::int64_t kCols[] = {3, 4, 9, 25, 33, 129, 193, 2561};
constexpr double kLarge[] = {0x1p20, 0x1p83, 0x1.8p100};

TEST(Mean, ReferencesKeepWhatLargeNumbersLeave) {
  for (const std::int64_t cols : kCols) {
    for (const bool cancels : {true, false}) {
      for (const double large : kLarge) {
        const LargeAndSmall row = row_of(cols, cancels, large, 1);
        std::vector<Quad> centred(row.x.size()), normalised(row.x.size());
        reference::center(centred.data(), row.x.data(), cols);
        const Quad inv = reference::layer_norm(normalised.data(), row.x.data(), cols, {}, 0).inv_std;
        for (std::size_t i = 0; i < row.x.size(); ++i) {
          EXPECT_LE(reference::ulp_distance(RN_F64, row.centred(i), centred[i]), 1.5) << cols << ", " << i;
          EXPECT_LE(reference::ulp_distance(RN_F64, row.centred(i), normalised[i] / inv), 1.5) << cols << ", " << i;
        }
      }
    }
  }
}

class MeanOfTypes : public testing::TestWithParam<rn_type> {};
INSTANTIATE_TEST_SUITE_P(All, MeanOfTypes, testing::Values(RN_F32, RN_BF16),
                         [](const auto& instance) { return std::string(rn_type_name(instance.param)); });

TEST_P(MeanOfTypes, CentredAndNormalisedRowsKeepIt) {
  for (const std::string& target : supported_targets()) {
    const UseTarget use(target);
    for (const std::int64_t cols : kCols) {
      for (std::uint64_t seed = 1; seed <= 16; ++seed) {
        const LargeAndSmall row = row_of(cols, seed % 2 == 0, kLarge[seed % std::size(kLarge)], seed);
        Tensor x(GetParam(), 1, cols, row.x), out(GetParam(), 1, cols);
        const rn_view o = out.matrix(), i = x.matrix();
        ASSERT_EQ(rn_center(&o, &i, nullptr), RN_OK) << rn_last_error();
        const Tensor normalised = layer_norm(x, 0);
        double squares = 0;
        for (std::size_t k = 0; k < row.x.size(); ++k) squares += row.centred(k) * row.centred(k);
        const double inv = 1 / std::sqrt(squares / row.d());
        const double limit = GetParam() == RN_F32 ? reference::kLayerNormF32 : reference::kRounded;
        for (std::size_t k = 0; k < row.x.size(); ++k) {
          const auto col = static_cast<std::int64_t>(k);
          ASSERT_EQ(x[col], row.x[k]);
          ASSERT_LE(reference::ulp_distance(GetParam(), out[col], row.centred(k)), reference::kRounded)
              << target << ", " << cols << " columns, seed " << seed << ", column " << k;
          ASSERT_LE(reference::ulp_distance(GetParam(), normalised[col], row.centred(k) * inv), limit)
              << target << ", " << cols << " columns, seed " << seed << ", column " << k;
        }
      }
    }
  }
}

TEST(Mean, RowsThatThreadsShareKeepIt) {
  constexpr std::int64_t kWide = 140001;
  const AsIfLarge large;
  for (const bool cancels : {true, false}) {
    const LargeAndSmall row = row_of(kWide, cancels, 0x1p83, 5);
    Tensor x(RN_F32, 1, kWide, row.x);
    std::vector<Tensor> results;
    for (const std::int32_t threads : {1, 3}) {
      const rn_execution execution{threads, nullptr, nullptr};
      results.emplace_back(RN_F32, 1, kWide);
      const rn_view o = results.back().matrix(), i = x.matrix();
      ASSERT_EQ(rn_center(&o, &i, &execution), RN_OK) << rn_last_error();
    }
    EXPECT_EQ(results[0].hash(), results[1].hash());
    for (std::size_t k = 0; k < row.x.size(); ++k) {
      const double found = results[0][static_cast<std::int64_t>(k)];
      ASSERT_LE(reference::ulp_distance(RN_F32, found, row.centred(k)), reference::kRounded) << k;
    }
  }
}

// What the soak found: large numbers here and there, some of which cancel by chance.
TEST(Mean, ManySmallMixedRowsAreWithinTheirBudgets) {
  constexpr std::pair<std::int64_t, std::int64_t> kShapes[] = {{100, 12}, {60, 3}, {20, 25}};
  for (std::uint64_t seed = 1; seed <= (reduced() ? 2 : 12); ++seed) {
    for (const Op op : {Op::kCenter, Op::kLayerNorm, Op::kAddLayerNorm}) {
      for (const rn_type type : {RN_F32, RN_F16, RN_BF16, RN_F64}) {
        for (const auto& [rows, cols] : kShapes) {
          check::Case c = check::make_case(op, type, rows, cols);
          c.values = Values::kMixed;
          c.seed = seed;
          const check::Report report = check::run(c);
          EXPECT_EQ(report.error, "") << command_line(c);
        }
      }
    }
  }
  check::Case found = check::make_case(Op::kCenter, RN_BF16, 100, 12);
  found.values = Values::kMixed;
  found.seed = 176906932772883;
  EXPECT_EQ(check::run(found).error, "");
}

// Every exponent there is, in any order: what is left when all but a few have cancelled is exact.
TEST(ExactSum, LosesNothing) {
  std::vector<float> x;
  for (int exponent = -149; exponent < 128; ++exponent) {
    for (const float sign : {1.0f, -1.0f}) x.push_back(std::ldexp(sign, exponent));
    const float odd = std::ldexp(1 + 0x1.234566p-1f, exponent);
    for (const float v : {odd, -odd}) x.push_back(v);
  }
  for (std::uint64_t round = 0; round < 20; ++round) {
    for (std::size_t i = x.size() - 1; i > 0; --i) std::swap(x[i], x[reference::scatter(round * 9999 + i) % (i + 1)]);
    ExactSum sum;
    add_exactly(sum, x.data(), static_cast<std::int64_t>(x.size()));
    EXPECT_EQ(mean_of(sum, 7).mean, 0);
    const float rest[] = {0x1p-149f, -0x1.8p100f, 0x1p-149f};
    add_exactly(sum, rest, 3);
    const ExactMean mean = mean_of(sum, 2);
    EXPECT_EQ(mean.mean, -0x1.8p99);
    EXPECT_EQ(mean.rest, 0x1p-149);
  }
}

}  // namespace
}  // namespace rmsnorm::test
