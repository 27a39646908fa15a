// Conversions between f32 and the 16-bit types: core/float16.h against the definition of the formats, and every
// target's vector code against core/float16.h, for all inputs (a sample and all neighbourhoods of ties and limits when
// reduced).
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <thread>
#include <vector>

#include "core/float16.h"
#include "cpu/target.h"
#include "reference/format.h"
#include "support/environment.h"

namespace rmsnorm::test {
namespace {

constexpr std::uint64_t kAllF32 = std::uint64_t{1} << 32;
constexpr std::uint32_t kHalves = 1 << 16;

float scalar_widen(rn_type type, std::uint16_t bits) { return type == RN_F16 ? f16_to_f32(bits) : bf16_to_f32(bits); }

std::uint16_t scalar_narrow(rn_type type, float value) {
  return type == RN_F16 ? f32_to_f16(value) : f32_to_bf16(value);
}

bool is_nan_half(rn_type type, std::uint16_t bits) { return (bits & 0x7fff) > (type == RN_F16 ? 0x7c00 : 0x7f80); }

// Equal bits, all NaNs counting as one.
bool same_f32(float a, float b) {
  return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b) || (a != a && b != b);
}
bool same_half(rn_type type, std::uint16_t a, std::uint16_t b) {
  return a == b || (is_nan_half(type, a) && is_nan_half(type, b));
}

// All 16-bit numbers, the midpoints between neighbours, and the f32 numbers next to each: wherever rounding turns.
std::vector<float> turning_points(rn_type type) {
  std::vector<float> points;
  for (std::uint32_t bits = 0; bits < kHalves; ++bits) {
    const std::uint32_t here = std::bit_cast<std::uint32_t>(scalar_widen(type, static_cast<std::uint16_t>(bits)));
    const double a = reference::decode(type, bits), b = reference::decode(type, bits + 1);
    const std::uint32_t middle = std::bit_cast<std::uint32_t>(static_cast<float>(a + (b - a) / 2));
    for (const std::uint32_t around : {here, middle}) {
      for (const std::uint32_t step : {0u, 1u, ~0u}) points.push_back(std::bit_cast<float>(around + step));
    }
  }
  // The limits: overflow, the least normal and subnormal numbers of both formats, infinity and the first NaNs.
  for (const float limit : {65504.0f, 65520.0f, 0x1p-14f, 0x1p-24f, 0x1p-25f, 0x1p-126f, 0x1p-133f, 0x1p-149f,
                            0x1.fep127f, 0x1.ffp127f, std::numeric_limits<float>::infinity()}) {
    for (std::uint32_t step = 0; step < 8; ++step) {
      for (const std::uint32_t sign : {0u, 0x80000000u}) {
        points.push_back(std::bit_cast<float>((std::bit_cast<std::uint32_t>(limit) + step - 4) | sign));
      }
    }
  }
  return points;
}

class Conversions : public testing::TestWithParam<rn_type> {};

TEST_P(Conversions, BL76_ScalarWideningIsTheDefinition) {
  for (std::uint32_t bits = 0; bits < kHalves; ++bits) {
    const float expected = static_cast<float>(reference::decode(GetParam(), bits));
    ASSERT_TRUE(same_f32(scalar_widen(GetParam(), static_cast<std::uint16_t>(bits)), expected)) << bits;
  }
}

// By the definition of rounding: the nearest number of the type, of two the one with an even last bit. As narrowing is
// monotonic, right results at every number, midpoint and their neighbours are right results everywhere; the sample in
// between guards against narrowing that is not.
TEST_P(Conversions, ScalarNarrowingIsTheDefinition) {
  std::vector<float> points = turning_points(GetParam());
  const std::uint64_t step = reduced() ? 100003 : 2503;
  for (std::uint64_t bits = 0; bits < kAllF32; bits += step) {
    points.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(bits)));
  }
  for (const float value : points) {
    const std::uint64_t expected = reference::encode(GetParam(), reference::round_to(GetParam(), value));
    ASSERT_TRUE(same_half(GetParam(), scalar_narrow(GetParam(), value), static_cast<std::uint16_t>(expected)))
        << value << " becomes " << scalar_narrow(GetParam(), value) << ", not " << expected;
  }
}

TEST_P(Conversions, BL76_EveryTargetWidensAllNumbers) {
  std::vector<std::uint16_t> in(kHalves);
  for (std::uint32_t bits = 0; bits < kHalves; ++bits) in[bits] = static_cast<std::uint16_t>(bits);
  for (int t = 0; t < all_targets().count; ++t) {
    const Target& target = *all_targets().targets[t];
    if (!target.supported()) continue;
    for (const std::size_t shift : {0, 1, 3}) {  // other alignments, other tails
      std::vector<float> out(kHalves);
      target.widen(out.data(), in.data() + shift, GetParam(), static_cast<std::int64_t>(kHalves - shift));
      for (std::size_t i = 0; i + shift < kHalves; ++i) {
        ASSERT_TRUE(same_f32(out[i], scalar_widen(GetParam(), in[i + shift]))) << target.name << " " << in[i + shift];
      }
    }
  }
}

std::vector<const Target*> supported() {
  std::vector<const Target*> targets;
  for (int t = 0; t < all_targets().count; ++t) {
    if (all_targets().targets[t]->supported()) targets.push_back(all_targets().targets[t]);
  }
  return targets;
}

// "" or the first difference among the values [begin, end), all targets against one scalar result.
std::string first_difference(rn_type type, std::uint64_t begin, std::uint64_t end) {
  constexpr std::uint64_t kBlock = 4096;
  std::vector<float> in(kBlock);
  std::vector<std::uint16_t> out(kBlock), expected(kBlock);
  const std::vector<const Target*> targets = supported();
  for (std::uint64_t first = begin; first < end; first += kBlock) {
    for (std::uint64_t i = 0; i < kBlock; ++i) in[i] = std::bit_cast<float>(static_cast<std::uint32_t>(first + i));
    if (type == RN_F16) {
      for (std::uint64_t i = 0; i < kBlock; ++i) expected[i] = f32_to_f16(in[i]);
    } else {
      for (std::uint64_t i = 0; i < kBlock; ++i) expected[i] = f32_to_bf16(in[i]);
    }
    for (const Target* target : targets) {
      target->narrow(out.data(), in.data(), type, kBlock);
      if (out == expected) continue;
      for (std::uint64_t i = 0; i < kBlock; ++i) {  // perhaps only NaNs with other payloads
        if (!same_half(type, out[i], expected[i])) return target->name + (": f32 bits " + std::to_string(first + i));
      }
    }
  }
  return "";
}

TEST_P(Conversions, EveryTargetNarrowsTheTurningPoints) {
  std::vector<float> in = turning_points(GetParam());
  for (std::uint64_t bits = 0; bits < kAllF32; bits += 251) {
    in.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(bits)));
  }
  std::vector<std::uint16_t> out(in.size());
  for (const Target* target : supported()) {
    for (const std::size_t shift : {0, 1, 3}) {
      target->narrow(out.data(), in.data() + shift, GetParam(), static_cast<std::int64_t>(in.size() - shift));
      for (std::size_t i = 0; i + shift < in.size(); ++i) {
        ASSERT_TRUE(same_half(GetParam(), out[i], scalar_narrow(GetParam(), in[i + shift])))
            << target->name << " " << in[i + shift];
      }
      if (reduced()) break;
    }
  }
}

TEST_P(Conversions, EveryTargetNarrowsAllNumbers) {
  if (reduced()) GTEST_SKIP() << "reduced: every 251st number and the turning points only, in the test before this one";
  std::string found[2];
  const auto half = [&](std::uint64_t h) {
    found[h] = first_difference(GetParam(), h * (kAllF32 / 2), (h + 1) * (kAllF32 / 2));
  };
  std::thread upper(half, 1);
  half(0);
  upper.join();
  EXPECT_EQ(found[0], "");
  EXPECT_EQ(found[1], "");
}

INSTANTIATE_TEST_SUITE_P(All, Conversions, testing::Values(RN_F16, RN_BF16),
                         [](const auto& instance) { return std::string(rn_type_name(instance.param)); });

}  // namespace
}  // namespace rmsnorm::test
