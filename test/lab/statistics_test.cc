// Quantiles and intervals against scipy 1.17.1, whose values stand here with the line that made them; coverage by
// simulation.
#include "lab/statistics/statistics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <stdexcept>

namespace rmsnorm::lab {
namespace {

const std::vector<double> kFive = {0.31, -0.12, 0.48, 0.05, 0.22};

TEST(Statistics, quantiles_of_students_t_are_scipys) {
  // for p, d in ..: print(repr(float(scipy.stats.t.ppf(p, d))))
  constexpr struct {
    double p, degrees, expected;
  } kQuantiles[] = {
      {0.975, 1, 12.706204736174694},    {0.975, 4, 2.7764451051977934},  {0.975, 7, 2.364624251592784},
      {0.95, 4, 2.1318467863266495},     {0.95, 18, 1.7340636066175388},  {0.995, 2, 9.924843200918287},
      {0.6, 30, 0.2556053649519128},     {0.025, 9, -2.2621571627982053}, {0.975, 2.5, 3.5746548420036817},
      {0.999, 1000, 3.0984021639129233},
  };
  for (const auto& q : kQuantiles) {
    EXPECT_NEAR(student_t_quantile(q.p, q.degrees), q.expected, 1e-10 * std::abs(q.expected))
        << q.p << " " << q.degrees;
  }
  EXPECT_NEAR(student_t_quantile(0.5, 3), 0, 1e-12);
}

TEST(Statistics, moments) {
  EXPECT_NEAR(mean(kFive), 0.188, 1e-15);
  EXPECT_NEAR(deviation(kFive), 0.231883591485038, 1e-15);  // numpy.std(v, ddof=1)
  EXPECT_EQ(median({3, 1, 2}), 2);
  EXPECT_EQ(median({4, 1, 3, 2}), 2.5);
}

TEST(Statistics, the_interval_of_a_mean_is_scipys) {
  // scipy.stats.t.interval(0.95, 4, loc=numpy.mean(v), scale=scipy.stats.sem(v))
  const Interval interval = mean_interval(kFive);
  EXPECT_NEAR(interval.estimate, 0.188, 1e-15);
  EXPECT_NEAR(interval.low, -0.09992150732116062, 1e-12);
  EXPECT_NEAR(interval.high, 0.4759215073211606, 1e-12);
}

// The share of intervals that hold the true mean, for normal differences; 4000 trials have a standard error of 0.0034.
double coverage(std::size_t count, Interval (*interval)(const std::vector<double>&)) {
  constexpr int kTrials = 4000;
  std::mt19937_64 random(count);
  std::normal_distribution<double> normal(0.7, 2.0);
  int held = 0;
  for (int trial = 0; trial < kTrials; ++trial) {
    std::vector<double> values(count);
    for (double& value : values) value = normal(random);
    const Interval found = interval(values);
    held += found.low <= 0.7 && 0.7 <= found.high ? 1 : 0;
  }
  return static_cast<double>(held) / kTrials;
}

TEST(Statistics, t_intervals_of_few_pairs_hold_the_mean_as_often_as_they_say) {
  for (const std::size_t count : {2u, 5u, 8u, 19u}) EXPECT_NEAR(coverage(count, mean_interval), 0.95, 0.014) << count;
}

TEST(Statistics, a_bootstrap_of_five_would_not) {
  // Why the t interval is there: the percentile bootstrap covers about 84 %. Fewer trials: it is slow.
  std::mt19937_64 random(5);
  std::normal_distribution<double> normal;
  int held = 0;
  constexpr int kTrials = 400;
  for (int trial = 0; trial < kTrials; ++trial) {
    std::vector<double> values(5);
    for (double& value : values) value = normal(random);
    const Interval found = bootstrap_interval(values, static_cast<std::uint64_t>(trial));
    held += found.low <= 0 && 0 <= found.high ? 1 : 0;
  }
  EXPECT_NEAR(static_cast<double>(held) / kTrials, 0.84, 0.06);
}

TEST(Statistics, a_bootstrap_of_forty_is_near_the_t_interval_and_repeats_itself) {
  std::mt19937_64 random(9);
  std::normal_distribution<double> normal(1, 3);
  std::vector<double> values(40);
  for (double& value : values) value = normal(random);
  const Interval found = mean_interval(values);
  const double half = student_t_quantile(0.975, 39) * deviation(values) / std::sqrt(40.0);
  EXPECT_NEAR(found.high - found.low, 2 * half, 0.2 * half);
  EXPECT_EQ(found.low, bootstrap_interval(values).low);
  EXPECT_EQ(found.high, bootstrap_interval(values).high);
  EXPECT_NE(found.low, bootstrap_interval(values, 2).low);
}

TEST(Statistics, intervals_of_medians_are_order_statistics) {
  // [k for k in range(n) if scipy.stats.binom.cdf(k, n, .5) <= .025][-1:] values lie outside on each side
  constexpr struct {
    int count, cut;
  } kCuts[] = {{1, 0}, {2, 0}, {5, 0}, {6, 0}, {9, 1}, {11, 1}, {20, 5}, {21, 5}, {51, 18}};
  for (const auto& c : kCuts) {
    std::vector<double> values;
    for (int i = c.count - 1; i >= 0; --i) values.push_back(i);
    const Interval found = median_interval(values);
    EXPECT_EQ(found.estimate, (c.count - 1) / 2.0);
    EXPECT_EQ(found.low, c.cut) << c.count;
    EXPECT_EQ(found.high, c.count - 1 - c.cut) << c.count;
  }
}

TEST(Statistics, equivalence_has_three_answers) {
  const std::vector<double> near_zero = {0.01, -0.01, 0.02, -0.02, 0.0};
  EXPECT_EQ(equivalence(near_zero, 0.05), Equivalence::kEqual);
  EXPECT_EQ(equivalence(near_zero, 0.001), Equivalence::kNotSettled);
  EXPECT_EQ(equivalence({1.01, 0.99, 1.02, 0.98, 1.0}, 0.05), Equivalence::kDifferent);
  EXPECT_EQ(equivalence({-1.01, -0.99, -1.02, -0.98, -1.0}, 0.05), Equivalence::kDifferent);
  EXPECT_EQ(equivalence({0.06, 0.03, 0.05, 0.07, 0.04}, 0.05), Equivalence::kNotSettled);  // nonzero, about the margin
  EXPECT_EQ(equivalence({3, -3, 5, -5, 1}, 0.05), Equivalence::kNotSettled);
}

// At the margin itself "equal" is wrong one time in twenty at most.
TEST(Statistics, equivalence_errs_as_often_as_it_says) {
  constexpr int kTrials = 4000;
  std::mt19937_64 random(17);
  std::normal_distribution<double> normal(1, 0.2);
  int equal = 0;
  for (int trial = 0; trial < kTrials; ++trial) {
    std::vector<double> values(8);
    for (double& value : values) value = normal(random);
    equal += equivalence(values, 1.0) == Equivalence::kEqual ? 1 : 0;
  }
  EXPECT_NEAR(static_cast<double>(equal) / kTrials, 0.05, 0.014);
}

TEST(Statistics, too_few_values_are_refused) {
  EXPECT_THROW(mean({}), std::invalid_argument);
  EXPECT_THROW(deviation({1}), std::invalid_argument);
  EXPECT_THROW(mean_interval({1}), std::invalid_argument);
  EXPECT_THROW(equivalence({1, 2}, 0), std::invalid_argument);
  EXPECT_THROW(student_t_quantile(1, 3), std::invalid_argument);
}

}  // namespace
}  // namespace rmsnorm::lab
