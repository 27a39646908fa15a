// Intervals and tests. All are for few, paired numbers.
#ifndef RMSNORM_LAB_STATISTICS_STATISTICS_H_
#define RMSNORM_LAB_STATISTICS_STATISTICS_H_

#include <cstdint>
#include <vector>

namespace rmsnorm::lab {

struct Interval {
  double estimate;
  double low, high;
};

double mean(const std::vector<double>& values);
double median(std::vector<double> values);
double deviation(const std::vector<double>& values);  // n - 1

// The quantile of Student's t: P(T <= t) = p.
double student_t_quantile(double p, double degrees);

// 95 % interval of the mean of paired differences: Student's t below 20 pairs, a bootstrap from there on.
Interval mean_interval(const std::vector<double>& differences);
inline constexpr std::size_t kBootstrapFrom = 20;
Interval bootstrap_interval(const std::vector<double>& values, std::uint64_t seed = 1);

// 95 % interval of a median, from order statistics (binomial); for times.
Interval median_interval(std::vector<double> values);

// Two one-sided tests at 5 %: "equal" when the 90 % t interval of the differences lies inside (-margin, margin).
enum class Equivalence {
  kEqual,
  kDifferent,
  kNotSettled
};  // kDifferent: the 95 % interval excludes zero and 90 % the margin's inside
Equivalence equivalence(const std::vector<double>& differences, double margin);

}  // namespace rmsnorm::lab

#endif  // RMSNORM_LAB_STATISTICS_STATISTICS_H_
