#include "cpu/block_sums.h"

#include <algorithm>

#include "cpu/parameters.h"

namespace rmsnorm {

void add_block_sums(const Operand& gradient, bool accumulate, const double* sums, int64_t blocks, int64_t stride,
                    int64_t begin, int64_t end) {
  constexpr int64_t kTogether = 64;  // columns: a line of each block is read once
  for (int64_t i = begin; i < end; i += kTogether) {
    const int64_t n = std::min(kTogether, end - i);
    double totals[kTogether] = {};
    for (int64_t block = 0; block < blocks; ++block) {
      const double* at = sums + block * stride + i;
      for (int64_t k = 0; k < n; ++k) totals[k] += at[k];
    }
    for (int64_t k = 0; k < n; ++k) {
      store_element(gradient, i + k, accumulate ? load_element(gradient, i + k) + totals[k] : totals[k]);
    }
  }
}

}  // namespace rmsnorm
