// Means in two numbers. The mean of f32 numbers comes from a sum without any error: for rows in which numbers cancel
// that are so large that an f64 sum loses the mean of the rest (1e25 and -1e25 among 1e-10). Plain data and plain
// functions, because files compiled for different instruction sets share them; the sum is of whole numbers, so that all
// of them have the same bits.
#ifndef RMSNORM_CPU_EXACT_SUM_H_
#define RMSNORM_CPU_EXACT_SUM_H_

#include <stdint.h>

namespace rmsnorm {

// Digits of 32 bits, the first of them in units of 2^-149, before carries: room for 2^31 finite numbers.
struct ExactSum {
  static constexpr int kDigits = 9;
  int64_t digits[kDigits] = {};
};
void add_exactly(ExactSum& sum, const float* x, int64_t n);

// A mean, and what f64 leaves over of it: nothing of an infinity or a NaN.
struct ExactMean {
  double mean, rest;
};
ExactMean mean_of(const ExactSum& sum, int64_t count);
ExactMean mean_of(double sum, int64_t count);

}  // namespace rmsnorm

#endif  // RMSNORM_CPU_EXACT_SUM_H_
