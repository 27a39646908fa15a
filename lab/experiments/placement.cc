// Experiment 5. Claim, design and rule come first.
#include "lab/experiments/placement.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "lab/experiments/support.h"
#include "lab/models/llama.h"

namespace rmsnorm::lab {
namespace {

constexpr double kLossMargin = 0.02;  // nats
constexpr std::int64_t kVocabulary = 256;
const double kLossOfChance = std::log(static_cast<double>(kVocabulary));

constexpr char kClaim[] =
    "In a Llama the norm stands after each sub-layer (P). With the norm before each sub-layer (pre-norm) training is "
    "more "
    "stable (E).";

constexpr char kDesign[] =
    "A small Llama (bytes of Moby-Dick, RMSNorm, fused) with the norms before each sub-layer (pre), after the residual "
    "addition (post), and before and behind each sub-layer on the branch (both). First, at initialisation: the norm of "
    "the gradient of each block's weights, for models of several depths. Then trainings without warm-up, where the "
    "placements differ most, at several learning rates with paired seeds (a first look with at most 3e-2 had no run "
    "that failed, so "
    "the rates were widened); a run that diverged, or ended above it, "
    "counts "
    "with the loss of guessing, ln 256. Sensitivity: the mean over the learning rates of the final loss less the best "
    "of "
    "them, per seed.";

constexpr char kRule[] =
    "More stable (E): holds when the interval of the paired difference of sensitivity, post less pre, lies above 0, is "
    "refuted when it lies below and post learns as well (the best final loss, post less pre, lies below 0.02 nats: "
    "what "
    "learns little at every rate is not sensitive either), and is not settled otherwise. After each sub-layer (P): as "
    "a description of Llama it "
    "is "
    "wrong whatever is measured, for transformers' Llama, whose logits ours equals, has its norms before; so it is "
    "tested as advice. It holds when the interval of the paired difference of the best final loss over the learning "
    "rates, post less pre, lies below 0.02 nats, is refuted when it lies above, and is not settled otherwise.";

constexpr Placement kPlacements[] = {Placement::kPre, Placement::kPost, Placement::kBoth};
enum : std::size_t { kPreIndex, kPostIndex, kBothIndex };

Model model_of(Placement where, std::int64_t layers, std::int64_t time) {
  return make_llama({.vocabulary = kVocabulary,
                     .width = 32,
                     .layers = layers,
                     .heads = 2,
                     .key_value_heads = 1,
                     .context = time,
                     .placement = where,
                     .norm = {}});
}

// The norm of the gradient of each block's weights.
std::vector<double> gradient_by_layer(ModelImpl& model, const Batch& batch, std::int64_t layers) {
  loss_of(model.forward(batch.input), batch.target).backward();
  std::vector<double> squares(static_cast<std::size_t>(layers));
  constexpr std::string_view kLayers = ".layers.";
  for (const auto& item : model.named_parameters()) {
    const std::size_t at = item.key().find(kLayers);
    if (at == std::string::npos) continue;
    const auto layer = static_cast<std::size_t>(std::stol(item.key().substr(at + kLayers.size())));
    squares.at(layer) += std::pow(item.value().grad().norm().item<double>(), 2);
  }
  std::transform(squares.begin(), squares.end(), squares.begin(), [](double s) { return std::sqrt(s); });
  return squares;
}

// [placement][depth] -> seeds of norms by layer
nlohmann::json measure_gradients(const std::vector<std::int64_t>& depths, const Data& data, std::int64_t batch,
                                 std::int64_t time, int seeds) {
  torch::set_num_threads(kTrainingThreads);
  nlohmann::json result;
  for (int seed = 1; seed <= seeds; ++seed) {
    const Batch rows = data.train(static_cast<std::uint64_t>(seed), 0, batch);
    for (const Placement where : kPlacements) {
      for (const std::int64_t depth : depths) {
        torch::manual_seed(static_cast<std::uint64_t>(seed));
        const Model model = model_of(where, depth, time);
        result[name_of(where)][std::to_string(depth)].push_back(gradient_by_layer(*model, rows, depth));
      }
    }
  }
  return result;
}

Plot gradient_plot(const nlohmann::json& gradients, std::int64_t depth) {
  Plot plot{fmt::format("Gradient of each block at initialisation, {} blocks", depth),
            "block, from the embedding (number)",
            "norm of the gradient (nats)",
            false,
            true,
            true,
            {}};
  for (const Placement where : kPlacements) {
    Series series{name_of(where), {}, {}, {}, {}};
    const std::vector<std::vector<double>> seeds = gradients.at(name_of(where)).at(std::to_string(depth));
    for (std::size_t layer = 0; layer < seeds[0].size(); ++layer) {
      std::vector<double> norms;
      for (const auto& seed : seeds) norms.push_back(seed[layer]);
      add_point(series, static_cast<double>(layer + 1), finite_mean(norms));
    }
    plot.series.push_back(series);
  }
  return plot;
}

// First and last block, by depth.
Table gradient_table(const nlohmann::json& gradients, const std::vector<std::int64_t>& depths) {
  Table table{"Gradient at initialisation against depth",
              {"placement", "blocks", "norm, first block", "norm, last block", "last / first"},
              {}};
  for (const Placement where : kPlacements) {
    for (const std::int64_t depth : depths) {
      const std::vector<std::vector<double>> seeds = gradients.at(name_of(where)).at(std::to_string(depth));
      std::vector<double> first, last;
      for (const auto& seed : seeds) {
        first.push_back(seed.front());
        last.push_back(seed.back());
      }
      table.rows.push_back({name_of(where), std::to_string(depth), text(finite_mean(first)), text(finite_mean(last)),
                            text(relative_mean(last, first))});
    }
  }
  return table;
}

// Final losses of one placement: [seed][learning rate], with ln 256 for what diverged.
using Losses = std::vector<std::vector<double>>;

std::vector<double> of_seeds(const Losses& losses, double (*number)(const std::vector<double>&)) {
  std::vector<double> result;
  for (const auto& by_rate : losses) result.push_back(number(by_rate));
  return result;
}

double best(const std::vector<double>& losses) { return *std::min_element(losses.begin(), losses.end()); }

Page page_of(const std::vector<double>& rates, const std::vector<Losses>& losses,
             const std::vector<std::vector<int>>& diverged) {
  const auto numbers = [&](std::size_t where, double (*number)(const std::vector<double>&)) {
    return of_seeds(losses[where], number);
  };
  const Interval sensitivity_of_post =
      mean_difference(numbers(kPostIndex, &sensitivity), numbers(kPreIndex, &sensitivity));
  const Interval best_of_post = mean_difference(numbers(kPostIndex, &best), numbers(kPreIndex, &best));
  const auto runs_diverged = [&](std::size_t where) {
    int sum = 0;
    for (const int count : diverged[where]) sum += count;
    return sum;
  };

  Page page;
  page.findings.push_back(
      {"Pre-norm trains more stably than post-norm", "E",
       fmt::format("Sensitivity to the learning rate, post less pre: {} nats; pre alone: {}, post alone: {}.",
                   text(sensitivity_of_post), text(finite_mean(numbers(kPreIndex, &sensitivity))),
                   text(finite_mean(numbers(kPostIndex, &sensitivity)))),
       more_stable(sensitivity_of_post, best_of_post, kLossMargin),
       fmt::format(
           "Of {} runs each, {} diverged with pre-norm, {} with post-norm, {} with norms on both sides. The best "
           "final loss, post less pre: {} nats.",
           rates.size() * losses[0].size(), runs_diverged(kPreIndex), runs_diverged(kPostIndex),
           runs_diverged(kBothIndex), text(best_of_post))});
  page.findings.push_back(
      {"The norm stands after each sub-layer", "P",
       fmt::format("Best final loss over the learning rates, post less pre: {} nats a byte.", text(best_of_post)),
       within(best_of_post, -kInfinity, kLossMargin),
       "Tested as advice. As a description of Llama it is wrong: its norms stand before each sub-layer."});

  Table table{
      "Final loss (nats a byte) against the learning rate; in brackets how many runs diverged", {"placement"}, {}};
  Plot plot{"Final loss against the learning rate",
            "learning rate (a step)",
            "held-out loss (nats a byte)",
            true,
            false,
            true,
            {}};
  for (const double rate : rates) table.columns.push_back(text(rate));
  table.columns.push_back("sensitivity (nats)");
  for (std::size_t p = 0; p < std::size(kPlacements); ++p) {
    Series series{name_of(kPlacements[p]), {}, {}, {}, {}};
    std::vector<std::string> row = {name_of(kPlacements[p])};
    for (std::size_t r = 0; r < rates.size(); ++r) {
      std::vector<double> seeds;
      for (const auto& by_rate : losses[p]) seeds.push_back(by_rate[r]);
      const Interval loss = finite_mean(seeds);
      add_point(series, rates[r], loss);
      row.push_back(fmt::format("{} ({})", text(loss), diverged[p][r]));
    }
    row.push_back(text(finite_mean(numbers(p, &sensitivity))));
    table.rows.push_back(row);
    plot.series.push_back(series);
  }
  page.parts.push_back(table);
  page.parts.push_back(plot);
  return page;
}

Page run(Context& context) {
  constexpr std::int64_t kTime = 32, kBatch = 8;
  const auto depths = context.choose<std::vector<std::int64_t>>({2, 4}, {2, 4, 8, 16}, {2, 4, 8, 16, 32});
  // Up to where trainings fail: with 3e-2 as the largest none of 60 diverged, and the sensitivity measured only how slow
  // the smallest rate was.
  const auto rates =
      context.choose<std::vector<double>>({3e-3, 3e-2}, {3e-3, 1e-2, 3e-2, 1e-1, 3e-1}, {3e-3, 1e-2, 3e-2, 1e-1, 3e-1});
  const std::int64_t layers = context.choose(2, 8, 8), steps = context.choose(15, 60, 200);
  const auto data = text_data(moby_dick(), kTime);

  const nlohmann::json gradients =
      context.piece("gradients", [&] { return measure_gradients(depths, *data, kBatch, kTime, context.seeds()); });
  std::vector<Arm> arms;
  for (const Placement where : kPlacements) {
    for (const double rate : rates) {
      TrainOptions options;
      options.steps = steps;
      options.batch = kBatch;
      options.learning_rate = rate;
      options.warm_up = 0;
      arms.push_back({fmt::format("{}-{:.0f}e-5", name_of(where), rate * 1e5),
                      [where, layers] { return model_of(where, layers, kTime); }, options});
    }
  }
  const auto runs = paired_runs(context, "train", arms, *data, context.seeds());

  std::vector<Losses> losses(std::size(kPlacements), Losses(runs[0].size(), std::vector<double>(rates.size())));
  std::vector<std::vector<int>> diverged(std::size(kPlacements), std::vector<int>(rates.size()));
  for (std::size_t a = 0; a < runs.size(); ++a) {
    const std::size_t where = a / rates.size(), rate = a % rates.size();
    for (std::size_t seed = 0; seed < runs[a].size(); ++seed) {
      const Run& one = runs[a][seed];
      diverged[where][rate] += one.diverged;
      losses[where][seed][rate] = one.diverged ? kLossOfChance : std::min(one.final_loss(), kLossOfChance);
    }
  }
  Page page = page_of(rates, losses, diverged);
  page.parts.push_back(gradient_plot(gradients, depths.back()));
  page.parts.push_back(gradient_table(gradients, depths));
  page.parts.push_back(
      Text{fmt::format("The trainings: {} blocks of width 32, {} steps of {} x {} bytes, AdamW, cosine, no warm-up, "
                       "gradients clipped at "
                       "1. Weights that write to the residual stream start smaller with depth, as GPT-2 has them.",
                       layers, steps, kBatch, kTime)});
  return page;
}

}  // namespace

double sensitivity(const std::vector<double>& losses) { return mean(losses) - best(losses); }

Verdict more_stable(const Interval& sensitivity, const Interval& best, double margin) {
  const Verdict verdict = within(sensitivity, 0, kInfinity);
  const bool learns_as_well = within(best, -kInfinity, margin) == Verdict::kHolds;
  return verdict == Verdict::kRefuted && !learns_as_well ? Verdict::kNotSettled : verdict;
}

const Experiment kPlacement = {5, "placement", "Where the norm stands", kClaim, kDesign, kRule, &run};

}  // namespace rmsnorm::lab
