// Public faults of group A: epsilon's default, placement, underflow and loss. Each test is named after its entry.
#include <cmath>

#include "public_faults/rows.h"
#include "reference/rms_norm.h"
#include "reference/ulp.h"

namespace rmsnorm::test {
namespace {

// bf16 gave a default epsilon of 2^-7: small rows came out 1.7 times too small.
TEST(PublicFaults, BL01_default_epsilon_does_not_depend_on_the_type) {
  Tensor constant(RN_BF16, 8, 32, 0.058);
  const Tensor out = rms_norm(constant, nullptr, rn_rms_norm_defaults());
  for (std::int64_t i = 0; i < out.size(); ++i) EXPECT_EQ(out[i], 1.0);

  Tensor narrow(RN_BF16, 8, 32), wide(RN_F32, 8, 32);
  for (std::int64_t i = 0; i < narrow.size(); ++i) {
    narrow.set(i, 0.058 * reference::draw(reference::Values::kNormal, RN_BF16, 1, reference::Stream::kX, 0, i, 256));
    wide.set(i, narrow[i]);
  }
  const Tensor from_narrow = rms_norm(narrow, nullptr, rn_rms_norm_defaults());
  const Tensor from_wide = rms_norm(wide, nullptr, rn_rms_norm_defaults());
  for (std::int64_t i = 0; i < out.size(); ++i) {
    EXPECT_LE(reference::ulp_distance(RN_BF16, from_narrow[i], from_wide[i]), 0.51) << i;
  }
}

// Epsilon rounded to f16 is 0, and 0/0 followed; a floor of 1e-4 was as wrong.
TEST(PublicFaults, BL02_epsilon_is_neither_lost_nor_floored) {
  for (const rn_type type : {RN_F16, RN_BF16, RN_F32}) {
    for (const double epsilon : {1e-12, 1e-8, 1e-6, 1e-5}) {
      Tensor zeros(type, 3, 10), bias(type, 1, 10, 0.25);
      const Tensor rms = rms_norm(zeros, nullptr, rms_options(epsilon));
      const Tensor layer = layer_norm(zeros, epsilon, nullptr, &bias);
      for (std::int64_t i = 0; i < rms.size(); ++i) {
        EXPECT_EQ(rms[i], 0) << epsilon;
        EXPECT_EQ(layer[i], 0.25) << epsilon;
      }
    }
  }
  Tensor small(RN_F16, 1, 512);
  for (std::int64_t i = 0; i < 512; ++i) {
    small.set(
        i, std::sqrt(2e-4) * reference::draw(reference::Values::kNormal, RN_F16, 2, reference::Stream::kX, 0, i, 512));
  }
  const Tensor out = rms_norm(small, nullptr, rms_options(1e-6));
  std::vector<double> x(512);
  for (std::int64_t i = 0; i < 512; ++i) x[static_cast<std::size_t>(i)] = small[i];
  std::vector<reference::Quad> exact(512);
  reference::rms_norm(exact.data(), x.data(), 512, RN_F16, {}, rms_options(1e-6));
  for (std::int64_t i = 0; i < 512; ++i) {
    EXPECT_LE(reference::ulp_distance(RN_F16, out[i], exact[static_cast<std::size_t>(i)]), 0.51) << i;
  }
}

TEST(PublicFaults, BL03_epsilon_is_inside_the_root) {
  Tensor constant(RN_F32, 1, 64, 1e-3), alternating(RN_F32, 1, 64);
  for (std::int64_t i = 0; i < 64; ++i) alternating.set(i, i % 2 == 0 ? 1e-3 : -1e-3);
  EXPECT_NEAR(rms_norm(constant, nullptr, rms_options(1e-6))[0], 0.70711, 5e-6);
  EXPECT_NEAR(layer_norm(alternating, 1e-6)[0], 0.70711, 5e-6);
  EXPECT_NEAR(layer_norm(alternating, 1e-6)[1], -0.70711, 5e-6);
  rn_rms_norm_options outside = rms_options(1e-6);
  outside.epsilon_placement = RN_EPSILON_OUTSIDE;  // only for those who ask
  EXPECT_NEAR(rms_norm(constant, nullptr, outside)[0], 0.99900, 5e-6);
  EXPECT_EQ(rn_rms_norm_defaults().epsilon_placement, RN_EPSILON_INSIDE);
}

}  // namespace
}  // namespace rmsnorm::test
