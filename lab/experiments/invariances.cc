#include "lab/experiments/invariances.h"

#include "lab/models/norm.h"

namespace rmsnorm::lab {
namespace {

constexpr std::int64_t kCases = 24, kInputs = 16, kNeurons = 32;
constexpr double kPartialShare = 0.25;  // 8 of 32 neurons
constexpr double kFactor = 2.5;         // of every re-scaling; positive, as in the paper

torch::Tensor row_norm(NormKind kind, const torch::Tensor& a, double epsilon) {
  NormOptions options;
  options.kind = kind;
  options.epsilon = epsilon;
  options.share = kPartialShare;
  options.weight = options.bias = false;
  Norm norm(options, a.size(-1));
  return norm->forward(a);
}

std::function<torch::Tensor(const torch::Tensor&, const torch::Tensor&, double)> on_rows(NormKind kind) {
  return [kind](const torch::Tensor& x, const torch::Tensor& w, double epsilon) {
    return row_norm(kind, x.matmul(w.t()), epsilon);
  };
}

// Over the batch, each neuron by itself, with the biased variance of training.
torch::Tensor batch_norm(const torch::Tensor& x, const torch::Tensor& w, double epsilon) {
  const torch::Tensor a = x.matmul(w.t());
  const torch::Tensor centred = a - a.mean(0, true);
  return centred / (centred.square().mean(0, true) + epsilon).sqrt();
}

// The weight vector of each neuron is divided by its length; what comes out is not normalised.
torch::Tensor weight_norm(const torch::Tensor& x, const torch::Tensor& w, double epsilon) {
  return x.matmul((w / (w.square().sum(1, true) + epsilon).sqrt()).t());
}

// The vector that a re-centring adds: the same on every run.
torch::Tensor shift() { return torch::linspace(-1, 2, kInputs, torch::kDouble); }

// Row 0 of `matrix` times the factor. It lies in the share that the partial norm reads.
torch::Tensor first_row_scaled(const torch::Tensor& matrix) {
  torch::Tensor factors = torch::ones({matrix.size(0), 1}, torch::kDouble);
  factors[0] = kFactor;
  return matrix * factors;
}

Cases draw(std::uint64_t seed) {
  torch::manual_seed(seed);
  return {torch::randn({kCases, kInputs}, torch::kDouble), torch::randn({kNeurons, kInputs}, torch::kDouble)};
}

}  // namespace

const std::vector<Normalisation>& normalisations() {
  static const std::vector<Normalisation> all = {
      {"BatchNorm", batch_norm},
      {"WeightNorm", weight_norm},
      {"LayerNorm", on_rows(NormKind::kLayerNorm)},
      {"RMSNorm", on_rows(NormKind::kRmsNorm)},
      {"partial RMSNorm", on_rows(NormKind::kPartialRmsNorm)},
  };
  return all;
}

const std::vector<Transformation>& transformations() {
  static const std::vector<Transformation> all = {
      {"weight matrix re-scaled",
       [](const Cases& c) {
         return Cases{c.x, c.w * kFactor};
       }},
      {"weight matrix re-centred",
       [](const Cases& c) {
         return Cases{c.x, c.w + shift()};
       }},
      {"one weight vector re-scaled",
       [](const Cases& c) {
         return Cases{c.x, first_row_scaled(c.w)};
       }},
      {"dataset re-scaled",
       [](const Cases& c) {
         return Cases{c.x * kFactor, c.w};
       }},
      {"dataset re-centred",
       [](const Cases& c) {
         return Cases{c.x + shift(), c.w};
       }},
      {"one case re-scaled",
       [](const Cases& c) {
         return Cases{first_row_scaled(c.x), c.w};
       }},
  };
  return all;
}

const std::vector<std::vector<bool>>& paper_table() {
  static const std::vector<std::vector<bool>> table = {
      {true, false, true, true, true, false},    // BatchNorm
      {true, false, true, false, false, false},  // WeightNorm
      {true, true, false, true, false, true},    // LayerNorm
      {true, false, false, true, false, true},   // RMSNorm
      {true, false, false, true, false, true},   // partial RMSNorm
  };
  return table;
}

Invariance judge_invariance(double change) {
  if (change < kInvariantBelow) return Invariance::kInvariant;
  return change > kChangedAbove ? Invariance::kChanged : Invariance::kUnclear;  // NaN: unclear
}

double change_of_output(const Normalisation& normalisation, const Transformation& transformation, double epsilon,
                        std::uint64_t seed) {
  const torch::NoGradGuard no_gradient;
  const Cases before = draw(seed), after = transformation.apply(before);
  const torch::Tensor y = normalisation.apply(before.x, before.w, epsilon);
  const torch::Tensor changed = normalisation.apply(after.x, after.w, epsilon);
  return (changed - y).abs().max().item<double>() / y.square().mean().sqrt().item<double>();
}

double gradient_ratio(const Normalisation& normalisation, double factor, std::uint64_t seed) {
  const Cases cases = draw(seed);
  const torch::Tensor direction = torch::randn({kCases, kNeurons}, torch::kDouble);
  const auto length = [&](double scale) {
    const torch::Tensor w = (cases.w * scale).requires_grad_();
    (normalisation.apply(cases.x, w, 0) * direction).sum().backward();
    return w.grad().norm().item<double>();
  };
  return length(1) / length(factor) / factor;
}

}  // namespace rmsnorm::lab
