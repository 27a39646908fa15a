// Experiments 9 to 12: the rules of their verdicts on made-up numbers, and the tools that they work with.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <limits>
#include <stdexcept>

#include "lab/experiments/parallel.h"
#include "lab/experiments/quality.h"
#include "lab/experiments/surgery.h"
#include "lab/experiments/thread_ranks.h"
#include "lab/experiments/vit.h"
#include "lab/models/vit.h"
#include "tools/error.h"

namespace {

using namespace rmsnorm::lab;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// ---- Rules

TEST(Better, AnIntervalAboveZeroHolds) {
  EXPECT_EQ(better({0.05, 0.06, 0.04, 0.05, 0.05}, 0.02), Verdict::kHolds);
  EXPECT_EQ(better({0.005, 0.006, 0.004, 0.005, 0.005}, 0.02), Verdict::kHolds);  // small, but there
}

TEST(Better, AnIntervalBelowTheMarginAndNotAboveZeroIsRefuted) {
  EXPECT_EQ(better({-0.05, -0.06, -0.04, -0.05, -0.05}, 0.02), Verdict::kRefuted);
  EXPECT_EQ(better({0.001, -0.001, 0.002, -0.002, 0.0}, 0.02), Verdict::kRefuted);
}

TEST(Better, AWideIntervalIsNotSettled) {
  EXPECT_EQ(better({0.2, -0.1, 0.15, -0.12, 0.05}, 0.02), Verdict::kNotSettled);
  EXPECT_EQ(better({kNan, 0.1, 0.1}, 0.02), Verdict::kNotSettled);
}

TEST(BetterThanAll, OneThatItDoesNotBeatRefutes) {
  const std::vector<double> won = {0.05, 0.06, 0.04, 0.05, 0.05}, lost = {-0.05, -0.06, -0.04, -0.05, -0.05};
  const std::vector<double> open = {0.2, -0.1, 0.15, -0.12, 0.05};
  EXPECT_EQ(better_than_all({won, won}, 0.02), Verdict::kHolds);
  EXPECT_EQ(better_than_all({won, lost}, 0.02), Verdict::kRefuted);
  EXPECT_EQ(better_than_all({open, lost}, 0.02), Verdict::kRefuted);
  EXPECT_EQ(better_than_all({won, open}, 0.02), Verdict::kNotSettled);
  EXPECT_EQ(better_than_all({}, 0.02), Verdict::kNotSettled);
}

TEST(BestRate, IsTheLargestThatIsFinite) {
  EXPECT_EQ(best_rate({0.2, 0.5, 0.3}), 1u);
  EXPECT_EQ(best_rate({kNan, -2.5, -3.0}), 1u);
  EXPECT_EQ(best_rate({0.4, 0.4}), 0u);
  EXPECT_THROW(best_rate({kNan, kNan}), std::runtime_error);
}

TEST(NeedsFineTuning, SameLabelsAndLogitsRefute) {
  EXPECT_EQ(needs_fine_tuning({1.0, 0.9995}, {1e-6, 2e-6}), Verdict::kRefuted);
  EXPECT_EQ(needs_fine_tuning({0.5, 0.9}, {0.3, 0.2}), Verdict::kHolds);
  EXPECT_EQ(needs_fine_tuning({1.0, 0.9}, {1e-6, 0.2}), Verdict::kNotSettled);   // in one seed only
  EXPECT_EQ(needs_fine_tuning({1.0, 1.0}, {1e-6, 1e-2}), Verdict::kNotSettled);  // the logits moved
  EXPECT_EQ(needs_fine_tuning({1.0, 1.0}, {1e-6, kNan}), Verdict::kNotSettled);
  EXPECT_EQ(needs_fine_tuning({}, {}), Verdict::kNotSettled);
}

TEST(SendsLess, FewerNumbersAndNoMoreRoundsHold) {
  const SpreadNorm rms{2, 2, 1e-7}, layer{3, 4, 1e-7};
  EXPECT_EQ(sends_less(rms, layer), Verdict::kHolds);
  EXPECT_EQ(sends_less(layer, rms), Verdict::kRefuted);
  EXPECT_EQ(sends_less(rms, rms), Verdict::kRefuted);
  EXPECT_EQ(sends_less({3, 2, 1e-7}, {2, 4, 1e-7}), Verdict::kRefuted);
}

TEST(SendsLess, AWrongResultSettlesNothing) {
  const SpreadNorm rms{2, 2, 1e-7}, layer{3, 4, 1e-7};
  EXPECT_EQ(sends_less({2, 2, 1e-3}, layer), Verdict::kNotSettled);
  EXPECT_EQ(sends_less(rms, {3, 4, kNan}), Verdict::kNotSettled);
}

TEST(SavedShare, IsTheNormsShareOfALayer) {
  const SpreadNorm rms{2, 2, 0}, layer{3, 4, 0};
  // 2 ranks, width 4096, bf16: 8 * 4096 / 2 * 2 = 32768 bytes of activations; norms 2 * 4 * 8 = 64 and 32.
  EXPECT_DOUBLE_EQ(activation_bytes(4096, 2, 2), 32768);
  EXPECT_DOUBLE_EQ(norm_bytes(layer, 2), 64);
  EXPECT_DOUBLE_EQ(saved_share(rms, layer, 4096, 2, 2), 32.0 / (64 + 32768));
  EXPECT_EQ(saved_share(rms, rms, 4096, 2, 2), 0);
}

// ---- Tools

TEST(RunRanks, SumsInTheOrderOfTheRanks) {
  std::vector<double> sums(3);
  run_ranks(3, [&](Ranks& ranks) {
    EXPECT_EQ(ranks.count(), 3);
    double sum = 0;
    for (int round = 0; round < 100; ++round) sum += ranks.sum(ranks.rank() + 0.5 * round, Cargo::kScalars);
    sums[static_cast<std::size_t>(ranks.rank())] = sum;
    EXPECT_EQ(ranks.sent(Cargo::kScalars).rounds, 100);
    EXPECT_EQ(ranks.sent(Cargo::kScalars).bytes, 100 * 2 * 8);
  });
  EXPECT_EQ(sums, std::vector<double>(3, 100 * 3 + 1.5 * 4950));
}

TEST(RunRanks, OneThatThrowsEndsAll) {
  const auto work = [](Ranks& ranks) {
    for (int round = 0; round < 10; ++round) {
      if (ranks.rank() == 1 && round == 5) throw std::invalid_argument("the fifth round");
      ranks.sum(1.0, Cargo::kScalars);
    }
  };
  EXPECT_THROW(run_ranks(3, work), std::invalid_argument);
}

// A ViT with LayerNorms that all have a say: weights, biases and stream of non-zero mean.
Model made_up_vit(NormKind kind) {
  VitOptions options;
  options.width = 16;
  options.layers = 2;
  options.norm.kind = kind;
  return make_vit(options);
}

void stir(ModelImpl& model) {
  torch::manual_seed(3);
  const torch::NoGradGuard no_gradient;
  for (auto& parameter : model.parameters()) parameter.add_(0.3 * torch::randn_like(parameter) + 0.1);
}

class Surgery : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() / ("surgery_" + std::to_string(::getpid()));
    config_ = {{"architectures", nlohmann::json::array({"ViTForImageClassification"})},
               {"model_type", "vit"},
               {"hidden_size", 16},
               {"num_hidden_layers", 2},
               {"num_attention_heads", 4},
               {"intermediate_size", 64},
               {"image_size", 28},
               {"patch_size", 7},
               {"num_channels", 1},
               {"layer_norm_eps", NormOptions().epsilon}};
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::filesystem::path folder_;
  nlohmann::json config_;
};

TEST_F(Surgery, TheTwinIsTheSameFunction) {
  const Model model = made_up_vit(NormKind::kLayerNorm), twin = made_up_vit(NormKind::kRmsNorm);
  stir(*model);
  const torch::NoGradGuard no_gradient;
  const torch::Tensor input = torch::randn({3, 1, 28, 28}), expected = model->forward(input);
  const double scale = expected.abs().max().item<double>();
  for (int time = 0; time < 2; ++time) {  // over what the first one left
    make_twin(*model, config_, rmsnorm::convert::Affine::kBias, folder_, *twin);
    EXPECT_LT((twin->forward(input) - expected).abs().max().item<double>(), 1e-5 * scale);
  }
  // without the conversion it is another
  copy_parameters(*model, *twin);
  EXPECT_GT((twin->forward(input) - expected).abs().max().item<double>(), 1e-2 * scale);
}

TEST_F(Surgery, ABiasThatTheTwinCannotHoldIsAnError) {
  const Model model = made_up_vit(NormKind::kLayerNorm), twin = made_up_vit(NormKind::kRmsNorm);
  stir(*model);
  EXPECT_THROW(make_twin(*model, config_, rmsnorm::convert::Affine::kKeep, folder_, *twin), rmsnorm::tools::ToolError);
}

TEST_F(Surgery, AReplacedNormKeepsItsWeightAndLosesTheMean) {
  const Model model = made_up_vit(NormKind::kLayerNorm);
  stir(*model);
  NormImpl& norm = *model->norms().front().second;
  const torch::Tensor weight = norm.weight.detach().clone();
  replace_norm(norm, {.kind = NormKind::kRmsNorm});
  EXPECT_TRUE(torch::equal(norm.weight, weight));
  EXPECT_FALSE(norm.bias.defined());
  const torch::Tensor x = torch::randn({5, 16}) + 3;
  const torch::Tensor expected = x / (x.square().mean(-1, true) + norm.options().epsilon).sqrt() * weight;
  EXPECT_TRUE(torch::allclose(norm.forward(x), expected, 1e-5, 1e-6));
  // the model trains the new parameter, and not the old ones
  const auto parameters = model->named_parameters();
  EXPECT_TRUE(parameters.contains(model->norms().front().first + ".weight"));
  EXPECT_FALSE(parameters.contains(model->norms().front().first + ".bias"));
  EXPECT_TRUE(parameters[model->norms().front().first + ".weight"].is_same(norm.weight));
}

}  // namespace
