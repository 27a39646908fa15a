#include "check/finding.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "check/case.h"

namespace rmsnorm::check {

using reference::Budget;
using reference::Unit;

std::string brief(double value) {
  char text[40];
  std::snprintf(text, sizeof text, "%.2g", value);
  std::string result = text;
  if (const std::size_t at = result.find("e-0"); at != std::string::npos) result.erase(at + 2, 1);
  return result;
}

std::string in_words(const Budget& limit) {
  const std::string number = brief(limit.ulps);
  switch (limit.unit) {
    case Unit::kResult:
    case Unit::kResultAndAddend:
      return number;
    case Unit::kLargestAddend:
      return number + " of the largest addend";
    case Unit::kRow:
      return number + " of the row's largest";
    case Unit::kLargestTerm:
      return number + " of the row's largest term";
    case Unit::kResultAndTerms:
      return number + ", and " + brief(limit.addend) + " of the sum of absolute terms";
    case Unit::kSumOfTerms:
      return number + " of the sum of absolute terms";
    case Unit::kFromBoundary:
      return number + " f32 ulp from the boundary";
    case Unit::kReference:
      break;
  }
  return "the reference's number";
}

void Measured::merge(const Measured& other) {
  worst = std::max(worst, other.worst);
  sum += other.sum;
  elements += other.elements;
  exact += other.exact;
}

void Finding::add(double error_here, const Budget& limit, bool nearest, std::string_view name, std::int64_t row,
                  std::int64_t col, double found, double expected) {
  ++elements;
  if (error_here <= limit.ulps && !std::isfinite(expected)) return;  // right, but not a matter of accuracy
  // Elements of one output come one after the other, so the last entry is the likely one.
  const auto same = [&](const Measured& m) { return m.name == name && m.limit == limit; };
  auto entry = std::find_if(measured.rbegin(), measured.rend(), same);
  if (entry == measured.rend()) {
    measured.push_back({name, limit});
    entry = measured.rbegin();
  }
  ++entry->elements;
  entry->exact += nearest;
  entry->sum += error_here;
  entry->worst = std::max(entry->worst, error_here);
  if (error_here <= limit.ulps || !error.empty()) return;
  error = std::string(name) + "[" + std::to_string(row) + "][" + std::to_string(col) + "] is " + shortest(found) +
          " instead of " + shortest(expected) + ": off by " + shortest(error_here) + "; the limit is " +
          in_words(limit);
}

Measured Finding::in_ulps() const {
  Measured all{"", {0, Unit::kResult}};
  for (const Measured& m : measured) {
    if (m.limit.unit == Unit::kSumOfTerms || m.limit.unit == Unit::kFromBoundary) continue;
    all.merge(m);
    all.limit.ulps = std::max(all.limit.ulps, m.limit.ulps);
  }
  return all;
}

}  // namespace rmsnorm::check
