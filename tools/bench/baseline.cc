#include "tools/bench/baseline.h"

#include <cmath>

namespace rmsnorm::tools {

void plain_rms_norm(float* out, const float* x, const float* weight, std::int64_t rows, std::int64_t cols,
                    float epsilon) {
  for (std::int64_t row = 0; row < rows; ++row) {
    const float* in = x + row * cols;
    float sum = 0;
    for (std::int64_t i = 0; i < cols; ++i) sum += in[i] * in[i];
    const float inv = 1.0f / std::sqrt(sum / static_cast<float>(cols) + epsilon);
    for (std::int64_t i = 0; i < cols; ++i) out[row * cols + i] = in[i] * inv * weight[i];
  }
}

}  // namespace rmsnorm::tools
