#include "convert/checkpoint/apply.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "convert/checkpoint/blocks.h"
#include "convert/checkpoint/table.h"
#include "tools/formats/safetensors_dtype.h"

namespace rmsnorm::convert::checkpoint {

namespace {

// Sums in a fixed order, whatever the length of blocks: lane i takes every eighth value.
constexpr std::size_t kLanes = 8;

// Adds, and keeps what the rounding of the sum loses: means of f64 tensors are good to the last bits, too.
inline void add_exactly(double& total, double& lost, double value) {
  const double next = total + value;
  const double part = next - total;
  lost += (total - (next - part)) + (value - part);
  total = next;
}

double total_of(const std::array<double, kLanes>& lanes) {
  return ((lanes[0] + lanes[1]) + (lanes[2] + lanes[3])) + ((lanes[4] + lanes[5]) + (lanes[6] + lanes[7]));
}

double sum(std::span<const double> values) {
  std::array<double, kLanes> lanes{};
  std::array<double, kLanes> lost{};
  std::size_t i = 0;
  for (; i + kLanes <= values.size(); i += kLanes) {
    for (std::size_t l = 0; l < kLanes; ++l) add_exactly(lanes[l], lost[l], values[i + l]);
  }
  for (; i < values.size(); ++i) add_exactly(lanes[i % kLanes], lost[i % kLanes], values[i]);
  double total = 0;
  double rest = total_of(lost);
  for (const double lane : lanes) add_exactly(total, rest, lane);
  return total + rest;
}

double dot(std::span<const double> a, const double* b) {
  std::array<double, kLanes> lanes{};
  std::size_t i = 0;
  for (; i + kLanes <= a.size(); i += kLanes) {
    for (std::size_t l = 0; l < kLanes; ++l) lanes[l] += a[i + l] * b[i + l];
  }
  for (; i < a.size(); ++i) lanes[i % kLanes] += a[i] * b[i];
  return total_of(lanes);
}

std::vector<double> repeated(const std::vector<double>& values, int times) {
  std::vector<double> result;
  for (int i = 0; i < times; ++i) result.insert(result.end(), values.begin(), values.end());
  return result;
}

[[noreturn]] void refuse_not_finite(const std::string& name) {
  refuse(RefusalCode::kNonFinite, name, "it holds NaN or infinity; every value must be finite");
}

void check_finite(std::span<const double> values, const std::string& name) {
  double zero = 0;
  for (const double value : values) zero += value * 0;  // NaN for each value that is not finite
  if (zero != 0) refuse_not_finite(name);
}

// W b, added to a bias that is [batch, outputs].
void add_term(const BiasTerm& term, std::size_t memory, std::vector<double>& bias) {
  const std::vector<double> b = term_input(term, memory);
  const Matrix& m = term.matrix;
  Blocks blocks(*term.weight, m.cols, memory);
  blocks.for_rows(0, m.batch * m.rows, [&](std::int64_t r, std::span<const double> values) {
    check_finite(values, term.weight->name);
    const std::int64_t row = r % m.rows;
    double* out = bias.data() + r / m.rows * m.outputs();
    if (m.out_rows) {
      if (row >= term.outputs.begin && row < term.outputs.end) out[row] += dot(values, b.data());
    } else {
      for (std::int64_t o = term.outputs.begin; o < term.outputs.end; ++o) {
        out[o] += values[static_cast<std::size_t>(o)] * b[static_cast<std::size_t>(row)];
      }
    }
  });
}

class Work {
 public:
  Work(const Action& action, const ApplyOptions& options, const Sink& sink)
      : action_(action),
        options_(options),
        sink_(sink),
        type_(*tools::find_safetensors_dtype(action.dtype)->type),
        m_(action.matrix) {
    // Nothing set the matrix of a tensor that only gets another type.
    if (action.source == nullptr || m_.batch * m_.rows * m_.cols != action.source->elements()) {
      m_ = matrix_of(Layout::kTable, action.source != nullptr ? action.source->shape : action.shape);
    }
    for (const Fold& fold : action.folds) {
      folds_.push_back(repeated(gains(*fold.weight, fold.gain), fold.chunks));
    }
    if (action.row_norm) {
      norm_gain_ = gains(*action.row_norm->weight, action.row_norm->gain);
      norm_bias_.assign(norm_gain_.size(), 0.0);
      if (action.row_norm->bias != nullptr) norm_bias_ = read_values(*action.row_norm->bias);
      check_finite(norm_bias_, action.row_norm->weight->name);
    }
    if (action.scale != nullptr) {
      scale_ = read_values(*action.scale);
      check_finite(scale_, action.scale->name);
    }
    if (!action.terms.empty()) {
      added_.assign(static_cast<std::size_t>(*tools::element_count(action.shape)), 0.0);
      for (const BiasTerm& term : action.terms) add_term(term, options.memory, added_);
    }
    if (action.source != nullptr) {
      blocks_.emplace(*action.source, m_.cols, options.memory, rn_type_size(type_));
    }
    block_rows_ = blocks_ ? blocks_->rows()
                          : static_cast<std::int64_t>(std::max<std::size_t>(
                                1, options.memory / std::max<std::size_t>(1, 16 * static_cast<std::size_t>(m_.cols))));
  }

  void run() {
    for (std::int64_t b = 0; b < m_.batch; ++b) {
      const std::int64_t first = b * m_.rows;
      if (!m_.out_rows) {
        segment(first, first + m_.rows, false);
        continue;
      }
      std::vector<Range> ranges = action_.centre;
      std::sort(ranges.begin(), ranges.end(), [](const Range& x, const Range& y) { return x.begin < y.begin; });
      std::int64_t at = 0;
      for (const Range& range : ranges) {
        segment(first + at, first + range.begin, false);
        segment(first + range.begin, first + range.end, true);
        at = range.end;
      }
      segment(first + at, first + m_.rows, false);
    }
  }

 private:
  // Rows begin .. end of the whole tensor; down: they are centred together, column by column.
  void segment(std::int64_t begin, std::int64_t end, bool down) {
    if (begin >= end) return;
    carry_.assign(static_cast<std::size_t>(m_.cols), 0.0);
    std::vector<double> means;
    if (down) means = column_means(begin, end);
    for (std::int64_t at = begin; at < end; at += block_rows_) {
      const std::int64_t to = std::min(end, at + block_rows_);
      const bool held = down && at == begin && to == end;  // still there from the pass for the means
      const std::span<double> values = held ? std::span<double>(held_) : prepared(at, to);
      for (std::int64_t r = at; r < to; ++r) {
        const auto row =
            values.subspan(static_cast<std::size_t>((r - at) * m_.cols), static_cast<std::size_t>(m_.cols));
        if (down) {
          for (std::size_t c = 0; c < row.size(); ++c) row[c] -= means[c];
        } else if (!m_.out_rows) {
          centre_row(row);
        }
      }
      store(at, values, down);
    }
  }

  std::vector<double> column_means(std::int64_t begin, std::int64_t end) {
    std::vector<double> sums(static_cast<std::size_t>(m_.cols), 0.0);
    std::vector<double> lost(sums.size(), 0.0);
    for (std::int64_t at = begin; at < end; at += block_rows_) {
      const std::int64_t to = std::min(end, at + block_rows_);
      held_ = prepared(at, to);
      for (std::int64_t r = at; r < to; ++r) {
        const double* row = held_.data() + (r - at) * m_.cols;
        for (std::size_t c = 0; c < sums.size(); ++c) add_exactly(sums[c], lost[c], row[c]);
      }
    }
    for (std::size_t c = 0; c < sums.size(); ++c) sums[c] = (sums[c] + lost[c]) / static_cast<double>(end - begin);
    return sums;
  }

  void centre_row(std::span<double> row) {
    for (const Range& range : action_.centre) {
      const auto part =
          row.subspan(static_cast<std::size_t>(range.begin), static_cast<std::size_t>(range.end - range.begin));
      const double mean = sum(part) / static_cast<double>(part.size());
      for (double& value : part) value -= mean;
    }
  }

  // Everything but the centring.
  std::span<double> prepared(std::int64_t begin, std::int64_t end) {
    std::span<double> values;
    if (blocks_) {
      values = blocks_->block(begin, end);
      check_finite(values, action_.source->name);
    } else {
      zeros_.assign(static_cast<std::size_t>((end - begin) * m_.cols), 0.0);
      values = zeros_;
    }
    if (!added_.empty()) {
      const double* added = added_.data() + begin * m_.cols;
      for (std::size_t i = 0; i < values.size(); ++i) values[i] += added[i];
    }
    if (action_.row_norm) {
      for (std::int64_t r = 0; r < end - begin; ++r) {
        norm_row(values.subspan(static_cast<std::size_t>(r * m_.cols), static_cast<std::size_t>(m_.cols)));
      }
    }
    if (folds_.empty() && scale_.empty()) return values;
    for (std::int64_t r = begin; r < end; ++r) {
      fold_row(r % m_.rows,
               values.subspan(static_cast<std::size_t>((r - begin) * m_.cols), static_cast<std::size_t>(m_.cols)));
    }
    return values;
  }

  void norm_row(std::span<double> row) {
    const double mean = sum(row) / static_cast<double>(row.size());
    squares_.resize(row.size());
    for (std::size_t i = 0; i < row.size(); ++i) {
      row[i] -= mean;
      squares_[i] = row[i] * row[i];
    }
    const double inv = 1 / std::sqrt(sum(squares_) / static_cast<double>(row.size()) + action_.row_norm->epsilon);
    for (std::size_t i = 0; i < row.size(); ++i) row[i] = row[i] * inv * norm_gain_[i] + norm_bias_[i];
  }

  void fold_row(std::int64_t row, std::span<double> values) {
    for (std::size_t f = 0; f < folds_.size(); ++f) {
      const Range& outputs = action_.folds[f].outputs;
      if (!m_.out_rows) {
        for (std::int64_t o = outputs.begin; o < outputs.end; ++o) {
          values[static_cast<std::size_t>(o)] *= folds_[f][static_cast<std::size_t>(row)];
        }
      } else if (row >= outputs.begin && row < outputs.end) {
        for (std::size_t i = 0; i < values.size(); ++i) values[i] *= folds_[f][i];
      }
    }
    if (scale_.empty()) return;
    for (std::size_t c = 0; c < values.size(); ++c) {
      const std::size_t output = m_.out_rows ? static_cast<std::size_t>(row) : c;
      values[c] = values[c] * scale_[output] / action_.divisor;
    }
  }

  void store(std::int64_t first_row, std::span<double> values, bool down) {
    const std::size_t size = rn_type_size(type_);
    if (out_.size() < values.size() * size) out_ = tools::Buffer(values.size() * size);
    if (options_.carry_rounding && !action_.centre.empty() && (down || !m_.out_rows)) carry(values);
    bool finite = true;
    with_type(type_, [&]<class E>(E) {
      auto* out = reinterpret_cast<typename E::Stored*>(out_.data());
      for (std::size_t i = 0; i < values.size(); ++i) {
        out[i] = E::store(values[i]);
        finite = finite && std::isfinite(E::load(out[i]));
      }
    });
    if (!finite) {
      refuse(RefusalCode::kNonFinite, action_.name, "a value would overflow {}; use --dtype with a wider type",
             rn_type_name(type_));
    }
    sink_(static_cast<std::uint64_t>(first_row * m_.cols) * size, out_.bytes().first(values.size() * size));
  }

  // Rounds here, and gives what that loses to the next value of the same mean.
  void carry(std::span<double> values) {
    const auto round_with = [&](double& value, double& error) {
      const double wanted = value + error;
      value = with_type(type_, [&]<class E>(E) { return E::load(E::store(wanted)); });
      error = wanted - value;
    };
    const std::size_t cols = static_cast<std::size_t>(m_.cols);
    for (std::size_t at = 0; at < values.size(); at += cols) {
      if (m_.out_rows) {
        for (std::size_t c = 0; c < cols; ++c) round_with(values[at + c], carry_[c]);
        continue;
      }
      for (const Range& range : action_.centre) {
        double error = 0;
        for (std::int64_t c = range.begin; c < range.end; ++c)
          round_with(values[at + static_cast<std::size_t>(c)], error);
      }
    }
  }

  const Action& action_;
  const ApplyOptions& options_;
  const Sink& sink_;
  rn_type type_;
  Matrix m_;
  std::vector<std::vector<double>> folds_;
  std::vector<double> norm_gain_, norm_bias_, squares_;
  std::vector<double> scale_;
  std::vector<double> added_;
  std::optional<Blocks> blocks_;
  std::int64_t block_rows_ = 1;
  std::span<double> held_;
  std::vector<double> zeros_;
  std::vector<double> carry_;
  tools::Buffer out_;
};

void copy(const Action& action, std::size_t memory, const Sink& sink) {
  const StoredTensor& source = *action.source;
  const auto type = action.finite ? source.row_type() : std::nullopt;
  constexpr std::size_t kElement = 8;  // blocks end between elements of every type
  const std::size_t block = std::max(memory / kElement * kElement, std::size_t{4096});
  tools::Buffer buffer(static_cast<std::size_t>(std::min<std::uint64_t>(source.bytes, block)));
  for (std::uint64_t at = 0; at < source.bytes; at += block) {
    const auto piece =
        buffer.bytes().first(static_cast<std::size_t>(std::min<std::uint64_t>(source.bytes - at, block)));
    read_bytes(source, at, piece);
    if (type) {
      const bool finite = with_type(*type, [&]<class E>(E) {
        const auto* values = reinterpret_cast<const typename E::Stored*>(piece.data());
        bool all = true;
        for (std::size_t i = 0; i < piece.size() / sizeof(*values); ++i) {
          if constexpr (sizeof(*values) == 2) {  // all ones in the exponent
            constexpr std::uint16_t kExponent = std::is_same_v<E, Element<RN_F16>> ? 0x7c00 : 0x7f80;
            all &= (values[i] & kExponent) != kExponent;
          } else {
            all &= values[i] - values[i] == 0;
          }
        }
        return all;
      });
      if (!finite) refuse_not_finite(source.name);
    }
    sink(at, piece);
  }
}

void fill_with(const Action& action, std::size_t memory, const Sink& sink) {
  const rn_type type = *tools::find_safetensors_dtype(action.dtype)->type;
  const std::uint64_t size = action.bytes();
  const std::size_t block = std::max(memory / 8 * 8, std::size_t{4096});
  tools::Buffer buffer(static_cast<std::size_t>(std::min<std::uint64_t>(size, block)));
  with_type(type, [&]<class E>(E) {
    auto* out = reinterpret_cast<typename E::Stored*>(buffer.data());
    const auto stored = E::store(*action.fill);
    if (E::load(stored) != *action.fill) {
      refuse(RefusalCode::kNonFinite, action.name, "{} is no {}; use --dtype with a wider type", *action.fill,
             rn_type_name(type));
    }
    std::fill_n(out, buffer.size() / sizeof(*out), action.diagonal ? E::store(0.0) : stored);
    const std::uint64_t stride = action.diagonal ? static_cast<std::uint64_t>(action.shape.back()) + 1 : size;
    std::uint64_t next = action.diagonal ? 0 : size;  // element of the diagonal
    for (std::uint64_t at = 0; at < size; at += block) {
      const std::uint64_t first = at / sizeof(*out);
      const std::uint64_t end = std::min(size, at + block) / sizeof(*out);
      const std::uint64_t from = next;
      for (; next < end; next += stride) out[next - first] = stored;
      sink(at, buffer.bytes().first(static_cast<std::size_t>(std::min<std::uint64_t>(size - at, block))));
      for (std::uint64_t e = from; e < next; e += stride) out[e - first] = E::store(0.0);
    }
  });
}

void apply_parts(const Action& action, const ApplyOptions& options, const Sink& sink) {
  std::uint64_t at = 0;
  for (const Action& part : action.parts) {
    const std::uint64_t length = part.bytes();
    const std::uint64_t rows = part.rows ? static_cast<std::uint64_t>(part.rows->end - part.rows->begin) : 1;
    const std::uint64_t skip = part.rows ? length / rows * static_cast<std::uint64_t>(part.rows->begin) : 0;
    apply(part, options, [&](std::uint64_t offset, std::span<const std::byte> bytes) {
      const std::uint64_t begin = std::max(offset, skip);
      const std::uint64_t end = std::min(offset + bytes.size(), skip + length);
      if (begin >= end) return;
      sink(at + begin - skip,
           bytes.subspan(static_cast<std::size_t>(begin - offset), static_cast<std::size_t>(end - begin)));
    });
    at += length;
  }
}

}  // namespace

std::vector<double> term_input(const BiasTerm& term, std::size_t memory) {
  std::vector<double> b = term.norm_bias ? repeated(read_values(*term.norm_bias), term.chunks) : term.vector;
  check_finite(b, term.norm_bias ? term.norm_bias->name : term.weight->name);
  if (term.values == nullptr) return b;
  BiasTerm inner{term.values, term.values_matrix, nullptr, {0, term.values_matrix.outputs()}, 1, std::move(b)};
  std::vector<double> values(static_cast<std::size_t>(inner.matrix.outputs()), 0.0);
  add_term(inner, memory, values);
  return values;
}

std::vector<double> gains(const StoredTensor& weight, Gain gain) {
  std::vector<double> values = read_values(weight);
  check_finite(values, weight.name);
  if (gain == Gain::kWeight) return values;
  for (double& value : values) {
    value += 1;
    if (gain == Gain::kRoundedOnePlusWeight) {
      value = with_type(*weight.row_type(), [&]<class E>(E) { return E::load(E::store(value)); });
    }
  }
  return values;
}

bool rows_are_centred(const StoredTensor& table, std::size_t chunk) {
  if (!table.row_type() || table.shape.empty()) return false;
  const Matrix m = matrix_of(Layout::kTable, table.shape);
  Blocks blocks(table, m.cols, chunk);
  bool centred = true;
  for (std::int64_t r = 0; r < m.rows && centred; r += blocks.rows()) {
    blocks.for_rows(r, std::min(m.rows, r + blocks.rows()), [&](std::int64_t, std::span<const double> row) {
      double magnitudes = 0;
      for (const double value : row) magnitudes += std::fabs(value);
      constexpr double kLost = 0x1p-50;
      centred = centred && std::fabs(sum(row)) <= kLost * magnitudes;
    });
  }
  return centred;
}

void apply(const Action& action, const ApplyOptions& options, const Sink& sink) {
  if (!action.parts.empty()) {
    apply_parts(action, options, sink);
  } else if (action.copied()) {
    copy(action, options.memory, sink);
  } else if (action.fill) {
    fill_with(action, options.memory, sink);
  } else {
    Work(action, options, sink).run();
  }
}

}  // namespace rmsnorm::convert::checkpoint
