// RMSNorm with a quantised output: what the generic tests of operations do not ask.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "core/float8.h"
#include "reference/values.h"
#include "rmsnorm/rmsnorm.hpp"
#include "support/environment.h"

namespace rmsnorm::test {
namespace {

constexpr float kInfinite = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

std::vector<float> normal(std::int64_t count, std::uint64_t seed = 1) {
  std::vector<float> values(static_cast<std::size_t>(count));
  reference::fill_row(values.data(), reference::Values::kNormal, RN_F32, seed, reference::Stream::kX, 0, count);
  return values;
}

// One row of f32, quantised to e4m3 per row.
struct Quantized {
  std::vector<float> values;  // the codes, widened
  float scale = -1;
};
Quantized quantize_row(const std::vector<float>& x, const std::vector<float>& weight,
                       RmsNormQuantizeOptions options = {}) {
  const auto cols = static_cast<std::int64_t>(x.size());
  std::vector<f8e4m3> out(x.size());
  Quantized result;
  rms_norm_quantize(matrix(out.data(), 1, cols), matrix(&result.scale, 1, 1), matrix(x.data(), 1, cols),
                    weight.empty() ? View() : vector(weight.data(), cols), {}, options);
  for (const f8e4m3 code : out) result.values.push_back(f8e4m3_to_f32(code.bits));
  return result;
}

TEST(Quantize, known_numbers) {
  // 3, 4, 0, 0: mean square 25 / 4, so y = 1.2, 1.6, 0, 0 for epsilon 0; 1.6 / 127 is the scale of i8.
  const float x[] = {3, -4, 0, 0};
  std::int8_t out[4] = {};
  float scale = 0;
  RmsNormQuantizeOptions options;
  options.epsilon = 0;
  rms_norm_quantize(matrix(out, 1, 4), matrix(&scale, 1, 1), matrix(x, 1, 4), {}, {}, options);
  EXPECT_EQ(scale, 1.6f / 127);
  EXPECT_EQ(out[0], 95);  // 95.25
  EXPECT_EQ(out[1], -127);
  EXPECT_EQ(out[2], 0);

  options.quantization = {.scaling = Scaling::kStatic, .static_scale = 0.4f};
  rms_norm_quantize(matrix(out, 1, 4), {}, matrix(x, 1, 4), {}, {}, options);
  EXPECT_EQ(out[0], 3);
  EXPECT_EQ(out[1], -4);
  options.quantization.static_scale = 0.01f;  // 160 saturates
  rms_norm_quantize(matrix(out, 1, 4), {}, matrix(x, 1, 4), {}, {}, options);
  EXPECT_EQ(out[1], -127);
}

TEST(Quantize, scales_at_the_ends_of_the_range) {
  RmsNormQuantizeOptions options;
  std::vector<float> x(200, 1.0f), weight(200, 0.0f);
  EXPECT_EQ(quantize_row(x, weight, options).scale, 1);  // all y are 0
  for (const float w : {0x1p-149f, 0x1p-126f, 0x1p-120f}) {
    weight.assign(200, w);
    EXPECT_EQ(quantize_row(x, weight, options).scale, 0x1p-126f) << w;
  }
  weight.assign(200, 1.0f);
  weight[7] = kInfinite;
  const Quantized infinite = quantize_row(x, weight, options);
  EXPECT_EQ(infinite.scale, std::numeric_limits<float>::max());
  EXPECT_EQ(infinite.values[7], 448);
  EXPECT_EQ(infinite.values[8], 0);
  options.quantization.power_of_two = true;
  EXPECT_EQ(quantize_row(x, weight, options).scale, 0x1p127f);
  options.quantization.power_of_two = false;
  weight[7] = kNan;  // does not count, and stays one
  const Quantized nan = quantize_row(x, weight, options);
  EXPECT_NEAR(nan.scale, 1.0f / 448, 1e-8);
  EXPECT_TRUE(std::isnan(nan.values[7]));
  EXPECT_EQ(nan.values[8], 448);
  weight.assign(200, kNan);
  EXPECT_EQ(quantize_row(x, weight, options).scale, 1);

  std::vector<std::int8_t> codes(200);
  float scale;
  weight.assign(200, -1.0f);
  weight[3] = kNan;
  rms_norm_quantize(matrix(codes.data(), 1, 200), matrix(&scale, 1, 1), matrix(x.data(), 1, 200),
                    vector(weight.data(), 200));
  EXPECT_EQ(codes[3], 0);
  EXPECT_EQ(codes[4], -127);
}

TEST(PublicFaults, BL61_zero_rows_and_zero_groups_have_finite_scales) {
  constexpr std::int64_t kRows = 5, kCols = 500, kGroups = 4;
  for (const auto scaling : {Scaling::kPerRow, Scaling::kPerGroup}) {
    std::vector<float> x = normal(kRows * kCols), residual = normal(kRows * kCols, 2), weight(kCols, 1.0f);
    const std::int64_t groups = scaling == Scaling::kPerGroup ? kGroups : 1;
    for (std::int64_t i = 0; i < kCols; ++i) x[2 * kCols + i] = residual[2 * kCols + i] = 0;  // a zero row
    for (std::int64_t i = 128; i < 256; ++i) x[3 * kCols + i] = residual[3 * kCols + i] = 0;  // a zero group
    for (std::int64_t i = 384; i < kCols; ++i) weight[static_cast<std::size_t>(i)] = 0;       // a zero weight
    for (std::int64_t i = 0; i < kCols; ++i) x[4 * kCols + i] = 1, residual[4 * kCols + i] = 0x1p-149f;
    AddRmsNormQuantizeOptions options;
    options.quantization.scaling = scaling;
    const auto run = [&](auto* out, float* scale, float* sum, std::int64_t rows) {
      add_rms_norm_quantize(matrix(out, rows, kCols), matrix(sum, rows, kCols), matrix(scale, rows, groups),
                            matrix(x.data(), rows, kCols), matrix(residual.data(), rows, kCols),
                            vector(weight.data(), kCols), {}, options);
    };
    std::vector<float> sum(kRows * kCols), scale(kRows * 4, kNan), two_scales(8, kNan);
    std::vector<std::int8_t> i8(kRows * kCols, 99), two_rows(2 * kCols);
    run(i8.data(), scale.data(), sum.data(), kRows);
    std::vector<f8e4m3> f8(kRows * kCols);
    std::vector<float> f8_scale(kRows * 4, kNan);
    run(f8.data(), f8_scale.data(), sum.data(), kRows);
    for (std::int64_t g = 0; g < kRows * groups; ++g) {
      EXPECT_TRUE(std::isfinite(scale[static_cast<std::size_t>(g)]) && scale[static_cast<std::size_t>(g)] > 0);
    }
    for (std::int64_t i = 0; i < kRows * kCols; ++i) {
      const std::int64_t row = i / kCols, col = i % kCols;
      const auto at = static_cast<std::size_t>(i);
      ASSERT_FALSE(std::isnan(f8e4m3_to_f32(f8[at].bits))) << row << " " << col;
      if (row == 2 || col >= 384 || (row == 3 && col >= 128 && col < 256)) {
        ASSERT_EQ(i8[at], 0) << row << " " << col;
        ASSERT_EQ(f8e4m3_to_f32(f8[at].bits), 0);
      }
    }
    EXPECT_EQ(scale[static_cast<std::size_t>(2 * groups)], 1);
    if (groups > 1) {
      EXPECT_EQ(scale[3 * kGroups + 1], 1);
      EXPECT_EQ(scale[3], 1);
    }
    run(two_rows.data(), two_scales.data(), sum.data(), 2);  // neighbours of nothing: the same
    EXPECT_EQ(std::memcmp(two_rows.data(), i8.data(), 2 * kCols), 0);
    EXPECT_EQ(std::memcmp(two_scales.data(), scale.data(), static_cast<std::size_t>(2 * groups) * sizeof(float)), 0);
  }
}

TEST(PublicFaults, BL63_powers_of_two_are_rounded_up) {
  // Rows of one magnitude 1 and weights that make the largest |y| 500: 500 / 448 = 1.116 becomes 2.
  std::vector<float> x(128, 1.0f), weight(128, 1.0f);
  weight[5] = 500;
  RmsNormQuantizeOptions options;
  options.epsilon = 0;
  options.quantization.power_of_two = true;
  EXPECT_EQ(quantize_row(x, weight, options).scale, 2);
  EXPECT_EQ(quantize_row(x, weight, options).values[5], 256);  // 250: not saturated
  weight[5] = 448;                                             // exactly a power of two stays one
  EXPECT_EQ(quantize_row(x, weight, options).scale, 1);

  // 512 rows of one group of 32: no element saturates that fits.
  const std::vector<float> values = normal(512 * 32);
  std::vector<f8e4m3> out(values.size());
  std::vector<float> scale(512);
  options.quantization.scaling = Scaling::kPerGroup;
  rms_norm_quantize(matrix(out.data(), 512, 32), matrix(scale.data(), 512, 1), matrix(values.data(), 512, 32), {}, {},
                    options);
  for (std::int64_t row = 0; row < 512; ++row) {
    int exponent;
    ASSERT_EQ(std::frexp(scale[static_cast<std::size_t>(row)], &exponent), 0.5f);
    double sum = 0, largest = 0;
    for (std::int64_t i = 0; i < 32; ++i) {
      const double v = values[static_cast<std::size_t>(row * 32 + i)];
      sum += v * v;
      largest = std::max(largest, std::fabs(v));
    }
    const double peak = largest / std::sqrt(sum / 32);
    ASSERT_LE(peak, 448 * static_cast<double>(scale[static_cast<std::size_t>(row)]) * 1.000001);
    ASSERT_GT(peak, 224 * static_cast<double>(scale[static_cast<std::size_t>(row)]) * 0.999999);
  }
}

TEST(PublicFaults, BL63_scales_have_their_own_strides) {
  constexpr std::int64_t kRows = 6, kCols = 300, kGroups = 3;
  const std::vector<float> x = normal(kRows * kCols);
  std::vector<std::int8_t> expected(kRows * kCols), out(kRows * kCols);
  std::vector<float> row_major(kRows * kGroups), memory(100, 77.0f);
  RmsNormQuantizeOptions options;
  options.quantization.scaling = Scaling::kPerGroup;
  const View in = matrix(x.data(), kRows, kCols);
  rms_norm_quantize(matrix(expected.data(), kRows, kCols), matrix(row_major.data(), kRows, kGroups), in, {}, {},
                    options);
  // Column-major with two elements of padding behind each column; backwards; and both.
  struct Layout {
    std::int64_t row, group, start;
  };
  for (const Layout& l : {Layout{1, kRows + 2, 0}, Layout{-1, kRows + 2, kRows - 1}, Layout{5, -1, 2}}) {
    std::fill(memory.begin(), memory.end(), 77.0f);
    rms_norm_quantize(matrix(out.data(), kRows, kCols),
                      View(memory.data() + l.start, {kRows, kGroups}, {l.row, l.group}), in, {}, {}, options);
    EXPECT_EQ(out, expected);
    std::vector<bool> written(memory.size());
    for (std::int64_t r = 0; r < kRows; ++r) {
      for (std::int64_t g = 0; g < kGroups; ++g) {
        const auto at = static_cast<std::size_t>(l.start + r * l.row + g * l.group);
        EXPECT_EQ(memory[at], row_major[static_cast<std::size_t>(r * kGroups + g)]);
        written[at] = true;
      }
    }
    for (std::size_t i = 0; i < memory.size(); ++i) EXPECT_TRUE(written[i] || memory[i] == 77.0f) << i;
  }
}

// Views with any strides, weights that differ from head to head, a NaN and an infinity beside clean rows.
TEST(Quantize, rows_of_views_stand_alone) {
  constexpr std::int64_t kTokens = 5, kHeads = 3, kDim = 70, kStride = 3 * kHeads * kDim;
  std::vector<float> qkv = normal(kTokens * kStride), weight = normal(kHeads * kDim, 5);
  qkv[kStride + 3] = kNan;
  qkv[kStride + kDim + 3] = kInfinite;
  std::vector<f8e5m2> out(kTokens * kHeads * kDim);
  std::vector<float> scale(kTokens * kHeads);
  rms_norm_quantize(View(out.data(), {kTokens, kHeads, kDim}, {kDim, kTokens * kDim, 1}),  // heads first
                    View(scale.data(), {kTokens, kHeads, 1}, {1, kTokens, 1}),
                    View(qkv.data(), {kTokens, kHeads, kDim}, {kStride, kDim, 1}), View(weight.data(), {kHeads, kDim}));
  for (std::int64_t t = 0; t < kTokens; ++t) {
    for (std::int64_t h = 0; h < kHeads; ++h) {
      std::vector<f8e5m2> alone(kDim);
      float own;
      rms_norm_quantize(matrix(alone.data(), 1, kDim), matrix(&own, 1, 1),
                        matrix(qkv.data() + t * kStride + h * kDim, 1, kDim), vector(weight.data() + h * kDim, kDim));
      EXPECT_EQ(own, scale[static_cast<std::size_t>(h * kTokens + t)]);
      EXPECT_EQ(std::memcmp(alone.data(), out.data() + (h * kTokens + t) * kDim, kDim), 0) << t << " " << h;
      const bool nan = t == 1 && h == 0, infinite = t == 1 && h == 1;
      for (std::int64_t i = 0; i < kDim; ++i) {
        const float value = f8e5m2_to_f32(alone[static_cast<std::size_t>(i)].bits);
        ASSERT_EQ(std::isnan(value), nan || (infinite && i == 3));
        if (infinite && i != 3) {
          ASSERT_EQ(value, 0);
        }
      }
    }
  }
}

// Longer than any buffer, in each way of scaling, alone and in place: the numbers of its pieces' references.
TEST(Quantize, long_rows) {
  for (const std::int64_t cols : {8191, 8192, 8193, 20000}) {
    std::vector<float> x = normal(cols), residual = normal(cols, 2), sum(x.size()), scale(200), again(200);
    for (const auto scaling : {Scaling::kPerRow, Scaling::kPerGroup, Scaling::kStatic}) {
      AddRmsNormQuantizeOptions options;
      options.quantization = {.scaling = scaling, .static_scale = 0.03f};
      options.norm_input = NormInput::kUnroundedSum;
      const std::int64_t groups = scaling == Scaling::kPerGroup ? (cols + 127) / 128 : 1;
      const View s = scaling == Scaling::kStatic ? View() : matrix(scale.data(), 1, groups);
      const View s2 = scaling == Scaling::kStatic ? View() : matrix(again.data(), 1, groups);
      std::vector<std::int8_t> out(x.size()), separate(x.size());
      std::vector<float> in_place = residual;
      add_rms_norm_quantize(matrix(out.data(), 1, cols), matrix(in_place.data(), 1, cols), s, matrix(x.data(), 1, cols),
                            matrix(in_place.data(), 1, cols), {}, {}, options);
      for (std::size_t i = 0; i < x.size(); ++i) sum[i] = x[i] + residual[i];
      EXPECT_EQ(in_place, sum);
      RmsNormQuantizeOptions plain;
      plain.quantization = options.quantization;
      rms_norm_quantize(matrix(separate.data(), 1, cols), s2, matrix(sum.data(), 1, cols), {}, {}, plain);
      EXPECT_EQ(out, separate) << cols;
      for (std::int64_t g = 0; scaling != Scaling::kStatic && g < groups; ++g) {
        ASSERT_EQ(scale[static_cast<std::size_t>(g)], again[static_cast<std::size_t>(g)]);
      }
    }
  }
}

std::string message(const Status& status) { return status.ok() ? "no error" : status.message; }

TEST(Quantize, errors_name_the_value_and_the_rule) {
  float x[2 * 300] = {}, scale[6] = {}, y[600] = {};
  std::int8_t out[600];
  const View in = matrix(x, 2, 300), to = matrix(out, 2, 300);
  RmsNormQuantizeOptions o;
  EXPECT_EQ(message(try_rms_norm_quantize(to, {}, in)), "rn_rms_norm_quantize: scale is NULL; it must be a view");
  EXPECT_EQ(message(try_rms_norm_quantize(to, matrix(scale, 2, 3), in)),
            "rn_rms_norm_quantize: scale.shape[1] is 3; it must be 1");
  EXPECT_EQ(message(try_rms_norm_quantize(matrix(y, 2, 300), matrix(scale, 2, 1), in)),
            "rn_rms_norm_quantize: out.type is f32; it must be i8, f8e4m3 or f8e5m2 where x is f32");
  o.quantization.scaling = Scaling::kPerGroup;
  EXPECT_EQ(message(try_rms_norm_quantize(to, matrix(scale, 2, 1), in, {}, {}, o)),
            "rn_rms_norm_quantize: scale.shape[1] is 1; it must be 3");
  // Two groups of a row in one place.
  EXPECT_NE(message(try_rms_norm_quantize(to, View(scale, {2, 3}, {1, 1}), in, {}, {}, o)).find("overlaps itself"),
            std::string::npos);
  EXPECT_NE(message(try_rms_norm_quantize(to, View(x + 300, {2, 3}, {3, 1}), in, {}, {}, o)).find("overlaps x"),
            std::string::npos);
  EXPECT_EQ(message(try_rms_norm_quantize(to, View(scale, {2, 3}, {3, 0}), in, {}, {}, o)),
            "rn_rms_norm_quantize: scale.strides[1] is 0; it must be another number in an output, here on an axis of "
            "size 3");
  o.quantization.scaling = Scaling::kStatic;
  EXPECT_EQ(message(try_rms_norm_quantize(to, matrix(scale, 2, 1), in, {}, {}, o)),
            "rn_rms_norm_quantize: scale is a view; it must be NULL with RN_SCALE_STATIC");
  for (const float wrong : {0.0f, -1.0f, kInfinite, kNan}) {
    o.quantization.static_scale = wrong;
    EXPECT_NE(message(try_rms_norm_quantize(to, {}, in, {}, {}, o)).find("it must be finite and above 0"),
              std::string::npos);
  }
  o.quantization = {.scaling = static_cast<Scaling>(7)};
  EXPECT_EQ(message(try_rms_norm_quantize(to, {}, in, {}, {}, o)),
            "rn_rms_norm_quantize: options.scaling is 7; it must be RN_SCALE_STATIC (0), RN_SCALE_PER_ROW (1) or "
            "RN_SCALE_PER_GROUP (2)");
  rn_rms_norm_quantize_options c = rn_rms_norm_quantize_defaults();
  c.quantization.power_of_two = 2;
  const rn_view xv = rn_matrix(x, RN_F32, 2, 300), ov = rn_matrix(out, RN_I8, 2, 300),
                sv = rn_matrix(scale, RN_F32, 2, 1);
  EXPECT_EQ(rn_rms_norm_quantize(&ov, &sv, &xv, nullptr, nullptr, &c, nullptr), RN_INVALID_VALUE);
  EXPECT_STREQ(rn_last_error(), "rn_rms_norm_quantize: options.power_of_two is 2; it must be 0 or 1");
  EXPECT_EQ(rn_add_rms_norm_quantize(&ov, nullptr, &sv, &xv, &xv, nullptr, nullptr, nullptr, nullptr), RN_INVALID_TYPE);
  EXPECT_STREQ(rn_last_error(), "rn_add_rms_norm_quantize: residual_out is NULL; it must be a view");
  // Both scales of a call without rows: nothing is touched.
  EXPECT_TRUE(try_rms_norm_quantize(matrix(out, 0, 300), matrix(scale, 0, 1), matrix(x, 0, 300)).ok());
}

}  // namespace
}  // namespace rmsnorm::test
