// What a judge found: the first fault, and how far each output was off.
#ifndef RMSNORM_CHECK_FINDING_H_
#define RMSNORM_CHECK_FINDING_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "reference/budgets.h"

namespace rmsnorm::check {

// Two digits, and no zeros in the exponent: "0.51", "1e-6", "4.4e-16".
std::string brief(double value);

// "4.5 of the largest addend": a limit as docs/numbers.md has it, in ulp where it names nothing else.
std::string in_words(const reference::Budget& limit);

// The elements of one output that stand under one limit. Errors are in the unit of the limit.
struct Measured {
  std::string_view name;  // of the operand
  reference::Budget limit;
  double worst = 0, sum = 0;
  std::int64_t elements = 0, exact = 0;  // exact: the number that is nearest, or the reference's

  double mean() const { return elements == 0 ? 0 : sum / static_cast<double>(elements); }
  double exact_share() const { return elements == 0 ? 1 : static_cast<double>(exact) / static_cast<double>(elements); }
  void merge(const Measured& other);
};

struct Finding {
  std::string error;               // "": within the limits
  std::int64_t elements = 0;       // all that were judged
  std::vector<Measured> measured;  // without those whose exact value is not finite

  // One element. Text is made only for a fault.
  void add(double error, const reference::Budget& limit, bool nearest, std::string_view name, std::int64_t row,
           std::int64_t col, double found, double expected);

  // All elements that are counted in ulps, whichever their limits are; the limit is the largest.
  Measured in_ulps() const;
};

}  // namespace rmsnorm::check

#endif  // RMSNORM_CHECK_FINDING_H_
