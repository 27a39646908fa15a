#include "lab/statistics/statistics.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <stdexcept>
#include <string>

namespace rmsnorm::lab {

namespace {

constexpr double kConfidence = 0.95;
constexpr int kResamples = 10000;

void require_values(const std::vector<double>& values, std::size_t least, const char* what) {
  if (values.size() < least) {
    throw std::invalid_argument(std::string(what) + " has " + std::to_string(values.size()) +
                                " values; it must have at " + "least " + std::to_string(least));
  }
}

// The continued fraction of the incomplete beta function, by Lentz's method (DLMF 8.17.22).
double beta_fraction(double a, double b, double x) {
  constexpr double kTiny = 1e-300;
  constexpr int kMostTerms = 10000;
  const auto away_from_zero = [](double v) { return std::abs(v) < kTiny ? kTiny : v; };
  double c = 1;
  double d = 1 / away_from_zero(1 - (a + b) * x / (a + 1));
  double result = d;
  for (int m = 1; m < kMostTerms; ++m) {
    const double even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m));
    d = 1 / away_from_zero(1 + even * d);
    c = away_from_zero(1 + even / c);
    result *= c * d;
    const double odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1));
    d = 1 / away_from_zero(1 + odd * d);
    c = away_from_zero(1 + odd / c);
    result *= c * d;
    if (std::abs(c * d - 1) < 1e-15) break;
  }
  return result;
}

// I_x(a, b), the regularised incomplete beta function.
double incomplete_beta(double a, double b, double x) {
  if (x <= 0) return 0;
  if (x >= 1) return 1;
  const double front =
      std::exp(a * std::log(x) + b * std::log1p(-x) + std::lgamma(a + b) - std::lgamma(a) - std::lgamma(b));
  // The fraction converges fast on one side of the mean.
  return x < (a + 1) / (a + b + 2) ? front * beta_fraction(a, b, x) / a : 1 - front * beta_fraction(b, a, 1 - x) / b;
}

// P(T > t), t >= 0.
double student_t_tail(double t, double degrees) {
  return incomplete_beta(degrees / 2, 0.5, degrees / (degrees + t * t)) / 2;
}

Interval t_interval(const std::vector<double>& values, double confidence) {
  const double n = static_cast<double>(values.size());
  const double half = student_t_quantile((1 + confidence) / 2, n - 1) * deviation(values) / std::sqrt(n);
  const double center = mean(values);
  return {center, center - half, center + half};
}

// P(B <= k) of n fair coins.
double coins_at_most(int k, int n) {
  double sum = 0;
  for (int i = 0; i <= k; ++i) {
    sum += std::exp(std::lgamma(n + 1.0) - std::lgamma(i + 1.0) - std::lgamma(n - i + 1.0) - n * std::log(2.0));
  }
  return sum;
}

}  // namespace

double mean(const std::vector<double>& values) {
  require_values(values, 1, "mean: values");
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

double median(std::vector<double> values) {
  require_values(values, 1, "median: values");
  std::sort(values.begin(), values.end());
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

double deviation(const std::vector<double>& values) {
  require_values(values, 2, "deviation: values");
  const double center = mean(values);
  double squares = 0;
  for (const double value : values) squares += (value - center) * (value - center);
  return std::sqrt(squares / static_cast<double>(values.size() - 1));
}

double student_t_quantile(double p, double degrees) {
  if (!(p > 0 && p < 1)) throw std::invalid_argument("p is " + std::to_string(p) + "; it must lie between 0 and 1");
  if (!(degrees > 0)) throw std::invalid_argument("degrees is " + std::to_string(degrees) + "; it must be > 0");
  if (p < 0.5) return -student_t_quantile(1 - p, degrees);
  double low = 0, high = 1;
  while (student_t_tail(high, degrees) > 1 - p) {
    low = high;
    high *= 2;
  }
  for (int step = 0; step < 200 && low < high; ++step) {
    const double middle = low + (high - low) / 2;
    if (middle == low || middle == high) break;
    (student_t_tail(middle, degrees) > 1 - p ? low : high) = middle;
  }
  return low + (high - low) / 2;
}

Interval mean_interval(const std::vector<double>& differences) {
  require_values(differences, 2, "mean_interval: differences");
  return differences.size() < kBootstrapFrom ? t_interval(differences, kConfidence) : bootstrap_interval(differences);
}

Interval bootstrap_interval(const std::vector<double>& values, std::uint64_t seed) {
  require_values(values, 2, "bootstrap_interval: values");
  std::mt19937_64 random(seed);
  std::vector<double> means(kResamples);
  for (double& resampled : means) {
    double sum = 0;
    for (std::size_t i = 0; i < values.size(); ++i) sum += values[random() % values.size()];
    resampled = sum / static_cast<double>(values.size());
  }
  std::sort(means.begin(), means.end());
  const auto at = [&](double share) { return means[static_cast<std::size_t>(share * (kResamples - 1))]; };
  return {mean(values), at((1 - kConfidence) / 2), at((1 + kConfidence) / 2)};
}

Interval median_interval(std::vector<double> values) {
  require_values(values, 1, "median_interval: values");
  std::sort(values.begin(), values.end());
  const int n = static_cast<int>(values.size());
  int cut = 0;  // values left out at each end, as many as the confidence allows; all stay when there are few
  while (2 * (cut + 1) < n && coins_at_most(cut + 1, n) <= (1 - kConfidence) / 2) ++cut;
  return {median(values), values[static_cast<std::size_t>(cut)], values[static_cast<std::size_t>(n - 1 - cut)]};
}

Equivalence equivalence(const std::vector<double>& differences, double margin) {
  if (!(margin > 0)) throw std::invalid_argument("margin is " + std::to_string(margin) + "; it must be > 0");
  require_values(differences, 2, "equivalence: differences");
  constexpr double kTwoTimesOneSide = 0.90;
  const Interval narrow = t_interval(differences, kTwoTimesOneSide);
  if (-margin < narrow.low && narrow.high < margin) return Equivalence::kEqual;
  const Interval wide = mean_interval(differences);
  const bool nonzero = wide.low > 0 || wide.high < 0;
  const bool beyond = narrow.low >= margin || narrow.high <= -margin;
  return nonzero && beyond ? Equivalence::kDifferent : Equivalence::kNotSettled;
}

}  // namespace rmsnorm::lab
