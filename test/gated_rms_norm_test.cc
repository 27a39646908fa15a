// Gated RMSNorm: gradients against differences, the formulas of the model families, special values, and wrong calls.
#include "reference/gated_rms_norm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "reference/budgets.h"
#include "reference/hash.h"
#include "reference/ulp.h"
#include "reference/values.h"
#include "rmsnorm/rmsnorm.hpp"

namespace rmsnorm::test {
namespace {

using reference::Quad;
using reference::Values;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

std::vector<double> numbers(std::size_t count, std::uint64_t seed, Values values = Values::kNormal) {
  std::vector<double> list;
  for (std::size_t i = 0; i < count; ++i) {
    list.push_back(reference::draw(values, RN_F64, seed, reference::Stream::kX, 0, static_cast<std::int64_t>(i),
                                   static_cast<std::int64_t>(count)));
  }
  return list;
}

// ---- Gradients, in f64, against central differences of sum(a out) ---------------------------------------------------

struct Model {
  GateOrder order;
  std::int64_t groups;
  double epsilon;
  bool weighted;
};

constexpr std::int64_t kRows = 3, kCols = 12;

struct Operands {
  std::vector<double> x = numbers(kRows * kCols, 1), gate = numbers(kRows * kCols, 2);
  std::vector<double> weight = numbers(kCols, 3, Values::kWeight);
};

std::vector<double> forward(const Model& m, const Operands& o) {
  std::vector<double> out(o.x.size());
  gated_rms_norm(matrix(out.data(), kRows, kCols), {}, matrix(o.x.data(), kRows, kCols),
                 matrix(o.gate.data(), kRows, kCols), m.weighted ? vector(o.weight.data(), kCols) : View(),
                 {.epsilon = m.epsilon, .gate_order = m.order, .groups = m.groups});
  return out;
}

class Gradients : public testing::TestWithParam<Model> {};

TEST_P(Gradients, are_differences_of_the_forward_call) {
  const Model m = GetParam();
  Operands o;
  const std::vector<double> a = numbers(o.x.size(), 4);
  std::vector<double> dx(o.x.size()), dgate(o.x.size()), dweight(kCols);
  GatedRmsNormBackwardOptions options;
  static_cast<GatedRmsNormOptions&>(options) = {m.epsilon, m.order, Rounding::kOnce, m.groups};
  gated_rms_norm_backward(matrix(dx.data(), kRows, kCols), matrix(dgate.data(), kRows, kCols),
                          vector(dweight.data(), kCols), matrix(a.data(), kRows, kCols),
                          matrix(o.x.data(), kRows, kCols), matrix(o.gate.data(), kRows, kCols),
                          m.weighted ? vector(o.weight.data(), kCols) : View(), {}, options);
  const auto expect_slopes = [&](std::vector<double>& operand, const std::vector<double>& gradient, const char* name) {
    constexpr double kStep = 0x1p-17;
    for (std::size_t i = 0; i < operand.size(); ++i) {
      const double before = operand[i];
      double difference = 0;
      for (const double sign : {1.0, -1.0}) {
        operand[i] = before + sign * kStep;
        const std::vector<double> out = forward(m, o);
        for (std::size_t k = 0; k < out.size(); ++k) difference += sign * a[k] * out[k];
      }
      operand[i] = before;
      EXPECT_NEAR(gradient[i], difference / (2 * kStep), 1e-7) << name << "[" << i << "]";
    }
  };
  expect_slopes(o.x, dx, "dx");
  expect_slopes(o.gate, dgate, "dgate");
  if (m.weighted) expect_slopes(o.weight, dweight, "dweight");
}

INSTANTIATE_TEST_SUITE_P(All, Gradients,
                         testing::Values(Model{GateOrder::kLast, 1, 1e-6, true}, Model{GateOrder::kLast, 3, 1e-1, true},
                                         Model{GateOrder::kLast, 1, 0, false}, Model{GateOrder::kFirst, 1, 1e-5, true},
                                         Model{GateOrder::kFirst, 4, 1e-1, true},
                                         Model{GateOrder::kFirst, 2, 0, false}));

// ---- Families: the order of roundings, written out once more in plain f64 -------------------------------------------

struct Stored {
  rn_type type;
  std::vector<std::uint16_t> bits;

  View view(std::int64_t rows, std::int64_t cols) {
    const std::int64_t shape[] = {rows, cols};
    return View(rn_tensor(bits.data(), type, 2, shape));
  }
  View vector_view() { return View(rn_vector(bits.data(), type, static_cast<std::int64_t>(bits.size()))); }
  double operator[](std::size_t i) const { return reference::load(type, bits.data(), static_cast<std::int64_t>(i)); }
};

Stored stored(rn_type type, const std::vector<double>& values) {
  Stored s{type, std::vector<std::uint16_t>(values.size())};
  for (std::size_t i = 0; i < values.size(); ++i) {
    reference::store(type, s.bits.data(), static_cast<std::int64_t>(i), values[i]);
  }
  return s;
}

class Families : public testing::TestWithParam<rn_type> {};

double silu64(double g) { return g / (1 + std::exp(-g)); }

// Runs one 16-bit call and compares with `formula` wherever neither n nor the result is next to a tie.
void expect_family(rn_type type, const GatedRmsNormOptions& options, bool wide_weight,
                   const std::function<double(double n, double w, double gate)>& formula) {
  constexpr std::int64_t kWidth = 384;
  Stored x = stored(type, numbers(kWidth, 11)), gate = stored(type, numbers(kWidth, 12));
  Stored weight = stored(type, numbers(kWidth, 13, Values::kWeight)), out = stored(type, numbers(kWidth, 14));
  std::vector<float> wide(kWidth);
  for (std::size_t i = 0; i < wide.size(); ++i)
    wide[i] = static_cast<float>(1 + 0.3 * std::sin(static_cast<double>(i)));
  gated_rms_norm(out.view(1, kWidth), {}, x.view(1, kWidth), gate.view(1, kWidth),
                 wide_weight ? vector(wide.data(), kWidth) : weight.vector_view(), options);
  const std::int64_t width = kWidth / options.groups;
  int compared = 0;
  for (std::int64_t group = 0; group < options.groups; ++group) {
    const auto element = [&](std::int64_t i) {
      const std::size_t k = static_cast<std::size_t>(group * width + i);
      return options.gate_order == GateOrder::kFirst ? x[k] * silu64(gate[k]) : x[k];
    };
    double sum = 0;
    for (std::int64_t i = 0; i < width; ++i) sum += element(i) * element(i);
    const double inv = 1 / std::sqrt(sum / static_cast<double>(width) + options.epsilon);
    for (std::int64_t i = 0; i < width; ++i) {
      const std::size_t k = static_cast<std::size_t>(group * width + i);
      const double n = element(i) * inv;
      const double expected = formula(n, wide_weight ? static_cast<double>(wide[k]) : weight[k], gate[k]);
      if (reference::tie_distance(type, n) < 0.01 || reference::tie_distance(type, expected) < 0.01) continue;
      ++compared;
      EXPECT_EQ(out[k], reference::round_to(type, expected)) << "column " << k;
    }
  }
  EXPECT_GT(compared, kWidth * 9 / 10);
}

double f32(double v) { return static_cast<double>(static_cast<float>(v)); }

// Qwen3-Next: round(round(w * round(x * inv)) * silu(gate)).
TEST_P(Families, Qwen3Next) {
  const rn_type T = GetParam();
  expect_family(T, {.rounding = Rounding::kBeforeWeight}, false, [T](double n, double w, double gate) {
    return reference::round_to(T, w * reference::round_to(T, n)) * silu64(gate);
  });
}

// The same with f32 weights: the product is f32 and not rounded to T.
TEST_P(Families, Qwen3NextWithF32Weight) {
  const rn_type T = GetParam();
  expect_family(T, {.rounding = Rounding::kBeforeWeight}, true,
                [T](double n, double w, double gate) { return f32(w * reference::round_to(T, n)) * silu64(gate); });
}

// Mamba 2 in Hugging Face's form: u = x * silu(gate) in f32, groups, round(w * round(u * inv)).
TEST_P(Families, Mamba2) {
  const rn_type T = GetParam();
  for (const std::int64_t groups : {1, 8}) {
    expect_family(
        T, {.epsilon = 1e-5, .gate_order = GateOrder::kFirst, .rounding = Rounding::kBeforeWeight, .groups = groups},
        false, [T](double n, double w, double) { return f32(w * reference::round_to(T, n)); });
  }
}

// mamba_ssm rounds once.
TEST_P(Families, MambaSsm) {
  expect_family(GetParam(), {.epsilon = 1e-5, .gate_order = GateOrder::kFirst, .groups = 8}, false,
                [](double n, double w, double) { return n * w; });
}

INSTANTIATE_TEST_SUITE_P(All, Families, testing::Values(RN_BF16, RN_F16),
                         [](const auto& instance) { return std::string(rn_type_name(instance.param)); });

// ---- Special values -------------------------------------------------------------------------------------------------

std::vector<float> run(std::vector<float> x, const std::vector<float>& gate, GatedRmsNormOptions options) {
  const std::int64_t rows = 3, cols = static_cast<std::int64_t>(x.size()) / rows;
  std::vector<float> out(x.size());
  gated_rms_norm(matrix(out.data(), rows, cols), {}, matrix(x.data(), rows, cols), matrix(gate.data(), rows, cols), {},
                 options);
  return out;
}

// Row 1 of three is special; the others must not see it.
TEST(GatedSpecialValues, stay_in_their_row) {
  for (const GateOrder order : {GateOrder::kLast, GateOrder::kFirst}) {
    const std::vector<float> x(3 * 40, 1.5f), gate(3 * 40, 0.75f);
    const std::vector<float> clean = run(x, gate, {.gate_order = order});
    for (const double special : {kNan, kInfinity, -kInfinity}) {
      for (const bool in_gate : {false, true}) {
        std::vector<float> spoilt_x = x, spoilt_gate = gate;
        (in_gate ? spoilt_gate : spoilt_x)[40 + 7] = static_cast<float>(special);
        const std::vector<float> out = run(spoilt_x, spoilt_gate, {.gate_order = order});
        for (std::size_t i = 0; i < out.size(); ++i) {
          const bool own_row = i / 40 == 1, own = i == 47;
          double expected = static_cast<double>(clean[i]);
          const bool gate_last = order == GateOrder::kLast;
          if (own_row && std::isnan(special)) {
            if (own || !in_gate || !gate_last) expected = kNan;
          } else if (own_row && !in_gate) {
            expected = own ? kNan : 0;  // the row is divided by infinity
          } else if (own_row && special < 0) {
            if (own) expected = -0.0;
            if (!own && !gate_last) continue;  // one element less in the mean
          } else if (own_row) {
            if (gate_last && own) expected = kInfinity;
            if (!gate_last) expected = own ? kNan : 0;
          }
          const double found = static_cast<double>(out[i]);
          EXPECT_TRUE(std::isnan(expected) ? std::isnan(found) : found == expected)
              << "order " << static_cast<int>(order) << ", " << special << (in_gate ? " in gate" : " in x") << ", out["
              << i << "] is " << found;
          if (own && expected == 0) {
            EXPECT_TRUE(std::signbit(out[i]));
          }
        }
      }
    }
  }
}

TEST(GatedSpecialValues, zero_rows_and_rows_that_the_gate_closes) {
  for (const GateOrder order : {GateOrder::kLast, GateOrder::kFirst}) {
    const std::vector<float> zeros(3 * 20, 0.0f), ones(3 * 20, 1.0f);
    const std::vector<float> closed(3 * 20, -std::numeric_limits<float>::infinity());
    for (const float v : run(zeros, ones, {.gate_order = order})) EXPECT_EQ(v, 0.0f);
    for (const float v : run(zeros, ones, {.epsilon = 0, .gate_order = order})) EXPECT_TRUE(std::isnan(v));
    for (const float v : run(ones, closed, {.gate_order = order})) EXPECT_TRUE(v == 0 && std::signbit(v));
    for (const float v : run(ones, closed, {.epsilon = 0, .gate_order = order})) {
      EXPECT_EQ(std::isnan(v), order == GateOrder::kFirst);
    }
  }
}

// The slope of silu at -infinity is 0, not merely small: what is infinite beside it makes NaN.
TEST(GatedSpecialValues, a_closed_gate_has_no_slope) {
  const std::vector<float> gate(40, -std::numeric_limits<float>::infinity()), inv(1, 1.0f);
  for (const double special : {kInfinity, -kInfinity}) {
    for (const bool in_dy : {false, true}) {
      std::vector<float> x(40, 1.0f), dy(40, 1.0f), dx(40), dgate(40);
      (in_dy ? dy : x)[7] = static_cast<float>(special);
      gated_rms_norm_backward(matrix(dx.data(), 1, 40), matrix(dgate.data(), 1, 40), {}, matrix(dy.data(), 1, 40),
                              matrix(x.data(), 1, 40), matrix(gate.data(), 1, 40), {}, matrix(inv.data(), 1, 1));
      for (std::size_t i = 0; i < dgate.size(); ++i) {
        EXPECT_TRUE(i == 7 ? std::isnan(dgate[i]) : dgate[i] == 0) << special << " " << in_dy << " " << dgate[i];
      }
    }
  }
}

// x silu(gate) leaves f32 on both sides; the result does not.
TEST(GatedSpecialValues, neither_overflow_nor_underflow) {
  for (const float x : {3e38f, 1e25f, 1e-30f, 1e-42f}) {
    for (const float gate : {60.0f, 3e38f, 1e-30f, -60.0f}) {
      for (const float v : run(std::vector<float>(3 * 50, x), std::vector<float>(3 * 50, gate),
                               {.epsilon = 0, .gate_order = GateOrder::kFirst})) {
        EXPECT_EQ(v, gate < 0 ? -1.0f : 1.0f) << x << " " << gate;
      }
    }
  }
  // A gate that f32 holds and 2^32 times which it does not.
  for (const float v : run(std::vector<float>(3 * 50, 1.0f), std::vector<float>(3 * 50, 3e38f), {.epsilon = 0})) {
    EXPECT_EQ(v, 3e38f);
  }
}

// ---- Errors that a whole group shares --------------------------------------------------------------------------------

// One element that is nearly all of the sum, with a gate of which silu may be the furthest off: inv must not have that
// error, which the rest of the group would have, too.
TEST(GatedAccuracy, one_large_element_does_not_spoil_its_group) {
  constexpr std::int64_t width = 60, rows = 500;
  constexpr double kMost = 4;  // x silu(gate) and the end: of the budget's 5, inv gets none
  std::vector<double> x, gate;
  for (std::int64_t row = 0; row < rows; ++row) {
    for (const double v : numbers(width, static_cast<std::uint64_t>(2 * row + 1))) x.push_back(v);
    for (const double v : numbers(width, static_cast<std::uint64_t>(2 * row + 2))) gate.push_back(v);
    const std::size_t spike = static_cast<std::size_t>(row * width + row % width);
    x[spike] = 9000;
    gate[spike] = (static_cast<double>(row) - 250) / 64;
  }
  const std::vector<float> x32(x.begin(), x.end()), gate32(gate.begin(), gate.end());
  const std::vector<double> x64(x32.begin(), x32.end()), gate64(gate32.begin(), gate32.end());
  for (const GateOrder order : {GateOrder::kLast, GateOrder::kFirst}) {
    std::vector<float> out(x.size()), inv(rows);
    gated_rms_norm(matrix(out.data(), rows, width), matrix(inv.data(), rows, 1), matrix(x32.data(), rows, width),
                   matrix(gate32.data(), rows, width), {}, {.gate_order = order});
    for (std::int64_t row = 0; row < rows; ++row) {
      const std::int64_t at = row * width;
      const reference::GatedInput in = {x64.data() + at,           gate64.data() + at, nullptr, width, 1e-6,
                                        order == GateOrder::kFirst};
      const reference::GatedNorm<Quad> norm = reference::gated_norm<Quad>(in);
      const double saved = static_cast<double>(inv[static_cast<std::size_t>(row)]);
      EXPECT_LE(reference::ulp_distance(RN_F32, saved, norm.inv), reference::kStatistic) << "row " << row;
      for (std::int64_t i = 0; i < width; ++i) {
        const double found = static_cast<double>(out[static_cast<std::size_t>(at + i)]);
        EXPECT_LE(reference::ulp_distance(RN_F32, found, reference::gated_result(in, norm, i)), kMost)
            << "row " << row << ", column " << i;
      }
    }
  }
}

// f64: gradients of which nothing is left but what one f64 of silu(gate) does not hold, far from 1 in both directions.
TEST(GatedAccuracy, sums_that_cancel_lose_nothing) {
  constexpr std::int64_t rows = 300, width = 2;
  for (const double size : {1.0, 1e4, 1e300, 1e-300}) {
    std::vector<double> x = numbers(rows * width, 31), gate = numbers(rows * width, 32), dy = numbers(rows * width, 33);
    std::vector<double> inv(rows, 2.5), dx(x.size()), dgate(x.size());
    for (std::size_t i = 0; i < x.size(); ++i) x[i] *= size;
    for (const GateOrder order : {GateOrder::kLast, GateOrder::kFirst}) {
      GatedRmsNormBackwardOptions options;
      options.gate_order = order;
      for (std::size_t i = 0; i < x.size(); i += width) {
        const auto term = [&](std::size_t k) { return x[k] * silu64(gate[k]); };
        dy[i + 1] = -dy[i] * (term(i) / term(i + 1));  // the sum of products is what this rounds
      }
      gated_rms_norm_backward(matrix(dx.data(), rows, width), matrix(dgate.data(), rows, width), {},
                              matrix(dy.data(), rows, width), matrix(x.data(), rows, width),
                              matrix(gate.data(), rows, width), {}, matrix(inv.data(), rows, 1), options);
      for (std::int64_t row = 0; row < rows; ++row) {
        const std::int64_t at = row * width;
        const reference::GatedInput in = {x.data() + at, gate.data() + at,          nullptr, width,
                                          1e-6,          order == GateOrder::kFirst};
        const auto exact =
            reference::gated_rms_norm_backward<Quad>(in, dy.data() + at, &inv[static_cast<std::size_t>(row)]);
        for (std::int64_t i = 0; i < width; ++i) {
          const std::size_t k = static_cast<std::size_t>(i), n = static_cast<std::size_t>(at + i);
          EXPECT_LE(reference::ulp_distance(RN_F64, dx[n], exact.dx[k], exact.largest_dx), 0.75)
              << "x of " << size << ", dx[" << row << "][" << i << "]";
          EXPECT_LE(reference::ulp_distance(RN_F64, dgate[n], exact.dgate[k], exact.largest_dgate), 0.75)
              << "x of " << size << ", dgate[" << row << "][" << i << "]";
        }
      }
    }
  }
}

// ---- Rows, groups and layouts ---------------------------------------------------------------------------------------

// BL-49: a row alone and anywhere in a batch; groups as rows of their own; inv_rms with strides of its own.
TEST(GatedLayouts, groups_are_rows_of_their_own) {
  constexpr std::int64_t rows = 5, groups = 3, width = 37, cols = groups * width;
  std::vector<float> x(rows * cols), gate(rows * cols), weight(cols), out(rows * cols), apart(width);
  for (std::size_t i = 0; i < x.size(); ++i) {
    x[i] = static_cast<float>(std::sin(static_cast<double>(i)));
    gate[i] = static_cast<float>(3 * std::cos(1.3 * static_cast<double>(i)));
  }
  for (std::size_t i = 0; i < weight.size(); ++i) weight[i] = 1 + static_cast<float>(i % 7) / 8;
  for (const GateOrder order : {GateOrder::kLast, GateOrder::kFirst}) {
    std::vector<float> inv(rows * groups * 2, -7), one(1);
    gated_rms_norm(matrix(out.data(), rows, cols), View(inv.data(), {rows, groups}, {2, 2 * rows}),
                   matrix(x.data(), rows, cols), matrix(gate.data(), rows, cols), vector(weight.data(), cols),
                   {.gate_order = order, .groups = groups});
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t g = 0; g < groups; ++g) {
        const std::int64_t at = r * cols + g * width;
        gated_rms_norm(vector(apart.data(), width), vector(one.data(), 1), vector(x.data() + at, width),
                       vector(gate.data() + at, width), vector(weight.data() + g * width, width),
                       {.gate_order = order});
        EXPECT_EQ(std::vector<float>(out.begin() + at, out.begin() + at + width), apart);
        EXPECT_EQ(inv[static_cast<std::size_t>(2 * r + 2 * rows * g)], one[0]);
      }
    }
    for (std::size_t i = 1; i < inv.size(); i += 2) EXPECT_EQ(inv[i], -7);
  }
}

// Rows wider than what is kept between the passes give what they give in f64.
TEST(GatedLayouts, wide_rows) {
  constexpr std::int64_t cols = 20001;
  const std::vector<double> x = numbers(cols, 21), gate = numbers(cols, 22);
  const std::vector<float> x32(x.begin(), x.end()), gate32(gate.begin(), gate.end());
  const std::vector<double> x64(x32.begin(), x32.end()), gate64(gate32.begin(), gate32.end());
  for (const GateOrder order : {GateOrder::kLast, GateOrder::kFirst}) {
    std::vector<float> out(cols);
    gated_rms_norm(vector(out.data(), cols), {}, vector(x32.data(), cols), vector(gate32.data(), cols), {},
                   {.gate_order = order});
    const reference::GatedInput in = {x64.data(), gate64.data(), nullptr, cols, 1e-6, order == GateOrder::kFirst};
    const reference::GatedNorm<Quad> norm = reference::gated_norm<Quad>(in);
    for (std::int64_t i = 0; i < cols; ++i) {
      const double found = static_cast<double>(out[static_cast<std::size_t>(i)]);
      ASSERT_LE(reference::ulp_distance(RN_F32, found, reference::gated_result(in, norm, i)), 5) << i;
    }
  }
}

// BL-44, BL-51: dweight is the sum over all rows, whatever the blocks; the same with a saved inv_rms as without.
TEST(GatedBackward, dweight_sums_all_rows) {
  for (const std::int64_t rows : {1, 63, 1025}) {
    constexpr std::int64_t cols = 32;
    const std::vector<float> ones(static_cast<std::size_t>(rows * cols), 1.0f);
    std::vector<float> dweight(cols, -1), inv(static_cast<std::size_t>(rows), 2.0f);
    gated_rms_norm_backward({}, {}, vector(dweight.data(), cols), matrix(ones.data(), rows, cols),
                            matrix(ones.data(), rows, cols), matrix(ones.data(), rows, cols), {},
                            matrix(inv.data(), rows, 1));
    const double expected = static_cast<double>(rows) * 2 * silu64(1);
    for (const float v : dweight) EXPECT_NEAR(static_cast<double>(v), expected, expected * 1e-6);
  }
}

// BL-39: two calls agree and leave dy as it was.
TEST(GatedBackward, does_not_write_dy) {
  const std::vector<float> dy = {1, -2, 3, 4}, x = {1, 2, 3, 4}, gate = {0.5f, -1, 2, 0};
  const std::vector<float> before = dy;
  std::vector<float> dx[2] = {std::vector<float>(4), std::vector<float>(4)}, dgate(4);
  for (std::vector<float>& result : dx) {
    gated_rms_norm_backward(matrix(result.data(), 2, 2), matrix(dgate.data(), 2, 2), {}, matrix(dy.data(), 2, 2),
                            matrix(x.data(), 2, 2), matrix(gate.data(), 2, 2));
  }
  EXPECT_EQ(dx[0], dx[1]);
  EXPECT_EQ(dy, before);
}

// ---- Wrong calls ----------------------------------------------------------------------------------------------------

struct Call {
  std::vector<float> memory[8] = {};
  View out, inv, x, gate, weight, dy;
  rn_gated_rms_norm_backward_options options = rn_gated_rms_norm_backward_defaults();
  rn_scratch scratch{};

  Call() {
    for (std::vector<float>& m : memory) m.assign(4096, 0.5f);
    out = matrix(memory[0].data(), 2, 12);
    inv = matrix(memory[1].data(), 2, 1);
    x = matrix(memory[2].data(), 2, 12);
    gate = matrix(memory[3].data(), 2, 12);
    weight = vector(memory[4].data(), 12);
    dy = matrix(memory[5].data(), 2, 12);
    scratch = {memory[6].data(), 4096 * 4};
  }
};

void expect_refused(const char* message, const std::function<void(Call&)>& spoil) {
  Call c;
  spoil(c);
  EXPECT_NE(
      rn_gated_rms_norm(c.out.get(), c.inv.get(), c.x.get(), c.gate.get(), c.weight.get(), &c.options.norm, nullptr),
      RN_OK)
      << message;
  EXPECT_EQ(std::string(rn_last_error()), "rn_gated_rms_norm: " + std::string(message));
  EXPECT_EQ(c.memory[0], std::vector<float>(4096, 0.5f));
}

TEST(GatedErrors, name_the_value_and_the_rule) {
  expect_refused("options.epsilon is -1; it must be finite and 0 or more",
                 [](Call& c) { c.options.norm.epsilon = -1; });
  expect_refused("options.rounding is 2; it must be RN_ROUND_ONCE (0) or RN_ROUND_BEFORE_WEIGHT (1)",
                 [](Call& c) { c.options.norm.rounding = RN_ROUND_EXACT; });
  expect_refused("options.groups is 5; it must divide 12, the columns of x",
                 [](Call& c) { c.options.norm.groups = 5; });
  expect_refused("options.groups is 0; it must divide 12, the columns of x",
                 [](Call& c) { c.options.norm.groups = 0; });
  expect_refused("inv_rms.shape[1] is 1; it must be 4", [](Call& c) { c.options.norm.groups = 4; });
  expect_refused("gate is NULL; it must be a view", [](Call& c) { c.gate = {}; });
  expect_refused("gate.shape[1] is 11; it must be 12, the size of x.shape[1]",
                 [](Call& c) { c.gate = matrix(c.memory[3].data(), 2, 11); });
  expect_refused("gate.type is f64; it must be f32, f16 or bf16 where x is f32", [](Call& c) {
    rn_view v = *c.gate.get();
    v.type = RN_F64;
    c.gate = View(v);
  });
  Call c;
  c.options.norm.gate_order = static_cast<rn_gate_order>(1);
  c.gate = c.out;
  EXPECT_NE(rn_gated_rms_norm(c.out.get(), nullptr, c.x.get(), c.gate.get(), nullptr, &c.options.norm, nullptr), RN_OK);
  EXPECT_NE(std::string(rn_last_error()).find("overlaps gate"), std::string::npos) << rn_last_error();
  // inv_rms that lies between the groups' columns of out is no overlap; on one of them it is.
  c.options.norm.groups = 2;
  float* const wide = c.memory[7].data();
  const View out(wide, {2, 12}, {14, 1});
  const auto call = [&](float* inv) {
    const View statistic(inv, {2, 2}, {14, 1});
    return rn_gated_rms_norm(out.get(), statistic.get(), c.x.get(), c.dy.get(), nullptr, &c.options.norm, nullptr);
  };
  EXPECT_EQ(call(wide + 12), RN_OK) << rn_last_error();
  EXPECT_NE(call(wide + 11), RN_OK);
}

TEST(GatedErrors, of_the_backward) {
  Call c;
  const auto call = [&](const View& dx, const View& dgate, const View& dweight, const rn_scratch* scratch) {
    return rn_gated_rms_norm_backward(dx.get(), dgate.get(), dweight.get(), c.dy.get(), c.x.get(), c.gate.get(),
                                      c.weight.get(), nullptr, scratch, &c.options, nullptr);
  };
  const auto expect_message = [](rn_status status, const char* message) {
    EXPECT_NE(status, RN_OK);
    EXPECT_EQ(std::string(rn_last_error()), "rn_gated_rms_norm_backward: " + std::string(message));
  };
  const View dweight = vector(c.memory[7].data(), 12);
  expect_message(call({}, {}, {}, nullptr), "dx, dgate and dweight are NULL; one of them must be a view");
  expect_message(call({}, {}, dweight, nullptr), "scratch is NULL; it must be given where dweight is wanted");
  const rn_scratch small = {c.memory[6].data(), 8};
  expect_message(call({}, {}, dweight, &small),
                 "scratch.bytes is 8; it must be at least 288, see rn_backward_scratch_bytes");
  c.options.accumulate = 2;
  expect_message(call({}, {}, dweight, &c.scratch), "options.accumulate is 2; it must be 0 or 1");
  c.options.accumulate = 0;
  EXPECT_NE(call(c.dy, c.dy, {}, nullptr), RN_OK);  // dx may be dy, dgate may not
  EXPECT_EQ(call(c.dy, {}, dweight, &c.scratch), RN_OK) << rn_last_error();
}

}  // namespace
}  // namespace rmsnorm::test
