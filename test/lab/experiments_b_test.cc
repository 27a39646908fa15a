// Experiments 6, 7, 8 and 13: the rules on both sides of their limits, and what can be computed by hand.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "lab/experiments/byte_loss.h"
#include "lab/experiments/centring.h"
#include "lab/experiments/half_precision.h"
#include "lab/experiments/half_training.h"
#include "lab/experiments/invariances.h"
#include "lab/experiments/memory.h"
#include "lab/experiments/norm_inputs.h"
#include "lab/experiments/partial.h"
#include "lab/models/llama.h"

namespace rmsnorm::lab {
namespace {

// All is small: a second thread costs more than it brings, above all beside other tests.
[[maybe_unused]] const bool kOneThread = (torch::set_num_threads(1), true);

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// ---- 6: centring ---------------------------------------------------------------------------------------------------

TEST(Centring, RulesDecideOnBothSides) {
  EXPECT_EQ(self_centring({0.5, 0.3, 0.9}), Verdict::kHolds);
  EXPECT_EQ(self_centring({2.0, 1.1, 3.0}), Verdict::kRefuted);
  EXPECT_EQ(self_centring({1.0, 0.9, 1.1}), Verdict::kNotSettled);
  EXPECT_EQ(self_centring({kNan, kNan, kNan}), Verdict::kNotSettled);
  EXPECT_EQ(mean_negligible({0.005, 0.002, 0.009}), Verdict::kHolds);
  EXPECT_EQ(mean_negligible({0.05, 0.02, 0.09}), Verdict::kRefuted);
  EXPECT_EQ(mean_negligible({0.01, 0.005, 0.02}), Verdict::kNotSettled);
  EXPECT_EQ(table_verdict(30, 0, 0), Verdict::kHolds);
  EXPECT_EQ(table_verdict(29, 1, 0), Verdict::kPartly);
  EXPECT_EQ(table_verdict(0, 30, 0), Verdict::kRefuted);
  EXPECT_EQ(table_verdict(29, 0, 1), Verdict::kNotSettled);
  EXPECT_EQ(on_sphere(1e-15, 1e-3), Verdict::kHolds);
  EXPECT_EQ(on_sphere(1e-15, 0.5), Verdict::kPartly);
  EXPECT_EQ(on_sphere(1e-3, 1e-3), Verdict::kRefuted);
  EXPECT_EQ(on_sphere(kNan, 0), Verdict::kRefuted);
}

// Derived here from the definitions, without the paper: a = X W^T, mu and rms over the neurons of a case, or over the
// cases of a neuron (BatchNorm).
TEST(Invariances, TableFollowsFromTheFormulas) {
  const std::vector<std::vector<bool>>& table = paper_table();
  ASSERT_EQ(table.size(), normalisations().size());
  for (std::size_t i = 0; i < table.size(); ++i) {
    ASSERT_EQ(table[i].size(), transformations().size());
    const std::string& name = normalisations()[i].name;
    const bool over_batch = name == "BatchNorm", of_weights = name == "WeightNorm",
               over_row = !over_batch && !of_weights;
    const std::vector<bool> derived = {
        true,                 // W times c: a, or the length of each weight vector, is c times as large
        name == "LayerNorm",  // W + 1 v^T adds v.x to all neurons of a case: a mean over neurons takes it away
        !over_row,            // one w_i times c: only what looks at neuron i alone can tell the factor
        !of_weights,          // X times c scales a, which WeightNorm leaves as it is
        over_batch,           // X + v adds w_i.v to neuron i in all cases: a mean over cases takes it away
        over_row,             // one case times c: only what looks at this case alone can tell the factor
    };
    EXPECT_EQ(table[i], derived) << name;
  }
}

TEST(Invariances, NumbersAgreeWithTheTable) {
  for (std::size_t i = 0; i < normalisations().size(); ++i) {
    for (std::size_t j = 0; j < transformations().size(); ++j) {
      for (const std::uint64_t seed : {1, 2}) {
        const double change = change_of_output(normalisations()[i], transformations()[j], 0, seed);
        EXPECT_EQ(judge_invariance(change), paper_table()[i][j] ? Invariance::kInvariant : Invariance::kChanged)
            << normalisations()[i].name << ", " << transformations()[j].name << ": " << change;
      }
    }
    EXPECT_NEAR(gradient_ratio(normalisations()[i], 8, 3), 1, 1e-9) << normalisations()[i].name;
  }
}

TEST(Invariances, EpsilonEndsThem) {
  // mean(a^2) is about 16 here, so epsilon 1 moves the output by some percent under a factor of 2.5.
  EXPECT_EQ(judge_invariance(change_of_output(normalisations()[3], transformations()[3], 1, 1)), Invariance::kChanged);
  EXPECT_EQ(judge_invariance(1e-5), Invariance::kUnclear);
  EXPECT_EQ(judge_invariance(kNan), Invariance::kUnclear);
}

TEST(NormInputs, MeanShareOfKnownRows) {
  EXPECT_DOUBLE_EQ(mean_share(torch::ones({3, 8})), 1);
  EXPECT_DOUBLE_EQ(mean_share(torch::tensor({{1.0, -1.0}, {0.0, 0.0}})), 0);             // the zero row is left out
  EXPECT_DOUBLE_EQ(mean_share(torch::tensor({{2.0, 0.0}, {1.0, 1.0}})), (0.5 + 1) / 2);  // 1^2 / 2, and 1
}

TEST(NormInputs, EveryNormOfALlamaIsSeenOnce) {
  torch::manual_seed(1);
  LlamaOptions options;
  options.width = 32;
  options.layers = 2;
  options.context = 8;
  for (const NormCode code : {NormCode::kFused, NormCode::kEager}) {
    options.norm.code = code;
    const Model model = make_llama(options);
    const std::vector<NormInput> seen = norm_inputs(*model, torch::randint(0, 256, {2, 8}));
    const auto norms = model->norms();
    ASSERT_EQ(seen.size(), norms.size());
    for (std::size_t i = 0; i < seen.size(); ++i) {
      EXPECT_EQ(seen[i].name, norms[i].first);
      EXPECT_GT(seen[i].rms, 0);
      EXPECT_GE(seen[i].mean_share, 0);
      EXPECT_LE(seen[i].mean_share, 1);
      EXPECT_FALSE(static_cast<bool>(norms[i].second->observer));
    }
    // The first norm reads the embedding.
    const torch::Tensor tokens = torch::arange(8).view({1, 8});
    torch::Tensor embedding;
    for (const auto& parameter : model->named_parameters()) {
      if (parameter.key().find("embed_tokens") != std::string::npos) embedding = parameter.value();
    }
    ASSERT_TRUE(embedding.defined());
    EXPECT_NEAR(norm_inputs(*model, tokens)[0].mean_share, mean_share(embedding.slice(0, 0, 8)), 1e-7);
  }
}

// ---- 7: half precision ---------------------------------------------------------------------------------------------

TEST(HalfPrecision, RulesDecideOnBothSides) {
  const Octaves narrow = {-10, 7, false, false}, wide = {-10, 9, false, false}, moved = {-8, 9, false, false};
  EXPECT_EQ(wider_range(wide, narrow), Verdict::kHolds);
  EXPECT_EQ(wider_range(narrow, narrow), Verdict::kRefuted);
  EXPECT_EQ(wider_range(narrow, wide), Verdict::kRefuted);
  EXPECT_EQ(wider_range(moved, narrow), Verdict::kRefuted);  // more at one end, fewer at the other
  EXPECT_EQ(smaller_error(1e-3, 1e-2), Verdict::kHolds);
  EXPECT_EQ(smaller_error(1e-2, 1e-2), Verdict::kRefuted);
  EXPECT_EQ(smaller_error(1e-2, kNan), Verdict::kHolds);
  EXPECT_EQ(smaller_error(kNan, kNan), Verdict::kRefuted);
  EXPECT_EQ(costs_more({1.0, 1.1, 0.9, 1.0, 1.05}), Verdict::kHolds);
  EXPECT_EQ(costs_more({0.001, 0.002, 0.001, 0.002, 0.001}), Verdict::kRefuted);  // more, but inside the margin
  EXPECT_EQ(costs_more({-1.0, -1.1, -0.9, -1.0, -1.05}), Verdict::kRefuted);
  EXPECT_EQ(costs_more({-1.0, 1.0, -0.5, 0.7, 0.1}), Verdict::kNotSettled);
}

TEST(HalfPrecision, SquaresInF16EndAt256AndVanishBelow2ToMinus12) {
  const torch::NoGradGuard no_gradient;
  const auto row = [](double value) { return torch::full({1, 64}, value).to(torch::kHalf); };
  const auto rms = [&](double value, torch::ScalarType squares) {
    return normalise(RowForm::kRmsNorm, row(value), squares, 0)[0][0].item<double>();
  };
  EXPECT_NEAR(rms(255, torch::kHalf), 1, 0.01);
  EXPECT_EQ(rms(256, torch::kHalf), 0);  // 65536 is infinity, and 1 / sqrt of it 0
  EXPECT_NEAR(rms(60000, torch::kFloat), 1, 1e-3);
  EXPECT_NEAR(rms(std::ldexp(1, -12), torch::kHalf), 1, 0.01);
  EXPECT_FALSE(std::abs(rms(std::ldexp(1, -13), torch::kHalf)) < 2);  // 2^-26 is 0, and 1 / sqrt of it infinity
  EXPECT_NEAR(rms(std::ldexp(1, -20), torch::kFloat), 1, 1e-3);
}

TEST(HalfPrecision, OnePassLosesTheVarianceUnderAnOffset) {
  const auto norms = row_norms(torch::kHalf);
  const auto error = [&](RowForm form, const char* squares) {
    for (const RowNorm& norm : norms) {
      if (norm.computes == form && norm.where == squares)
        return row_error(norm, offset_rows(torch::kHalf, 6), 0).of_size;
    }
    return kNan;
  };
  EXPECT_LT(error(RowForm::kRmsNorm, "f16"), 0.01);
  EXPECT_FALSE(error(RowForm::kLayerNormOnePass, "f16") < 0.1);
  EXPECT_LT(error(RowForm::kLayerNormTwoPass, "f32"), 1e-3);
}

TEST(HalfPrecision, F32TrainingDoesNotSeeTheScaleOfTheStream) {
  class Zeros final : public Data {
   public:
    Batch train(std::uint64_t seed, std::int64_t step, std::int64_t batch) const override {
      torch::Tensor bytes = (torch::arange(batch * (kWindow + 1)) * 7 + static_cast<std::int64_t>(seed) + step) % 256;
      bytes = bytes.view({batch, kWindow + 1});
      return {bytes.slice(1, 0, kWindow), bytes.slice(1, 1)};
    }
    Batch held_out(std::int64_t index, std::int64_t batch) const override { return train(0, index, batch); }
    std::int64_t parts(std::int64_t) const override { return 1; }
    std::int64_t classes() const override { return 256; }
  } data;
  HalfTraining options{RowForm::kRmsNorm, torch::kFloat, torch::kFloat, {"ordinary", 1, 0}, 3, 1};
  const HalfResult ordinary = train_half(options, data);
  options.stream.scale = 256;
  const HalfResult large = train_half(options, data);
  EXPECT_NEAR(ordinary.loss, large.loss, 1e-3);
  options.type = options.squares = torch::kHalf;
  const HalfResult overflowed = train_half(options, data);  // zeros behind every norm: uniform logits
  EXPECT_NEAR(overflowed.loss, std::log(256.0), 1e-2);
}

// ---- 8: memory -----------------------------------------------------------------------------------------------------

TEST(Memory, RulesDecideOnBothSides) {
  EXPECT_EQ(fewer_bytes(0.9), Verdict::kHolds);
  EXPECT_EQ(fewer_bytes(0.97), Verdict::kPartly);
  EXPECT_EQ(fewer_bytes(1.0), Verdict::kRefuted);
  EXPECT_EQ(fewer_bytes(1.5), Verdict::kRefuted);
  EXPECT_EQ(cheaper_recomputation({0.8, 0.7, 0.9}), Verdict::kHolds);
  EXPECT_EQ(cheaper_recomputation({1.0, 0.97, 1.03}), Verdict::kRefuted);
  EXPECT_EQ(cheaper_recomputation({0.95, 0.9, 1.0}), Verdict::kNotSettled);
}

TEST(Memory, BytesOfAnInterval) {
  EXPECT_DOUBLE_EQ(bytes_with_interval(32, 1, 10, 100), 420);
  EXPECT_DOUBLE_EQ(bytes_with_interval(32, 8, 10, 100), 840);
  EXPECT_DOUBLE_EQ(bytes_with_interval(5, 2, 10, 100), 230);  // three checkpoints
}

// ---- 13: partial ---------------------------------------------------------------------------------------------------

TEST(Partial, RulesDecideOnBothSides) {
  EXPECT_EQ(as_good({0.001, -0.002, 0.001, 0.0, 0.002}), Verdict::kHolds);
  EXPECT_EQ(as_good({0.1, 0.11, 0.09, 0.1, 0.1}), Verdict::kRefuted);
  EXPECT_EQ(as_good({-0.1, -0.11, -0.09, -0.1, -0.1}), Verdict::kHolds);
  EXPECT_EQ(as_good({0.1, -0.1, 0.05, -0.05, 0.02}), Verdict::kNotSettled);
  EXPECT_EQ(more_robust({0.5, 0.4, 0.6}), Verdict::kHolds);
  EXPECT_EQ(more_robust({-0.5, -0.4, -0.6}), Verdict::kRefuted);
  EXPECT_EQ(more_robust({-0.5, 0.4, 0.1}), Verdict::kNotSettled);
}

TEST(Partial, LargestRise) {
  EXPECT_DOUBLE_EQ(largest_rise({5, 4, 3, 2}, 1), 0);
  EXPECT_DOUBLE_EQ(largest_rise({5, 3, 4.5, 2, 3}, 1), 1.5);
  EXPECT_DOUBLE_EQ(largest_rise({5, 3, 5, 3}, 2), 0);
  EXPECT_DOUBLE_EQ(largest_rise({}, 5), 0);
}

TEST(ByteLoss, IsNeverWorseThanKnowingNothing) {
  EXPECT_DOUBLE_EQ(byte_loss(2), 2);
  EXPECT_DOUBLE_EQ(byte_loss(9), std::log(256.0));
  EXPECT_DOUBLE_EQ(byte_loss(kNan), std::log(256.0));
}

}  // namespace
}  // namespace rmsnorm::lab
