// Rows of 16-bit numbers through norms whose squares are kept in one type or another.
#ifndef RMSNORM_LAB_EXPERIMENTS_HALF_ROWS_H_
#define RMSNORM_LAB_EXPERIMENTS_HALF_ROWS_H_

#include <torch/torch.h>

#include <functional>
#include <string>
#include <vector>

namespace rmsnorm::lab {

enum class RowForm {
  kRmsNorm,           // x / sqrt(mean(x^2) + e)
  kLayerNormTwoPass,  // c = x - mean(x), then c / sqrt(mean(c^2) + e)
  kLayerNormOnePass,  // the same with the variance as mean(x^2) - mean(x)^2
};
std::string name_of(RowForm form);

// Over the last axis. Every intermediate result, the squares and their mean among them, is rounded to `squares`
// (PyTorch sums 16-bit numbers in f32 and rounds the sum); the result to the type of x.
torch::Tensor normalise(RowForm form, const torch::Tensor& x, torch::ScalarType squares, double epsilon);

struct RowNorm {
  std::string name;   // "RMSNorm, squares in f16"
  RowForm computes;   // which exact result it is judged by; the one-pass form is the two-pass one's
  std::string where;  // "f16", "f32", "f64": of the squares; or whose code it is
  std::function<torch::Tensor(const torch::Tensor& x, double epsilon)> apply;
};

// What is compared on rows of `type`: the three forms with squares in `type`, f32 and f64; PyTorch's own; this library.
std::vector<RowNorm> row_norms(torch::ScalarType type);

std::string type_name(torch::ScalarType type);  // "f16"

// Root mean square of the error, in units of the exact result's root mean square, and of its deviation from its mean.
struct RowError {
  double of_size;
  double of_spread;
};
RowError row_error(const RowNorm& norm, const torch::Tensor& x, double epsilon);

// Normally distributed rows of deviation 2^k: the octaves k, around 0, in which the error stays below kRightBelow.
inline constexpr double kRightBelow = 0.02;
struct Octaves {
  int low, high;                   // both are right
  bool low_is_type, high_is_type;  // the end is the end of what the type itself can hold
};
Octaves right_octaves(const RowNorm& norm, torch::ScalarType type, double epsilon);

// Rows of mean 1 and deviation 2^-k in `type`.
torch::Tensor offset_rows(torch::ScalarType type, int k);

}  // namespace rmsnorm::lab

#endif  // RMSNORM_LAB_EXPERIMENTS_HALF_ROWS_H_
