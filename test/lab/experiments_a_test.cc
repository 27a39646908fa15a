// The rules of experiments 2 to 5 on made-up numbers, on both sides of each limit.
#include <gtest/gtest.h>

#include <cmath>

#include "lab/experiments/epsilon.h"
#include "lab/experiments/norm_profile.h"
#include "lab/experiments/placement.h"
#include "lab/experiments/support.h"

namespace rmsnorm::lab {
namespace {

using V = Verdict;

TEST(Rules, WithinLooksAtTheWholeInterval) {
  EXPECT_EQ(within({0.15, 0.13, 0.17}, 0.12, 0.18), V::kHolds);
  EXPECT_EQ(within({0.15, 0.11, 0.17}, 0.12, 0.18), V::kNotSettled);
  EXPECT_EQ(within({0.05, 0.04, 0.06}, 0.12, 0.18), V::kRefuted);
  EXPECT_EQ(within({0.30, 0.25, 0.35}, 0.12, 0.18), V::kRefuted);
  EXPECT_EQ(within({0.10, 0.096, 0.11}, 0.095, kInfinity), V::kHolds);
  EXPECT_EQ(within({std::nan(""), -kInfinity, kInfinity}, 0, 1), V::kNotSettled);
}

TEST(Rules, AllOfIsPartlyOnlyWhereSidesAreTaken) {
  EXPECT_EQ(all_of({V::kHolds, V::kHolds}), V::kHolds);
  EXPECT_EQ(all_of({V::kRefuted, V::kRefuted}), V::kRefuted);
  EXPECT_EQ(all_of({V::kHolds, V::kRefuted, V::kNotSettled}), V::kPartly);
  EXPECT_EQ(all_of({V::kHolds, V::kNotSettled}), V::kNotSettled);
  EXPECT_EQ(all_of({}), V::kNotSettled);
}

TEST(Rules, NoWorseComparesWithTheMargin) {
  EXPECT_EQ(no_worse({0.001, -0.001, 0.002, 0.0, 0.001}, 0.02), V::kHolds);
  EXPECT_EQ(no_worse({0.101, 0.099, 0.102, 0.1, 0.1}, 0.02), V::kRefuted);
  EXPECT_EQ(no_worse({0.1, -0.1, 0.05, 0.0, -0.02}, 0.02), V::kNotSettled);
}

TEST(Rules, BestRange) {
  const Interval worse = {0.1, 0.05, 0.15}, as_good = {0.0, -0.005, 0.005}, unclear = {0.02, -0.01, 0.05};
  EXPECT_EQ(best_range({worse, worse}, 0.01), V::kHolds);
  EXPECT_EQ(best_range({worse, as_good}, 0.01), V::kRefuted);
  EXPECT_EQ(best_range({worse, unclear}, 0.01), V::kNotSettled);
}

TEST(Rules, Explodes) {
  EXPECT_EQ(explodes(false, true), V::kHolds);
  EXPECT_EQ(explodes(true, true), V::kRefuted);
  EXPECT_EQ(explodes(false, false), V::kNotSettled);
}

TEST(Rules, Sensitivity) {
  EXPECT_DOUBLE_EQ(sensitivity({2.0, 2.0, 2.0}), 0);
  EXPECT_DOUBLE_EQ(sensitivity({2.0, 3.0, 5.5}), 1.5);
}

TEST(Placement, what_learns_little_is_not_stable_for_that) {
  const Interval above = {1, 0.5, 1.5}, below = {-1, -1.5, -0.5}, across = {0, -1, 1};
  EXPECT_EQ(more_stable(above, above, 0.02), Verdict::kHolds);
  EXPECT_EQ(more_stable(below, {0, -0.01, 0.01}, 0.02), Verdict::kRefuted);
  EXPECT_EQ(more_stable(below, {0, -0.01, 0.03}, 0.02), Verdict::kNotSettled);
  EXPECT_EQ(more_stable(below, above, 0.02), Verdict::kNotSettled);
  EXPECT_EQ(more_stable(across, below, 0.02), Verdict::kNotSettled);
}

TEST(Numbers, AmdahlAndSaving) {
  EXPECT_DOUBLE_EQ(amdahl(0.2, 0.5), 0.9);
  const Interval saved = saving({0.9, 0.8, 0.95});
  EXPECT_DOUBLE_EQ(saved.low, 1 - 0.95);
  EXPECT_DOUBLE_EQ(saved.high, 1 - 0.8);
}

TEST(Numbers, StepsToALoss) {
  lab::Run run;
  run.losses = {5, 4, 3, 2, 1};
  EXPECT_EQ(steps_to(run, 3.0, 1), 3);
  EXPECT_EQ(steps_to(run, 3.0, 3), 4);  // (4 + 3 + 2) / 3
  EXPECT_TRUE(std::isnan(steps_to(run, 0.5, 1)));
}

TEST(Numbers, PairsStayTogether) {
  EXPECT_EQ(differences({3, 1, 2}, {2, 1, 4}), (std::vector<double>{1, 0, -2}));
  EXPECT_EQ(ratios(std::vector<double>{3, 1, 2}, {2, 1, 4}), (std::vector<double>{1.5, 1, 0.5}));
}

TEST(Numbers, PairsThatAreNotFiniteAreLeftOut) {
  const double nan = std::nan("");
  EXPECT_DOUBLE_EQ(mean_difference({1, nan, 3}, {0, 0, 2}).estimate, 1);
  EXPECT_EQ(mean_difference({1, nan}, {0, 0}).high, kInfinity);
  EXPECT_NEAR(relative_mean({2, 2, 2}, {1, 1, 1}).estimate, 2, 1e-12);
}

TEST(Numbers, IntervalsShowTheDecimalsOfTheirWidth) {
  EXPECT_EQ(text(Interval{1.04, 1.01, 1.07}), "1.04 [1.01, 1.07]");
  EXPECT_EQ(text(Interval{2e-8, -1e-8, 5e-8}), "2.0e-08 [-1.0e-08, 5.0e-08]");
  EXPECT_EQ(text(Interval{0, 0, 0}), "0.000 [0.000, 0.000]");
  EXPECT_EQ(percent(Interval{0.095, 0.081, 0.109}), "9.5 [8.1, 10.9] %");
  EXPECT_EQ(bytes(1536), "1.50 KiB");
}

// Three starts of three rounds, whose first one is slow: it moves neither a start's number nor the interval.
TEST(Numbers, EachStartGivesOneNumber) {
  const auto start = [](double ratio) {
    return nlohmann::json{{"x", {{"a", {100 * ratio, 5 * ratio, 2 * ratio}}, {"b", {10, 5, 2}}}}};
  };
  const std::vector<nlohmann::json> pieces = {start(0.5), start(4), start(2)};
  const Starts a = of_starts(pieces, "/x/a"), b = of_starts(pieces, "/x/b");
  const Interval found = relative(a, b);
  EXPECT_EQ(found.estimate, 2);
  EXPECT_EQ(found.low, 0.5);
  EXPECT_EQ(found.high, 4);
  EXPECT_EQ(median(a), 10);  // of 2.5, 20 and 10
  EXPECT_EQ(relative(ratios(a, b), ratios(b, a)).estimate, 4);
  EXPECT_THROW(ratios(a, Starts{{1}}), std::invalid_argument);
  EXPECT_THROW(of_starts(pieces, "/x/c"), nlohmann::json::exception);
}

TEST(AllocationMeter, CountsWhatLivesAndThePeak) {
  AllocationMeter meter;
  {
    const torch::Tensor a = torch::empty({1024}, torch::kFloat);
    EXPECT_EQ(meter.live(), 4096);
    const torch::Tensor b = torch::empty({1024}, torch::kFloat);
    EXPECT_EQ(meter.live(), 8192);
  }
  EXPECT_EQ(meter.live(), 0);
  EXPECT_EQ(meter.peak(), 8192);
  meter.reset_peak();
  EXPECT_EQ(meter.peak(), 0);
}

// Both ways of a norm's time: the scope around its forward code, and the nodes that it made.
TEST(NormProfile, SeesForwardAndBackwardOfNormsOnly) {
  for (const NormCode code : {NormCode::kFused, NormCode::kEager, NormCode::kNative}) {
    Norm norm(NormOptions{.code = code}, 64);
    const torch::Tensor x = torch::randn({32, 64}).set_requires_grad(true);
    NormProfile profile;
    (x * 2).sum().backward();
    EXPECT_EQ(profile.calls(), 0);
    EXPECT_EQ(profile.seconds(), 0);
    norm->forward(x * 2).sum().backward();
    EXPECT_EQ(profile.calls(), 1);
    EXPECT_GT(profile.forward_seconds(), 0);
    EXPECT_GT(profile.backward_seconds(), 0);
  }
}

}  // namespace
}  // namespace rmsnorm::lab
