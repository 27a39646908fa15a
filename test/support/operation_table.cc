#include "support/operation_table.h"

#include <algorithm>
#include <cstdio>
#include <fstream>

#include "support/accuracy_table.h"

namespace rmsnorm::test {

using check::Finding;
using check::Measured;
using check::Operation;
using check::Request;
using check::Tensors;
using reference::Unit;

namespace {

// Fewer say nothing about a distribution: a row's scale is off for all of its elements alike.
constexpr int kCasesOfMean = 10;

bool is_code(const Measured& m) { return m.limit.unit == Unit::kFromBoundary; }
bool counts_ulps(const Measured& m) { return !is_code(m) && m.limit.unit != Unit::kSumOfTerms; }

// Parts of a sum are small numbers; ulps have as many digits as in the tables of the forward norms.
std::string number(const Measured& m, double value) {
  if (m.limit.unit == Unit::kSumOfTerms) return check::brief(value);
  return format("%.3f", value);
}

std::string percent(double share) { return format("%.2f %%", 100 * share); }

}  // namespace

OperationTable& OperationTable::all() {
  static OperationTable table;
  return table;
}

std::size_t OperationTable::order_of(std::size_t op, const std::string& name) {
  std::vector<std::string>& names = names_[op];
  const auto found = std::find(names.begin(), names.end(), name);
  if (found != names.end()) return static_cast<std::size_t>(found - names.begin());
  names.push_back(name);
  return names.size() - 1;
}

void OperationTable::add(const Operation& op, const Request& request, const Tensors& tensors, const Finding& finding) {
  const auto list = check::operations();
  const auto index = static_cast<std::size_t>(std::find(list.begin(), list.end(), &op) - list.begin());
  std::map<std::string, Measured> ulps;
  for (const Measured& m : finding.measured) {
    const std::string name(m.name);
    const Output output = {index, request.x, order_of(index, name), name, tensors[m.name].slot.type};
    Entry& entry = rows_[output];
    entry.limits.try_emplace(check::in_words(m.limit), Measured{m.name, m.limit}).first->second.merge(m);
    const bool rows = tensors[m.name].cols() == tensors[op.x_name()].cols();  // and not one number for each
    if (!counts_ulps(m) || !rows) continue;
    Measured& all_limits = ulps[name];
    entry.means[request.values].cases += all_limits.elements == 0;
    const double before = all_limits.mean();
    all_limits.merge(m);
    entry.means[request.values].sum_of_means += all_limits.mean() - before;
  }
}

void OperationTable::merge(const OperationTable& other) {
  for (const auto& [theirs, entry] : other.rows_) {
    Output output = theirs;
    output.order = order_of(output.op, output.name);
    Entry& mine = rows_[output];
    for (const auto& [words, m] : entry.limits)
      mine.limits.try_emplace(words, Measured{m.name, m.limit}).first->second.merge(m);
    for (const auto& [values, mean] : entry.means) {
      mine.means[values].cases += mean.cases;
      mine.means[values].sum_of_means += mean.sum_of_means;
    }
  }
}

std::string OperationTable::types(const Output& output) {
  const std::string x = rn_type_name(output.x), own = rn_type_name(output.type);
  return x == own ? x : x + " -> " + own;
}

std::string OperationTable::label(const Output& output) {
  return std::string(check::operations()[output.op]->name()) + " " + types(output) + ", " + output.name;
}

double OperationTable::Entry::worst_mean() const {
  double worst = 0;
  for (const auto& [values, mean] : means) {
    if (mean.cases >= kCasesOfMean) worst = std::max(worst, mean.value());
  }
  return worst;
}

std::vector<std::string> OperationTable::means_beyond(double limit) const {
  std::vector<std::string> lines;
  for (const auto& [output, entry] : rows_) {
    for (const auto& [values, mean] : entry.means) {
      if (mean.value() <= limit || mean.cases < kCasesOfMean) continue;
      lines.push_back(label(output) + ", " + std::string(reference::name_of(values)) + ": mean error " +
                      format("%.3f ulp, allowed ", mean.value()) + format("%g", limit));
    }
  }
  return lines;
}

void OperationTable::print() const {
  std::printf("%-58s %9s %8s %8s %7s  %s\n", "operation and output", "elements", "max", "mean", "exact", "limit");
  for (const auto& [output, entry] : rows_) {
    for (const auto& [words, m] : entry.limits) {
      std::printf("%-58s %9lld %8s %8s %6.1f%%  %s\n", label(output).c_str(), static_cast<long long>(m.elements),
                  number(m, m.worst).c_str(), number(m, m.mean()).c_str(), 100 * m.exact_share(), words.c_str());
    }
  }
}

// Of each output the largest error and its limit, beside each type of x: where x and the output are of one type, if there
// is such a case.
void OperationTable::write_largest(std::ostream& file) const {
  constexpr rn_type kTypes[] = {RN_F32, RN_F16, RN_BF16, RN_F64};
  struct Cell {
    bool own_type = false;
    Measured largest;
  };
  std::map<std::pair<std::size_t, std::size_t>, std::map<rn_type, Cell>> lines;
  for (const auto& [output, entry] : rows_) {
    for (const auto& [words, m] : entry.limits) {
      if (is_code(m)) continue;
      Cell& cell = lines[{output.op, output.order}][output.x];
      const bool own = output.x == output.type;
      const bool better = cell.largest.elements == 0 || own > cell.own_type || m.worst > cell.largest.worst;
      if (own >= cell.own_type && better) cell = {own, m};
    }
  }
  file << "| operation, output | f32 | f16 | bf16 | f64 |\n|---|--:|--:|--:|--:|\n";
  for (const auto& [key, cells] : lines) {
    const auto& [op, order] = key;
    file << "| " << check::operations()[op]->name() << ", " << names_.at(op)[order] << " |";
    for (const rn_type x : kTypes) {
      const auto cell = cells.find(x);
      if (cell == cells.end()) {
        file << " |";
        continue;
      }
      const Measured& m = cell->second.largest;
      const bool reference = m.limit.unit == Unit::kReference && m.worst <= m.limit.ulps;
      file << " " << (reference ? "equal" : number(m, m.worst) + " of " + check::brief(m.limit.ulps)) << " |";
    }
    file << "\n";
  }
}

bool OperationTable::write_markdown(const std::string& path) const {
  std::ofstream file(path);
  write_largest(file);
  file
      << "\n| operation, types, output | limit (ulp) | max | mean | worst mean of a distribution | correctly rounded | "
         "elements |\n|---|---|--:|--:|--:|--:|--:|\n";
  for (const auto& [output, entry] : rows_) {
    for (const auto& [words, m] : entry.limits) {
      if (is_code(m)) continue;
      file << "| " << label(output) << " | " << words << " | " << number(m, m.worst) << " | " << number(m, m.mean())
           << " | " << (entry.worst_mean() > 0 ? format("%.3f", entry.worst_mean()) : "") << " | "
           << percent(m.exact_share()) << " | " << m.elements << " |\n";
    }
  }
  file << "\n| operation, types | equal to the reference's code | its neighbour next to a boundary | furthest from the "
          "boundary (f32 ulp) | elements |\n|---|--:|--:|--:|--:|\n";
  for (const auto& [output, entry] : rows_) {
    for (const auto& [words, m] : entry.limits) {
      if (!is_code(m)) continue;
      file << "| " << check::operations()[output.op]->name() << " " << types(output) << " | "
           << format("%.4f %%", 100 * m.exact_share()) << " | " << m.elements - m.exact << " | "
           << format("%.3f", m.worst) << " | " << m.elements << " |\n";
    }
  }
  return file.good();
}

}  // namespace rmsnorm::test
