#include "support/covering.h"

#include <cstddef>
#include <cstdint>

#include "reference/values.h"

namespace rmsnorm::test {

namespace {

constexpr int kUnset = -1;

// Which pairs of levels have not met yet.
class Pairs {
 public:
  explicit Pairs(const std::vector<int>& levels) : levels_(levels), open_(levels.size() * levels.size()) {
    for (std::size_t f = 0; f < levels.size(); ++f) {
      for (std::size_t g = f + 1; g < levels.size(); ++g) {
        table(f, g).assign(static_cast<std::size_t>(levels[f] * levels[g]), true);
      }
    }
  }

  bool open(std::size_t f, int a, std::size_t g, int b) { return f < g ? cell(f, a, g, b) : cell(g, b, f, a); }

  void close(const std::vector<int>& row) {
    for (std::size_t f = 0; f < row.size(); ++f) {
      for (std::size_t g = f + 1; g < row.size(); ++g) cell(f, row[f], g, row[g]) = false;
    }
  }

  // Sets two levels of an empty row to a pair that has not met; false when all have.
  bool begin(std::vector<int>& row) {
    for (std::size_t f = 0; f < levels_.size(); ++f) {
      for (std::size_t g = f + 1; g < levels_.size(); ++g) {
        std::vector<bool>& pairs = table(f, g);
        for (std::size_t k = 0; k < pairs.size(); ++k) {
          if (!pairs[k]) continue;
          row[f] = static_cast<int>(k) / levels_[g];
          row[g] = static_cast<int>(k) % levels_[g];
          return true;
        }
      }
    }
    return false;
  }

 private:
  std::vector<bool>& table(std::size_t f, std::size_t g) { return open_[f * levels_.size() + g]; }
  std::vector<bool>::reference cell(std::size_t f, int a, std::size_t g, int b) {
    return table(f, g)[static_cast<std::size_t>(a * levels_[g] + b)];
  }

  std::vector<int> levels_;
  std::vector<std::vector<bool>> open_;
};

}  // namespace

std::vector<std::vector<int>> pairwise(const std::vector<int>& levels) {
  Pairs pairs(levels);
  std::vector<std::vector<int>> rows;
  for (;;) {
    std::vector<int> row(levels.size(), kUnset);
    if (!pairs.begin(row)) return rows;
    for (std::size_t f = 0; f < levels.size(); ++f) {
      if (row[f] != kUnset) continue;
      const std::uint64_t count = static_cast<std::uint64_t>(levels[f]);
      const std::uint64_t first = reference::scatter(rows.size() * levels.size() + f) % count;  // among equal gains
      int best = 0, best_gain = -1;
      for (int step = 0; step < levels[f]; ++step) {
        const int level = static_cast<int>((first + static_cast<std::uint64_t>(step)) % count);
        int gain = 0;
        for (std::size_t g = 0; g < levels.size(); ++g) gain += row[g] != kUnset && pairs.open(f, level, g, row[g]);
        if (gain > best_gain) {
          best = level;
          best_gain = gain;
        }
      }
      row[f] = best;
    }
    pairs.close(row);
    rows.push_back(row);
  }
}

}  // namespace rmsnorm::test
