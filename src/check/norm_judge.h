// Judges rows of a normalised output and of gradients, for any operation that has such.
#ifndef RMSNORM_CHECK_NORM_JUDGE_H_
#define RMSNORM_CHECK_NORM_JUDGE_H_

#include <vector>

#include "check/operation.h"
#include "reference/budgets.h"
#include "reference/rms_norm_backward.h"

namespace rmsnorm::check {

// One row of `out` and what it was made from.
struct NormRow {
  std::string_view name;
  std::int64_t number;
  rn_type type;
  const std::vector<double>& found;
  const std::vector<reference::Quad>& exact;
  const reference::Parameters& parameters;
  // `before_weight`: the elements and their type, and inv.
  const std::vector<double>* x = nullptr;
  rn_type x_type = RN_F32;
  reference::Quad inv = 0;
  bool signs = false;  // zeros must have the sign of the exact zero
};

void judge_norm_row(Finding& finding, const NormRow& row, const reference::Budget& budget);

// The largest number that enters an element's last sum, or that sum.
reference::Quad largest_addend(const reference::Parameters& parameters, reference::Quad out, std::int64_t i);

// Whether a zero lacks the sign of the exact zero. Where product and bias cancel, their rounding decides on it.
bool sign_lost(const reference::Parameters& parameters, double found, reference::Quad exact, std::int64_t i);

// One element of a gradient, measured by the largest term of its row.
void judge_gradient(Finding& finding, rn_type type, std::string_view name, std::int64_t row, std::int64_t col,
                    double found, reference::Quad exact, reference::Quad largest);

// dx of one row. added: the gradient that was added to it; empty: none.
void judge_gradient_row(Finding& finding, rn_type type, std::string_view name, std::int64_t row,
                        const std::vector<double>& found, const reference::GradientRow<reference::Quad>& exact,
                        const std::vector<double>& added = {});

// dweight or dbias. old: what it held before, where it was added to; terms: the sums of absolute terms; units: in f64,
// how many of the smallest numbers the terms of one sum may be off by, for each its own rounding and |dy| of the
// normalised value's; undecided: the columns that are not judged, empty for none.
void judge_parameter_gradient(Finding& finding, rn_type type, std::string_view name, const std::vector<double>& found,
                              const std::vector<double>& old, std::vector<reference::Quad> expected,
                              const std::vector<reference::Quad>& terms, reference::Quad units,
                              const std::vector<bool>& undecided = {});

// A statistic of one row. terms: the sum of absolute terms, where the limit counts them.
void judge_statistic(Finding& finding, rn_type type, std::string_view name, std::int64_t row, double found,
                     reference::Quad exact, const reference::Budget& limit, reference::Quad terms = 0);

}  // namespace rmsnorm::check

#endif  // RMSNORM_CHECK_NORM_JUDGE_H_
