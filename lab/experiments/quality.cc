#include "lab/experiments/quality.h"

#include <fmt/format.h>

#include "lab/experiments/support.h"

namespace rmsnorm::lab {

Verdict better(const std::vector<double>& differences, double margin) {
  const Interval interval = mean_interval(differences);
  if (interval.low > 0) return Verdict::kHolds;
  return interval.high < margin ? Verdict::kRefuted : Verdict::kNotSettled;
}

Verdict better_than_all(const std::vector<std::vector<double>>& differences, double margin) {
  bool all = !differences.empty();
  for (const auto& one : differences) {
    const Verdict verdict = better(one, margin);
    if (verdict == Verdict::kRefuted) return verdict;
    all = all && verdict == Verdict::kHolds;
  }
  return all ? Verdict::kHolds : Verdict::kNotSettled;
}

std::string points(const Interval& difference) {
  return fmt::format("{:.1f} [{:.1f}, {:.1f}] points", difference.estimate * 100, difference.low * 100,
                     difference.high * 100);
}

}  // namespace rmsnorm::lab
