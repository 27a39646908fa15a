// silu of every target, alone: against 113-bit arithmetic, at its limits, and the same bits everywhere.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "cpu/target.h"
#include "reference/silu.h"
#include "reference/ulp.h"
#include "support/environment.h"

namespace rmsnorm::test {
namespace {

using reference::Quad;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::vector<const Target*> runnable_targets() {
  std::vector<const Target*> list;
  for (int i = 0; i < all_targets().count; ++i) {
    if (all_targets().targets[i]->supported()) list.push_back(all_targets().targets[i]);
  }
  return list;
}

float one(const Target& target, float gate) {
  float out;
  target.silu(&out, &gate, 1);
  return out;
}

// Gates of all sizes and both signs: every `step`th f32 from the smallest to far beyond where silu ends.
std::vector<float> sweep(std::uint32_t step) {
  std::vector<float> gates;
  for (std::uint32_t bits = 0; bits < 0x7f800000u; bits += step) {
    gates.push_back(std::bit_cast<float>(bits));
    gates.push_back(std::bit_cast<float>(bits | 0x80000000u));
  }
  return gates;
}

// Gates densely where silu does anything but scale.
std::vector<float> dense() {
  std::vector<float> gates;
  const std::int64_t count = reduced() ? 20000 : 600000;
  for (std::int64_t i = 0; i < count; ++i) {
    gates.push_back(static_cast<float>(-130 + 180.0 * static_cast<double>(i) / static_cast<double>(count)));
    gates.push_back(static_cast<float>(-4 + 8.0 * static_cast<double>(i) / static_cast<double>(count)));
  }
  return gates;
}

void expect_accurate(const Target& target, const std::vector<float>& gates) {
  std::vector<float> found(gates.size());
  target.silu(found.data(), gates.data(), static_cast<std::int64_t>(gates.size()));
  double worst = 0, worst_below = 0;
  float where = 0;
  for (std::size_t i = 0; i < gates.size(); ++i) {
    const Quad exact = reference::silu<Quad>(static_cast<double>(gates[i])).value;
    if (gates[i] < -80) {
      const Quad error = reference::absolute(static_cast<Quad>(found[i]) - exact);
      worst_below = std::max(worst_below, static_cast<double>(error));
    } else if (const double error = reference::ulp_distance(RN_F32, static_cast<double>(found[i]), exact);
               error > worst) {
      worst = error;
      where = gates[i];
    }
  }
  testing::Test::RecordProperty("worst_ulp", std::to_string(worst));
  EXPECT_LE(worst, 2) << target.name << " at " << where;
  EXPECT_LE(worst_below, 0x1p-120) << target.name;
}

TEST(Silu, is_within_two_ulp_for_gates_of_any_size) {
  for (const Target* target : runnable_targets()) expect_accurate(*target, sweep(reduced() ? 99991 : 9973));
}

TEST(Silu, is_within_two_ulp_where_it_bends) {
  for (const Target* target : runnable_targets()) expect_accurate(*target, dense());
}

TEST(Silu, has_the_same_bits_on_every_target) {
  const std::vector<const Target*> targets = runnable_targets();
  for (const std::vector<float>& gates : {sweep(4999), dense()}) {
    std::vector<float> expected(gates.size()), found(gates.size());
    targets.front()->silu(expected.data(), gates.data(), static_cast<std::int64_t>(gates.size()));
    for (const Target* target : targets) {
      target->silu(found.data(), gates.data(), static_cast<std::int64_t>(gates.size()));
      for (std::size_t i = 0; i < gates.size(); ++i) {
        ASSERT_EQ(std::bit_cast<std::uint32_t>(found[i]), std::bit_cast<std::uint32_t>(expected[i]))
            << target->name << " at " << gates[i];
      }
    }
  }
}

TEST(Silu, takes_its_limits) {
  for (const Target* target : runnable_targets()) {
    EXPECT_TRUE(std::isnan(one(*target, std::numeric_limits<float>::quiet_NaN()))) << target->name;
    EXPECT_EQ(one(*target, kInfinity), kInfinity) << target->name;
    for (const float gate : {-kInfinity, -std::numeric_limits<float>::max(), -1000.0f, -0.0f}) {
      EXPECT_EQ(std::bit_cast<std::uint32_t>(one(*target, gate)), 0x80000000u) << target->name << " at " << gate;
    }
    EXPECT_EQ(std::bit_cast<std::uint32_t>(one(*target, 0.0f)), 0u) << target->name;
    EXPECT_EQ(one(*target, std::numeric_limits<float>::max()), std::numeric_limits<float>::max()) << target->name;
  }
}

// The oracle: e^1, e^-80, e^700 to 34 digits, and silu'(g) against differences of silu.
TEST(Silu, reference_is_exact) {
  const auto expect_near = [](Quad found, Quad high, Quad low) {
    EXPECT_LT(static_cast<double>(reference::absolute(found / (high + low) - 1)), 0x1p-104);
  };
  expect_near(reference::exponential(Quad{1}), 0x1.5bf0a8b145769p+1, 0x1.4d57ee2b1013ap-53);
  expect_near(reference::exponential(Quad{-80}), 0x1.7fd974d372e45p-116, -0x1.e423729d4c8bbp-170);
  expect_near(reference::exponential(Quad{700}), 0x1.d945df4f8ec8ep+1009, 0x1.183392684a46ep+954);
  const double step = 0x1p-20;
  for (const double gate : {-30.0, -3.0, -1.25, 0.0, 0.5, 2.0, 20.0}) {
    const Quad slope =
        (reference::silu<Quad>(gate + step).value - reference::silu<Quad>(gate - step).value) / (2 * step);
    EXPECT_NEAR(static_cast<double>(reference::silu<Quad>(gate).slope), static_cast<double>(slope), 0x1p-40) << gate;
  }
}

}  // namespace
}  // namespace rmsnorm::test
