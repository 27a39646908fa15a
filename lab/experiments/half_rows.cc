#include "lab/experiments/half_rows.h"

#include <fmt/format.h>

#include <cmath>

#include "lab/models/norm.h"

namespace rmsnorm::lab {
namespace {

constexpr std::int64_t kRows = 8, kColumns = 1024;

torch::Tensor unit_rows() {
  torch::manual_seed(7);
  return torch::randn({kRows, kColumns}, torch::kDouble);
}

// The octaves in which rows of normal numbers fit the type: the largest of 8192 is about 4 deviations, and a row must
// not consist of zeros.
struct TypeRange {
  int low, high;
};
TypeRange type_range(torch::ScalarType type) {
  return type == torch::kHalf ? TypeRange{-22, 13} : TypeRange{-124, 125};
}

RowNorm made(RowForm form, torch::ScalarType squares) {
  return {fmt::format("{}, squares in {}", name_of(form), type_name(squares)), form, type_name(squares),
          [form, squares](const torch::Tensor& x, double epsilon) { return normalise(form, x, squares, epsilon); }};
}

RowNorm from_model(NormKind kind, NormCode code) {
  const RowForm form = kind == NormKind::kRmsNorm ? RowForm::kRmsNorm : RowForm::kLayerNormTwoPass;
  const std::string whose = code == NormCode::kFused ? "this library" : "PyTorch";
  const std::string what = kind == NormKind::kRmsNorm ? "RMSNorm" : "LayerNorm";
  return {fmt::format("{}, {}", what, whose), form, whose, [kind, code](const torch::Tensor& x, double epsilon) {
            NormOptions options;
            options.kind = kind;
            options.code = code;
            options.epsilon = epsilon;
            options.weight = options.bias = false;
            return Norm(options, x.size(-1))->forward(x);
          }};
}

}  // namespace

std::string name_of(RowForm form) {
  switch (form) {
    case RowForm::kRmsNorm:
      return "RMSNorm";
    case RowForm::kLayerNormTwoPass:
      return "LayerNorm, two passes";
    case RowForm::kLayerNormOnePass:
      return "LayerNorm, E[x^2] - mean^2";
  }
  return {};
}

std::string type_name(torch::ScalarType type) {
  switch (type) {
    case torch::kHalf:
      return "f16";
    case torch::kBFloat16:
      return "bf16";
    case torch::kFloat:
      return "f32";
    default:
      return "f64";
  }
}

torch::Tensor normalise(RowForm form, const torch::Tensor& x, torch::ScalarType squares, double epsilon) {
  const torch::Tensor wide = x.to(squares);
  if (form == RowForm::kRmsNorm) {
    const torch::Tensor mean_square = (wide * wide).mean(-1, true);
    return (wide * (mean_square + epsilon).rsqrt()).to(x.scalar_type());
  }
  const torch::Tensor mean = wide.mean(-1, true), centred = wide - mean;
  const torch::Tensor variance = form == RowForm::kLayerNormTwoPass ? (centred * centred).mean(-1, true)
                                                                    : (wide * wide).mean(-1, true) - mean * mean;
  return (centred * (variance + epsilon).rsqrt()).to(x.scalar_type());
}

std::vector<RowNorm> row_norms(torch::ScalarType type) {
  std::vector<RowNorm> all;
  for (const RowForm form : {RowForm::kRmsNorm, RowForm::kLayerNormTwoPass, RowForm::kLayerNormOnePass}) {
    for (const torch::ScalarType squares : {type, torch::kFloat, torch::kDouble}) all.push_back(made(form, squares));
  }
  for (const NormCode code : {NormCode::kNative, NormCode::kFused}) {
    for (const NormKind kind : {NormKind::kRmsNorm, NormKind::kLayerNorm}) all.push_back(from_model(kind, code));
  }
  return all;
}

RowError row_error(const RowNorm& norm, const torch::Tensor& x, double epsilon) {
  const torch::NoGradGuard no_gradient;
  const RowForm exact = norm.computes == RowForm::kRmsNorm ? RowForm::kRmsNorm : RowForm::kLayerNormTwoPass;
  const torch::Tensor right = normalise(exact, x.to(torch::kDouble), torch::kDouble, epsilon);
  const double error = (norm.apply(x, epsilon).to(torch::kDouble) - right).square().mean().sqrt().item<double>();
  const double size = right.square().mean().sqrt().item<double>();
  const double spread = (right - right.mean(-1, true)).square().mean().sqrt().item<double>();
  return {error / size, error / spread};
}

Octaves right_octaves(const RowNorm& norm, torch::ScalarType type, double epsilon) {
  const TypeRange range = type_range(type);
  const torch::Tensor rows = unit_rows();
  // A NaN is no number below the limit.
  const auto right = [&](int k) {
    return row_error(norm, (rows * std::ldexp(1.0, k)).to(type), epsilon).of_size < kRightBelow;
  };
  int low = 0, high = 0;
  while (low > range.low && right(low - 1)) --low;
  while (high < range.high && right(high + 1)) ++high;
  return {low, high, low == range.low, high == range.high};
}

torch::Tensor offset_rows(torch::ScalarType type, int k) { return (1 + unit_rows() * std::ldexp(1.0, -k)).to(type); }

}  // namespace rmsnorm::lab
