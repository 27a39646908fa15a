// Rows of f64: portable code, for gradients and references rather than for speed. The row is scaled by a power of two
// so that no square overflows; sums are compensated, so that a result is within a few ulp of the row's largest.
#include <algorithm>
#include <cmath>

#include "cpu/f64.h"
#include "cpu/norm.h"

namespace rmsnorm {

namespace {

struct Rows {
  const NormCall& call;
  int64_t row;

  char* at(const Operand& operand) const { return row_address(call, operand, row); }

  // Element i of the row that is normalised.
  double element(int64_t i) const {
    const double x = read(at_x, RN_F64, i);
    return call.add ? x + read(at_residual, RN_F64, i) : x;
  }

  const char* at_x = at(call.x);
  const char* at_residual = at(call.residual);
};

struct F64Scale {
  double mean, correction, inv;  // of the scaled row
  double scale;                  // power of two that the elements are multiplied by
};

// NaNs do not count. Infinities do where no mean is taken: such a row becomes zeros and must not be scaled up.
double largest(const Rows& rows, int64_t columns, bool centred) {
  double result = 0;
  for (int64_t i = 0; i < columns; ++i) {
    const double magnitude = std::fabs(rows.element(i));
    if (magnitude < HUGE_VAL || (magnitude == HUGE_VAL && !centred)) result = std::max(result, magnitude);
  }
  return result;
}

F64Scale row_scale(const Rows& rows) {
  const NormCall& call = rows.call;
  const bool centred = call.norm != Norm::kRms;
  const int64_t columns = centred ? call.cols : call.partial;
  const double d = static_cast<double>(columns);

  // Scaled like this no square overflows, nor does what is compared with epsilon.
  const double root = call.epsilon_outside ? call.epsilon : std::sqrt(call.epsilon);
  const double peak = std::max(largest(rows, columns, centred), call.norm == Norm::kCenter ? 0.0 : root);
  const double scale = scale_for(peak);

  F64Scale result = {0, 0, 1, scale};
  if (centred) {
    CompensatedSum sum, rest;
    for (int64_t i = 0; i < columns; ++i) sum.add(rows.element(i) * scale);
    result.mean = sum.total() / d;
    for (int64_t i = 0; i < columns; ++i) rest.add(rows.element(i) * scale - result.mean);
    result.correction = std::isfinite(result.mean) ? rest.total() / d : 0;  // an infinite mean stays one
    if (call.norm == Norm::kCenter) return result;
  }
  CompensatedSum squares;
  for (int64_t i = 0; i < columns; ++i) {
    const double t = (rows.element(i) * scale - result.mean) - result.correction;
    squares.add(t * t);
  }
  result.inv = inverse(std::sqrt(squares.total() / d), root, scale, call.epsilon_outside);
  return result;
}

void f64_row(const NormCall& call, int64_t row) {
  const Rows rows{call, row};
  const F64Scale s = row_scale(rows);
  if (char* mean = rows.at(call.mean)) write(mean, RN_F64, 0, (s.mean + s.correction) / s.scale);
  if (char* inv = rows.at(call.inv)) write(inv, RN_F64, 0, s.inv * s.scale);
  const char* weight = rows.at(call.weight);
  const char* bias = rows.at(call.bias);
  char* out = rows.at(call.out);
  char* residual_out = rows.at(call.residual_out);
  for (int64_t i = 0; i < call.cols; ++i) {
    const double x = rows.element(i);
    double y = (x * s.scale - s.mean) - s.correction;
    y = call.norm == Norm::kCenter ? y / s.scale : y * s.inv;
    if (weight != nullptr)
      y *= call.weight_offset != 0 ? read(weight, call.weight.type, i) + call.weight_offset
                                   : read(weight, call.weight.type, i);
    if (bias != nullptr) y += read(bias, call.bias.type, i);
    if (residual_out != nullptr) write(residual_out, RN_F64, i, x);
    write(out, call.out.type, i, y);
  }
}

}  // namespace

void f64_rows(const NormCall& call, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row) f64_row(call, row);
}

}  // namespace rmsnorm
