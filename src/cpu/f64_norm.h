// The forward norms of f64 rows, element by element. The row is scaled by a power of two so that no square overflows;
// sums are compensated, so that a result is within a few ulp of the row's largest.
#ifndef RMSNORM_CPU_F64_NORM_H_
#define RMSNORM_CPU_F64_NORM_H_

#include <algorithm>
#include <cmath>

#include "cpu/f64.h"

namespace rmsnorm {

// One row of a forward norm.
struct F64Row {
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
  const char* at_weight = at(call.weight);
  const char* at_bias = at(call.bias);
};

struct F64Scale {
  double mean, correction;  // of the scaled row
  Twofold inv;
  double scale;      // power of two that the elements are multiplied by
  int exponent = 0;  // 2 to this is the factor that inv lacks: of slices, whose mean may be far above their deviation
};

// NaNs do not count. Infinities do where no mean is taken: such a row becomes zeros and must not be scaled up.
inline double largest(const F64Row& rows, int64_t columns, bool centred) {
  double result = 0;
  for (int64_t i = 0; i < columns; ++i) {
    const double magnitude = std::fabs(rows.element(i));
    if (magnitude < HUGE_VAL || (magnitude == HUGE_VAL && !centred)) result = std::max(result, magnitude);
  }
  return result;
}

// Of a slice, from the totals of its whole row.
struct F64SliceScale {
  double scale, own;        // what its elements are multiplied by, and what its deviation is
  double mean, correction;  // of the scaled row, the mean's last bits in `correction`
  Twofold mean_square;      // times own^2
};

// sum: 0 for RMSNorm. A mean of 1e308 must not take the squares of 1e-300 away.
inline F64SliceScale slice_scale(double sum, double squares, double cols, double epsilon, bool epsilon_outside) {
  const double root = epsilon_outside ? epsilon : std::sqrt(epsilon);
  const double deviation = std::max(std::sqrt(squares) / std::sqrt(cols), root), own = scale_for(deviation);
  const double scale = scale_for(std::max(deviation, std::fabs(sum) / cols));
  const double scaled_sum = sum * scale, mean = scaled_sum / cols;
  const double correction = std::isfinite(mean) ? std::fma(-mean, cols, scaled_sum) / cols : 0;
  return {scale, own, mean, correction, Twofold{squares * own * own} / Twofold{cols}};
}

inline F64Scale slice_scale(const F64Row& row) {
  const NormCall& call = row.call;
  const double sum = call.norm == Norm::kLayer ? read(row.at(call.sum), RN_F64, 0) : 0;
  const F64SliceScale s = slice_scale(sum, read(row.at(call.sum_squares), RN_F64, 0),
                                      static_cast<double>(call.total_cols), call.epsilon, call.epsilon_outside);
  const Twofold inv = inverse(s.mean_square, call.epsilon, s.own, call.epsilon_outside).inv;
  return {s.mean, s.correction, inv, s.scale, std::ilogb(s.own) - std::ilogb(s.scale)};
}

inline F64Scale row_scale(const F64Row& rows) {
  const NormCall& call = rows.call;
  if (call.total_cols != 0) return slice_scale(rows);
  const bool centred = call.norm != Norm::kRms;
  const int64_t columns = centred ? call.cols : call.partial;
  const double d = static_cast<double>(columns);

  // Scaled like this no square overflows, nor does what is compared with epsilon.
  const double root = call.epsilon_outside ? call.epsilon : std::sqrt(call.epsilon);
  const double peak = std::max(largest(rows, columns, centred), call.norm == Norm::kCenter ? 0.0 : root);
  const double scale = scale_for(peak);

  F64Scale result = {0, 0, {1}, scale};
  if (centred) {
    CompensatedSum sum;
    for (int64_t i = 0; i < columns; ++i) sum.add(rows.element(i) * scale);
    const Twofold mean = sum.twofold() / Twofold{d};
    result.mean = mean.value;
    result.correction = std::isfinite(mean.rest) ? mean.rest : 0;  // an infinite mean stays one
    if (call.norm == Norm::kCenter) return result;
  }
  CompensatedSum squares;
  for (int64_t i = 0; i < columns; ++i) {
    const Twofold t = Twofold{rows.element(i) * scale} - Twofold{result.mean} - Twofold{result.correction};
    squares.add(t * t);
  }
  result.inv = inverse(squares.twofold() / Twofold{d}, call.epsilon, scale, call.epsilon_outside).inv;
  return result;
}

// Element i before it is rounded to the type of out.
inline double normalised(const F64Row& row, const F64Scale& s, double x, int64_t i) {
  const NormCall& call = row.call;
  Twofold y = Twofold{x * s.scale} - Twofold{s.mean} - Twofold{s.correction};
  if (call.norm == Norm::kCenter) return y.rounded() / s.scale;
  y = y * s.inv;
  if (row.at_weight != nullptr) {
    y = y * with_offset(read(row.at_weight, call.weight.type, i), call.weight_offset);
  }
  if (s.exponent != 0) y = scaled(y, s.exponent);
  return (row.at_bias != nullptr ? y + Twofold{read(row.at_bias, call.bias.type, i)} : y).rounded();
}

}  // namespace rmsnorm

#endif  // RMSNORM_CPU_F64_NORM_H_
