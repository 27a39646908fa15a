// A norm as an engineer first writes it: one loop after the other, sums in the type of the data. What the compiler
// makes of it for the plain architecture is the demo's yardstick for "no library at all".
#ifndef RMSNORM_TOOLS_BENCH_BASELINE_H_
#define RMSNORM_TOOLS_BENCH_BASELINE_H_

#include <cstdint>

namespace rmsnorm::tools {

void plain_rms_norm(float* out, const float* x, const float* weight, std::int64_t rows, std::int64_t cols,
                    float epsilon);

}  // namespace rmsnorm::tools

#endif  // RMSNORM_TOOLS_BENCH_BASELINE_H_
