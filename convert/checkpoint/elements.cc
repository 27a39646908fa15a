#include "convert/checkpoint/elements.h"

#include <algorithm>
#include <cmath>

#include "convert/checkpoint/blocks.h"

namespace rmsnorm::convert::checkpoint {

namespace {

constexpr double kElementLost = 0x1p-48;  // what sums in f64 and long double may lose of their largest terms

// What one rounding to the stored value may have changed: half a unit in its last place.
double half_ulp(const Precision& precision, double value) {
  if (value == 0) return precision.tiny;
  return std::max(std::ldexp(precision.unit, std::ilogb(value)), precision.tiny);
}

// A run of outputs, row by row or element by element: its mean, then what each value may be off by.
struct Lane {
  long double sum = 0;
  double most = 0;
  double carried = 0;  // what the values before lost, with --carry-rounding
  double steps = 0;
  void add(double value) {
    sum += value;
    most = std::max(most, std::fabs(value));
  }
};

class Elements {
 public:
  Elements(const Comparison& c, const StoredTensor& stored, Worst& worst)
      : c_(c), precision_(precision(*stored.row_type())), name_(stored.name), worst_(worst) {}

  // `lane`: of the run that the value is centred in; null: it is not.
  void take(double wanted, double got, double scale, double lost, std::int64_t count, Lane* lane) {
    double bound = std::fabs(scale) * half_ulp(precision_, got) + lost;
    if (lane != nullptr) {
      wanted = static_cast<double>(wanted - lane->sum / static_cast<long double>(count));
      lane->steps = c_.carried ? lane->steps + 1 : 1;  // what was lost in each step adds up
      bound += kElementLost * lane->most * lane->steps;
      if (c_.carried) {
        wanted += lane->carried;
        lane->carried = wanted - scale * got;
      }
    }
    worst_.take(std::fabs(scale * got - wanted), bound + kElementLost * std::fabs(wanted), name_);
  }

 private:
  const Comparison& c_;
  Precision precision_;
  const std::string& name_;
  Worst& worst_;
};

std::vector<double> values_or(const StoredTensor* tensor, std::size_t size, double otherwise) {
  return tensor != nullptr ? read_values(*tensor) : std::vector<double>(size, otherwise);
}

// Index of the range that holds the output; -1: none.
std::vector<int> range_of_outputs(const std::vector<Range>& ranges, std::int64_t outputs) {
  std::vector<int> result(static_cast<std::size_t>(outputs), -1);
  for (std::size_t r = 0; r < ranges.size(); ++r) {
    for (std::int64_t o = ranges[r].begin; o < ranges[r].end; ++o) {
      result[static_cast<std::size_t>(o)] = static_cast<int>(r);
    }
  }
  return result;
}

bool inside(const Range& range, std::size_t at) {
  const auto index = static_cast<std::int64_t>(at);
  return index >= range.begin && index < range.end;
}

}  // namespace

void compare_weights(const Comparison& c, const Folding* folding, Worst& worst) {
  const Matrix& m = c.original.matrix;
  const std::size_t cols = static_cast<std::size_t>(m.cols);
  const std::vector<double> scale = values_or(c.original.scale, static_cast<std::size_t>(m.outputs()), 1);
  const std::vector<double> new_scale = values_or(c.converted.scale, static_cast<std::size_t>(m.outputs()), 1);
  const std::vector<int> run = range_of_outputs(c.centred, m.outputs());
  // W diag(factor), scaled.
  const auto wanted_at = [&](double weight, std::size_t row, std::size_t col) {
    const std::size_t output = m.out_rows ? row : col;
    const std::size_t input = m.out_rows ? col : row;
    if (folding != nullptr && inside(folding->outputs, output)) weight *= folding->factor[input];
    return weight * scale[output];
  };
  Elements elements(c, *c.converted.weight, worst);
  Blocks before(*c.original.weight, m.cols, c.memory / 4);
  Blocks after(*c.converted.weight, m.cols, c.memory / 4);
  const std::int64_t step = std::min(before.rows(), after.rows());
  for (std::int64_t b = 0; b < m.batch; ++b) {
    // Outputs in rows: a lane for each range and column. Outputs in columns: one for each range, new in each row.
    std::vector<Lane> lanes(c.centred.size() * (m.out_rows ? cols : 1));
    if (m.out_rows) {
      for (std::size_t r = 0; r < c.centred.size(); ++r) {
        before.for_rows(b * m.rows + c.centred[r].begin, b * m.rows + c.centred[r].end,
                        [&](std::int64_t at, std::span<const double> row) {
                          const std::size_t output = static_cast<std::size_t>(at - b * m.rows);
                          for (std::size_t i = 0; i < cols; ++i) {
                            lanes[r * cols + i].add(wanted_at(row[i], output, i));
                          }
                        });
      }
    }
    for (std::int64_t at = 0; at < m.rows; at += step) {
      const std::int64_t to = std::min(m.rows, at + step);
      const std::span<double> old = before.block(b * m.rows + at, b * m.rows + to);
      const std::span<double> got = after.block(b * m.rows + at, b * m.rows + to);
      for (std::int64_t r = at; r < to; ++r) {
        const std::size_t row = static_cast<std::size_t>(r);
        const std::size_t start = static_cast<std::size_t>(r - at) * cols;
        if (!m.out_rows) {
          std::fill(lanes.begin(), lanes.end(), Lane{});
          for (std::size_t i = 0; i < cols; ++i) {
            if (run[i] >= 0) lanes[static_cast<std::size_t>(run[i])].add(wanted_at(old[start + i], row, i));
          }
        }
        for (std::size_t i = 0; i < cols; ++i) {
          const std::size_t output = m.out_rows ? row : i;
          const int range = run[output];
          const std::size_t lane = static_cast<std::size_t>(std::max(range, 0)) * (m.out_rows ? cols : 1);
          const std::int64_t count = range < 0 ? 1
                                               : c.centred[static_cast<std::size_t>(range)].end -
                                                     c.centred[static_cast<std::size_t>(range)].begin;
          elements.take(wanted_at(old[start + i], row, i), got[start + i], new_scale[output], 0, count,
                        range < 0 ? nullptr : &lanes[lane + (m.out_rows ? i : 0)]);
        }
      }
    }
  }
}

void compare_biases(const Comparison& c, const Folding* folding, Worst& worst) {
  const Matrix& m = c.original.matrix;
  const std::size_t outputs = static_cast<std::size_t>(m.outputs());
  const std::size_t size = outputs * static_cast<std::size_t>(m.batch);
  const std::vector<double> scale = values_or(c.original.scale, outputs, 1);
  const std::vector<double> new_scale = values_or(c.converted.scale, outputs, 1);
  std::vector<double> wanted = values_or(c.original.bias, size, 0);
  const std::vector<double> got = values_or(c.converted.bias, size, 0);
  std::vector<double> magnitude(size);
  for (std::size_t i = 0; i < size; ++i) magnitude[i] = std::fabs(wanted[i]);
  if (folding != nullptr) {
    Blocks weights(*c.original.weight, m.cols, c.memory / 2);
    weights.for_rows(0, m.batch * m.rows, [&](std::int64_t r, std::span<const double> row) {
      const std::size_t batch = static_cast<std::size_t>(r / m.rows);
      const std::size_t inner = static_cast<std::size_t>(r % m.rows);
      for (std::size_t i = 0; i < row.size(); ++i) {
        const std::size_t output = m.out_rows ? inner : i;
        if (!inside(folding->outputs, output)) continue;
        const std::size_t input = m.out_rows ? i : inner;
        const double weight = folding->sizes.empty() ? std::fabs(folding->shift[input]) : folding->sizes[input];
        wanted[batch * outputs + output] += row[i] * folding->shift[input];
        magnitude[batch * outputs + output] += std::fabs(row[i]) * weight;
      }
    });
  }
  const std::vector<int> run = range_of_outputs(c.centred, m.outputs());
  // A long sum of products loses more than a mean does.
  const double lost =
      kElementLost * static_cast<double>(folding != nullptr ? std::max<std::int64_t>(16, m.inputs()) / 16 : 1);
  Elements elements(c, c.converted.bias != nullptr ? *c.converted.bias : *c.converted.weight, worst);
  for (std::size_t b = 0; b < static_cast<std::size_t>(m.batch); ++b) {
    std::vector<Lane> lanes(c.centred.size());
    double most = 0;
    for (std::size_t o = 0; o < outputs; ++o) {
      wanted[b * outputs + o] *= scale[o];
      most = std::max(most, magnitude[b * outputs + o] * std::fabs(scale[o]));
      if (run[o] >= 0) lanes[static_cast<std::size_t>(run[o])].add(wanted[b * outputs + o]);
    }
    for (std::size_t o = 0; o < outputs; ++o) {
      const int range = run[o];
      const std::int64_t count =
          range < 0 ? 1
                    : c.centred[static_cast<std::size_t>(range)].end - c.centred[static_cast<std::size_t>(range)].begin;
      elements.take(wanted[b * outputs + o], got[b * outputs + o], new_scale[o], lost * most, count,
                    range < 0 ? nullptr : &lanes[static_cast<std::size_t>(range)]);
    }
  }
}

}  // namespace rmsnorm::convert::checkpoint
