// The judges are judged: formats, ulps, square roots, f64 references against 113 bits, data that is the same
// everywhere, covering arrays, command lines, and whether a wrong result is found.
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "check/judge.h"
#include "check/norm_judge.h"
#include "reference/center.h"
#include "reference/hash.h"
#include "reference/layer_norm.h"
#include "reference/rms_norm.h"
#include "reference/ulp.h"
#include "support/cases.h"
#include "support/covering.h"

namespace rmsnorm::test {
namespace {

using namespace reference;
using check::Case;
using check::Op;

TEST(Format, RoundsF64AndF32AsTheHardwareDoes) {
  for (std::uint64_t i = 0; i < 200000; ++i) {
    const double v = std::bit_cast<double>(scatter(i));
    if (std::isnan(v)) continue;
    ASSERT_EQ(round_to(RN_F64, v), v);
    ASSERT_EQ(round_to(RN_F32, v), static_cast<double>(static_cast<float>(v))) << v;
    const double near_f32 = std::ldexp(v, -std::ilogb(v)) * 0x1p-140;  // subnormal results
    ASSERT_EQ(round_to(RN_F32, near_f32), static_cast<double>(static_cast<float>(near_f32))) << near_f32;
  }
}

TEST(Format, EncodeUndoesDecode) {
  for (const rn_type type : {RN_F16, RN_BF16}) {
    for (std::uint64_t bits = 0; bits < 1 << 16; ++bits) {
      const double value = decode(type, bits);
      ASSERT_TRUE(std::isnan(value) || encode(type, value) == bits) << bits;
    }
  }
  for (std::uint64_t i = 0; i < 100000; ++i) {
    const double v = std::bit_cast<double>(scatter(i));
    ASSERT_TRUE(std::isnan(v) || encode(RN_F64, v) == scatter(i)) << v;
  }
  EXPECT_EQ(decode(RN_F16, 0x3c00), 1);
  EXPECT_EQ(decode(RN_F16, 0x0001), 0x1p-24);
  EXPECT_EQ(decode(RN_F16, 0x7bff), 65504);
  EXPECT_EQ(decode(RN_BF16, 0x3f80), 1);
  EXPECT_EQ(decode(RN_BF16, 0x0001), 0x1p-133);
}

TEST(Quad, SquareRootIsRightToTheLastBits) {
  for (std::uint64_t i = 1; i < 10000; ++i) {
    const Quad v = static_cast<Quad>(static_cast<double>(i)) * power_of_two(static_cast<int>(i % 2000) - 1000) / 3;
    const Quad root = square_root(v), ulp = root * power_of_two(-111);
    ASSERT_TRUE((root - ulp) * (root - ulp) < v && v < (root + ulp) * (root + ulp)) << i;
  }
  EXPECT_TRUE(is_nan(square_root(static_cast<Quad>(-1))));
  EXPECT_TRUE(square_root(static_cast<Quad>(0)) == 0);
  EXPECT_FALSE(is_finite(square_root(static_cast<Quad>(std::numeric_limits<double>::infinity()))));
}

TEST(Ulp, CountsDistances) {
  EXPECT_EQ(ulp_distance(RN_F32, 1, 1), 0);
  EXPECT_EQ(ulp_distance(RN_F32, 1 + 0x1p-23, 1), 1);
  EXPECT_EQ(ulp_distance(RN_BF16, 1 + 0x1p-7, 1 + 0x1p-8), 0.5);
  EXPECT_EQ(ulp_distance(RN_F32, 0x1p-149, 0), 1);
  const double infinity = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(ulp_distance(RN_F16, infinity, 70000), 0);
  EXPECT_EQ(ulp_distance(RN_F16, infinity, 65504), 1);
  EXPECT_EQ(ulp_distance(RN_F16, nan, 1), infinity);
  EXPECT_EQ(ulp_distance(RN_F16, 1, nan), infinity);
  EXPECT_EQ(ulp_distance(RN_F16, nan, nan), 0);
  EXPECT_EQ(tie_distance(RN_BF16, 1 + 0x1p-8), 0);
  EXPECT_EQ(tie_distance(RN_BF16, 1), 0.5);
}

// The readable f64 forms against the same templates in 113 bits.
TEST(References, InF64AreGoodToAFewUlpsOfF64) {
  constexpr std::int64_t kCols = 3000;
  std::vector<double> x(kCols), weight(kCols), out(kCols);
  std::vector<Quad> exact(kCols);
  for (const Values values : {Values::kNormal, Values::kLognormal, Values::kCauchy, Values::kAlternating}) {
    for (std::int64_t i = 0; i < kCols; ++i) {
      x[static_cast<std::size_t>(i)] = draw(values, RN_F64, 1, Stream::kX, 0, i, kCols);
      weight[static_cast<std::size_t>(i)] = draw(Values::kWeight, RN_F64, 1, Stream::kWeight, 0, i, kCols);
    }
    const Parameters p{weight.data(), nullptr, 0};
    const auto worst = [&] {
      double largest = 0;
      Quad scale = 0;
      for (const Quad v : exact) scale = absolute(v) > scale ? absolute(v) : scale;
      for (std::size_t i = 0; i < kCols; ++i)
        largest = std::max(largest, ulp_distance(RN_F64, out[i], exact[i], scale));
      return largest;
    };
    const rn_rms_norm_options rms = rn_rms_norm_defaults();
    rms_norm(out.data(), x.data(), kCols, RN_F64, p, rms);
    rms_norm(exact.data(), x.data(), kCols, RN_F64, p, rms);
    EXPECT_LE(worst(), 64) << name_of(values);  // plain sums of 3000 terms
    layer_norm(out.data(), x.data(), kCols, p, 1e-5);
    layer_norm(exact.data(), x.data(), kCols, p, 1e-5);
    EXPECT_LE(worst(), 64) << name_of(values);
    center(out.data(), x.data(), kCols);
    center(exact.data(), x.data(), kCols);
    EXPECT_LE(worst(), 64) << name_of(values);
  }
}

// A change of the generator would change every hash that was ever published.
TEST(Data, IsTheSameEverywhere) {
  std::uint64_t hash = kHashSeed;
  for (const NamedValues& named : kNamedValues) {
    if (named.values == Values::kIndex) {  // came later
      EXPECT_EQ(hash, 0x14464d734780fa9cu) << std::hex << hash;
    }
    for (const rn_type type : {RN_F32, RN_F16, RN_BF16, RN_F64}) {
      char row[64 * 8];
      for (std::int64_t r = 0; r < 2; ++r) {
        fill_row(row, named.values, type, 7, Stream::kX, r, 64);
        hash = hash_elements(hash, type, row, 64);
      }
    }
  }
  EXPECT_EQ(hash, 0xb96bfc5869c5554cu) << std::hex << hash;
}

TEST(Covering, EveryPairMeets) {
  const std::vector<int> levels{7, 2, 5, 3, 4};
  const auto rows = pairwise(levels);
  EXPECT_LT(rows.size(), 60u);
  for (std::size_t f = 0; f < levels.size(); ++f) {
    for (std::size_t g = f + 1; g < levels.size(); ++g) {
      std::set<std::pair<int, int>> met;
      for (const auto& row : rows) met.emplace(row[f], row[g]);
      EXPECT_EQ(met.size(), static_cast<std::size_t>(levels[f] * levels[g]));
    }
  }
}

// The line that a failing test prints leads back to its case.
TEST(Cases, CommandLineNamesTheCase) {
  for (const Case& c : covering_cases(Op::kAddRmsNorm, RN_BF16)) {
    const std::string line = check::command_line(c);
    Case read = check::make_case(Op::kAddRmsNorm, RN_F32, 1, 1);
    std::size_t begin = line.find("x=");
    while (begin != std::string::npos && line.compare(begin, 2, "--") != 0) {
      const std::size_t end = std::min(line.find(' ', begin), line.size());
      ASSERT_EQ(check::parse_operand(line.substr(begin, end - begin), read), "") << line;
      begin = end < line.size() ? end + 1 : std::string::npos;
    }
    EXPECT_TRUE(read.rows == c.rows && read.cols == c.cols && read.x == c.x && read.out == c.out &&
                read.weight == c.weight && read.bias == c.bias && read.residual == c.residual &&
                read.residual_out == c.residual_out && read.stride == c.stride && read.offset == c.offset &&
                read.values == c.values && read.seed == c.seed)
        << line << "\n"
        << check::command_line(read);
  }
  Case c;
  for (const char* bad : {"x=3", "x=3x0:f32", "x=3x4:f8", "x=3x4:f32@stride=2", "x=3x4@values=odd", "w=f31", "y=f32"}) {
    EXPECT_NE(check::parse_operand(bad, c), "") << bad;
  }
}

TEST(Judge, MeasuresGradientsByTermsBeyondTheRange) {
  const auto error = [](double found, double exact, int exponent) {
    check::Finding finding;
    check::judge_gradient(finding, RN_F64, "dx", 0, 0, found, exact, power_of_two(exponent));
    return finding.error;
  };
  EXPECT_EQ(error(0x1p975, -0.75, 1075), "");
  EXPECT_EQ(error(0x1.8p979, 0, 1030), "");  // an ulp of 2^1030 is 2^978
  EXPECT_NE(error(0x1.8p980, 0, 1030), "");
  EXPECT_NE(error(0x1.8p980, 0, 1023), "");
  EXPECT_NE(error(std::numeric_limits<double>::infinity(), -0.75, 1075), "");
}

TEST(Judge, AsksForTheSignOfAZeroButWhereABiasLeftIt) {
  const auto error = [](double bias) {
    check::Finding finding;
    const std::vector<double> found = {-0.0};
    const std::vector<Quad> exact = {0};
    const Parameters parameters = {nullptr, &bias};
    check::NormRow row = {"out", 0, RN_F16, found, exact, parameters};
    row.signs = true;
    check::judge_norm_row(finding, row, {0.51, Unit::kResult});
    return finding.error;
  };
  EXPECT_NE(error(0), "");
  EXPECT_EQ(error(1.5), "");
}

// One wrong ulp, a wrong sign of zero, a wrong sum, a wrong statistic and a stray write are all found.
TEST(Judge, FindsWrongResults) {
  Case c = check::make_case(Op::kAddRmsNorm, RN_BF16, 3, 70);
  c.weight = RN_F32;
  c.stride = 80;
  const auto report_after = [&](auto&& change) {
    const check::Operands o(c);
    EXPECT_EQ(check::call(c, o), RN_OK) << rn_last_error();
    change(o);
    return check::judge(c, o);
  };
  const auto flip = [](const check::Matrix& m, std::int64_t row, std::int64_t byte) { m.row(row)[byte] ^= 1; };
  EXPECT_TRUE(report_after([](const check::Operands&) {}).ok());
  EXPECT_FALSE(report_after([&](const check::Operands& o) { flip(o.out, 2, 2 * 69); }).ok());
  EXPECT_FALSE(report_after([&](const check::Operands& o) { flip(o.residual_out, 1, 0); }).ok());
  EXPECT_FALSE(report_after([&](const check::Operands& o) { flip(o.inv, 0, 1); }).ok());
  EXPECT_FALSE(report_after([&](const check::Operands& o) { flip(o.out, 1, 2 * 70); }).ok());  // behind the row
  EXPECT_FALSE(report_after([&](const check::Operands& o) { flip(o.out, 0, -1); }).ok());      // before the first
  EXPECT_FALSE(report_after([&](const check::Operands& o) { flip(o.x, 0, 0); }).ok());         // an input
  EXPECT_FALSE(report_after([&](const check::Operands& o) { flip(o.weight, 0, 0); }).ok());
  c.values = Values::kZeros;
  EXPECT_FALSE(report_after([&](const check::Operands& o) { o.out.row(0)[1] = static_cast<char>(0x80); }).ok());
}

}  // namespace
}  // namespace rmsnorm::test
