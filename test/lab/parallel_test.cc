// Runs of several processes against the plain run, which every process does, too. Started by mpirun.
#include <gtest/gtest.h>

#include "lab/train/parallel.h"
#include "lab/train/sharded_llama.h"
#include "test/lab/train_runs.h"

namespace rmsnorm::lab {
namespace {

Ranks* ranks = nullptr;  // of main

constexpr double kEqualF64 = 1e-10, kEqualF32 = 1e-4;  // parameters and losses; losses

struct Pair {
  Model plain, parallel;  // parallel: as a whole model
  TrainResult of_plain, of_parallel;
};

Pair run_both(torch::ScalarType type, const LlamaOptions& llama, bool hidden) {
  const auto data = text_data(moby_dick(), kTime);
  TrainOptions options = tiny_run(20);
  options.batch = 6;  // 4 processes have 1, 2, 1 and 2 rows
  Pair pair;
  pair.plain = make_tiny(llama, type);
  pair.of_plain = train(*pair.plain, *data, options);
  pair.parallel = make_tiny(llama, type);
  if (hidden) {
    HiddenWorkers workers(*ranks);
    options.workers = &workers;
    const Model sharded = make_sharded_llama(llama, *pair.parallel, *ranks);
    pair.of_parallel = train(*sharded, *data, options);
    collect_slices(*sharded, *ranks, *pair.parallel);
  } else {
    DataWorkers workers(*ranks);
    options.workers = &workers;
    pair.of_parallel = train(*pair.parallel, *data, options);
  }
  return pair;
}

void expect_equal(const Pair& pair, double largest) {
  ASSERT_EQ(pair.of_plain.steps.size(), pair.of_parallel.steps.size());
  double loss = 0;
  for (std::size_t i = 0; i < pair.of_plain.steps.size(); ++i) {
    loss = std::max(loss, std::abs(pair.of_plain.steps[i].loss - pair.of_parallel.steps[i].loss));
  }
  EXPECT_LE(loss, largest);
  EXPECT_NEAR(pair.of_plain.evaluations.back().loss, pair.of_parallel.evaluations.back().loss, largest);
  EXPECT_LT(pair.of_plain.steps.back().loss, pair.of_plain.steps.front().loss);
  if (largest == kEqualF64) EXPECT_LE(largest_difference(*pair.plain, *pair.parallel), largest);
}

// All ranks must end with the same bits.
void expect_same_on_all_ranks(const ModelImpl& model) {
  for (const auto& parameter : model.parameters()) {
    const torch::Tensor sum = ranks->sum(parameter, Cargo::kParameters);
    torch::Tensor same = parameter.detach().clone();
    for (int rank = 1; rank < ranks->count(); ++rank) same += parameter.detach();
    ASSERT_TRUE(torch::equal(sum, same));
  }
}

LlamaOptions llama_of(NormKind kind, bool tied) {
  LlamaOptions options = tiny_llama();
  options.width = 40;  // 4 processes have 10 columns each, 3 have 13, 13 and 14
  options.norm.kind = kind;
  options.tied = tied;
  return options;
}

TEST(Parallel, RanksAddInTheirOrder) {
  // 1 + 2^53 - 2^53: the order shows.
  const double mine[] = {1, 0x1p53, -0x1p53, 3};
  double expected = 0;
  for (int rank = 0; rank < ranks->count(); ++rank) expected += mine[rank];
  EXPECT_EQ(ranks->sum(mine[ranks->rank()], Cargo::kScalars), expected);
  const torch::Tensor large = torch::full({(1 << 24) + 3}, ranks->rank() + 1, torch::kFloat32);  // more than a piece
  const torch::Tensor sum = ranks->sum(large, Cargo::kParameters);
  EXPECT_TRUE(sum.eq(ranks->count() * (ranks->count() + 1) / 2).all().item<bool>());
}

TEST(Parallel, DataParallelEqualsThePlainRun) {
  const Pair f64 = run_both(torch::kFloat64, llama_of(NormKind::kRmsNorm, true), false);
  expect_equal(f64, kEqualF64);
  expect_same_on_all_ranks(*f64.parallel);
  expect_equal(run_both(torch::kFloat32, llama_of(NormKind::kRmsNorm, true), false), kEqualF32);
}

TEST(Parallel, HiddenShardedEqualsThePlainRun) {
  for (const NormKind kind : {NormKind::kRmsNorm, NormKind::kLayerNorm}) {
    const Pair f64 = run_both(torch::kFloat64, llama_of(kind, kind == NormKind::kRmsNorm), true);
    expect_equal(f64, kEqualF64);
    expect_same_on_all_ranks(*f64.parallel);
  }
  expect_equal(run_both(torch::kFloat32, llama_of(NormKind::kRmsNorm, true), true), kEqualF32);
}

// Two norms a block and one at the end: a number a token and round, 8 bytes to each other process.
TEST(Parallel, NormsSendWhatTheFormulaSays) {
  const torch::Tensor tokens = torch::arange(2 * kTime).view({2, kTime});
  const auto norm_bytes = [&](NormKind kind, bool backward) {
    const LlamaOptions llama = llama_of(kind, true);
    const Model sharded = make_sharded_llama(llama, *make_tiny(llama), *ranks);
    Sent before = ranks->sent(Cargo::kNorms);
    const torch::Tensor logits = sharded->forward(tokens);
    if (backward) {
      before = ranks->sent(Cargo::kNorms);
      logits.sum().backward();
    }
    const Sent after = ranks->sent(Cargo::kNorms);
    EXPECT_EQ(after.rounds - before.rounds, kind == NormKind::kLayerNorm && !backward ? 10 : 5);
    return static_cast<double>(after.bytes - before.bytes) / static_cast<double>(tokens.numel());
  };
  const int others = ranks->count() - 1;
  EXPECT_EQ(norm_bytes(NormKind::kRmsNorm, false), 5 * 8 * others);
  EXPECT_EQ(norm_bytes(NormKind::kRmsNorm, true), 5 * 8 * others);
  EXPECT_EQ(norm_bytes(NormKind::kLayerNorm, false), 5 * 16 * others);
  EXPECT_EQ(norm_bytes(NormKind::kLayerNorm, true), 5 * 16 * others);
}

}  // namespace
}  // namespace rmsnorm::lab

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  torch::set_num_threads(1);
  const std::unique_ptr<rmsnorm::lab::Ranks> joined = rmsnorm::lab::join_mpi();
  rmsnorm::lab::ranks = joined.get();
  int failed = 1;
  joined->run([&] { failed = RUN_ALL_TESTS(); });
  return failed;
}
