#include "lab/experiments/partial.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "lab/experiments/byte_loss.h"
#include "lab/models/gru.h"
#include "lab/models/llama.h"

namespace rmsnorm::lab {
namespace {

constexpr const char* kClaim =
    "A mean square over the first 6.25 % of the columns is as good as one over all of them (Z, partial RMSNorm). When "
    "the initial weights are centred at 0.2 instead of 0, LayerNorm's training becomes very unstable and RMSNorm's "
    "less "
    "so (Z, figure 4, a recurrent translation model).";

constexpr const char* kDesign =
    "A small Llama learns Moby-Dick byte by byte with the mean square over all columns, a half, a fifth and a "
    "sixteenth "
    "of them, from the same seeds; held-out loss at the end. Then a Llama and a language model of one normalised GRU "
    "layer, with LayerNorm and RMSNorm, from ordinary initial values and with 0.2 added to every matrix (the "
    "embedding, "
    "too). A run that diverges counts as one that learned nothing, ln 256. How unstable a run is: the largest rise of "
    "its smoothed training loss above the lowest value before.";

constexpr const char* kRule =
    "As good: two one-sided tests at 5 % of the paired differences of the final held-out loss against a margin of 0.02 "
    "nats a byte; holds where they are equal or the partial norm is better, refuted where it is worse, else not "
    "settled. "
    "More robust: what the shifted start costs LayerNorm (final loss, shifted minus ordinary, by seed) minus what it "
    "costs RMSNorm; holds where the 95 % interval lies above 0, refuted where it lies below; the two models are put "
    "together, partly where they differ.";

constexpr double kShares[] = {0.5, 0.2, 0.0625};
constexpr double kClaimedShare = 0.0625;
constexpr double kCentre = 0.2;
constexpr int kSmoothing = 5;  // steps

struct Size {
  std::int64_t width, layers, time, batch, steps;
};
Size llama_size(const Context& context) {
  return context.choose(Size{32, 2, 32, 8, 20}, Size{64, 2, 64, 16, 150}, Size{64, 3, 64, 16, 150});
}
Size gru_size(const Context& context) {
  return context.choose(Size{32, 1, 16, 8, 10}, Size{64, 1, 32, 16, 100}, Size{64, 1, 32, 16, 100});
}

TrainOptions training(const Size& size) {
  TrainOptions options;
  options.steps = size.steps;
  options.batch = size.batch;
  return options;
}

NormOptions norm_of(NormKind kind, double share = 1) {
  NormOptions options;
  options.kind = kind;
  options.share = share;
  return options;
}

Model llama_with(const NormOptions& norm, const Size& size) {
  LlamaOptions options;
  options.width = size.width;
  options.layers = size.layers;
  options.context = size.time;
  options.norm = norm;
  return make_llama(options);
}

Model gru_with(const NormOptions& norm, const Size& size) {
  GruOptions options;
  options.width = size.width;
  options.norm = norm;
  return make_gru(options);
}

Model shifted(Model model) {
  const torch::NoGradGuard no_gradient;
  for (torch::Tensor& parameter : model->parameters()) {
    if (parameter.dim() > 1) parameter.add_(kCentre);
  }
  return model;
}

std::vector<double> losses(const std::vector<Run>& runs) {
  return collect(runs, [](const Run& run) { return byte_loss(run.final_loss()); });
}

Interval rise(const std::vector<Run>& runs) {
  return mean_interval(collect(runs, [](const Run& run) { return largest_rise(run.losses, kSmoothing); }));
}

std::string diverged(const std::vector<Run>& runs) {
  const auto count = std::count_if(runs.begin(), runs.end(), [](const Run& run) { return run.diverged; });
  return fmt::format("{} of {}", count, runs.size());
}

// ---- The share of the columns --------------------------------------------------------------------------------------

std::int64_t columns(double share, std::int64_t width) {
  return static_cast<std::int64_t>(std::ceil(share * static_cast<double>(width) - 1e-9));
}

std::string share_name(double share) { return fmt::format("partial RMSNorm, {:g} %", share * 100); }

void add_shares(Page& page, Context& context, const Data& data, const std::vector<Run>& full) {
  const Size size = llama_size(context);
  std::vector<Arm> arms;
  for (const double share : kShares) {
    arms.push_back({fmt::format("share_{}", std::lround(share * 10000)),
                    [=] { return llama_with(norm_of(NormKind::kPartialRmsNorm, share), size); }, training(size)});
  }
  const auto runs = paired_runs(context, "llama", arms, data, context.seeds());

  Table table{fmt::format("A Llama of width {} and {} blocks, {} steps, {} seeds", size.width, size.layers, size.steps,
                          context.seeds()),
              {"norm", "columns in the mean", "held-out loss, nats a byte", "minus full RMSNorm", "verdict's test",
               "gradient norm, step 1", "its largest of a run", "largest rise of the loss, nats"},
              {}};
  const auto first_gradient = [](const std::vector<Run>& of) {
    return text(mean_interval(collect(of, [](const Run& run) { return run.gradient_norms.at(0); })));
  };
  const auto largest_gradient = [](const std::vector<Run>& of) {
    return text(mean_interval(collect(
        of, [](const Run& run) { return *std::max_element(run.gradient_norms.begin(), run.gradient_norms.end()); })));
  };
  table.rows.push_back({"RMSNorm", std::to_string(size.width), text(mean_interval(losses(full))), "", "",
                        first_gradient(full), largest_gradient(full), text(rise(full))});
  Series by_share{"partial minus full, by share", {}, {}, {}, {}};
  for (std::size_t i = 0; i < std::size(kShares); ++i) {
    const std::vector<double> paired = differences(losses(runs[i]), losses(full));
    const Interval difference = mean_interval(paired);
    const Verdict verdict = as_good(paired);
    const char* const said = verdict == Verdict::kHolds     ? "as good"
                             : verdict == Verdict::kRefuted ? "worse"
                                                            : "not settled";
    table.rows.push_back({share_name(kShares[i]), std::to_string(columns(kShares[i], size.width)),
                          text(mean_interval(losses(runs[i]))), text(difference), said, first_gradient(runs[i]),
                          largest_gradient(runs[i]), text(rise(runs[i]))});
    add_point(by_share, kShares[i], difference);
    page.findings.push_back(
        {fmt::format("RMSNorm over the first {:g} % of the columns is as good as over all", kShares[i] * 100),
         kShares[i] == kClaimedShare ? "Z, 3.2 and the tables of pRMSNorm" : "Z, the share as a free choice",
         fmt::format("held-out loss {} nats a byte above full RMSNorm's (margin {})", text(difference), kAsGoodMargin),
         verdict,
         fmt::format("The mean square of k columns scatters by about sqrt(2/k) of itself: here k = {}, in a model of "
                     "width 4096 it would be {}.",
                     columns(kShares[i], size.width), columns(kShares[i], 4096))});
  }
  page.parts.push_back(std::move(table));
  page.parts.push_back(Plot{"What a smaller share costs",
                            "share of the columns (ratio)",
                            "held-out loss minus full RMSNorm's (nats a byte)",
                            true,
                            false,
                            true,
                            {by_share}});
  page.parts.push_back(
      Plot{"Training loss, mean of the seeds",
           "step (count)",
           "loss (nats a byte)",
           false,
           false,
           true,
           {loss_series("RMSNorm", full, kSmoothing), loss_series(share_name(kShares[0]), runs[0], kSmoothing),
            loss_series(share_name(kShares[1]), runs[1], kSmoothing),
            loss_series(share_name(kShares[2]), runs[2], kSmoothing)}});
}

// ---- Weights centred at 0.2 ----------------------------------------------------------------------------------------

struct Start {
  std::vector<Run> rms, rms_shifted, layer, layer_shifted;
};

Start run_starts(Context& context, const std::string& key, const Data& data, const Size& size,
                 const std::function<Model(const NormOptions&, const Size&)>& make) {
  std::vector<Arm> arms;
  for (const NormKind kind : {NormKind::kRmsNorm, NormKind::kLayerNorm}) {
    arms.push_back({name_of(kind), [=] { return make(norm_of(kind), size); }, training(size)});
    arms.push_back({name_of(kind) + "_shifted", [=] { return shifted(make(norm_of(kind), size)); }, training(size)});
  }
  auto runs = paired_runs(context, key, arms, data, context.seeds());
  return {std::move(runs[0]), std::move(runs[1]), std::move(runs[2]), std::move(runs[3])};
}

// What the shifted start costs.
std::vector<double> cost(const std::vector<Run>& shifted_runs, const std::vector<Run>& ordinary) {
  return differences(losses(shifted_runs), losses(ordinary));
}

std::vector<double> difference_of_costs(const Start& start) {
  return differences(cost(start.layer_shifted, start.layer), cost(start.rms_shifted, start.rms));
}

void add_rows(Table& table, const std::string& model, const Start& start) {
  const auto row = [&](const char* norm, const std::vector<Run>& ordinary, const std::vector<Run>& moved) {
    table.rows.push_back({model, norm, text(mean_interval(losses(ordinary))), text(mean_interval(losses(moved))),
                          text(mean_interval(cost(moved, ordinary))), text(rise(ordinary)), text(rise(moved)),
                          diverged(moved)});
  };
  row("LayerNorm", start.layer, start.layer_shifted);
  row("RMSNorm", start.rms, start.rms_shifted);
}

Plot loss_plot(const std::string& model, const Start& start) {
  return {model + ": training loss from weights centred at 0 and at 0.2",
          "step (count)",
          "loss (nats a byte)",
          false,
          false,
          true,
          {loss_series("LayerNorm, centred at 0", start.layer, kSmoothing),
           loss_series("LayerNorm, centred at 0.2", start.layer_shifted, kSmoothing),
           loss_series("RMSNorm, centred at 0", start.rms, kSmoothing),
           loss_series("RMSNorm, centred at 0.2", start.rms_shifted, kSmoothing)}};
}

void add_starts(Page& page, const Start& llama, const Start& gru) {
  Table table{"Weights centred at 0.2",
              {"model", "norm", "held-out loss, centred at 0", "centred at 0.2", "cost, nats a byte",
               "largest rise, centred at 0", "largest rise, centred at 0.2", "diverged at 0.2"},
              {}};
  add_rows(table, "GRU", gru);
  add_rows(table, "Llama", llama);
  page.parts.push_back(std::move(table));
  page.parts.push_back(loss_plot("GRU", gru));
  page.parts.push_back(loss_plot("Llama", llama));
  const std::vector<double> of_gru = difference_of_costs(gru), of_llama = difference_of_costs(llama);
  page.findings.push_back(
      {"Weights centred at 0.2 at the start upset LayerNorm more than RMSNorm", "Z, figure 4",
       fmt::format("cost to LayerNorm minus cost to RMSNorm, nats a byte: GRU {}, Llama {}",
                   text(mean_interval(of_gru)), text(mean_interval(of_llama))),
       all_of({more_robust(of_gru), more_robust(of_llama)}),
       "What 0.2 adds to every weight gives all neurons of a layer the same summand. LayerNorm removes it behind each "
       "matrix by construction, and RMSNorm does not, so it is not clear from the formulas why the first should be the "
       "one to suffer."});
}

Page run(Context& context) {
  Page page;
  const Size of_llama = llama_size(context), of_gru = gru_size(context);
  const auto long_rows = text_data(moby_dick(), of_llama.time), short_rows = text_data(moby_dick(), of_gru.time);
  const Start llama = run_starts(context, "llama", *long_rows, of_llama, llama_with);
  add_shares(page, context, *long_rows, llama.rms);
  add_starts(page, llama, run_starts(context, "gru", *short_rows, of_gru, gru_with));
  return page;
}

}  // namespace

Verdict as_good(const std::vector<double>& paired) {
  switch (equivalence(paired, kAsGoodMargin)) {
    case Equivalence::kEqual:
      return Verdict::kHolds;
    case Equivalence::kDifferent:
      return mean(paired) < 0 ? Verdict::kHolds : Verdict::kRefuted;
    case Equivalence::kNotSettled:
      break;
  }
  return Verdict::kNotSettled;
}

Verdict more_robust(const std::vector<double>& paired) {
  const Interval interval = mean_interval(paired);
  if (interval.low > 0) return Verdict::kHolds;
  return interval.high < 0 ? Verdict::kRefuted : Verdict::kNotSettled;
}

double largest_rise(const std::vector<double>& losses, int window) {
  const auto w = static_cast<std::size_t>(window);
  double lowest = kInfinity, rise = 0;
  for (std::size_t end = w; end <= losses.size(); ++end) {
    const auto last = losses.begin() + static_cast<std::ptrdiff_t>(end);
    const double smoothed = mean({last - window, last});
    lowest = std::min(lowest, smoothed);
    rise = std::max(rise, smoothed - lowest);
  }
  return rise;
}

extern const Experiment kPartial = {13,    "partial", "A mean over a part of the row, and a bad start", kClaim, kDesign,
                                    kRule, &run};

}  // namespace rmsnorm::lab
