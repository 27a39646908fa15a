#include "check/norm_judge.h"

#include <algorithm>
#include <cmath>

#include "reference/inner_tie.h"
#include "reference/ulp.h"

namespace rmsnorm::check {

using namespace reference;

namespace {

bool is_nearest(rn_type type, double found, Quad exact) {
  return ulp_distance(type, found, exact) == 0 || found == round_to(type, exact);
}

// `before_weight` in 16 bits: the reference's very number or, next to an inner tie, that of the neighbouring inner value.
// Its error.
double error_after_rounding(const NormRow& row, std::size_t i) {
  const double found = row.found[i];
  if (found == round_to(row.type, row.exact[i])) return ulp_distance(row.type, found, row.exact[i]);
  const auto results =
      around_inner_tie((*row.x)[i] * row.inv, row.parameters, static_cast<std::int64_t>(i), row.x_type, kInnerTie);
  if (results) {
    for (const double other : *results) {
      if (found == round_to(row.type, other)) return ulp_distance(row.type, found, other);
    }
  }
  return std::max(1.0, ulp_distance(row.type, found, row.exact[i]));
}

// One unit of the budget, as a number.
Quad unit_at(const NormRow& row, const Budget& budget, std::size_t i, Quad row_scale) {
  const Quad out = row.exact[i];
  const Quad addend = ulp_at(RN_F32, largest_addend(row.parameters, out, static_cast<std::int64_t>(i)));
  switch (budget.unit) {
    case Unit::kResult:
      return ulp_at(row.type, out);
    case Unit::kLargestAddend:
      return addend;
    case Unit::kRow:
      return ulp_at(row.type, row_scale);
    default:
      break;
  }
  return ulp_at(row.type, out) + budget.addend / budget.ulps * addend;
}

}  // namespace

Quad largest_addend(const Parameters& parameters, Quad out, std::int64_t i) {
  if (!parameters.bias) return absolute(out);
  const Quad bias = parameters.bias[i];
  return std::max({absolute(out), absolute(bias), absolute(out - bias)});
}

bool sign_lost(const Parameters& parameters, double found, Quad exact, std::int64_t i) {
  return exact == 0 && found == 0 && largest_addend(parameters, exact, i) == 0 && sign_of(exact) != sign_of(found);
}

void judge_norm_row(Finding& finding, const NormRow& row, const Budget& budget) {
  Quad scale = 0;
  for (std::size_t i = 0; i < row.exact.size(); ++i) {
    const Quad exact = row.exact[i];
    if (is_finite(exact)) scale = std::max(scale, largest_addend(row.parameters, exact, static_cast<std::int64_t>(i)));
  }
  for (std::size_t i = 0; i < row.found.size(); ++i) {
    const double found = row.found[i];
    const Quad exact = row.exact[i];
    double error = ulp_distance(row.type, found, exact);
    if (is_finite(exact) && is_finite(error)) {
      error = row.x != nullptr ? error_after_rounding(row, i)
                               : static_cast<double>(error * ulp_at(row.type, exact) / unit_at(row, budget, i, scale));
    }
    const auto col = static_cast<std::int64_t>(i);
    if (row.signs && sign_lost(row.parameters, found, exact, col)) error = std::numeric_limits<double>::infinity();
    finding.add(error, row.x != nullptr ? kTheReferences : budget, is_nearest(row.type, found, exact), row.name,
                row.number, col, found, static_cast<double>(exact));
  }
}

void judge_gradient(Finding& finding, rn_type type, std::string_view name, std::int64_t row, std::int64_t col,
                    double found, Quad exact, Quad largest) {
  const double limit = type == RN_F64 ? kGradientF64 : type == RN_F32 ? kGradientF32 : kGradient16Bit;
  double error = ulp_distance(type, found, exact, largest);
  // Terms of f64 beyond its range that cancel: they have the ulp that they would have there. An infinity has none.
  const int beyond = is_finite(largest) ? exponent_of(largest) - format_of(type).max_exponent : 0;
  if (type == RN_F64 && beyond > 0 && is_finite(static_cast<Quad>(found))) error = std::ldexp(error, -beyond);
  finding.add(error, {limit, Unit::kLargestTerm}, is_nearest(type, found, exact), name, row, col, found,
              static_cast<double>(exact));
}

void judge_gradient_row(Finding& finding, rn_type type, std::string_view name, std::int64_t row,
                        const std::vector<double>& found, const GradientRow<Quad>& exact,
                        const std::vector<double>& added) {
  Quad largest = exact.largest;
  std::vector<Quad> expected = exact.dx;
  for (std::size_t i = 0; i < added.size(); ++i) {
    expected[i] += static_cast<Quad>(added[i]);
    for (const Quad v : {expected[i], static_cast<Quad>(added[i])}) largest = std::max(largest, absolute(v));
  }
  for (std::size_t i = 0; i < found.size(); ++i) {
    judge_gradient(finding, type, name, row, static_cast<std::int64_t>(i), found[i], expected[i], largest);
  }
}

void judge_parameter_gradient(Finding& finding, rn_type type, std::string_view name, const std::vector<double>& found,
                              const std::vector<double>& old, std::vector<Quad> expected,
                              const std::vector<Quad>& terms, Quad units, const std::vector<bool>& undecided) {
  for (std::size_t i = 0; i < found.size(); ++i) {
    if (!undecided.empty() && undecided[i]) continue;
    if (!old.empty()) expected[i] += static_cast<Quad>(old[i]);
    // Of an f64 term below 2^-1022 both the normalised value and the product may be rounded.
    const Quad smallest = type == RN_F64 ? units * 0x1p-1073 : Quad{0};
    double error = ulp_distance(type, found[i], expected[i]);
    if (is_finite(expected[i]) && is_finite(error)) {
      // What the sum is off by, without the last rounding.
      const Quad rest = (static_cast<Quad>(error) - static_cast<Quad>(0.5)) * ulp_at(type, expected[i]) - smallest;
      error = rest <= 0 ? 0 : static_cast<double>(rest / terms[i]);
    }
    finding.add(error, {kParameterGradient, Unit::kSumOfTerms}, is_nearest(type, found[i], expected[i]), name, 0,
                static_cast<std::int64_t>(i), found[i], static_cast<double>(expected[i]));
  }
}

void judge_statistic(Finding& finding, rn_type type, std::string_view name, std::int64_t row, double found, Quad exact,
                     const Budget& limit, Quad terms) {
  double error = ulp_distance(type, found, exact);
  if (limit.addend > 0 && is_finite(terms) && is_finite(exact) && is_finite(static_cast<Quad>(found))) {
    // In Quad: in ulps of 0, the least there are, f64 cannot hold what large terms leave.
    const Quad allowed = limit.ulps * ulp_at(type, exact) + limit.addend * terms;
    error = static_cast<double>(limit.ulps * absolute(static_cast<Quad>(found) - exact) / allowed);
  }
  finding.add(error, limit, is_nearest(type, found, exact), name, row, 0, found, static_cast<double>(exact));
}

}  // namespace rmsnorm::check
