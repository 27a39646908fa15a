#include "convert/checkpoint/compare.h"

#include <cmath>
#include <cstring>

#include "convert/checkpoint/apply.h"
#include "convert/checkpoint/blocks.h"

namespace rmsnorm::convert::checkpoint {

namespace {

// f64 itself is not exact: a long sum may lose this much of its magnitudes.
constexpr double kLost = 0x1p-44;

// What a linear map gives for each vector, and the sum of magnitudes that went into it.
struct Result {
  std::vector<double> value;      // [vector][output]
  std::vector<double> magnitude;  // without the bias
};

Result multiply(const Linear& linear, std::int64_t batch, const Range& outputs, const Vectors& x, std::size_t memory) {
  const Matrix& m = linear.matrix;
  const std::size_t count = static_cast<std::size_t>(outputs.end - outputs.begin);
  Result result{std::vector<double>(count * x.size(), 0.0), std::vector<double>(count * x.size(), 0.0)};
  Blocks blocks(*linear.weight, m.cols, memory);
  if (m.out_rows) {
    const std::int64_t first = batch * m.rows + outputs.begin;
    blocks.for_rows(first, batch * m.rows + outputs.end, [&](std::int64_t r, std::span<const double> row) {
      for (std::size_t k = 0; k < x.size(); ++k) {
        double value = 0;
        double magnitude = 0;
        for (std::size_t i = 0; i < row.size(); ++i) {
          const double product = row[i] * x[k][i];
          value += product;
          magnitude += std::fabs(product);
        }
        result.value[k * count + static_cast<std::size_t>(r - first)] = value;
        result.magnitude[k * count + static_cast<std::size_t>(r - first)] = magnitude;
      }
    });
    return result;
  }
  blocks.for_rows(batch * m.rows, (batch + 1) * m.rows, [&](std::int64_t r, std::span<const double> row) {
    const std::size_t input = static_cast<std::size_t>(r - batch * m.rows);
    for (std::size_t k = 0; k < x.size(); ++k) {
      for (std::size_t o = 0; o < count; ++o) {
        const double product = row[o + static_cast<std::size_t>(outputs.begin)] * x[k][input];
        result.value[k * count + o] += product;
        result.magnitude[k * count + o] += std::fabs(product);
      }
    }
  });
  return result;
}

std::vector<double> vector_of(const StoredTensor* tensor) {
  return tensor == nullptr ? std::vector<double>() : read_values(*tensor);
}

// Subtracts the mean of each range that lies inside the outputs.
void centre(std::span<double> values, const Range& outputs, const std::vector<Range>& ranges) {
  for (const Range& range : ranges) {
    if (range.begin < outputs.begin || range.end > outputs.end) continue;
    double sum = 0;
    for (std::int64_t o = range.begin; o < range.end; ++o) sum += values[static_cast<std::size_t>(o - outputs.begin)];
    const double mean = sum / static_cast<double>(range.end - range.begin);
    for (std::int64_t o = range.begin; o < range.end; ++o) values[static_cast<std::size_t>(o - outputs.begin)] -= mean;
  }
}

double sum_of_magnitudes(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += std::fabs(value);
  return sum;
}

double largest(const std::vector<double>& values) {
  double most = 0;
  for (const double value : values) most = std::max(most, std::fabs(value));
  return most;
}

// LayerNorm by its definition.
void normalise(const NormSite& norm, const std::vector<double>& gain, const std::vector<double>& bias,
               std::span<double> row) {
  long double mean = 0, square = 0;
  const auto count = static_cast<long double>(row.size());
  for (const double value : row) mean += value / count;
  for (const double value : row) square += (value - mean) * (value - mean) / count;
  const long double scale = 1 / std::sqrt(square + static_cast<long double>(norm.epsilon));
  for (std::size_t i = 0; i < row.size(); ++i) {
    row[i] = static_cast<double>((row[i] - mean) * scale * gain[i] + (bias.empty() ? 0 : bias[i]));
  }
}

void compare_outputs(const Comparison& c, std::int64_t batch, const Range& outputs, const Vectors& x,
                     const Vectors& converted_x, Worst& worst) {
  Result before = multiply(c.original, batch, outputs, x, c.memory);
  const Result after = multiply(c.converted, batch, outputs, converted_x, c.memory);
  const std::size_t count = static_cast<std::size_t>(outputs.end - outputs.begin);
  const std::vector<double> bias = vector_of(c.original.bias);
  const std::vector<double> new_bias = vector_of(c.converted.bias);
  const std::vector<double> scale = vector_of(c.original.scale);
  const std::vector<double> new_scale = vector_of(c.converted.scale);
  const Precision unit = precision(*c.converted.weight->row_type());
  const Precision bias_unit = c.converted.bias ? precision(*c.converted.bias->row_type()) : unit;
  const std::size_t first = static_cast<std::size_t>(batch * c.original.matrix.outputs() + outputs.begin);
  for (std::size_t k = 0; k < x.size(); ++k) {
    const std::span<double> wanted(before.value.data() + k * count, count);
    std::vector<double> magnitude(before.magnitude.begin() + static_cast<std::ptrdiff_t>(k * count),
                                  before.magnitude.begin() + static_cast<std::ptrdiff_t>((k + 1) * count));
    for (std::size_t o = 0; o < count; ++o) {
      if (!bias.empty()) wanted[o] += bias[first + o];
      if (!bias.empty()) magnitude[o] += std::fabs(bias[first + o]);
      const double l = scale.empty() ? 1 : scale[static_cast<std::size_t>(outputs.begin) + o];
      wanted[o] *= l;
      magnitude[o] *= std::fabs(l);
    }
    const double lost = kLost * largest(magnitude);  // centring spreads what one output lost over all
    centre(wanted, outputs, c.centred);
    const double inputs = sum_of_magnitudes(converted_x[k]);
    for (std::size_t o = 0; o < count; ++o) {
      const double b = new_bias.empty() ? 0 : new_bias[first + o];
      const double l = new_scale.empty() ? 1 : new_scale[static_cast<std::size_t>(outputs.begin) + o];
      const double got = l * (after.value[k * count + o] + b);
      const double before_it = c.carried && o > 0 ? after.magnitude[k * count + o - 1] : 0;
      const double bias_before_it = c.carried && o > 0 && !new_bias.empty() ? std::fabs(new_bias[first + o - 1]) : 0;
      const double steps = c.carried ? 2 : 1;
      const double rounding = unit.unit * (after.magnitude[k * count + o] + before_it) + steps * unit.tiny * inputs +
                              bias_unit.unit * (std::fabs(b) + bias_before_it) + steps * bias_unit.tiny;
      const double bound = std::fabs(l) * (rounding + kLost * (after.magnitude[k * count + o] + std::fabs(b))) + lost;
      worst.take(std::fabs(got - wanted[o]), bound, c.converted.weight->name);
    }
  }
}

}  // namespace

void Worst::take(double difference, double bound, const std::string& place) {
  const double now = difference == 0 ? 0 : difference / bound;
  if (now <= ratio) return;
  ratio = std::isnan(now) ? std::numeric_limits<double>::infinity() : now;
  where = place;
}

void compare_linear(const Comparison& c, const Vectors& x, const Vectors& converted_x, Worst& worst) {
  // Outputs that are centred together are held together; others in runs that bound the memory.
  const std::int64_t per_output = static_cast<std::int64_t>(x.size() * 6 * sizeof(double));
  const std::int64_t run = c.centred.empty() && c.original.matrix.out_rows
                               ? std::max<std::int64_t>(1, static_cast<std::int64_t>(c.memory) / per_output)
                               : c.outputs.end - c.outputs.begin;
  for (std::int64_t b = 0; b < c.original.matrix.batch; ++b) {
    for (std::int64_t o = c.outputs.begin; o < c.outputs.end; o += std::max<std::int64_t>(1, run)) {
      compare_outputs(c, b, {o, std::min(c.outputs.end, o + run)}, x, converted_x, worst);
    }
  }
}

void compare_table(const Comparison& c, Worst& worst) {
  const Matrix m = c.original.matrix;
  const Precision unit = precision(*c.converted.weight->row_type());
  const std::vector<double> scale = vector_of(c.original.scale);
  const std::vector<double> new_scale = vector_of(c.converted.scale);
  const std::vector<double> gain =
      c.row_norm != nullptr ? gains(*c.row_norm->weight, c.row_norm->site->gain) : std::vector<double>();
  const std::vector<double> bias = vector_of(c.row_norm != nullptr ? c.row_norm->bias : nullptr);
  Blocks before(*c.original.weight, m.cols, c.memory / 2);
  Blocks after(*c.converted.weight, m.cols, c.memory / 2);
  std::vector<bool> starts(static_cast<std::size_t>(m.cols), c.centred.empty());
  for (const Range& range : c.centred) starts[static_cast<std::size_t>(range.begin)] = true;
  const std::int64_t step = std::min(before.rows(), after.rows());
  for (std::int64_t at = 0; at < m.rows; at += step) {
    const std::int64_t to = std::min(m.rows, at + step);
    const std::span<double> wanted = before.block(at, to);
    const std::span<double> got = after.block(at, to);
    for (std::int64_t r = 0; r < to - at; ++r) {
      const auto row = wanted.subspan(static_cast<std::size_t>(r * m.cols), static_cast<std::size_t>(m.cols));
      if (c.row_norm != nullptr) normalise(*c.row_norm, gain, bias, row);
      if (!scale.empty()) {
        for (std::size_t i = 0; i < row.size(); ++i) row[i] *= scale[i];
      }
      double most = 0;
      for (const double value : row) most = std::max(most, std::fabs(value));
      centre(row, {0, m.cols}, c.centred);
      double carried = 0;
      for (std::size_t i = 0; i < row.size(); ++i) {
        const double l = new_scale.empty() ? 1 : new_scale[i];
        const double value = l * got[static_cast<std::size_t>(r * m.cols) + i];
        double lost = kLost * most;
        if (c.carried) {
          if (starts[i]) carried = 0;
          row[i] += carried;
          carried = row[i] - value;
          lost *= static_cast<double>(i + 1);  // of each step
        }
        const double bound = unit.unit * std::fabs(value) + std::fabs(l) * unit.tiny + lost;
        worst.take(std::fabs(value - row[i]), bound, c.converted.weight->name);
      }
    }
  }
}

void check_centred(const Linear& linear, const std::vector<Range>& ranges, std::size_t memory, Worst& worst) {
  constexpr double kUnits = 8;
  const Matrix& m = linear.matrix;
  const Precision unit = precision(*linear.weight->row_type());
  Blocks blocks(*linear.weight, m.cols, memory);
  // long double: a plain sum of f64 elements would lose more than the limit allows
  const auto judge = [&](long double sum, double squares, std::int64_t count) {
    const double n = static_cast<double>(count);
    worst.take(static_cast<double>(std::fabs(sum / n)), kUnits * unit.unit * std::sqrt(squares / n) + unit.tiny,
               linear.weight->name);
  };
  if (!m.out_rows) {
    blocks.for_rows(0, m.batch * m.rows, [&](std::int64_t, std::span<const double> row) {
      for (const Range& range : ranges) {
        long double sum = 0;
        double squares = 0;
        for (std::int64_t i = range.begin; i < range.end; ++i) {
          sum += row[static_cast<std::size_t>(i)];
          squares += row[static_cast<std::size_t>(i)] * row[static_cast<std::size_t>(i)];
        }
        judge(sum, squares, range.end - range.begin);
      }
    });
    return;
  }
  const std::size_t cols = static_cast<std::size_t>(m.cols);
  for (std::int64_t b = 0; b < m.batch; ++b) {
    for (const Range& range : ranges) {
      std::vector<long double> sums(cols, 0.0);
      std::vector<double> squares(cols, 0.0);
      blocks.for_rows(b * m.rows + range.begin, b * m.rows + range.end, [&](std::int64_t, std::span<const double> row) {
        for (std::size_t c = 0; c < cols; ++c) {
          sums[c] += row[c];
          squares[c] += row[c] * row[c];
        }
      });
      for (std::size_t c = 0; c < cols; ++c) judge(sums[c], squares[c], range.end - range.begin);
    }
  }
}

bool same_bytes(const StoredTensor& x, const StoredTensor& y, std::size_t memory) {
  if (x.dtype != y.dtype || x.shape != y.shape || x.bytes != y.bytes) return false;
  const std::uint64_t block = std::max<std::uint64_t>(memory / 2, 4096);
  tools::Buffer first(static_cast<std::size_t>(std::min(x.bytes, block)));
  tools::Buffer second(first.size());
  for (std::uint64_t at = 0; at < x.bytes; at += block) {
    const std::size_t size = static_cast<std::size_t>(std::min(block, x.bytes - at));
    read_bytes(x, at, first.bytes().first(size));
    read_bytes(y, at, second.bytes().first(size));
    if (std::memcmp(first.data(), second.data(), size) != 0) return false;
  }
  return true;
}

std::vector<double> random_vector(const std::string& name, int index, std::size_t size) {
  std::uint64_t state = 0xcbf29ce484222325u + static_cast<std::uint64_t>(index);
  for (const char c : name) state = (state ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  std::vector<double> values(size);
  for (double& value : values) {  // splitmix64
    state += 0x9e3779b97f4a7c15u;
    std::uint64_t z = state;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    z ^= z >> 31;
    constexpr double kMean = 0.5;
    value = static_cast<double>(z >> 11) * 0x1p-52 - 1 + kMean;
  }
  return values;
}

}  // namespace rmsnorm::convert::checkpoint
