#include "cpu/block_sums.h"

#include <algorithm>
#include <bit>

#include "core/float16.h"

namespace rmsnorm {

namespace {

double load(const Operand& operand, int64_t i) {
  switch (operand.type) {
    case RN_F16:
      return static_cast<double>(f16_to_f32(reinterpret_cast<const uint16_t*>(operand.base)[i]));
    case RN_BF16:
      return static_cast<double>(bf16_to_f32(reinterpret_cast<const uint16_t*>(operand.base)[i]));
    case RN_F64:
      return reinterpret_cast<const double*>(operand.base)[i];
    default:
      return static_cast<double>(reinterpret_cast<const float*>(operand.base)[i]);
  }
}

// The f32 towards 0 from a number that f32 does not hold, its last bit set: rounded again to 16 bits it gives what the
// number itself would.
float round_to_odd(double value) {
  const float nearest = static_cast<float>(value);
  const double widened = static_cast<double>(nearest);
  if (widened == value || value != value || widened - widened != 0) return nearest;
  const auto bits = std::bit_cast<uint32_t>(nearest) - ((widened > value) == (value > 0) ? 1u : 0u);
  return std::bit_cast<float>(bits | 1u);
}

void store(const Operand& operand, int64_t i, double value) {
  switch (operand.type) {
    case RN_F16:
      reinterpret_cast<uint16_t*>(operand.base)[i] = f32_to_f16(round_to_odd(value));
      return;
    case RN_BF16:
      reinterpret_cast<uint16_t*>(operand.base)[i] = f32_to_bf16(round_to_odd(value));
      return;
    case RN_F64:
      reinterpret_cast<double*>(operand.base)[i] = value;
      return;
    default:
      reinterpret_cast<float*>(operand.base)[i] = static_cast<float>(value);
  }
}

}  // namespace

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
      store(gradient, i + k, accumulate ? load(gradient, i + k) + totals[k] : totals[k]);
    }
  }
}

}  // namespace rmsnorm
