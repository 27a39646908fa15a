// Norms of the lab: the three codes against each other, against PyTorch's functions, and against differences.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "lab/models/norm.h"
#include "test/lab/gradients.h"
#include "test/lab/refusal.h"

namespace rmsnorm::lab {
namespace {

using torch::Tensor;

constexpr NormKind kKinds[] = {NormKind::kNone,           NormKind::kLayerNorm,    NormKind::kRmsNorm,
                               NormKind::kPartialRmsNorm, NormKind::kBatchNorm,    NormKind::kGroupNorm,
                               NormKind::kChannelRmsNorm, NormKind::kGroupRmsNorm, NormKind::kPerChannelRmsNorm};
constexpr NormCode kCodes[] = {NormCode::kFused, NormCode::kEager, NormCode::kNative};
constexpr std::int64_t kWidth = 48;

bool of_rows(NormKind kind) { return kind >= NormKind::kNone && kind <= NormKind::kPartialRmsNorm; }

// Kinds x codes that the header promises, written here a second time.
bool exists(NormKind kind, NormCode code) {
  switch (code) {
    case NormCode::kFused:
      return kind != NormKind::kBatchNorm && kind != NormKind::kGroupNorm;
    case NormCode::kNative:
      return kind <= NormKind::kRmsNorm || kind == NormKind::kBatchNorm || kind == NormKind::kGroupNorm;
    default:
      return true;
  }
}

NormOptions options_of(NormKind kind, NormCode code) {
  return {.kind = kind, .code = code, .share = 0.25, .groups = 4, .threshold = kind == NormKind::kPerChannelRmsNorm};
}

// With parameters that are not their initial ones.
Norm make(const NormOptions& options, torch::ScalarType type) {
  Norm norm(options, kWidth);
  const torch::NoGradGuard guard;
  const auto generator = torch::make_generator<at::CPUGeneratorImpl>(7);
  for (auto& parameter : norm->parameters()) parameter.add_(torch::randn(parameter.sizes(), generator) * 0.3);
  norm->to(type);
  return norm;
}

Tensor input(NormKind kind, torch::ScalarType type, std::uint64_t seed = 1) {
  const auto generator = torch::make_generator<at::CPUGeneratorImpl>(seed);
  const std::vector<std::int64_t> rows = {3, 5, kWidth}, images = {2, kWidth, 4, 3};
  return (torch::randn(of_rows(kind) ? rows : images, generator, torch::kDouble) * 2 + 0.5).to(type);
}

// Output, gradient of the input, gradients of the parameters, of sum(y * direction).
std::vector<Tensor> results(Norm& norm, const Tensor& values) {
  const Tensor x = values.detach().clone().requires_grad_(true);
  const Tensor y = norm->forward(x);
  const Tensor direction = torch::linspace(-1, 1.5, y.numel(), y.options()).view_as(y);
  std::vector<Tensor> wanted = {x};
  for (const auto& parameter : norm->parameters()) wanted.push_back(parameter);
  std::vector<Tensor> all = {y.detach()};
  for (const Tensor& g : torch::autograd::grad({(y * direction).sum()}, wanted)) all.push_back(g);
  return all;
}

double relative(const Tensor& a, const Tensor& b) {
  return ((a - b).abs().max() / b.abs().max()).to(torch::kDouble).item<double>();
}

TEST(LabNorm, CodesAgree) {
  for (const auto& [type, tolerance] : {std::pair{torch::kFloat, 2e-6}, std::pair{torch::kDouble, 1e-12}}) {
    for (const NormKind kind : kKinds) {
      Norm reference = make(options_of(kind, NormCode::kEager), torch::kDouble);
      const auto expected = results(reference, input(kind, type).to(torch::kDouble));
      for (const NormCode code : kCodes) {
        if (!exists(kind, code)) continue;
        Norm norm = make(options_of(kind, code), type);
        const auto found = results(norm, input(kind, type));
        ASSERT_EQ(found.size(), expected.size());
        for (std::size_t i = 0; i < found.size(); ++i) {
          ASSERT_EQ(found[i].scalar_type(), type);
          EXPECT_LE(relative(found[i].to(torch::kDouble), expected[i]), tolerance)
              << name_of(kind) << " " << name_of(code) << " " << type << ", result " << i;
        }
      }
    }
  }
}

// The eager formulas against functions of PyTorch that none of the three codes calls for that kind.
TEST(LabNorm, FormulasAreTheFunctions) {
  const Tensor rows = input(NormKind::kRmsNorm, torch::kDouble), images = input(NormKind::kBatchNorm, torch::kDouble);
  const auto value = [&](NormOptions o) {
    o.code = NormCode::kEager;
    Norm norm(o, kWidth);
    norm->to(torch::kDouble);
    return norm->forward(of_rows(o.kind) ? rows : images);
  };
  const double e = NormOptions().epsilon;
  // |x / rms| = sqrt(d): the norm by vector norms
  const auto by_norms = [e](const Tensor& x, const Tensor& counted, std::int64_t axis) {
    const double k = static_cast<double>(counted.size(axis));
    return x / torch::hypot(torch::linalg_vector_norm(counted, 2, axis, true) / std::sqrt(k),
                            torch::full({1}, std::sqrt(e), x.options()));
  };
  EXPECT_LE(relative(value({.kind = NormKind::kRmsNorm}), by_norms(rows, rows, -1)), 1e-12);
  EXPECT_LE(relative(value({.kind = NormKind::kPartialRmsNorm, .share = 0.25}),
                     by_norms(rows, rows.narrow(-1, 0, kWidth / 4), -1)),
            1e-12);
  EXPECT_LE(relative(value({.kind = NormKind::kPartialRmsNorm, .share = 1.0 / kWidth + 0.001}),
                     by_norms(rows, rows.narrow(-1, 0, 2), -1)),
            1e-12);
  EXPECT_LE(relative(value({.kind = NormKind::kChannelRmsNorm}), by_norms(images, images, 1)), 1e-12);
  const Tensor flat = images.flatten(2);
  EXPECT_LE(relative(value({.kind = NormKind::kPerChannelRmsNorm}), by_norms(flat, flat, 2).view_as(images)), 1e-12);
  const Tensor grouped = images.view({images.size(0), 4, -1});
  EXPECT_LE(
      relative(value({.kind = NormKind::kGroupRmsNorm, .groups = 4}), by_norms(grouped, grouped, 2).view_as(images)),
      1e-12);
  EXPECT_LE(relative(value({.kind = NormKind::kRmsNorm, .epsilon = 0.5, .epsilon_inside = false}),
                     rows / (rows.norm(2, -1, true) / std::sqrt(static_cast<double>(kWidth)) + 0.5)),
            1e-12);
}

TEST(LabNorm, EpsilonOutsideFusedAndEager) {
  for (const NormKind kind : {NormKind::kRmsNorm, NormKind::kPartialRmsNorm}) {
    NormOptions options = options_of(kind, NormCode::kEager);
    options.epsilon = 0.3;
    options.epsilon_inside = false;
    Norm eager = make(options, torch::kDouble);
    options.code = NormCode::kFused;
    Norm fused = make(options, torch::kDouble);
    const auto expected = results(eager, input(kind, torch::kDouble));
    const auto found = results(fused, input(kind, torch::kDouble));
    for (std::size_t i = 0; i < found.size(); ++i) EXPECT_LE(relative(found[i], expected[i]), 1e-12) << i;
  }
}

TEST(LabNorm, ResidualFormIsSumThenNorm) {
  for (const auto type : {torch::kFloat, torch::kDouble}) {
    for (const NormKind kind : kKinds) {
      for (const NormCode code : kCodes) {
        if (!exists(kind, code)) continue;
        Norm norm = make(options_of(kind, code), type);
        const Tensor x = input(kind, type, 1).requires_grad_(true), r = input(kind, type, 2).requires_grad_(true);
        const auto both = [&](const Tensor& y, const Tensor& sum) {
          std::vector<Tensor> wanted = {x, r};
          for (const auto& parameter : norm->parameters()) wanted.push_back(parameter);
          std::vector<Tensor> all = {y, sum};
          const Tensor direction = torch::linspace(-1, 1.5, y.numel(), y.options()).view_as(y);
          for (const Tensor& g : torch::autograd::grad({(y * direction + sum * sum).sum()}, wanted)) all.push_back(g);
          return all;
        };
        const auto [y, sum] = norm->forward(x, r);
        const auto found = both(y, sum);
        const Tensor separate = x + r;
        const auto expected = both(norm->forward(separate), separate);
        EXPECT_TRUE(torch::equal(found[0], expected[0])) << name_of(kind) << " " << name_of(code);
        EXPECT_TRUE(torch::equal(found[1], expected[1])) << name_of(kind) << " " << name_of(code);
        for (std::size_t i = 2; i < found.size(); ++i) {
          EXPECT_LE(relative(found[i], expected[i]), type == torch::kFloat ? 2e-6 : 1e-12)
              << name_of(kind) << " " << name_of(code) << ", gradient " << i - 2;
        }
      }
    }
  }
}

TEST(LabNorm, GradientsAgainstDifferences) {
  for (const NormKind kind : kKinds) {
    for (const NormCode code : kCodes) {
      if (!exists(kind, code)) continue;
      Norm norm = make(options_of(kind, code), torch::kDouble);
      Tensor x = input(kind, torch::kDouble).requires_grad_(true);
      std::vector<Tensor> leaves = {x};
      for (const auto& parameter : norm->parameters()) leaves.push_back(parameter);
      const auto loss = [&] {
        const Tensor y = norm->forward(x);
        return (y * torch::linspace(-1, 1.5, y.numel(), y.options()).view_as(y)).sum();
      };
      EXPECT_LE(gradient_error(loss, leaves, 4), 1e-6) << name_of(kind) << " " << name_of(code);
    }
  }
}

TEST(LabNorm, BatchNormKeepsItsMeans) {
  Norm eager = make(options_of(NormKind::kBatchNorm, NormCode::kEager), torch::kDouble);
  torch::nn::BatchNorm2d expected(torch::nn::BatchNorm2dOptions(kWidth).eps(eager->options().epsilon));
  Norm native = make(options_of(NormKind::kBatchNorm, NormCode::kNative), torch::kDouble);
  expected->to(torch::kDouble);
  {
    const torch::NoGradGuard guard;
    expected->weight.copy_(eager->weight);
    expected->bias.copy_(eager->bias);
  }
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    const Tensor x = input(NormKind::kBatchNorm, torch::kDouble, seed);
    const Tensor y = expected->forward(x);
    EXPECT_LE(relative(eager->forward(x), y), 1e-12);
    EXPECT_LE(relative(native->forward(x), y), 1e-12);
  }
  for (Norm norm : {eager, native}) {
    EXPECT_LE(relative(norm->running_mean, expected->running_mean), 1e-12);
    EXPECT_LE(relative(norm->running_var, expected->running_var), 1e-12);
    norm->eval();
    expected->eval();
    const Tensor x = input(NormKind::kBatchNorm, torch::kDouble, 9);
    EXPECT_LE(relative(norm->forward(x), expected->forward(x)), 1e-12);
  }
}

TEST(LabNorm, SixteenBitRows) {
  for (const NormKind kind : kKinds) {
    for (const NormCode code : kCodes) {
      if (!exists(kind, code)) continue;
      Norm norm = make(options_of(kind, code), torch::kFloat);
      const Tensor x = input(kind, torch::kBFloat16);
      const Tensor expected = norm->forward(x.to(torch::kFloat));
      const Tensor found = norm->forward(x).to(torch::kFloat);
      // One rounding to bf16, 2^-9, where a code computes in f32; PyTorch's may round before the weight, too.
      EXPECT_LE((found - expected).abs().max().item<double>(), expected.abs().max().item<double>() / 128)
          << name_of(kind) << " " << name_of(code);
    }
  }
}

TEST(LabNorm, RefusesWhatItHasNot) {
  for (const NormKind kind : kKinds) {
    for (const NormCode code : kCodes) {
      if (exists(kind, code)) continue;
      expect_refusal([&] { Norm(options_of(kind, code), kWidth); },
                     "code is " + name_of(code) + "; " + name_of(kind) + " has no such implementation");
    }
  }
  expect_refusal([] { Norm(NormOptions{.groups = 5}, kWidth); }, "groups is 5; it must divide the width, 48");
  expect_refusal([] { Norm(NormOptions{.epsilon = -1}, kWidth); }, "epsilon is -1; it must be at least 0");
  expect_refusal([] { Norm(NormOptions{.share = 0}, kWidth); }, "share is 0; it must be above 0");
  expect_refusal([] { Norm(NormOptions{.threshold = true}, kWidth); }, "threshold is true; it must be false");
  expect_refusal([] { Norm(NormOptions{.code = NormCode::kNative, .epsilon_inside = false}, kWidth); },
                 "epsilon is outside the root; it must be inside for rms_norm in the code native");
  expect_refusal(
      [] {
        Norm(NormOptions{}, kWidth)->forward(torch::zeros({2, 5}));
      },
      "x of rms_norm is [2, 5]; it must be [.., 48]");
  expect_refusal(
      [] {
        Norm(options_of(NormKind::kGroupNorm, NormCode::kNative), kWidth)->forward(torch::zeros({2, 48}));
      },
      "x of group_norm is [2, 48]; it must be [N, 48, H, W]");
  expect_refusal([] { norm_kind("rmsnorm"); },
                 "norm kind is \"rmsnorm\"; it must be one of none, layer_norm, rms_norm");
  for (const NormKind kind : kKinds) EXPECT_EQ(norm_kind(name_of(kind)), kind);
  for (const NormCode code : kCodes) EXPECT_EQ(norm_code(name_of(code)), code);
}

}  // namespace
}  // namespace rmsnorm::lab
