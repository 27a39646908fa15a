// The formulas of the model families, as their own programs order the roundings. Each is written out here once more, in
// plain f64 and round_to, and must give the library's very bits wherever the inner values are not next to a tie.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "public_faults/rows.h"
#include "reference/format.h"
#include "reference/ulp.h"

namespace rmsnorm::test {
namespace {

using reference::Quad;
using reference::round_to;
using reference::tie_distance;
using reference::Values;

constexpr std::int64_t kRows = 4, kCols = 576;

// What a family computes from n = x * inv and a weight, and which value must not be next to a tie to compare bits.
using Formula = std::function<double(Quad n, double weight)>;

double mean_square(const Tensor& x, std::int64_t row, std::int64_t counted) {
  double sum = 0;
  for (std::int64_t i = 0; i < counted; ++i) sum += x[row * kCols + i] * x[row * kCols + i];
  return sum / static_cast<double>(counted);
}

// Runs the library with `options` and compares with the formula; `inner` is the type n is rounded to, if it is.
void expect_family(rn_type x_type, rn_type weight_type, rn_type out_type, const rn_rms_norm_options& options,
                   const Formula& formula, double weight_shift = 0) {
  Tensor x = Tensor::filled(x_type, kRows, kCols, Values::kLognormal);
  for (std::int64_t i = 0; i < x.size(); i += 3) x.set(i, -x[i]);
  Tensor weight = Tensor::filled(weight_type, 1, kCols, Values::kWeight, 3);
  for (std::int64_t i = 0; i < kCols; ++i) weight.set(i, weight[i] - weight_shift);
  Tensor out(out_type, kRows, kCols, -77);
  const rn_view o = out.matrix(), in = x.matrix(), w = weight.vector();
  ASSERT_EQ(rn_rms_norm(&o, nullptr, &in, &w, nullptr, &options, nullptr), RN_OK) << rn_last_error();
  const std::int64_t counted = options.partial == 0 ? kCols : options.partial;
  std::int64_t compared = 0;
  for (std::int64_t r = 0; r < kRows; ++r) {
    const Quad mean = mean_square(x, r, counted), epsilon = options.epsilon;
    const Quad inv = options.epsilon_placement == RN_EPSILON_INSIDE ? 1 / reference::square_root(mean + epsilon)
                                                                    : 1 / (reference::square_root(mean) + epsilon);
    for (std::int64_t i = 0; i < kCols; ++i) {
      const Quad n = x[r * kCols + i] * inv;
      if (options.rounding == RN_ROUND_BEFORE_WEIGHT && tie_distance(x_type, n) < 0.01) continue;
      if (options.rounding == RN_ROUND_ONCE && tie_distance(out_type, n * (weight[i] + options.weight_offset)) < 0.01) {
        continue;
      }
      ++compared;
      EXPECT_EQ(out[r * kCols + i], formula(n, weight[i])) << "row " << r << ", column " << i;
    }
  }
  EXPECT_GT(compared, x.size() * 9 / 10);
}

class Families : public testing::TestWithParam<rn_type> {};  // T: bf16 or f16

INSTANTIATE_TEST_SUITE_P(All, Families, testing::Values(RN_BF16, RN_F16),
                         [](const auto& instance) { return std::string(rn_type_name(instance.param)); });

// Llama, Mistral, Qwen 2 and 3, Phi-3, DeepSeek V3: round(w * round(x * inv)).
TEST_P(Families, Llama) {
  const rn_type T = GetParam();
  expect_family(T, T, T, rms_options(1e-6, RN_ROUND_BEFORE_WEIGHT),
                [T](Quad n, double w) { return round_to(T, round_to(RN_F32, static_cast<Quad>(w) * round_to(T, n))); });
}

// The same with an f32 weight: the product is f32 and is not rounded again.
TEST_P(Families, LlamaWithF32Weight) {
  const rn_type T = GetParam();
  expect_family(T, RN_F32, RN_F32, rms_options(1e-5, RN_ROUND_BEFORE_WEIGHT),
                [T](Quad n, double w) { return round_to(RN_F32, static_cast<Quad>(w) * round_to(T, n)); });
}

// Gemma 1 to 3, Qwen3-Next's ordinary norms: round((x * inv) * (1 + w)), the weight formed in f32.
TEST_P(Families, Gemma) {
  const rn_type T = GetParam();
  rn_rms_norm_options options = rms_options(1e-6);
  options.weight_offset = 1;
  for (const rn_type weight_type : {T, RN_F32}) {
    expect_family(
        T, weight_type, T, options,
        [T](Quad n, double w) { return round_to(T, n * round_to(RN_F32, static_cast<Quad>(w) + 1)); }, 1);
  }
}

// T5 with w of type T as Llama; with f32 w: w * x * inv in f32, no rounding. Within f32's budget, so judged in ulps.
TEST_P(Families, T5) {
  const rn_type T = GetParam();
  expect_family(T, T, T, rms_options(1e-6, RN_ROUND_BEFORE_WEIGHT),
                [T](Quad n, double w) { return round_to(T, round_to(RN_F32, static_cast<Quad>(w) * round_to(T, n))); });
  rn_rms_norm_options options = rms_options(1e-6, RN_ROUND_EXACT);
  expect_family(T, RN_F32, RN_F32, options, [](Quad n, double w) { return round_to(RN_F32, n * w); });
}

// OLMo 2, GPT-OSS, torch.nn.functional.rms_norm: round((x * inv) * w) once, output of x's type.
TEST_P(Families, OlmoAndTorch) {
  const rn_type T = GetParam();
  for (const rn_type weight_type : {T, RN_F32}) {
    expect_family(T, weight_type, T, rms_options(1e-5), [T](Quad n, double w) { return round_to(T, n * w); });
  }
}

// Zhang and Sennrich's PyTorch file: epsilon outside, 1e-8; partial k = int(d * p).
TEST(FamiliesInF32, ZhangAndSennrich) {
  rn_rms_norm_options options = rms_options(1e-8, RN_ROUND_EXACT);
  options.epsilon_placement = RN_EPSILON_OUTSIDE;
  for (const double p : {1.0, 0.0625, 0.5}) {
    options.partial = rn_partial_columns(kCols, p);
    EXPECT_EQ(options.partial, static_cast<std::int64_t>(kCols * p));
    expect_family(RN_F32, RN_F32, RN_F32, options, [](Quad n, double w) { return round_to(RN_F32, n * w); });
  }
  EXPECT_EQ(rn_partial_columns(10, 0.01), 1);  // never 0
}

// Nemotron's LayerNorm: the weight round_T(1 + w), formed beforehand in the weight's type.
TEST_P(Families, Nemotron) {
  const rn_type T = GetParam();
  Tensor x = Tensor::filled(T, kRows, kCols, Values::kNormal), stored = Tensor::filled(T, 1, kCols, Values::kNormal, 5);
  Tensor weight(T, 1, kCols);
  for (std::int64_t i = 0; i < kCols; ++i) weight.set(i, 1 + stored[i] / 8);
  const Tensor out = layer_norm(x, 1e-5, &weight);
  for (std::int64_t r = 0; r < kRows; ++r) {
    double mean = 0, variance = 0;
    for (std::int64_t i = 0; i < kCols; ++i) mean += x[r * kCols + i] / kCols;
    for (std::int64_t i = 0; i < kCols; ++i) variance += (x[r * kCols + i] - mean) * (x[r * kCols + i] - mean) / kCols;
    for (std::int64_t i = 0; i < kCols; ++i) {
      const double exact = (x[r * kCols + i] - mean) / std::sqrt(variance + 1e-5) * weight[i];
      EXPECT_LE(reference::ulp_distance(T, out[r * kCols + i], exact), 0.51) << r << " " << i;
    }
  }
}

// One rounding for the other shows on about a quarter of the elements.
TEST_P(Families, TheRoundingsDiffer) {
  Tensor x = Tensor::filled(GetParam(), kRows, kCols, Values::kNormal);
  Tensor weight = Tensor::filled(GetParam(), 1, kCols, Values::kWeight, 3);
  const Tensor once = rms_norm(x, &weight, rms_options(1e-6));
  const Tensor before = rms_norm(x, &weight, rms_options(1e-6, RN_ROUND_BEFORE_WEIGHT));
  std::int64_t different = 0;
  for (std::int64_t i = 0; i < x.size(); ++i) different += once[i] != before[i];
  EXPECT_GT(different, x.size() / 5);
  EXPECT_LT(different, x.size() / 2);
}

}  // namespace
}  // namespace rmsnorm::test
