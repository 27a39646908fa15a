// The table of invariances of the RMSNorm paper (Zhang & Sennrich 2019, table 1), each cell tested with numbers.
#ifndef RMSNORM_LAB_EXPERIMENTS_INVARIANCES_H_
#define RMSNORM_LAB_EXPERIMENTS_INVARIANCES_H_

#include <torch/torch.h>

#include <functional>
#include <string>
#include <vector>

namespace rmsnorm::lab {

// y = norm(X W^T): X holds the cases, one a row; a row of W is the weight vector of one neuron.
struct Normalisation {
  std::string name;
  std::function<torch::Tensor(const torch::Tensor& x, const torch::Tensor& w, double epsilon)> apply;
};

struct Cases {
  torch::Tensor x;  // [cases, inputs]
  torch::Tensor w;  // [neurons, inputs]
};

struct Transformation {
  std::string name;
  std::function<Cases(const Cases& cases)> apply;
};

const std::vector<Normalisation>& normalisations();    // the rows of the table, in its order
const std::vector<Transformation>& transformations();  // its columns

// What the paper's table says, [normalisation][transformation].
const std::vector<std::vector<bool>>& paper_table();

// The largest change of y, in units of its root mean square, and what it means: below kInvariantBelow the output is
// the same up to f64's rounding; above kChangedAbove it is another one; in between the test says nothing.
inline constexpr double kInvariantBelow = 1e-9;
inline constexpr double kChangedAbove = 1e-2;
enum class Invariance { kInvariant, kChanged, kUnclear };
Invariance judge_invariance(double change);

// f64, epsilon as given (the paper has none: 0), drawn from `seed`.
double change_of_output(const Normalisation& normalisation, const Transformation& transformation, double epsilon,
                        std::uint64_t seed);

// By how much the gradient with respect to W shrinks when W is multiplied by `factor`: |dL/dW| before over after,
// divided by the factor. 1 is what the paper derives ("implicit learning rate adaptation").
double gradient_ratio(const Normalisation& normalisation, double factor, std::uint64_t seed);

}  // namespace rmsnorm::lab

#endif  // RMSNORM_LAB_EXPERIMENTS_INVARIANCES_H_
