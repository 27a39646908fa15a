// Data, the training loop, the log.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "test/lab/train_runs.h"
#include "tools/error.h"

namespace rmsnorm::lab {
namespace {

using torch::Tensor;

struct Threads : ::testing::Environment {
  void SetUp() override { torch::set_num_threads(2); }
};
const auto* const threads = ::testing::AddGlobalTestEnvironment(new Threads);

// ---- Data

TEST(TextData, BatchesDependOnSeedAndStepAlone) {
  const auto data = text_data(moby_dick(), kTime), again = text_data(moby_dick(), kTime);
  const Batch batch = data->train(3, 5, 4);
  EXPECT_EQ(batch.input.sizes(), (std::vector<std::int64_t>{4, kTime}));
  EXPECT_TRUE(torch::equal(batch.input, again->train(3, 5, 4).input));
  EXPECT_FALSE(torch::equal(batch.input, data->train(4, 5, 4).input));
  EXPECT_FALSE(torch::equal(batch.input, data->train(3, 6, 4).input));
  EXPECT_FALSE(torch::equal(batch.input[0], batch.input[1]));
}

TEST(TextData, RowsAreTextAndTargetsTheNextByte) {
  const Folder folder;
  std::string text;
  for (int i = 0; i < 2000; ++i) text += static_cast<char>(i * i % 251);
  write_text(folder / "text", text);
  const auto data = text_data(folder / "text", kTime);
  EXPECT_EQ(data->classes(), 256);
  const std::string trained = text.substr(0, 1800), held_out = text.substr(1800);
  const auto find = [](const std::string& where, const Tensor& input, const Tensor& target) {
    std::string row;
    for (std::int64_t i = 0; i < kTime; ++i) row += static_cast<char>(input[i].item<std::int64_t>());
    row += static_cast<char>(target[kTime - 1].item<std::int64_t>());
    EXPECT_TRUE(torch::equal(input.slice(0, 1), target.slice(0, 0, kTime - 1)));
    return where.find(row);
  };
  const Batch batch = data->train(1, 0, 50);
  for (std::int64_t row = 0; row < 50; ++row) {
    EXPECT_NE(find(trained, batch.input[row], batch.target[row]), std::string::npos) << row;
  }
  // 199 bytes with a byte behind them are 8 rows of 24: two parts of 3 and one of 2, side by side.
  ASSERT_EQ(data->parts(3), 3);
  std::size_t expected = 0;
  for (std::int64_t part = 0; part < 3; ++part) {
    const Batch rows = data->held_out(part, 3);
    ASSERT_EQ(rows.input.size(0), part == 2 ? 2 : 3);
    for (std::int64_t row = 0; row < rows.input.size(0); ++row, expected += kTime) {
      EXPECT_EQ(find(held_out, rows.input[row], rows.target[row]), expected);
    }
  }
}

TEST(TextData, ShortFilesAreRefused) {
  const Folder folder;
  write_text(folder / "short", std::string(10 * kTime + 9, 'x'));
  EXPECT_THROW(text_data(folder / "short", kTime), tools::ToolError);
  write_text(folder / "enough", std::string(10 * (kTime + 1), 'x'));
  EXPECT_EQ(text_data(folder / "enough", kTime)->parts(1), 1);
  EXPECT_THROW(text_data(folder / "missing", kTime), tools::ToolError);
}

TEST(FashionMnist, AnEpochShowsEveryImageOnce) {
  const auto data = fashion_mnist(50);
  if (data == nullptr) GTEST_SKIP() << "dataset-fashion-mnist is not installed";
  std::set<std::string> seen;
  for (std::int64_t step = 0; step < 5; ++step) {
    const Batch batch = data->train(1, step, 10);
    ASSERT_EQ(batch.input.sizes(), (std::vector<std::int64_t>{10, 1, 28, 28}));
    EXPECT_EQ(batch.input.min().item<float>(), -1);
    EXPECT_LE(batch.input.max().item<float>(), 1);
    EXPECT_LT(batch.target.max().item<std::int64_t>(), 10);
    for (std::int64_t i = 0; i < 10; ++i) {
      const Tensor image = batch.input[i].contiguous();
      seen.emplace(static_cast<const char*>(image.data_ptr()), image.nbytes());
    }
  }
  EXPECT_EQ(seen.size(), 50u);
  EXPECT_EQ(data->parts(1000), 10);
  // The published test set has a thousand images of each class.
  Tensor count = torch::zeros({10}, torch::kInt64);
  for (std::int64_t part = 0; part < 10; ++part) count += torch::bincount(data->held_out(part, 1000).target, {}, 10);
  EXPECT_TRUE(torch::equal(count, torch::full({10}, 1000, torch::kInt64)));
}

// ---- The loop

// logits[t] = matrix[token t] + vector. From the step `broken_from` on they are not finite.
class TableModel : public ModelImpl {
 public:
  explicit TableModel(std::int64_t broken_from = std::numeric_limits<std::int64_t>::max()) : broken_from_(broken_from) {
    torch::manual_seed(1);
    matrix = register_parameter("matrix", torch::randn({256, 256}, torch::kFloat64));
    vector = register_parameter("vector", torch::randn({256}, torch::kFloat64));
  }
  Tensor forward(const Tensor& tokens) override {
    const Tensor logits = torch::embedding(matrix, tokens) + vector;
    return is_training() && calls_++ >= broken_from_ ? logits / 0 : logits;
  }
  Tensor matrix, vector;

 private:
  std::int64_t broken_from_, calls_ = 0;
};

// The formulas of AdamW (Loshchilov & Hutter 2019), of clipping and of the schedule, written out.
TEST(Train, TakesTheStepsOfTheFormulas) {
  const auto data = text_data(moby_dick(), kTime);
  TrainOptions options = tiny_run(6);
  options.clip = 0.05;  // below the gradient's norm in all steps
  options.learning_rate = 0.1;
  TableModel model, expected;
  const TrainResult result = train(model, *data, options);
  std::vector<Tensor> parameters = {expected.matrix, expected.vector}, m(2), v(2);
  for (int p = 0; p < 2; ++p) m[p] = v[p] = torch::zeros_like(parameters[p]);
  for (int step = 1; step <= 6; ++step) {
    const Batch batch = data->train(options.seed, step - 1, options.batch);
    const Tensor logits = expected.forward(batch.input);
    const Tensor loss = -logits.log_softmax(-1).gather(-1, batch.target.unsqueeze(-1)).mean();
    std::vector<Tensor> g = torch::autograd::grad({loss}, parameters);
    const double norm = std::sqrt((g[0].square().sum() + g[1].square().sum()).item<double>());
    ASSERT_GT(norm, options.clip);
    EXPECT_NEAR(result.steps[step - 1].loss, loss.item<double>(), 1e-12);
    EXPECT_NEAR(result.steps[step - 1].gradient_norm, norm, 1e-12);
    const double rate = step <= 2 ? 0.05 * step : 0.1 * (0.1 + 0.9 * (1 + std::cos(M_PI * (step - 3) / 4.0)) / 2);
    torch::NoGradGuard no_grad;
    for (int p = 0; p < 2; ++p) {
      g[p] = g[p] * (options.clip / norm);
      m[p] = 0.9 * m[p] + 0.1 * g[p];
      v[p] = 0.95 * v[p] + 0.05 * g[p] * g[p];
      if (p == 0) parameters[p] -= rate * 0.1 * parameters[p];  // matrices decay, vectors do not
      parameters[p] -= rate * (m[p] / (1 - std::pow(0.9, step))) / ((v[p] / (1 - std::pow(0.95, step))).sqrt() + 1e-8);
    }
  }
  EXPECT_LT(largest_difference(model, expected), 1e-9);
}

TEST(Train, LossGoesDown) {
  const auto data = text_data(moby_dick(), kTime);
  for (const bool autocast : {false, true}) {
    const Model model = make_tiny();
    TrainOptions options = tiny_run(60);
    options.autocast = autocast;
    options.evaluate_every = 20;
    const TrainResult result = train(*model, *data, options);
    ASSERT_EQ(result.steps.size(), 60u);
    ASSERT_EQ(result.evaluations.size(), 3u);
    EXPECT_NEAR(result.steps.front().loss, std::log(256), 0.3);
    EXPECT_LT(result.evaluations.back().loss, 3.5) << autocast;  // bytes by their frequency alone: 3.1
    EXPECT_LT(result.evaluations.back().loss, result.evaluations.front().loss);
    EXPECT_GT(result.evaluations.back().accuracy, 0.1);
    EXPECT_EQ(model->parameters().front().scalar_type(), torch::kFloat32);
    const Evaluation again = evaluate(*model, *data, options.batch, options.evaluate_parts);
    EXPECT_EQ(again.loss, result.evaluations.back().loss);
  }
}

TEST(Train, AccumulationEqualsOneBatch) {
  const auto data = text_data(moby_dick(), kTime);
  const Model one = make_tiny(tiny_llama(), torch::kFloat64), parts = make_tiny(tiny_llama(), torch::kFloat64);
  TrainOptions options = tiny_run(10);
  const TrainResult of_one = train(*one, *data, options);
  options.accumulation = 3;  // of 8 rows: 2, 3 and 3
  const TrainResult of_parts = train(*parts, *data, options);
  for (std::size_t i = 0; i < 10; ++i) EXPECT_NEAR(of_one.steps[i].loss, of_parts.steps[i].loss, 1e-11);
  EXPECT_LT(largest_difference(*one, *parts), 1e-10);
}

TEST(Train, EndsWhereTheLossIsNotFinite) {
  const Folder folder;
  const auto data = text_data(moby_dick(), kTime);
  TableModel model(3), three;
  TrainOptions options = tiny_run(10);
  options.log = folder / "log";
  const TrainResult result = train(model, *data, options);
  EXPECT_TRUE(result.diverged);
  ASSERT_EQ(result.steps.size(), 4u);
  EXPECT_FALSE(std::isfinite(result.steps.back().loss));
  EXPECT_TRUE(std::isfinite(result.evaluations.back().loss));
  // The step that failed was not applied: the same as a run that was stopped by hand after three.
  struct Stop {};
  EXPECT_THROW(train(three, *data, tiny_run(10),
                     [](const Step& step) {
                       if (step.step == 3) throw Stop();
                     }),
               Stop);
  EXPECT_TRUE(same_bits(model, three));
  std::ifstream log(folder / "log");
  std::vector<nlohmann::json> lines;
  for (std::string line; std::getline(log, line);) lines.push_back(nlohmann::json::parse(line));
  ASSERT_EQ(lines.size(), 7u);  // options, four steps, the evaluation, the end
  EXPECT_EQ(lines[0]["options"]["steps"], 10);
  EXPECT_EQ(lines[1]["loss"], result.steps[0].loss);
  EXPECT_EQ(lines[1]["learning_rate"], 1.5e-3);  // the first of two steps of warm-up
  EXPECT_TRUE(lines[4]["loss"].is_null());
  EXPECT_EQ(lines[6]["end"], "diverged");
}

TEST(Train, RefusesWhatMakesNoSense) {
  const auto data = text_data(moby_dick(), kTime);
  TableModel model;
  const auto refused = [&](auto change) {
    TrainOptions options = tiny_run(1);
    change(options);
    EXPECT_THROW(train(model, *data, options), tools::ToolError);
  };
  refused([](TrainOptions& o) { o.batch = 0; });
  refused([](TrainOptions& o) { o.steps = -1; });
  refused([](TrainOptions& o) { o.accumulation = 9; });
  refused([](TrainOptions& o) { o.beta2 = 1; });
  refused([](TrainOptions& o) { o.learning_rate = std::nan(""); });
  for (auto& parameter : model.parameters()) parameter.set_requires_grad(false);
  refused([](TrainOptions&) {});
}

}  // namespace
}  // namespace rmsnorm::lab
