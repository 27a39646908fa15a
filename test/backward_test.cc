// Backward norms: gradients against central differences of the forward calls, sums over many rows, and the faults that
// were reported elsewhere. Budgets, bits, layouts and guard pages are in operations_test.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>

#include "reference/values.h"
#include "rmsnorm/rmsnorm.hpp"

namespace rmsnorm {
namespace {

using reference::Stream;
using reference::Values;

std::vector<double> numbers(std::int64_t count, std::uint64_t seed, Values values = Values::kNormal) {
  std::vector<double> list(static_cast<std::size_t>(count));
  reference::fill_row(list.data(), values, RN_F64, seed, Stream::kX, 0, count);
  return list;
}

constexpr std::int64_t kRows = 3, kCols = 7;

// ---- Central differences of L = sum(a out) + sum(b residual_out), in f64 --------------------------------------------

struct Model {
  const char* name;
  bool layer = false, add = false, weighted = true;
  RmsNormOptions rms = {};
  bool with_out = true, with_residual = true;  // whether a and b are other than 0
};

struct Operands {
  std::vector<double> x = numbers(kRows * kCols, 1), residual = numbers(kRows * kCols, 2);
  std::vector<double> weight = numbers(kCols, 3), bias = numbers(kCols, 4);  // any, not ones
};

class Gradients : public testing::TestWithParam<Model> {
 protected:
  static View rows(std::vector<double>& v) { return matrix(v.data(), kRows, kCols); }

  // out, then residual_out.
  std::vector<double> forward(const Operands& o) const {
    const Model& m = GetParam();
    std::vector<double> out(o.x.size()), sum(o.x);
    const View x = matrix(o.x.data(), kRows, kCols), residual = matrix(o.residual.data(), kRows, kCols);
    const View weight = m.weighted ? vector(o.weight.data(), kCols) : View(), bias(vector(o.bias.data(), kCols));
    const LayerNormOptions layer = {m.rms.epsilon, m.rms.weight_offset};
    if (m.add && m.layer) {
      AddLayerNormOptions options;
      static_cast<LayerNormOptions&>(options) = layer;
      add_layer_norm(rows(out), rows(sum), {}, {}, x, residual, weight, bias, options);
    } else if (m.add) {
      AddRmsNormOptions options;
      static_cast<RmsNormOptions&>(options) = m.rms;
      add_rms_norm(rows(out), rows(sum), {}, x, residual, weight, bias, options);
    } else if (m.layer) {
      layer_norm(rows(out), {}, {}, x, weight, bias, layer);
    } else {
      rms_norm(rows(out), {}, x, weight, bias, m.rms);
    }
    out.insert(out.end(), sum.begin(), sum.end());
    return out;
  }

  double loss(const Operands& o) const {
    const std::vector<double> values = forward(o);
    double total = 0;
    for (std::size_t i = 0; i < values.size(); ++i) total += coefficients_[i] * values[i];
    return total;
  }

  // d loss / d value by two steps that differ by a factor of two, so that the cubic term cancels.
  double difference(Operands& o, double& value) const {
    const double before = value;
    const auto slope = [&](double step) {
      value = before + step;
      const double above = loss(o);
      value = before - step;
      const double below = loss(o);
      value = before;
      return (above - below) / (2 * step);
    };
    const double step = 1e-3;
    return (4 * slope(step / 2) - slope(step)) / 3;
  }

  std::vector<double> coefficients_ = [] {
    const Model& m = GetParam();
    std::vector<double> a = numbers(2 * kRows * kCols, 5);
    for (std::size_t i = 0; i < a.size(); ++i) {
      const bool of_out = i < a.size() / 2;
      if (of_out ? !m.with_out : !(m.add && m.with_residual)) a[i] = 0;
    }
    return a;
  }();
};

TEST_P(Gradients, are_differences_of_the_forward_call) {
  const Model& m = GetParam();
  Operands o;
  std::vector<double> a(coefficients_.begin(), coefficients_.begin() + kRows * kCols);
  std::vector<double> b(coefficients_.begin() + kRows * kCols, coefficients_.end());
  std::vector<double> dx(a.size()), dresidual(a.size()), dweight(kCols), dbias(kCols);
  std::vector<double> sum(o.x);
  if (m.add) {
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += o.residual[i];
  }
  const View weight = m.weighted ? vector(o.weight.data(), kCols) : View();
  const View dw = vector(dweight.data(), kCols), db = vector(dbias.data(), kCols);
  RmsNormBackwardOptions rms;
  static_cast<RmsNormOptions&>(rms) = m.rms;
  LayerNormBackwardOptions layer;
  static_cast<LayerNormOptions&>(layer) = {m.rms.epsilon, m.rms.weight_offset};
  if (m.add && m.layer) {
    add_layer_norm_backward(rows(dx), rows(dresidual), dw, db, rows(a), rows(b), rows(sum), weight, {}, layer);
  } else if (m.add) {
    add_rms_norm_backward(rows(dx), rows(dresidual), dw, db, rows(a), rows(b), rows(sum), weight, {}, rms);
  } else if (m.layer) {
    layer_norm_backward(rows(dx), dw, db, rows(a), rows(sum), weight, {}, layer);
  } else {
    rms_norm_backward(rows(dx), dw, db, rows(a), rows(sum), weight, {}, rms);
  }
  constexpr double kTolerance = 1e-8;  // of differences with a step of 1e-3 and terms of order 1
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double expected = difference(o, o.x[i]);
    EXPECT_NEAR(dx[i], expected, kTolerance * (1 + std::fabs(expected))) << "dx " << i;
    if (m.add) {
      EXPECT_NEAR(dresidual[i], difference(o, o.residual[i]), kTolerance * (1 + std::fabs(expected)));
    }
  }
  for (std::size_t i = 0; i < kCols; ++i) {
    if (m.weighted) {
      const double expected = difference(o, o.weight[i]);
      EXPECT_NEAR(dweight[i], expected, kTolerance * (1 + std::fabs(expected))) << "dweight " << i;
    }
    const double expected = difference(o, o.bias[i]);
    EXPECT_NEAR(dbias[i], expected, kTolerance * (1 + std::fabs(expected))) << "dbias " << i;
  }
}

constexpr RmsNormOptions kOutside = {.epsilon = 1e-2, .epsilon_placement = EpsilonPlacement::kOutside};
INSTANTIATE_TEST_SUITE_P(
    Options, Gradients,
    testing::Values(Model{.name = "rms"}, Model{.name = "rms_without_weight", .weighted = false},
                    Model{.name = "rms_offset", .rms = {.epsilon = 1e-2, .weight_offset = 1}},
                    Model{.name = "rms_outside", .rms = kOutside},
                    Model{.name = "rms_partial", .rms = {.epsilon = 1e-3, .partial = 3}},
                    Model{.name = "rms_outside_partial",
                          .rms = {.epsilon = 1e-2, .epsilon_placement = EpsilonPlacement::kOutside, .partial = 3}},
                    Model{.name = "layer", .layer = true},
                    Model{.name = "layer_offset", .layer = true, .rms = {.epsilon = 1e-2, .weight_offset = 1}},
                    Model{.name = "layer_without_weight", .layer = true, .weighted = false},
                    // BL-46: what arrives through the residual is added after the norm's own gradient.
                    Model{.name = "BL46_add_rms", .add = true},
                    Model{.name = "BL46_add_rms_out_only", .add = true, .with_residual = false},
                    Model{.name = "BL46_add_rms_residual_only", .add = true, .with_out = false},
                    Model{.name = "BL46_add_layer", .layer = true, .add = true},
                    Model{.name = "BL46_add_layer_residual_only", .layer = true, .add = true, .with_out = false}),
    [](const auto& instance) { return std::string(instance.param.name); });

// ---- Sums over rows -------------------------------------------------------------------------------------------------

float bf16_value(std::uint16_t bits) {
  const std::uint32_t wide = static_cast<std::uint32_t>(bits) << 16;
  float value;
  std::memcpy(&value, &wide, sizeof value);
  return value;
}

// Gradients of one sign, so that no error of the sum cancels; dweight in f32, to see the sum before a cast to bf16.
TEST(Backward, BL43_BL44_dweight_of_many_bf16_rows) {
  constexpr std::pair<std::int64_t, std::int64_t> kShapes[] = {{1, 64},    {7, 128},   {33, 4096},
                                                               {1025, 32}, {8097, 32}, {65536, 64}};
  for (const auto& [count, cols] : kShapes) {
    const std::size_t d = static_cast<std::size_t>(cols);
    std::vector<bf16> x(static_cast<std::size_t>(count) * d), dy(x.size()), dx(x.size());
    for (std::int64_t r = 0; r < count; ++r) {
      reference::fill_row(&x[static_cast<std::size_t>(r) * d], Values::kLognormal, RN_BF16, 1, Stream::kX, r, cols);
      reference::fill_row(&dy[static_cast<std::size_t>(r) * d], Values::kLognormal, RN_BF16, 2, Stream::kX, r, cols);
    }
    std::vector<double> expected(d);
    for (std::size_t r = 0; r < static_cast<std::size_t>(count); ++r) {
      double squares = 0;
      for (std::size_t i = 0; i < d; ++i) squares += std::pow(bf16_value(x[r * d + i].bits), 2);
      const double inv = 1 / std::sqrt(squares / static_cast<double>(cols) + RmsNormOptions().epsilon);
      for (std::size_t i = 0; i < d; ++i) {
        expected[i] += static_cast<double>(bf16_value(dy[r * d + i].bits)) * bf16_value(x[r * d + i].bits) * inv;
      }
    }
    for (const int threads : {1, 2, 8}) {
      std::vector<float> dweight(d);
      rms_norm_backward(matrix(dx.data(), count, cols), vector(dweight.data(), cols), {},
                        matrix(dy.data(), count, cols), matrix(x.data(), count, cols), {}, {}, {},
                        {.threads = threads});
      for (std::size_t i = 0; i < d; ++i) {
        ASSERT_NEAR(dweight[i] / expected[i], 1, 1e-6 + 0x1p-24) << count << " x " << cols << ", column " << i;
      }
    }
  }
}

TEST(Backward, BL44_three_axes_are_rows) {
  std::vector<float> x(2 * 4 * 8), dy(x.size()), apart(x.size()), together(x.size()), dw_apart(8), dw_together(8);
  for (std::size_t i = 0; i < x.size(); ++i) {
    x[i] = static_cast<float>(i % 5) - 1.5F;
    dy[i] = static_cast<float>(i % 7) - 2.5F;
  }
  rms_norm_backward(View(apart.data(), {2, 4, 8}), vector(dw_apart.data(), 8), {}, View(dy.data(), {2, 4, 8}),
                    View(x.data(), {2, 4, 8}));
  rms_norm_backward(matrix(together.data(), 8, 8), vector(dw_together.data(), 8), {}, matrix(dy.data(), 8, 8),
                    matrix(x.data(), 8, 8));
  EXPECT_EQ(apart, together);
  EXPECT_EQ(dw_apart, dw_together);
}

TEST(Backward, BL48_one_axis_of_zeros_with_poisoned_memory) {
  for (const bool one_axis : {true, false}) {
    for (const int accumulate : {0, 1}) {
      for (int turn = 0; turn < 10; ++turn) {
        const float x[4] = {}, dy[4] = {-1, -1, -1, -1};
        float dx[4], dweight[4];
        std::memset(dx, 0xff, sizeof dx);
        std::memset(dweight, accumulate != 0 ? 0 : 0xff, sizeof dweight);
        std::vector<double> memory(static_cast<std::size_t>(rn_backward_scratch_bytes(1, 4)) / 8, std::nan(""));
        const rn_scratch scratch{memory.data(), static_cast<std::int64_t>(memory.size() * 8)};
        rn_rms_norm_backward_options options = rn_rms_norm_backward_defaults();
        options.accumulate = accumulate;
        const auto view = [&](const float* data) {
          void* p = const_cast<float*>(data);
          return one_axis ? rn_vector(p, RN_F32, 4) : rn_matrix(p, RN_F32, 1, 4);
        };
        const rn_view x_view = view(x), dy_view = view(dy), dx_view = view(dx), dw = rn_vector(dweight, RN_F32, 4);
        ASSERT_EQ(rn_rms_norm_backward(&dx_view, &dw, nullptr, &dy_view, &x_view, nullptr, nullptr, &scratch, &options,
                                       nullptr),
                  RN_OK)
            << rn_last_error();
        for (int i = 0; i < 4; ++i) {
          EXPECT_EQ(dweight[i], 0.0F);
          EXPECT_FLOAT_EQ(dx[i], -1000.0F);  // 1 / sqrt(1e-6)
        }
      }
    }
  }
}

// One row alone and at any place of any batch.
TEST(Backward, BL49_a_row_does_not_depend_on_its_batch) {
  constexpr std::int64_t kWidth = 96;
  const auto row_of = [](rn_type type, std::uint64_t seed, void* to) {
    reference::fill_row(to, Values::kNormal, type, seed, Stream::kX, 0, kWidth);
  };
  std::vector<float> x(kWidth), dy(kWidth), alone(kWidth);
  row_of(RN_F32, 7, x.data());
  row_of(RN_F32, 8, dy.data());
  rms_norm_backward(matrix(alone.data(), 1, kWidth), {}, {}, matrix(dy.data(), 1, kWidth), matrix(x.data(), 1, kWidth));
  for (const std::int64_t count : {2, 3, 64, 255, 256, 257, 4096}) {
    for (const std::int64_t place : {std::int64_t{0}, std::int64_t{1}, count / 2, count - 1}) {
      std::vector<float> xs(static_cast<std::size_t>(count * kWidth), 0.5F), dys(xs.size(), 0.25F), dxs(xs.size());
      std::copy(x.begin(), x.end(), xs.begin() + place * kWidth);
      std::copy(dy.begin(), dy.end(), dys.begin() + place * kWidth);
      rms_norm_backward(matrix(dxs.data(), count, kWidth), {}, {}, matrix(dys.data(), count, kWidth),
                        matrix(xs.data(), count, kWidth));
      ASSERT_EQ(std::memcmp(&dxs[static_cast<std::size_t>(place * kWidth)], alone.data(), kWidth * sizeof(float)), 0)
          << count << " rows, place " << place;
    }
  }
}

TEST(Backward, BL51_threads_lose_no_update) {
  constexpr std::int64_t kCount = 4096, kWidth = 768;
  std::vector<float> x(kCount * kWidth), dy(x.size()), dx(x.size()), expected(kWidth), dweight(kWidth);
  for (std::size_t i = 0; i < x.size(); ++i) {
    x[i] = static_cast<float>(reference::scatter(i) % 1000) - 499.5F;
    dy[i] = static_cast<float>(reference::scatter(~i) % 1000) - 499.5F;
  }
  const auto run = [&](std::vector<float>& to, int threads) {
    rms_norm_backward(matrix(dx.data(), kCount, kWidth), vector(to.data(), kWidth), {},
                      matrix(dy.data(), kCount, kWidth), matrix(x.data(), kCount, kWidth), {}, {}, {},
                      {.threads = threads});
  };
  run(expected, 1);
  for (int turn = 0; turn < 5; ++turn) {
    for (const int threads : {2, 4, 8, 16}) {
      run(dweight, threads);
      ASSERT_EQ(dweight, expected) << threads << " threads";
    }
  }
}

TEST(Backward, a_zero_weight_is_ordinary) {
  std::vector<float> x = {1, 2, 3, 4}, dy = {1, 1, 1, 1}, weight = {0, 0, 0, 0}, dx(4), dweight(4);
  rms_norm_backward(matrix(dx.data(), 1, 4), vector(dweight.data(), 4), {}, matrix(dy.data(), 1, 4),
                    matrix(x.data(), 1, 4), vector(weight.data(), 4));
  const double inv = 1 / std::sqrt(7.5 + RmsNormOptions().epsilon);
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(dx[i], 0.0F);
    EXPECT_FLOAT_EQ(dweight[i], static_cast<float>(x[i] * inv));
  }
}

TEST(Backward, a_nan_row_leaves_its_neighbours_alone) {
  std::vector<float> x(3 * 8, 1.5F), dy(x.size(), 0.5F), dx(x.size()), clean(8);
  rms_norm_backward(matrix(clean.data(), 1, 8), {}, {}, matrix(dy.data(), 1, 8), matrix(x.data(), 1, 8));
  x[8 + 3] = std::nanf("");
  rms_norm_backward(matrix(dx.data(), 3, 8), {}, {}, matrix(dy.data(), 3, 8), matrix(x.data(), 3, 8));
  for (std::size_t i = 0; i < 8; ++i) {
    EXPECT_EQ(dx[i], clean[i]);
    EXPECT_TRUE(std::isnan(dx[8 + i]));
    EXPECT_EQ(dx[16 + i], clean[i]);
  }
}

TEST(Backward, without_rows_parameters_become_zero_or_stay) {
  float dweight[3] = {1, 2, 3};
  const View none = matrix(static_cast<float*>(nullptr), 0, 3);
  RmsNormBackwardOptions options;
  options.accumulate = true;
  rms_norm_backward(none, vector(dweight, 3), {}, none, none, {}, {}, options);
  EXPECT_EQ(dweight[1], 2.0F);
  rms_norm_backward(none, vector(dweight, 3), {}, none, none);
  EXPECT_EQ(dweight[1], 0.0F);
}

TEST(Backward, wrong_arguments_are_named) {
  float x[8] = {}, dy[8] = {}, dx[8] = {}, dweight[4] = {};
  const View rows = matrix(x, 2, 4), gradients = matrix(dy, 2, 4), out = matrix(dx, 2, 4);
  EXPECT_EQ(try_rms_norm_backward({}, {}, {}, gradients, rows).message,
            "rn_rms_norm_backward: dx is NULL; it must be a view");
  EXPECT_EQ(try_rms_norm_backward(out, {}, {}, {}, rows).message,
            "rn_rms_norm_backward: dy is NULL; it must be a view");
  EXPECT_EQ(try_rms_norm_backward(out, vector(dweight, 3), {}, gradients, rows).message,
            "rn_rms_norm_backward: dweight.shape[0] is 3; it must be 4, the size of x.shape[1]");
  EXPECT_EQ(try_layer_norm_backward(out, matrix(dweight, 1, 4), {}, gradients, rows).message,
            "rn_layer_norm_backward: dweight.rank is 2; it must be 1, a vector that all rows share");
  EXPECT_NE(try_rms_norm_backward(out, vector(x, 4), {}, gradients, rows).message.find("dweight is in bytes"),
            std::string::npos);
  const rn_view x_view = *rows.get(), dy_view = *gradients.get(), dx_view = *out.get(),
                dw = rn_vector(dweight, RN_F32, 4);
  ASSERT_EQ(
      rn_rms_norm_backward(&dx_view, &dw, nullptr, &dy_view, &x_view, nullptr, nullptr, nullptr, nullptr, nullptr),
      RN_INVALID_TYPE);
  EXPECT_STREQ(rn_last_error(),
               "rn_rms_norm_backward: scratch is NULL; it must be given where dweight or dbias is wanted");
  double few[4];
  const rn_scratch small{few, sizeof few};
  ASSERT_EQ(rn_rms_norm_backward(&dx_view, &dw, nullptr, &dy_view, &x_view, nullptr, nullptr, &small, nullptr, nullptr),
            RN_INVALID_VALUE);
  EXPECT_STREQ(rn_last_error(),
               "rn_rms_norm_backward: scratch.bytes is 32; it must be at least 96, see rn_backward_scratch_bytes");
  rn_rms_norm_backward_options options = rn_rms_norm_backward_defaults();
  options.accumulate = 2;
  ASSERT_EQ(
      rn_rms_norm_backward(&dx_view, nullptr, nullptr, &dy_view, &x_view, nullptr, nullptr, nullptr, &options, nullptr),
      RN_INVALID_VALUE);
  EXPECT_STREQ(rn_last_error(), "rn_rms_norm_backward: options.accumulate is 2; it must be 0 or 1");
  for (const float value : dx) EXPECT_EQ(value, 0.0F);
  EXPECT_EQ(rn_backward_scratch_bytes(-1, 4), -1);
  EXPECT_EQ(rn_backward_scratch_bytes(1, 0), -1);
}

}  // namespace
}  // namespace rmsnorm
