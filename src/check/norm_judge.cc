#include "check/norm_judge.h"

#include <algorithm>

#include "reference/ulp.h"

namespace rmsnorm::check {

using namespace reference;

namespace {

// The error of a row's gradient, in ulps of its largest term; of f64 likewise. dweight and dbias: before the cast, in
// parts of the sum of absolute terms, plus half an ulp for the cast.
constexpr double kDxF32 = 4, kDx16Bit = 1, kDxF64 = 4;
constexpr double kParameterError = 1e-6;

void judge_element(Finding& finding, rn_type type, std::string_view name, std::int64_t row, std::size_t i, double found,
                   Quad expected, Quad scale, double limit) {
  const double error = ulp_distance(type, found, expected, scale);
  const bool nearest = error == 0 || found == round_to(type, expected);
  finding.add(error, limit, nearest, name, row, static_cast<std::int64_t>(i), found, static_cast<double>(expected));
}

// The largest number that enters an element's last sum, or that sum.
Quad largest_addend(const Parameters& p, Quad out, std::size_t i) {
  if (!p.bias) return absolute(out);
  const Quad bias = p.bias[i];
  return std::max({absolute(out), absolute(bias), absolute(out - bias)});
}

// What the neighbouring inner value gives, next to an inner tie of `before_weight`.
bool comes_from_inner_tie(const NormRow& row, std::size_t i) {
  const Quad n = (*row.x)[i] * row.inv;
  if (tie_distance(row.x_type, n) > kInnerTie) return false;
  const Quad nudge = 2 * kInnerTie * ulp_at(row.x_type, n);
  const auto gives = [&](Quad inner) {
    const auto k = static_cast<std::int64_t>(i);
    return row.found[i] == round_to(row.type, affine_after_rounding(inner, row.parameters, k, row.x_type));
  };
  return gives(n + nudge) || gives(n - nudge);
}

// One unit of the budget, as a number.
Quad unit_at(const NormRow& row, const Budget& budget, std::size_t i, Quad row_scale) {
  const Quad out = row.exact[i];
  const Quad addend = ulp_at(RN_F32, largest_addend(row.parameters, out, i));
  switch (budget.unit) {
    case Unit::kResult:
      return ulp_at(row.type, out);
    case Unit::kLargestAddend:
      return addend;
    case Unit::kRow:
      return ulp_at(row.type, row_scale);
    case Unit::kResultAndAddend:
      break;
  }
  return ulp_at(row.type, out) + budget.addend / budget.ulps * addend;
}

}  // namespace

void judge_norm_row(Finding& finding, const NormRow& row, const Budget& budget) {
  Quad scale = 0;
  for (std::size_t i = 0; i < row.exact.size(); ++i) {
    if (is_finite(row.exact[i])) scale = std::max(scale, largest_addend(row.parameters, row.exact[i], i));
  }
  for (std::size_t i = 0; i < row.found.size(); ++i) {
    const double found = row.found[i];
    const Quad exact = row.exact[i];
    double error = ulp_distance(row.type, found, exact);
    double limit = budget.ulps;
    if (is_finite(exact) && is_finite(error)) {
      error = static_cast<double>(error * ulp_at(row.type, exact) / unit_at(row, budget, i, scale));
      // `before_weight` in 16 bits: the reference's very number, or that of the neighbouring inner value.
      if (row.x != nullptr && found != round_to(row.type, exact)) limit = comes_from_inner_tie(row, i) ? error : -1;
    }
    const bool sign_lost = row.signs && exact == 0 && found == 0 && sign_of(exact) != sign_of(found);
    if (sign_lost) error = std::numeric_limits<double>::infinity();
    const bool nearest = error == 0 || found == round_to(row.type, exact);
    finding.add(error, limit, nearest, row.name, row.number, static_cast<std::int64_t>(i), found,
                static_cast<double>(exact));
  }
}

void judge_gradient(Finding& finding, rn_type type, std::string_view name, std::int64_t row, std::int64_t col,
                    double found, Quad exact, Quad largest) {
  const double limit = type == RN_F64 ? kDxF64 : type == RN_F32 ? kDxF32 : kDx16Bit;
  judge_element(finding, type, name, row, static_cast<std::size_t>(col), found, exact, largest, limit);
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
                              const std::vector<Quad>& terms, std::int64_t count) {
  for (std::size_t i = 0; i < found.size(); ++i) {
    if (!old.empty()) expected[i] += static_cast<Quad>(old[i]);
    // The limit in ulps of the result: the cast, and what the sum may be off by.
    const Quad ulp = ulp_at(type, expected[i]);
    // Of an f64 term below 2^-1022 both the normalised value and the product may be rounded.
    const Quad smallest = type == RN_F64 ? static_cast<Quad>(count) * 0x1p-1073 : Quad{0};
    const double limit = 0.5 + static_cast<double>((kParameterError * terms[i] + smallest) / ulp);
    judge_element(finding, type, name, 0, i, found[i], expected[i], expected[i], is_finite(limit) ? limit : 0);
  }
}

void judge_statistic(Finding& finding, rn_type type, std::string_view name, std::int64_t row, double found, Quad exact,
                     double limit, Quad terms, double part) {
  const double slack = static_cast<double>(part * terms / ulp_at(type, exact));
  judge_element(finding, type, name, row, 0, found, exact, exact, limit + (is_finite(slack) ? slack : 0));
}

}  // namespace rmsnorm::check
