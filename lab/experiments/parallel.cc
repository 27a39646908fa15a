// Experiment 12: what norms send when a model is spread over processes, and whether such runs compute the same.
#include "lab/experiments/parallel.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "lab/experiments/experiment.h"
#include "lab/experiments/support.h"
#include "lab/experiments/thread_ranks.h"
#include "lab/models/llama.h"
#include "lab/train/parallel.h"
#include "lab/train/sharded_llama.h"
#include "lab/train/sharded_norm.h"
#include "lab/train/train.h"

namespace rmsnorm::lab {

namespace {

constexpr const char* kSource = "P, on model parallelism";
constexpr int kRankCounts[] = {2, 4};
constexpr NormKind kKinds[] = {NormKind::kLayerNorm, NormKind::kRmsNorm};
constexpr std::int64_t kNormWidth = 4096;
constexpr double kMatters = 0.01;             // of all bytes
constexpr std::int64_t kMattersWidth = 4096;  // of a model that is spread over devices
constexpr double kBf16Bytes = 2;
constexpr double kEqualF64 = 1e-10;  // runs: parameters and losses
constexpr double kEqualF32 = 1e-4;   // runs: losses
constexpr std::int64_t kTime = 32, kBatch = 8, kSteps = 20, kRunWidth = 64;

constexpr const char* kClaim =
    "In model parallelism RMSNorm needs less communication than LayerNorm, because it has no mean to agree on (P).";

constexpr const char* kDesign =
    "Rows of 4096 columns are spread over 2 and 4 ranks. Each rank computes statistics of its slice with this "
    "library's "
    "functions for sharded norms; the numbers of all ranks are gathered and added in the order of the ranks, and each "
    "rank normalises its slice; forward and backward. Counted are the f64 numbers that a rank gives for a token and "
    "the "
    "rounds that wait for each other. Output and gradient are compared with f64 on the whole row, whose values lie at "
    "a "
    "common offset of 100 deviations. The norms' bytes are then set against those of the rest of a layer: as counted "
    "in "
    "a small Llama whose stream is spread in the same way, and as the least that any implementation must send at "
    "larger "
    "widths. That Llama is trained for 20 steps by one process, by ranks that share the hidden axis, and by ranks that "
    "share each batch. The ranks are threads of one process (the training program's are MPI's processes, with the same "
    "code): what is counted and compared does not depend on that, and nothing is timed.";

constexpr const char* kRule =
    "Less: RMSNorm sends fewer numbers in no more rounds at both rank counts, and both norms equal one process within "
    "4 "
    "units in the last place of the row's largest value. It matters: the bytes saved are at least 1 % of those that a "
    "layer of width 4096 sends in bf16 at both rank counts (holds), or at none (refuted). Parallel runs are equal if "
    "after 20 steps in f64 parameters and losses differ by at most 1e-10, and in f32 losses by at most 1e-4.";

// ---- Norms alone

nlohmann::json spread_norm(NormKind kind, int count, std::int64_t tokens) {
  torch::set_num_threads(1);
  const NormOptions options{.kind = kind};
  torch::manual_seed(12);
  const torch::Tensor x = torch::randn({tokens, kNormWidth}) + 100, dy = torch::randn({tokens, kNormWidth});
  const torch::Tensor weight = 1 + 0.3 * torch::randn({kNormWidth});

  const torch::Tensor wide = x.to(torch::kFloat64).requires_grad_(true);
  const torch::Tensor centred = kind == NormKind::kLayerNorm ? wide - wide.mean(-1, true) : wide;
  const torch::Tensor expected = centred / (centred.square().mean(-1, true) + options.epsilon).sqrt() * weight;
  expected.backward(dy.to(torch::kFloat64));

  torch::Tensor out = torch::empty_like(x), dx = torch::empty_like(x);
  std::vector<Sent> sent(static_cast<std::size_t>(count));
  run_ranks(count, [&](Ranks& ranks) {
    const Slice slice(kNormWidth, ranks);
    const auto mine = [&](const torch::Tensor& whole) { return whole.slice(-1, slice.begin, slice.end); };
    ShardedNorm norm(options, slice, ranks);
    {
      const torch::NoGradGuard no_gradient;
      norm->weight.copy_(mine(weight));
    }
    const torch::Tensor input = mine(x).contiguous().requires_grad_(true);
    const torch::Tensor result = norm->forward(input);
    result.backward(mine(dy).contiguous());
    mine(out).copy_(result.detach());
    mine(dx).copy_(input.grad());
    sent[static_cast<std::size_t>(ranks.rank())] = ranks.sent(Cargo::kNorms);
  });

  const auto error = [](const torch::Tensor& found, const torch::Tensor& exact) {
    return ((found - exact).abs() / exact.abs().amax(-1, true)).max().item<double>();
  };
  const double to_each = static_cast<double>(sent.front().bytes) / (count - 1);
  return {{"rounds", sent.front().rounds},
          {"numbers", to_each / sizeof(double) / static_cast<double>(tokens)},
          {"error", std::max(error(out, expected.detach()), error(dx, wide.grad()))}};
}

SpreadNorm spread_from(const nlohmann::json& json) { return {json.at("rounds"), json.at("numbers"), json.at("error")}; }

// Of one count of ranks.
struct Norms {
  int ranks;
  SpreadNorm layer, rms;
};

// ---- Runs

LlamaOptions llama_options(NormKind kind, std::int64_t width) {
  LlamaOptions options;
  options.width = width;
  options.layers = 2;
  options.context = kTime;
  options.norm = {.kind = kind};
  return options;
}

Model make(const LlamaOptions& options, torch::ScalarType type) {
  torch::manual_seed(12);
  Model model = make_llama(options);
  model->to(type);
  return model;
}

std::vector<double> learn(ModelImpl& model, const Data& data, std::int64_t steps, Workers* workers) {
  TrainOptions options;
  options.steps = steps;
  options.batch = kBatch;
  options.warm_up = 5;
  options.evaluate_parts = 0;
  options.workers = workers;
  std::vector<double> losses;
  for (const Step& step : train(model, data, options).steps) losses.push_back(step.loss);
  return losses;
}

double apart(const std::vector<double>& a, const std::vector<double>& b) {
  if (a.size() != b.size()) return kInfinity;
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) largest = std::max(largest, std::abs(a[i] - b[i]));
  return largest;
}

double apart(const ModelImpl& a, const ModelImpl& b) {
  double largest = 0;
  const auto other = b.named_parameters();
  for (const auto& parameter : a.named_parameters()) {
    largest = std::max(largest, (parameter.value() - other[parameter.key()]).abs().max().item<double>());
  }
  return largest;
}

enum class Split { kRows, kColumns };  // of the batch, of the hidden axis

struct SpreadRun {
  Split split;
  NormKind kind;
  int ranks;
  torch::ScalarType type;
  std::int64_t width, steps;

  bool wide() const { return type == torch::kFloat64; }
  std::string key() const {
    return fmt::format("{}-{}-{}-{}-{}", split == Split::kRows ? "batch" : "hidden", name_of(kind), ranks,
                       wide() ? "f64" : "f32", width);
  }
};

// How far a run of several ranks is from the run of one, and the bytes that it sent.
nlohmann::json compare(const SpreadRun& run) {
  torch::set_num_threads(1);
  const auto data = text_data(moby_dick(), kTime);
  const LlamaOptions options = llama_options(run.kind, run.width);
  const Model plain = make(options, run.type);
  const std::vector<double> expected = learn(*plain, *data, run.steps, nullptr);
  const Model start = make(options, run.type);
  std::vector<Model> models;  // one a rank; made here, because the random generator is one for all threads
  for (int rank = 0; rank < run.ranks; ++rank) models.push_back(make(options, run.type));
  std::vector<double> found;
  nlohmann::json bytes;
  run_ranks(run.ranks, [&](Ranks& ranks) {
    Model model = models[static_cast<std::size_t>(ranks.rank())];
    std::vector<double> losses;
    if (run.split == Split::kRows) {
      DataWorkers workers(ranks);
      losses = learn(*model, *data, run.steps, &workers);
    } else {
      HiddenWorkers workers(ranks);
      const Model slices = make_sharded_llama(options, *start, ranks);
      losses = learn(*slices, *data, run.steps, &workers);
      collect_slices(*slices, ranks, *model);
    }
    if (ranks.rank() != 0) return;
    found = losses;
    for (std::size_t i = 0; i < kCargoNames.size(); ++i) {
      bytes[kCargoNames[i]] = ranks.sent(static_cast<Cargo>(i)).bytes;
    }
  });
  double parameters = 0;
  for (const Model& model : models) parameters = std::max(parameters, apart(*plain, *model));
  return {{"losses", apart(expected, found)}, {"parameters", parameters}, {"bytes", bytes}};
}

nlohmann::json compared(Context& context, const SpreadRun& run) {
  return context.piece(run.key(), [&] { return compare(run); });
}

bool is_equal(const SpreadRun& run, const nlohmann::json& result) {
  const double losses = result.at("losses").get<double>();
  return run.wide() ? losses <= kEqualF64 && result.at("parameters").get<double>() <= kEqualF64 : losses <= kEqualF32;
}

// ---- The page

Finding less_finding(const std::vector<Norms>& all) {
  std::vector<Verdict> verdicts;
  std::string measured = "forward and backward, a token:";
  for (const Norms& norms : all) {
    verdicts.push_back(sends_less(norms.rms, norms.layer));
    measured += fmt::format("{} RMSNorm {} numbers in {} rounds, LayerNorm {} in {} ({} ranks)",
                            verdicts.size() == 1 ? "" : ",", norms.rms.numbers, norms.rms.rounds, norms.layer.numbers,
                            norms.layer.rounds, norms.ranks);
  }
  return {
      "Spread over ranks, RMSNorm needs less communication than LayerNorm", kSource, measured, all_of(verdicts),
      "There is no mean to agree on, neither of the row nor of its gradient. Where each rank has whole rows (tensor "
      "parallelism as usual, with or without sequence parallelism), neither norm sends anything."};
}

Finding matters_finding(const std::vector<Norms>& all) {
  std::vector<Verdict> verdicts;
  std::string measured = fmt::format(
      "saved of all bytes of a layer of width {}, in bf16 (computed from the counted numbers):", kMattersWidth);
  for (const Norms& norms : all) {
    const double saved = saved_share(norms.rms, norms.layer, kMattersWidth, norms.ranks, kBf16Bytes);
    verdicts.push_back(within({saved, saved, saved}, kMatters, kInfinity));
    measured += fmt::format("{} {:.2f} % ({} ranks)", verdicts.size() == 1 ? "" : ",", 100 * saved, norms.ranks);
  }
  return {
      "That makes model parallelism cheaper in bytes", kSource, measured, all_of(verdicts),
      "Against the activations a few numbers a token are nothing; what is left is one round less, which waits for the "
      "network once less in each norm, and which LayerNorm saves, too, where it sends mean and squares together."};
}

struct Compared {
  SpreadRun run;
  nlohmann::json result;
};

Finding equal_finding(const std::string& claim, const std::vector<Compared>& all, Split split) {
  bool equal = true;
  double f64 = 0, f32 = 0;
  for (const auto& [run, result] : all) {
    if (run.split != split) continue;
    equal = equal && is_equal(run, result);
    double& largest = run.wide() ? f64 : f32;
    largest = std::max(largest, result.at("losses").get<double>());
    if (run.wide()) largest = std::max(largest, result.at("parameters").get<double>());
  }
  return {claim, kSource,
          fmt::format("after {} steps apart by at most {} in f64 (parameters and losses), by {} "
                      "in f32 (losses)",
                      kSteps, text(f64, 2), text(f32, 2)),
          equal ? Verdict::kHolds : Verdict::kRefuted,
          "With 2 and 4 ranks and both norms, against the run of one process."};
}

Table norm_table(const std::vector<Norms>& all) {
  Table table{.title = fmt::format("A norm of {} columns over ranks, forward and backward", kNormWidth),
              .columns = {"norm", "ranks", "rounds", "numbers a token from each rank",
                          "bytes a token that a rank sends", "largest error, parts of the row's largest value"},
              .rows = {}};
  for (const Norms& norms : all) {
    for (const auto& [name, norm] : {std::pair{"LayerNorm", norms.layer}, std::pair{"RMSNorm", norms.rms}}) {
      table.rows.push_back({name, std::to_string(norms.ranks), text(norm.rounds), text(norm.numbers),
                            text(norm.numbers * sizeof(double) * (norms.ranks - 1)), text(norm.error, 2)});
    }
  }
  return table;
}

Table run_table(const std::vector<Compared>& all) {
  Table table{
      .title = fmt::format("Runs of {} steps against the run of one process", kSteps),
      .columns = {"shared", "norm", "ranks", "type", "losses apart", "parameters apart", "norms sent", "else sent"},
      .rows = {}};
  for (const auto& [run, result] : all) {
    double other = 0;
    for (const auto& [cargo, count] : result.at("bytes").items()) {
      const bool of_step = cargo != kCargoNames[static_cast<std::size_t>(Cargo::kNorms)] &&
                           cargo != kCargoNames[static_cast<std::size_t>(Cargo::kParameters)];
      if (of_step) other += count.get<double>();
    }
    table.rows.push_back({run.split == Split::kRows ? "batch" : "hidden axis", name_of(run.kind),
                          std::to_string(run.ranks), run.wide() ? "f64" : "f32",
                          text(result.at("losses").get<double>(), 2), text(result.at("parameters").get<double>(), 2),
                          bytes(result.at("bytes").at("norms")), bytes(other)});
  }
  return table;
}

// Saved of all bytes: of the small Llama as counted, of larger layers as computed.
Plot share_plot(Context& context, const std::vector<Norms>& all) {
  Plot plot{.title = "Share of all bytes that RMSNorm saves where the hidden axis is spread",
            .x_label = "width (columns)",
            .y_label = "saved, %",
            .log_x = true,
            .log_y = true,
            .series = {}};
  for (const Norms& norms : all) {
    Series counted{fmt::format("small Llama, f32, counted, {} ranks", norms.ranks), {}, {}, {}, {}};
    for (const std::int64_t width : {64, 128, 256}) {
      const auto sent = [&](NormKind kind, Cargo cargo) {
        const auto result = compared(context, {Split::kColumns, kind, norms.ranks, torch::kFloat32, width, 1});
        return result.at("bytes").at(kCargoNames[static_cast<std::size_t>(cargo)]).get<double>();
      };
      const double layer = sent(NormKind::kLayerNorm, Cargo::kNorms);
      counted.x.push_back(static_cast<double>(width));
      counted.y.push_back(100 * (layer - sent(NormKind::kRmsNorm, Cargo::kNorms)) /
                          (layer + sent(NormKind::kLayerNorm, Cargo::kProducts)));
    }
    Series least{fmt::format("a layer, bf16, computed, {} ranks", norms.ranks), {}, {}, {}, {}};
    for (std::int64_t width = 512; width <= 16384; width *= 2) {
      least.x.push_back(static_cast<double>(width));
      least.y.push_back(100 * saved_share(norms.rms, norms.layer, width, norms.ranks, kBf16Bytes));
    }
    plot.series.push_back(counted);
    plot.series.push_back(least);
  }
  return plot;
}

Page run(Context& context) {
  const std::int64_t tokens = context.choose(8, 64, 256);
  std::vector<Norms> norms;
  for (const int ranks : kRankCounts) {
    const auto measured = [&](NormKind kind) {
      return spread_from(context.piece(fmt::format("norm-{}-{}", name_of(kind), ranks),
                                       [&] { return spread_norm(kind, ranks, tokens); }));
    };
    norms.push_back({ranks, measured(NormKind::kLayerNorm), measured(NormKind::kRmsNorm)});
  }
  std::vector<Compared> runs;
  for (const Split split : {Split::kRows, Split::kColumns}) {
    for (const int ranks : kRankCounts) {
      for (const NormKind kind : kKinds) {
        for (const torch::ScalarType type : {torch::kFloat64, torch::kFloat32}) {
          const SpreadRun one{split, kind, ranks, type, kRunWidth, kSteps};
          runs.push_back({one, compared(context, one)});
        }
      }
    }
  }
  Page page;
  page.findings = {less_finding(norms), matters_finding(norms),
                   equal_finding("A data-parallel run is the run of one process", runs, Split::kRows),
                   equal_finding("A run whose hidden axis is spread is the run of one process", runs, Split::kColumns)};
  page.parts = {norm_table(norms), share_plot(context, norms), run_table(runs)};
  return page;
}

}  // namespace

Verdict sends_less(const SpreadNorm& rms_norm, const SpreadNorm& layer_norm) {
  // written so that NaN is no equality
  if (!(rms_norm.error <= kEqualRows && layer_norm.error <= kEqualRows)) return Verdict::kNotSettled;
  const bool less = rms_norm.numbers < layer_norm.numbers && rms_norm.rounds <= layer_norm.rounds;
  return less ? Verdict::kHolds : Verdict::kRefuted;
}

double activation_bytes(std::int64_t width, int ranks, double element_bytes) {
  return 8.0 * static_cast<double>(width) * (ranks - 1) / ranks * element_bytes;
}

double norm_bytes(const SpreadNorm& norm, int ranks) {
  return 2 * norm.numbers * static_cast<double>(sizeof(double)) * (ranks - 1);
}

double saved_share(const SpreadNorm& rms_norm, const SpreadNorm& layer_norm, std::int64_t width, int ranks,
                   double element_bytes) {
  const double layer = norm_bytes(layer_norm, ranks);
  return (layer - norm_bytes(rms_norm, ranks)) / (layer + activation_bytes(width, ranks, element_bytes));
}

const Experiment kParallel = {12, "parallel", "Communication in parallel training", kClaim, kDesign, kRule, run};

}  // namespace rmsnorm::lab
