// Conversions from f32 to the 8-bit types: core/float8.h against the definition of the formats, and every target's
// vector code against core/float8.h, for all 2^32 inputs (a sample and all neighbourhoods of ties and limits when
// reduced).
#include "core/float8.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <thread>
#include <vector>

#include "cpu/target.h"
#include "reference/format.h"
#include "reference/values.h"
#include "support/environment.h"

namespace rmsnorm::test {
namespace {

constexpr std::uint64_t kAllF32 = std::uint64_t{1} << 32;

float from_bits(std::uint64_t bits) { return std::bit_cast<float>(static_cast<std::uint32_t>(bits)); }

std::uint8_t narrow(rn_type type, float value) {
  if (type == RN_F8E4M3) return f32_to_f8e4m3(value);
  return type == RN_F8E5M2 ? f32_to_f8e5m2(value) : static_cast<std::uint8_t>(f32_to_i8(value));
}

// The code as written, all NaNs counting as one.
int canonical(rn_type type, std::uint8_t code) {
  const int magnitude = code & 0x7f;
  if (type == RN_F8E4M3 && magnitude == 0x7f) return 0x7f;
  if (type == RN_F8E5M2 && magnitude > 0x7c) return 0x7f;
  return code;
}

// All numbers of the type, the midpoints between neighbours, and the f32 numbers next to each: wherever rounding turns.
std::vector<float> turning_points(rn_type type) {
  std::vector<float> points;
  const auto around = [&](double value) {
    const std::uint32_t bits = std::bit_cast<std::uint32_t>(static_cast<float>(value));
    for (const std::uint32_t step : {0u, 1u, ~0u}) {
      points.push_back(from_bits(bits + step));
      points.push_back(-points.back());
    }
  };
  double before = 0;
  for (std::uint64_t code = 0; code < 0x80; ++code) {
    const double value = reference::decode(type, code);
    around(value);
    around(before + (value - before) / 2);
    before = value;
  }
  const double largest = reference::format_of(type).largest;
  for (const double value : {largest, largest * 1.0625, largest * 1.125, largest * 2, 0x1p31, 0x1p126, 0x1p-126,
                             0x1p-149, static_cast<double>(std::numeric_limits<float>::infinity())}) {
    around(value);
  }
  return points;
}

class Float8 : public testing::TestWithParam<rn_type> {};

// By the definition of rounding. As narrowing is monotonic, right results at every number, midpoint and their
// neighbours are right results everywhere; the sample in between guards against narrowing that is not.
TEST_P(Float8, scalar_narrowing_is_the_definition) {
  std::vector<float> points = turning_points(GetParam());
  const std::uint64_t step = reduced() ? 100003 : 2503;
  for (std::uint64_t bits = 0; bits < kAllF32; bits += step) points.push_back(from_bits(bits));
  for (const float value : points) {
    const std::uint64_t expected = reference::encode(GetParam(), reference::round_to(GetParam(), value)) & 0xff;
    ASSERT_EQ(canonical(GetParam(), narrow(GetParam(), value)),
              canonical(GetParam(), static_cast<std::uint8_t>(expected)))
        << value;
  }
}

TEST_P(Float8, scalar_widening_is_the_definition) {
  if (GetParam() == RN_I8) return;  // a C++ type
  for (unsigned code = 0; code < 256; ++code) {
    const auto bits = static_cast<std::uint8_t>(code);
    const float found = GetParam() == RN_F8E4M3 ? f8e4m3_to_f32(bits) : f8e5m2_to_f32(bits);
    const double expected = reference::decode(GetParam(), code);
    if (std::isnan(expected)) {
      EXPECT_TRUE(std::isnan(found)) << code;
    } else {
      EXPECT_EQ(static_cast<double>(found), expected) << code;
      EXPECT_EQ(std::signbit(found), std::signbit(expected)) << code;
    }
  }
}

// Found once: asking the CPU takes microseconds on virtual machines.
const std::vector<const Target*>& supported() {
  static const std::vector<const Target*> list = [] {
    std::vector<const Target*> targets;
    for (int t = 0; t < all_targets().count; ++t) {
      if (all_targets().targets[t]->supported()) targets.push_back(all_targets().targets[t]);
    }
    return targets;
  }();
  return list;
}

// "" or the first difference of a target from the expected codes of in / scale.
std::string first_difference(rn_type type, const std::vector<float>& in, float scale,
                             const std::vector<std::uint8_t>& expected) {
  std::vector<std::uint8_t> out(in.size());
  for (const Target* target : supported()) {
    target->quantize(out.data(), in.data(), type, scale, static_cast<std::int64_t>(in.size()));
    if (out == expected) continue;
    for (std::size_t i = 0; i < in.size(); ++i) {  // perhaps only NaNs with other payloads
      if (canonical(type, out[i]) != canonical(type, expected[i])) {
        return target->name + (": f32 bits " + std::to_string(std::bit_cast<std::uint32_t>(in[i])));
      }
    }
  }
  return "";
}

// From the scalar result.
std::string first_difference(rn_type type, const std::vector<float>& in, float scale) {
  std::vector<std::uint8_t> expected(in.size());
  for (std::size_t i = 0; i < in.size(); ++i) expected[i] = narrow(type, in[i] / scale);
  return first_difference(type, in, scale, expected);
}

TEST_P(Float8, every_target_narrows_the_turning_points) {
  std::vector<float> in = turning_points(GetParam());
  for (std::uint64_t bits = 0; bits < kAllF32; bits += 2510) in.push_back(from_bits(bits));
  EXPECT_EQ(first_difference(GetParam(), in, 1), "");
}

TEST_P(Float8, every_target_narrows_all_numbers) {
  if (reduced()) GTEST_SKIP() << "reduced: a sample and the turning points only, in the test before this one";
  std::string found[2];
  const auto half = [&](std::uint64_t h) {
    constexpr std::uint64_t kBlock = 4096;
    std::vector<float> in(kBlock);
    std::vector<std::uint8_t> expected(kBlock);
    for (std::uint64_t first = h * (kAllF32 / 2); first < (h + 1) * (kAllF32 / 2) && found[h].empty();
         first += kBlock) {
      for (std::uint64_t i = 0; i < kBlock; ++i) in[i] = from_bits(first + i);
      // Rounding is monotonic: between two numbers (no block holds both signs, and NaNs come in blocks of their own but
      // for infinity) that become one code, all become it.
      const std::uint8_t code = narrow(GetParam(), in.front());
      if (!std::isnan(in.back()) && narrow(GetParam(), in.back()) == code) {
        std::fill(expected.begin(), expected.end(), code);
      } else {
        for (std::uint64_t i = 0; i < kBlock; ++i) expected[i] = narrow(GetParam(), in[i]);
      }
      found[h] = first_difference(GetParam(), in, 1, expected);
    }
  };
  std::thread upper(half, 1);
  half(0);
  upper.join();
  EXPECT_EQ(found[0], "");
  EXPECT_EQ(found[1], "");
}

// A multiplication by the reciprocal would differ in the last place, and where it over- or underflows in all.
TEST_P(Float8, every_target_divides) {
  std::vector<float> in;
  for (std::uint64_t i = 0; i < 4096; ++i) in.push_back(from_bits(reference::scatter(i)));
  for (std::uint64_t i = 0; i < 4096; ++i) in.push_back(static_cast<float>(reference::scatter(i) % 2000) * 0.001f);
  for (const float scale : {0.01f, 1.0f / 127, 0x1p-126f, 0x1p-149f, 3.0f, 0x1.fffffep127f, 0x1p127f, 0.0078740157f}) {
    EXPECT_EQ(first_difference(GetParam(), in, scale), "") << scale;
  }
}

INSTANTIATE_TEST_SUITE_P(All, Float8, testing::Values(RN_I8, RN_F8E4M3, RN_F8E5M2),
                         [](const auto& instance) { return std::string(rn_type_name(instance.param)); });

}  // namespace
}  // namespace rmsnorm::test
