// Pairwise covering arrays: few rows in which any two levels of any two factors meet at least once.
#ifndef RMSNORM_TEST_SUPPORT_COVERING_H_
#define RMSNORM_TEST_SUPPORT_COVERING_H_

#include <vector>

namespace rmsnorm::test {

// levels[f] is the number of levels of factor f. Each row holds one level for each factor. The same for the same
// levels.
std::vector<std::vector<int>> pairwise(const std::vector<int>& levels);

}  // namespace rmsnorm::test

#endif  // RMSNORM_TEST_SUPPORT_COVERING_H_
