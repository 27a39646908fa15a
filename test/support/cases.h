// The cases that accuracy and bit equality are tested on: widths, layouts, values, types, options and execution,
// covered pairwise.
#ifndef RMSNORM_TEST_SUPPORT_CASES_H_
#define RMSNORM_TEST_SUPPORT_CASES_H_

#include <vector>

#include "check/case.h"

namespace rmsnorm::test {

// Every output type that the contract gives x.
std::vector<rn_type> out_types(rn_type x);

// Every weight type that it gives x.
std::vector<rn_type> weight_types(rn_type x);

// 1 .. 70 and the widths of models and of vector edges; few when reduced.
std::vector<std::int64_t> widths();

// All cases of one operation and type of x; the same list at each call.
std::vector<check::Case> covering_cases(check::Op op, rn_type x);

}  // namespace rmsnorm::test

#endif  // RMSNORM_TEST_SUPPORT_CASES_H_
