#include "lab/experiments/quality.h"

#include <fmt/format.h>

#include <cmath>
#include <stdexcept>

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

std::size_t best_rate(const std::vector<double>& qualities) {
  std::size_t best = qualities.size();
  for (std::size_t i = 0; i < qualities.size(); ++i) {
    if (std::isfinite(qualities[i]) && (best == qualities.size() || qualities[i] > qualities[best])) best = i;
  }
  if (best == qualities.size()) throw std::runtime_error("no learning rate gives a training that ends");
  return best;
}

std::string points(const Interval& difference) {
  return fmt::format("{:.1f} [{:.1f}, {:.1f}] points", difference.estimate * 100, difference.low * 100,
                     difference.high * 100);
}

}  // namespace rmsnorm::lab
