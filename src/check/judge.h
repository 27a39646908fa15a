// Judges what the library wrote against the exact result, element by element, with the budgets of reference/budgets.h.
#ifndef RMSNORM_CHECK_JUDGE_H_
#define RMSNORM_CHECK_JUDGE_H_

#include <string>

#include "check/operands.h"
#include "reference/budgets.h"

namespace rmsnorm::check {

struct Report {
  std::string error;  // "": within every budget. Else what is wrong: the first fault, with row, column and values
  reference::Budget budget{};
  std::int64_t elements = 0;   // finite results judged
  double max_ulp = 0;          // in the budget's unit
  double sum_ulp = 0;          // max and mean leave out results that are infinite or NaN, which must match exactly
  std::int64_t near_ties = 0;  // `before_weight`: other numbers than the reference's, allowed next to an inner tie
  std::int64_t exact = 0;      // results that are the nearest number to the exact one
  std::int64_t worst_row = 0, worst_col = 0;
  double worst_found = 0, worst_expected = 0;

  bool ok() const { return error.empty(); }
  double mean_ulp() const { return elements == 0 ? 0 : sum_ulp / static_cast<double>(elements); }
  double exact_share() const { return elements == 0 ? 1 : static_cast<double>(exact) / static_cast<double>(elements); }
  void merge(const Report& other);
};

Report judge(const Case& c, const Operands& operands);

// Allocates, fills, calls, judges. A call that the library refuses becomes the report's error.
Report run(const Case& c);

}  // namespace rmsnorm::check

#endif  // RMSNORM_CHECK_JUDGE_H_
