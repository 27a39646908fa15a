#include "lab/experiments/cost_loops.h"

namespace rmsnorm::lab {

void scalar_rms_norm(float* y, const float* x, const float* weight, std::int64_t rows, std::int64_t d, float epsilon) {
  for (std::int64_t r = 0; r < rows; ++r) rms_norm_row(y + r * d, x + r * d, weight, d, epsilon);
}

void scalar_layer_norm(float* y, const float* x, const float* weight, const float* bias, std::int64_t rows,
                       std::int64_t d, float epsilon) {
  for (std::int64_t r = 0; r < rows; ++r) layer_norm_row(y + r * d, x + r * d, weight, bias, d, epsilon);
}

}  // namespace rmsnorm::lab
