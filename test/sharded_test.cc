// Rows split over ranks: whatever the number of ranks, the slices together are the whole row, within its budgets.
#include <gtest/gtest.h>

#include <cstring>

#include "check/norm_judge.h"
#include "reference/layer_norm_backward.h"
#include "reference/rms_norm.h"
#include "rmsnorm/rmsnorm.hpp"

namespace rmsnorm::check {
namespace {

using reference::Quad;
using reference::Values;

constexpr std::int64_t kRows = 6, kCols = 1003;
constexpr double kEpsilon = 1e-6;

// A dense matrix of any type, whole; slices are views of it.
struct Whole {
  Whole(rn_type type, std::int64_t rows, Values values, std::uint64_t seed) : matrix(type, rows, kCols, kCols, 3) {
    matrix.fill(values, seed, reference::Stream::kX);
  }
  rn_view slice(std::int64_t begin, std::int64_t end) const {
    rn_view v = matrix.view();
    v.data = matrix.row(0) + begin * static_cast<std::int64_t>(rn_type_size(matrix.type()));
    v.shape[1] = end - begin;
    return v;
  }
  rn_view vector(std::int64_t begin, std::int64_t end) const {
    return rn_vector(slice(begin, end).data, matrix.type(), end - begin);
  }
  std::vector<double> row(std::int64_t r) const {
    std::vector<double> values(static_cast<std::size_t>(kCols));
    matrix.read_row(r, values.data());
    return values;
  }
  Matrix matrix;
};

struct Split {
  std::int64_t begin, end;
};
// Uneven: the first rank has one column more than a block, the last what is left.
std::vector<Split> split(std::int64_t ranks) {
  std::vector<Split> list;
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    const auto at = [&](std::int64_t k) { return k == ranks ? kCols : k == 0 ? 0 : kCols * k / ranks + k % 2 * 13; };
    list.push_back({at(rank), at(rank + 1)});
  }
  return list;
}

// Runs `sums(slice, view of kRows sums)` on each rank and adds what they give in rank order.
template <class Sums>
std::vector<double> total(std::int64_t ranks, const Sums& sums) {
  std::vector<double> parts(static_cast<std::size_t>(ranks * kRows)), result(kRows);
  const std::vector<Split> slices = split(ranks);
  for (std::size_t rank = 0; rank < slices.size(); ++rank) {
    sums(slices[rank], rn_vector(parts.data() + static_cast<std::int64_t>(rank) * kRows, RN_F64, kRows));
  }
  add_rank_sums(result.data(), parts.data(), ranks, kRows);
  return result;
}

rn_view view(std::vector<double>& sums) { return rn_vector(sums.data(), RN_F64, kRows); }

struct Problem {
  Problem(rn_type type, Values values, bool with_layer, std::int64_t rank_count)
      : layer(with_layer),
        x(type, kRows, values, 11),
        dy(type, kRows, Values::kNormal, 12),
        weight(type, 1, Values::kWeight, 13),
        out(type, kRows, Values::kNormal, 14),
        dx(type, kRows, Values::kNormal, 15),
        dweight(type, 1, Values::kNormal, 16),
        slices(split(rank_count)),
        ranks(rank_count) {}

  void forward() {
    if (layer) {
      sum = total(ranks, [&](Split s, rn_view to) { layer_sum(View(to), slice(x, s)); });
      squares =
          total(ranks, [&](Split s, rn_view to) { layer_sum_squares(View(to), slice(x, s), View(view(sum)), kCols); });
    } else {
      squares = total(ranks, [&](Split s, rn_view to) { rms_sum_squares(View(to), slice(x, s)); });
    }
    for (const Split s : slices) {
      if (layer) {
        layer_norm_apply(slice(out, s), {}, {}, slice(x, s), View(view(sum)), View(view(squares)), kCols,
                         View(weight.vector(s.begin, s.end)), {}, {.epsilon = kEpsilon});
      } else {
        rms_norm_apply(slice(out, s), {}, slice(x, s), View(view(squares)), kCols, View(weight.vector(s.begin, s.end)),
                       {}, {.epsilon = kEpsilon});
      }
    }
  }

  void backward() {
    if (layer) {
      std::vector<double> parts(static_cast<std::size_t>(ranks * kRows));
      products = total(ranks, [&](Split s, rn_view to) {
        rn_view g = rn_vector(parts.data() + rank_of(s) * kRows, RN_F64, kRows);
        layer_backward_sums(View(g), View(to), slice(dy, s), slice(x, s), View(view(sum)), kCols,
                            View(weight.vector(s.begin, s.end)));
      });
      gradients.resize(kRows);
      add_rank_sums(gradients.data(), parts.data(), ranks, kRows);
    } else {
      products = total(ranks, [&](Split s, rn_view to) {
        rms_backward_sum(View(to), slice(dy, s), slice(x, s), View(weight.vector(s.begin, s.end)));
      });
    }
    for (const Split s : slices) {
      const View w(weight.vector(s.begin, s.end)), dw(dweight.vector(s.begin, s.end));
      if (layer) {
        LayerNormBackwardOptions options;
        options.epsilon = kEpsilon;
        layer_norm_backward_apply(slice(dx, s), dw, {}, slice(dy, s), slice(x, s), View(view(sum)), View(view(squares)),
                                  View(view(gradients)), View(view(products)), kCols, w, options);
      } else {
        RmsNormBackwardOptions options;
        options.epsilon = kEpsilon;
        rms_norm_backward_apply(slice(dx, s), dw, {}, slice(dy, s), slice(x, s), View(view(squares)),
                                View(view(products)), kCols, w, options);
      }
    }
  }

  Finding judge() const {
    Finding finding;
    const rn_type type = x.matrix.type();
    const std::vector<double> w = weight.row(0);
    const reference::Parameters parameters{w.data(), nullptr, 0};
    const reference::Budget budget = reference::budget(
        layer ? reference::Judged::kLayerNorm : reference::Judged::kRmsNorm, type, type, false, false, RN_ROUND_ONCE);
    rn_rms_norm_options options = rn_rms_norm_defaults();
    options.epsilon = kEpsilon;
    const std::size_t d = static_cast<std::size_t>(kCols);
    std::vector<Quad> exact(d), sums(d), terms(d);
    for (std::int64_t r = 0; r < kRows; ++r) {
      const std::vector<double> row = x.row(r), gradient = dy.row(r), found = out.row(r);
      if (layer) {
        reference::layer_norm(exact.data(), row.data(), kCols, parameters, kEpsilon);
      } else {
        reference::rms_norm(exact.data(), row.data(), kCols, type, parameters, options);
      }
      judge_norm_row(finding, {"out", r, type, found, exact, parameters}, budget);
      const auto expected =
          layer ? reference::layer_norm_backward<Quad>(gradient.data(), row.data(), kCols, parameters, kEpsilon)
                : reference::rms_norm_backward<Quad>(gradient.data(), row.data(), kCols, parameters, options);
      judge_gradient_row(finding, type, "dx", r, dx.row(r), expected);
      for (std::size_t i = 0; i < d; ++i) {
        const Quad term = static_cast<Quad>(gradient[i]) * expected.normalised[i];
        sums[i] += term;
        terms[i] += reference::absolute(term);
      }
    }
    judge_parameter_gradient(finding, type, "dweight", dweight.row(0), {}, sums, terms, kRows);
    return finding;
  }

  static View slice(const Whole& whole, Split s) { return View(whole.slice(s.begin, s.end)); }
  std::int64_t rank_of(Split s) const {
    std::int64_t rank = 0;
    while (slices[static_cast<std::size_t>(rank)].begin != s.begin) ++rank;
    return rank;
  }

  bool layer;
  Whole x, dy, weight, out, dx, dweight;
  std::vector<Split> slices;
  std::int64_t ranks;
  std::vector<double> sum, squares, gradients, products;
};

// f64 sums hold neither the squares of f64 rows of 1e200 nor all digits of an offset: sharded.h says so.
std::vector<Values> values_for(rn_type type) {
  if (type == RN_F64) return {Values::kNormal, Values::kCauchy, Values::kSpike, Values::kNan};
  return {Values::kNormal, Values::kCauchy, Values::kSpike, Values::kOffset,   Values::kTiny,     Values::kHuge,
          Values::kMixed,  Values::kZeros,  Values::kNan,   Values::kInfinity, Values::kSubnormal};
}

// Large terms that cancel to 0: what an f64 sum leaves of them is beyond f64 in ulps of 0.
TEST(SumJudge, measures_a_sum_of_0_by_its_terms) {
  const reference::Budget limit = {reference::kSum, reference::Unit::kResultAndTerms, reference::kMeanOfMagnitudes};
  for (const double found : {2.27e-10, 0.9e-12 * 1e25, -0.9e-12 * 1e25}) {
    Finding finding;
    judge_statistic(finding, RN_F64, "sum", 0, found, 0, limit, 1e25);
    EXPECT_EQ(finding.error, "");
  }
  for (const double found : {1.1e-12 * 1e25, -1e200}) {
    Finding finding;
    judge_statistic(finding, RN_F64, "sum", 0, found, 0, limit, 1e25);
    EXPECT_NE(finding.error, "") << found;
  }
}

TEST(Sharded, any_number_of_ranks_agrees_with_the_whole_row) {
  for (const rn_type type : {RN_F32, RN_F16, RN_BF16, RN_F64}) {
    for (const Values values : values_for(type)) {
      for (const bool layer : {false, true}) {
        for (const std::int64_t ranks : {1, 2, 3, 4}) {
          Problem problem(type, values, layer, ranks);
          problem.forward();
          problem.backward();
          const Finding finding = problem.judge();
          ASSERT_EQ(finding.error, "") << rn_type_name(type) << " " << reference::name_of(values) << ", " << ranks
                                       << " ranks" << (layer ? ", layer_norm" : ", rms_norm");
          EXPECT_EQ(finding.elements, 2 * kRows * kCols + kCols);
        }
      }
    }
  }
}

TEST(Sharded, one_slice_has_the_bits_of_rms_norm) {
  Problem problem(RN_F32, Values::kNormal, false, 1);
  problem.forward();
  const Whole out(RN_F32, kRows, Values::kZeros, 1);
  const Split all = {0, kCols};
  const View x = Problem::slice(problem.x, all), weight(problem.weight.vector(0, kCols));
  rms_norm(Problem::slice(out, all), {}, x, weight, {}, {.epsilon = kEpsilon});
  EXPECT_EQ(out.matrix.hash(), problem.out.matrix.hash());
}

TEST(Sharded, sums_are_added_in_the_order_of_the_ranks) {
  // Two numbers of each rank. 1e16 + 1 is 1e16 again: only the order of the ranks gives 0 and 1.
  const double parts[] = {1e16, -1e16, 1, 1e16, -1e16, 1};
  double sums[2];
  add_rank_sums(sums, parts, 3, 2);
  EXPECT_EQ(sums[0], 0);
  EXPECT_EQ(sums[1], 1);
  double in_place[] = {3, 4, 5, 6};
  add_rank_sums(in_place, in_place, 2, 2);
  EXPECT_EQ(in_place[0], 8);
  EXPECT_EQ(in_place[1], 10);
}

TEST(Sharded, wrong_arguments_are_named) {
  float x[6] = {1, 2, 3, 4, 5, 6}, out[6] = {};
  double sums[2] = {1, 1};
  float narrow[2] = {1, 1};
  const View rows = matrix(x, 2, 3), result = matrix(out, 2, 3), squares = vector(sums, 2);
  EXPECT_EQ(try_rms_norm_apply(result, {}, rows, squares, 0).message,
            "rn_rms_norm_apply: total_cols is 0; it must be from 1 to 2^40");
  EXPECT_EQ(try_rms_norm_apply(result, {}, rows, squares, 6, {}, {}, {.partial = 2}).message,
            "rn_rms_norm_apply: options.partial is 2; it must be 0 where x is a slice of its row");
  EXPECT_EQ(try_rms_norm_apply(result, {}, rows, {}, 6).message,
            "rn_rms_norm_apply: sum_squares is NULL; it must be a view");
  EXPECT_EQ(try_layer_norm_apply(result, {}, {}, rows, {}, squares, 6).message,
            "rn_layer_norm_apply: sum is NULL; it must be a view");
  EXPECT_EQ(try_rms_sum_squares(vector(narrow, 2), rows).message,
            "rn_rms_sum_squares: sum_squares.type is f32; it must be f64 where x is f32");
  EXPECT_EQ(try_rms_sum_squares(vector(sums, 1), rows).message,
            "rn_rms_sum_squares: sum_squares.shape[0] is 1; it must be 2, the size of x.shape[0]");
  EXPECT_EQ(try_rms_backward_sum(squares, {}, rows).message, "rn_rms_backward_sum: dy is NULL; it must be a view");
  EXPECT_EQ(try_rms_norm_backward_apply(result, {}, {}, rows, rows, squares, {}, 6).message,
            "rn_rms_norm_backward_apply: sum_products is NULL; it must be a view");
  EXPECT_EQ(try_layer_sum_squares(squares, rows, {}, 6).message,
            "rn_layer_sum_squares: sum is NULL; it must be a view");
  EXPECT_EQ(try_add_rank_sums(sums, sums, 0, 2).message, "rn_add_rank_sums: ranks is 0; it must be 1 or more");
  EXPECT_EQ(try_add_rank_sums(nullptr, sums, 1, 2).message,
            "rn_add_rank_sums: total is NULL; it must point to the sums");
  const float zeros[6] = {};
  EXPECT_EQ(std::memcmp(out, zeros, sizeof out), 0);
}

}  // namespace
}  // namespace rmsnorm::check
