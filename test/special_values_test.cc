// Special values beyond the public faults: signed zeros, subnormals, partial rows, absent operands, in-place sums.
#include <gtest/gtest.h>

#include <cmath>

#include "public_faults/rows.h"
#include "support/environment.h"

namespace rmsnorm::test {
namespace {

using reference::Values;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

class SpecialValues : public testing::TestWithParam<rn_type> {};

INSTANTIATE_TEST_SUITE_P(All, SpecialValues, testing::Values(RN_F32, RN_F16, RN_BF16, RN_F64),
                         [](const auto& instance) { return std::string(rn_type_name(instance.param)); });

TEST_P(SpecialValues, NegativeZeroStaysUnlessABiasIsAdded) {
  for (const std::string& target : supported_targets()) {
    const UseTarget use(target);
    Tensor x = Tensor::filled(GetParam(), 1, 67, Values::kNormal), weight(GetParam(), 1, 67, 0.5);
    Tensor plus_zero(GetParam(), 1, 67, 0.0), minus_zero(GetParam(), 1, 67, -0.0);
    for (const std::int64_t i : {0, 30, 66}) x.set(i, -0.0);
    for (const rn_rounding rounding : {RN_ROUND_ONCE, RN_ROUND_BEFORE_WEIGHT, RN_ROUND_EXACT}) {
      const Tensor bare = rms_norm(x, &weight, rms_options(1e-6, rounding));
      const Tensor added = rms_norm(x, &weight, rms_options(1e-6, rounding), &plus_zero);
      const Tensor kept = rms_norm(x, &weight, rms_options(1e-6, rounding), &minus_zero);
      for (const std::int64_t i : {0, 30, 66}) {
        EXPECT_TRUE(bare[i] == 0 && std::signbit(bare[i])) << target;
        EXPECT_TRUE(kept[i] == 0 && std::signbit(kept[i])) << target;
        EXPECT_TRUE(added[i] == 0 && !std::signbit(added[i])) << target;
      }
    }
  }
}

TEST_P(SpecialValues, WhatStandsBehindThePartialColumnsKeepsToItself) {
  Tensor x = Tensor::filled(GetParam(), 2, 100, Values::kNormal);
  rn_rms_norm_options options = rms_options(1e-6);
  options.partial = 37;
  const Tensor clean = rms_norm(x, nullptr, options);
  x.set(40, kNan);
  x.set(60, kInfinity);
  const Tensor out = rms_norm(x, nullptr, options);
  for (std::int64_t i = 0; i < 200; ++i) {
    if (i == 40) {
      EXPECT_TRUE(std::isnan(out[i]));
    } else if (i == 60) {
      EXPECT_EQ(out[i], kInfinity);
    } else {
      EXPECT_EQ(out[i], clean[i]) << i;
    }
  }
  x.set(5, kNan);
  const Tensor row = rms_norm(x, nullptr, options);
  for (std::int64_t i = 0; i < 100; ++i) EXPECT_TRUE(std::isnan(row[i])) << i;
}

TEST_P(SpecialValues, OffsetOfAnAbsentWeightIsIgnored) {
  Tensor x = Tensor::filled(GetParam(), 2, 50, Values::kNormal);
  rn_rms_norm_options options = rms_options(1e-6);
  const std::uint64_t without = rms_norm(x, nullptr, options).hash();
  options.weight_offset = 1;
  EXPECT_EQ(rms_norm(x, nullptr, options).hash(), without);
}

TEST_P(SpecialValues, SubnormalRowsAreNormalised) {
  for (const std::string& target : supported_targets()) {
    const UseTarget use(target);
    Tensor x = Tensor::filled(GetParam(), 2, 70, Values::kSubnormal);
    const Tensor out = rms_norm(x, nullptr, rms_options(0));
    double squares = 0;
    for (std::int64_t i = 0; i < 70; ++i) squares += out[i] * out[i];
    EXPECT_NEAR(squares / 70, 1, GetParam() == RN_BF16 ? 0.01 : 0.002) << target;
  }
}

TEST(SavedStatistics, MayBeInfiniteOrSubnormal) {
  Tensor tiny(RN_F32, 1, 8, 1e-42), huge(RN_F32, 1, 8, 3e38), out(RN_F32, 1, 8), inv(RN_F32, 1, 1);
  const rn_rms_norm_options options = rms_options(0);
  const rn_view o = out.matrix(), v = inv.vector(), t = tiny.matrix(), h = huge.matrix();
  ASSERT_EQ(rn_rms_norm(&o, &v, &t, nullptr, nullptr, &options, nullptr), RN_OK);
  EXPECT_EQ(inv[0], kInfinity);
  EXPECT_EQ(out[0], 1);
  ASSERT_EQ(rn_rms_norm(&o, &v, &h, nullptr, nullptr, &options, nullptr), RN_OK);
  EXPECT_NEAR(inv[0], 1 / 3e38, 0x1p-149);
  EXPECT_EQ(out[0], 1);
}

TEST(Center, TakesTheMeanAwayExactly) {
  Tensor x(RN_F32, 1, 4, {1, 2, 3, 6});
  Tensor out(RN_F32, 1, 4);
  const rn_view o = out.matrix(), i = x.matrix();
  ASSERT_EQ(rn_center(&o, &i, nullptr), RN_OK);
  const double expected[] = {-2, -1, 0, 3};
  for (std::int64_t k = 0; k < 4; ++k) EXPECT_EQ(out[k], expected[k]);
}

}  // namespace
}  // namespace rmsnorm::test
