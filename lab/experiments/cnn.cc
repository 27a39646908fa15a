// Experiment 9: norms of a convolutional network, by depth and by batch.
#include <fmt/format.h>

#include <cmath>
#include <map>
#include <stdexcept>

#include "lab/experiments/experiment.h"
#include "lab/experiments/quality.h"
#include "lab/experiments/support.h"
#include "lab/experiments/surgery.h"
#include "lab/models/cnn.h"
#include "lab/train/train.h"

namespace rmsnorm::lab {

namespace {

constexpr double kMargin = 0.02;        // of accuracy: what would matter
constexpr std::int64_t kWidth = 8;      // channels of the first stage
constexpr std::int64_t kHeldOut = 256;  // pictures in a part of the evaluation
constexpr double kLearningRate = 4e-3;  // at a batch of 32, before it is tuned
constexpr const char* kSource = "P, on convolutional networks";
constexpr const char* kBatchKey = "batch_norm";
constexpr const char* kChannelKey = "channel_rms";
constexpr const char* kPixelKey = "pixel_rms";
constexpr const char* kThresholdKey = "pixel_rms_threshold";
constexpr const char* kMixKey = "mix";

constexpr const char* kMixClaim =
    "BatchNorm in shallow layers, a mix in the middle and RMSNorm in deep ones suit a CNN best";

constexpr const char* kClaim =
    "In a CNN the layers near the picture should keep BatchNorm, those in the middle mix it with RMSNorm, and the deep "
    "ones take RMSNorm; for convolutions this is the RMS over the pixels of each channel (P).";

constexpr const char* kDesign =
    "A residual network of three stages (8, 16 and 32 channels) learns Fashion-MNIST at 14 x 14 pixels, with one norm "
    "everywhere or with the mix: BatchNorm in the first stage, BatchNorm and RMSNorm over the channels in turn in the "
    "second, RMSNorm in the third. All arms of a batch size (from 2 to 128) have the same seeds, so the same start and "
    "the same pictures, and the same number of steps. The learning rate grows with the root of the batch. What counts "
    "is the share of right labels among held-out pictures. The runs are short: they "
    "compare how well the norms let a network start to learn, not where a long training ends. ";

constexpr const char* kRule =
    "Differences are paired by seed. The mix is better at a batch size if the 95 % intervals of its accuracy minus "
    "that "
    "of each norm it is made of (BatchNorm, RMSNorm over the channels) lie above zero; it is not if one of the two "
    "lies "
    "below 2 points and not above zero. \"As good as BatchNorm\" holds if the 95 % interval of what is lost lies below "
    "2 "
    "points, and is refuted if it lies above. A claim holds (is refuted) if it holds (is refuted) at every batch size, "
    "partly if it holds at some and is refuted at others; else it is not settled.";

struct Choice {
  std::string key, label;
  NormOptions norm;  // of all stages; of the mix: unused
};

const std::vector<Choice>& choices() {
  static const std::vector<Choice> all = {
      {kBatchKey, "BatchNorm", {.kind = NormKind::kBatchNorm, .code = NormCode::kNative}},
      {"group_norm", "GroupNorm, 4 groups", {.kind = NormKind::kGroupNorm, .code = NormCode::kNative, .groups = 4}},
      {kChannelKey, "RMSNorm over channels", {.kind = NormKind::kChannelRmsNorm}},
      {kPixelKey, "RMSNorm per channel", {.kind = NormKind::kPerChannelRmsNorm, .code = NormCode::kEager}},
      {kThresholdKey,
       "RMSNorm per channel, threshold",
       {.kind = NormKind::kPerChannelRmsNorm, .code = NormCode::kEager, .threshold = true}},
      {kMixKey, "mix by depth", {}},
  };
  return all;
}

const Choice& choice(const std::string& key) {
  for (const Choice& one : choices()) {
    if (one.key == key) return one;
  }
  throw std::logic_error("no norm has the key " + key);
}

// Pictures at half their size: a run takes a quarter of the time.
class Halved : public Data {
 public:
  explicit Halved(std::unique_ptr<Data> data) : data_(std::move(data)) {}
  Batch train(std::uint64_t seed, std::int64_t step, std::int64_t batch) const override {
    return halved(data_->train(seed, step, batch));
  }
  Batch held_out(std::int64_t index, std::int64_t batch) const override {
    return halved(data_->held_out(index, batch));
  }
  std::int64_t parts(std::int64_t batch) const override { return data_->parts(batch); }
  std::int64_t classes() const override { return data_->classes(); }

 private:
  static Batch halved(Batch batch) {
    batch.input = torch::avg_pool2d(batch.input, 2);
    return batch;
  }
  std::unique_ptr<Data> data_;
};

Model make(const Choice& norm) {
  const bool mixed = norm.key == kMixKey;
  const NormOptions batch = choice(kBatchKey).norm, rms = choice(kChannelKey).norm;
  CnnOptions options;
  options.width = kWidth;
  options.blocks = 1;
  options.norms = mixed ? std::vector<NormOptions>{batch, rms, rms} : std::vector<NormOptions>{norm.norm};
  Model model = make_residual_cnn(options);
  if (mixed) {  // in turn in the middle stage, which is the second block
    bool is_batch_norm = true;
    for (const auto& [name, one] : model->norms()) {
      if (!name.starts_with("blocks.1.")) continue;
      if (is_batch_norm) replace_norm(*one, batch);
      is_batch_norm = !is_batch_norm;
    }
  }
  return model;
}

struct Size {
  std::int64_t batch, steps;
};
using Sizes = std::vector<Size>;

Sizes sizes_of(const Context& context) {
  return context.choose<Sizes>({{2, 20}, {32, 10}}, {{2, 240}, {16, 90}, {128, 30}},
                               {{2, 240}, {8, 120}, {32, 60}, {128, 30}});
}

double learning_rate_of(const Size& size, double factor) {
  return factor * kLearningRate * std::sqrt(static_cast<double>(size.batch) / 32);
}

double accuracy_of(const Choice& norm, const Size& size, double factor, int seed, const Data& data,
                   std::int64_t parts) {
  torch::set_num_threads(kTrainingThreads);
  torch::manual_seed(static_cast<std::uint64_t>(seed));
  const Model model = make(norm);
  TrainOptions options;
  options.steps = size.steps;
  options.batch = size.batch;
  options.learning_rate = learning_rate_of(size, factor);
  options.warm_up = size.steps / 10;
  options.seed = static_cast<std::uint64_t>(seed);
  options.evaluate_parts = 0;
  // A network that diverged knows nothing: it is given what guessing gives.
  if (train(*model, data, options).diverged) return 1.0 / static_cast<double>(data.classes());
  return evaluate(*model, data, kHeldOut, parts).accuracy;
}

// Accuracies, one a seed.
class Results {
 public:
  std::vector<double>& of(const std::string& key, std::int64_t batch) { return accuracies_[{key, batch}]; }
  std::vector<double> difference(const std::string& key, const std::string& other, std::int64_t batch) const {
    return differences(accuracies_.at({key, batch}), accuracies_.at({other, batch}));
  }
  // "accuracy of A minus that of B: batch 2: -1.0 [-2.0, 0.1] points, batch 16: .."
  std::string difference_text(const std::string& key, const std::string& other, const Sizes& sizes) const {
    std::string text = fmt::format("accuracy of {} minus that of {}:", choice(key).label, choice(other).label);
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      text += fmt::format("{} batch {}: {}", i == 0 ? "" : ",", sizes[i].batch,
                          points(mean_interval(difference(key, other, sizes[i].batch))));
    }
    return text;
  }

 private:
  std::map<std::pair<std::string, std::int64_t>, std::vector<double>> accuracies_;
};

// The verdict at each batch size, and of all together.
Verdict at_all(const Sizes& sizes, const std::function<Verdict(std::int64_t)>& judge) {
  std::vector<Verdict> verdicts;
  for (const Size& size : sizes) verdicts.push_back(judge(size.batch));
  return all_of(verdicts);
}

std::vector<Finding> findings_of(const Sizes& sizes, const Results& results) {
  const auto as_good_as_batch_norm = [&](const std::string& claim, const char* key) {
    const Verdict verdict =
        at_all(sizes, [&](std::int64_t batch) { return no_worse(results.difference(kBatchKey, key, batch), kMargin); });
    return Finding{claim, kSource, results.difference_text(key, kBatchKey, sizes), verdict,
                   "At each batch size what is lost is held against a margin of 2 points."};
  };
  std::vector<Finding> findings;
  findings.push_back(
      {kMixClaim, kSource,
       results.difference_text(kMixKey, kBatchKey, sizes) + "; " + results.difference_text(kMixKey, kChannelKey, sizes),
       at_all(sizes,
              [&](std::int64_t batch) {
                return better_than_all(
                    {results.difference(kMixKey, kBatchKey, batch), results.difference(kMixKey, kChannelKey, batch)},
                    kMargin);
              }),
       "To be best it must beat both norms that it is made of."});
  findings.push_back(as_good_as_batch_norm(
      "For convolutions, RMSNorm over the pixels of each channel, as printed, does what BatchNorm does", kPixelKey));
  findings.push_back(
      as_good_as_batch_norm("RMSNorm over the channels of each pixel does what BatchNorm does", kChannelKey));
  findings.push_back({"The per-channel form needs nothing behind it", kSource,
                      results.difference_text(kThresholdKey, kPixelKey, sizes),
                      at_all(sizes,
                             [&](std::int64_t batch) {
                               return no_worse(results.difference(kThresholdKey, kPixelKey, batch), kMargin);
                             }),
                      "With a learned threshold in the place of ReLU's zero it is filter response normalisation; the "
                      "form as printed has none. The margin is 2 points."});
  return findings;
}

Page run(Context& context) {
  auto pictures = fashion_mnist(0);
  if (pictures == nullptr) {
    return {.findings = {{kMixClaim, kSource, "nothing", Verdict::kCannotBeTestedHere,
                          "Fashion-MNIST is not installed here (Debian: dataset-fashion-mnist)."}},
            .parts = {}};
  }
  const Halved data(std::move(pictures));
  const Sizes sizes = sizes_of(context);
  const std::int64_t parts = context.choose(1, 4, 4);
  Results results;
  std::map<std::pair<std::string, std::int64_t>, double> factors;
  for (const Size& size : sizes) {
    for (const Choice& norm : choices()) {
      const auto made = context.piece(fmt::format("{}-{}-rates", norm.key, size.batch), [&] {
        nlohmann::json accuracies;
        for (const double factor : kRateFactors) {
          accuracies.push_back(accuracy_of(norm, size, factor, kSeedApart, data, parts));
        }
        return nlohmann::json{{"accuracies", accuracies}};
      });
      const std::vector<double> accuracies = made.at("accuracies");
      factors[{norm.key, size.batch}] = kRateFactors[best_rate(accuracies)];
    }
  }
  for (int seed = 1; seed <= context.seeds(); ++seed) {
    for (const Size& size : sizes) {
      for (const Choice& norm : choices()) {
        const double factor = factors.at({norm.key, size.batch});
        const auto made = context.piece(fmt::format("{}-{}-tuned-{}", norm.key, size.batch, seed), [&] {
          return nlohmann::json{{"accuracy", accuracy_of(norm, size, factor, seed, data, parts)}};
        });
        results.of(norm.key, size.batch).push_back(made.at("accuracy"));
      }
    }
  }

  Page page{.findings = findings_of(sizes, results), .parts = {}};
  Table table{.title = fmt::format("Share of right labels, mean and 95 % interval of {} seeds", context.seeds()),
              .columns = {"norm"},
              .rows = {}};
  for (const Size& size : sizes) table.columns.push_back(fmt::format("batch {}, {} steps", size.batch, size.steps));
  Plot plot{.title = "Accuracy by batch size",
            .x_label = "batch (pictures)",
            .y_label = "right labels, %",
            .log_x = true,
            .series = {}};
  for (const Choice& norm : choices()) {
    std::vector<std::string> row = {norm.label};
    Series series{norm.label, {}, {}, {}, {}};
    for (const Size& size : sizes) {
      const Interval share = mean_interval(results.of(norm.key, size.batch));
      row.push_back(percent(share));
      add_point(series, static_cast<double>(size.batch), {share.estimate * 100, share.low * 100, share.high * 100});
    }
    table.rows.push_back(row);
    plot.series.push_back(series);
  }
  Table rates{.title = "Learning rates that were chosen", .columns = {"norm"}, .rows = {}};
  for (const Size& size : sizes) rates.columns.push_back(fmt::format("batch {}", size.batch));
  for (const Choice& norm : choices()) {
    std::vector<std::string> row = {norm.label};
    for (const Size& size : sizes) row.push_back(text(learning_rate_of(size, factors.at({norm.key, size.batch})), 2));
    rates.rows.push_back(row);
  }
  page.parts = {Text{fmt::format("Each batch size has its own number of steps, so that a column compares norms, not "
                                 "batch sizes. {} held-out pictures.",
                                 parts * kHeldOut)},
                plot, table, rates};
  return page;
}

}  // namespace

const Experiment kCnn = {9,     "cnn", "Norms of a convolutional network", kClaim, std::string(kDesign) + kTuning,
                         kRule, run};

}  // namespace rmsnorm::lab
