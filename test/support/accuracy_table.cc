#include "support/accuracy_table.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>

#include "check/finding.h"

namespace rmsnorm::test {

using check::Case;
using check::Report;

namespace {

constexpr int kCasesOfMean = 20;  // fewer say nothing about a distribution

}  // namespace

std::string format(const char* pattern, double value) {
  char text[40];
  std::snprintf(text, sizeof text, pattern, value);
  return text;
}

int run_and_write(int argc, char** argv, const std::function<bool(const std::string& path)>& write_markdown) {
  testing::InitGoogleTest(&argc, argv);
  std::string markdown;
  constexpr std::string_view kFlag = "--markdown=";
  for (int i = 1; i < argc; ++i) {
    if (std::string_view(argv[i]).substr(0, kFlag.size()) == kFlag) markdown = argv[i] + kFlag.size();
  }
  const int status = RUN_ALL_TESTS();
  if (!markdown.empty() && !write_markdown(markdown)) return 1;
  return status;
}

AccuracyTable& AccuracyTable::all() {
  static AccuracyTable table;
  return table;
}

AccuracyTable::Key AccuracyTable::key_of(const Case& c) {
  std::string mode = "once";
  if (is_rms(c.op)) mode = check::kRoundingNames[c.rounding];
  if (c.op == check::Op::kCenter) mode = "";
  if (is_rms(c.op) && c.rounding == RN_ROUND_ONCE && c.weight_offset != 0) mode += " offset";
  if (c.bias) mode += " bias";
  return {c.op, c.x, c.out, mode};
}

void AccuracyTable::add(const Case& c, const Report& report) {
  Entry& entry = rows_[key_of(c)][c.values];
  ++entry.cases;
  entry.sum_of_means += report.mean_ulp();
  entry.report.merge(report);
}

void AccuracyTable::merge(const AccuracyTable& other) {
  for (const auto& [key, rows] : other.rows_) {
    for (const auto& [values, entry] : rows) {
      Entry& mine = rows_[key][values];
      mine.cases += entry.cases;
      mine.sum_of_means += entry.sum_of_means;
      mine.report.merge(entry.report);
    }
  }
}

std::string AccuracyTable::label(const Key& key) {
  std::string text = std::string(check::name_of(key.op)) + " " + rn_type_name(key.x);
  if (key.out != key.x) text += std::string(" -> ") + rn_type_name(key.out);
  return key.mode.empty() ? text : text + ", " + key.mode;
}

AccuracyTable::Entry AccuracyTable::total(const std::map<reference::Values, Entry>& rows) {
  Entry sum;
  for (const auto& [values, entry] : rows) {
    sum.cases += entry.cases;
    sum.report.merge(entry.report);
  }
  return sum;
}

std::vector<std::string> AccuracyTable::means_beyond(double limit) const {
  std::map<std::pair<Key, reference::Values>, Entry> all_modes;
  for (const auto& [key, rows] : rows_) {
    for (const auto& [values, entry] : rows) {
      Entry& sum = all_modes[{{key.op, key.x, key.out, "any mode"}, values}];
      sum.cases += entry.cases;
      sum.sum_of_means += entry.sum_of_means;
    }
  }
  std::vector<std::string> lines;
  for (const auto& [of, entry] : all_modes) {
    const double mean = entry.sum_of_means / entry.cases;
    if (mean <= limit || entry.cases < kCasesOfMean) continue;
    lines.push_back(label(of.first) + ", " + std::string(reference::name_of(of.second)) + ": mean error " +
                    format("%.3f ulp, allowed ", mean) + format("%g", limit));
  }
  return lines;
}

void AccuracyTable::print() const {
  std::printf("%-46s %-12s %6s %9s %8s %7s %7s %7s\n", "operation", "values", "cases", "elements", "max ulp", "mean",
              "exact", "budget");
  for (const auto& [key, rows] : rows_) {
    for (const auto& [values, entry] : rows) {
      const Report& r = entry.report;
      if (r.elements == 0) continue;
      std::printf("%-46s %-12s %6d %9lld %8.4f %7.4f %6.1f%% %7.3g\n", label(key).c_str(),
                  std::string(reference::name_of(values)).c_str(), entry.cases, static_cast<long long>(r.elements),
                  r.max_ulp, r.mean_ulp(), 100 * r.exact_share(), r.budget.ulps);
    }
  }
}

bool AccuracyTable::write_markdown(const std::string& path) const {
  std::ofstream file(path);
  file << "| operation, types, mode | budget (ulp) | max | mean | correctly rounded | elements |\n"
          "|---|---|---|---|---|---|\n";
  for (const auto& [key, rows] : rows_) {
    const Report r = total(rows).report;
    file << "| " << label(key) << " | " << check::in_words(r.budget) << " | " << format("%.3f", r.max_ulp) << " | "
         << format("%.3f", r.mean_ulp()) << " | " << format("%.2f %%", 100 * r.exact_share()) << " | " << r.elements
         << " |\n";
  }
  file << "\n| operation and type | values | max ulp | mean ulp | correctly rounded |\n|---|---|---|---|---|\n";
  for (const auto& [key, rows] : rows_) {
    if (key.out != key.x || (key.mode != "once" && !key.mode.empty())) continue;
    for (const auto& [values, entry] : rows) {
      const Report& r = entry.report;
      if (r.elements == 0) continue;
      file << "| " << check::name_of(key.op) << " " << rn_type_name(key.x) << " | " << reference::name_of(values)
           << " | " << format("%.3f", r.max_ulp) << " | " << format("%.3f", r.mean_ulp()) << " | "
           << format("%.2f %%", 100 * r.exact_share()) << " |\n";
    }
  }
  return file.good();
}

}  // namespace rmsnorm::test
