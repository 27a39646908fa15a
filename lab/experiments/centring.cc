#include "lab/experiments/centring.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "lab/experiments/invariances.h"
#include "lab/experiments/norm_inputs.h"
#include "lab/models/llama.h"

namespace rmsnorm::lab {
namespace {

using nlohmann::json;

constexpr const char* kClaim =
    "In training the activations centre themselves around zero, so the mean that LayerNorm subtracts is not missed "
    "(P). "
    "RMSNorm keeps the invariance to re-scaling and gives up the one to re-centring; the table of five normalisations "
    "and six changes says which output stays (Z, table 1; E). RMSNorm puts every row on the sphere of radius sqrt(d) "
    "(E).";

constexpr const char* kDesign =
    "A small Llama learns Moby-Dick byte by byte, once with RMSNorm and once with LayerNorm, from the same seeds. At "
    "fixed steps the same held-out rows go through it, and at the entry of every norm the share mean(x)^2 / mean(x^2) "
    "is "
    "taken of each row: 0 is centred, 1/d is what a random direction has, 1 is a constant row. The same is taken of "
    "rows "
    "recorded inside a published Llama (SmolLM2-135M). The table: y = norm(X W^T) in f64 with epsilon 0, before and "
    "after "
    "each change (factor 2.5, or a fixed vector added), this library's operators where it has them; and once more with "
    "epsilon 1e-5, over many factors. The sphere: |y| / sqrt(d) with and without epsilon and weight.";

constexpr const char* kRule =
    "Centre themselves: holds where the 95 % interval (over seeds) of the share at the end over the share at the "
    "start, "
    "averaged over the norms, lies below 1; refuted where it lies above. Mean negligible: holds where the norm with "
    "the "
    "largest share has less than 1 % at the end (whole interval), refuted where it has more. Table: a cell is "
    "invariant "
    "below a change of 1e-9 of the output's root mean square and changed above 1e-2; the claim holds where all cells "
    "are "
    "as printed. Sphere: holds where the bare formula is within 1e-12 and the model's own rows, with its epsilon and "
    "weight, within 1 %; partly where only the first is true.";

constexpr std::int64_t kWatchedRows = 8;  // sequences
constexpr std::uint64_t kTableSeed = 11;

struct Size {
  std::int64_t width, layers, time, batch, steps;
};
Size size_at(const Context& context) {
  return context.choose(Size{32, 2, 32, 8, 20}, Size{64, 3, 64, 16, 200}, Size{64, 4, 64, 16, 240});
}

std::vector<std::int64_t> watched_steps(std::int64_t steps) {
  std::vector<std::int64_t> watched = {0};
  for (std::int64_t step = 5; step < steps; step *= 2) watched.push_back(step);
  watched.push_back(steps);
  return watched;
}

// ---- Training ------------------------------------------------------------------------------------------------------

struct Watched {
  std::vector<std::string> names;  // of the norms
  std::vector<std::int64_t> steps;
  std::vector<std::vector<double>> share;  // [watched step][norm]
  double loss = 0;                         // held-out, at the end
};

json watch_training(NormKind kind, const Size& size, std::uint64_t seed) {
  torch::set_num_threads(kTrainingThreads);
  torch::manual_seed(seed);
  LlamaOptions options;
  options.width = size.width;
  options.layers = size.layers;
  options.context = size.time;
  options.norm.kind = kind;
  const Model model = make_llama(options);
  const auto data = text_data(moby_dick(), size.time);
  const torch::Tensor rows = data->held_out(0, kWatchedRows).input;
  const std::vector<std::int64_t> watched = watched_steps(size.steps);

  json names = json::array(), shares = json::array();
  const auto watch = [&] {
    json share = json::array();
    names = json::array();
    for (const NormInput& input : norm_inputs(*model, rows)) {
      names.push_back(input.name);
      share.push_back(input.mean_share);
    }
    shares.push_back(share);
  };
  watch();
  TrainOptions training;
  training.steps = size.steps;
  training.batch = size.batch;
  training.seed = seed;
  const TrainResult result = train(*model, *data, training, [&](const Step& step) {
    if (std::find(watched.begin(), watched.end(), step.step) != watched.end()) watch();
  });
  TORCH_CHECK(!result.diverged, "the training of ", name_of(kind), " with seed ", seed, " diverged");
  return {{"names", names}, {"steps", watched}, {"share", shares}, {"loss", result.evaluations.back().loss}};
}

Watched watched_from(const json& piece) {
  return {piece.at("names"), piece.at("steps"), piece.at("share"), piece.at("loss")};
}

// Per seed, over the norms.
std::vector<double> mean_shares(const std::vector<Watched>& runs, std::size_t step) {
  std::vector<double> values;
  for (const Watched& run : runs) values.push_back(mean(run.share.at(step)));
  return values;
}

Series share_series(const std::string& name, const std::vector<Watched>& runs) {
  Series series;
  series.name = name;
  for (std::size_t i = 0; i < runs.front().steps.size(); ++i) {
    add_point(series, static_cast<double>(runs.front().steps[i]), mean_interval(mean_shares(runs, i)));
  }
  return series;
}

std::vector<double> shares_of_norm(const std::vector<Watched>& runs, bool at_end, std::size_t norm) {
  std::vector<double> values;
  for (const Watched& run : runs) values.push_back((at_end ? run.share.back() : run.share.front()).at(norm));
  return values;
}

Series by_norm(const std::string& name, const std::vector<Watched>& runs) {
  Series series;
  series.name = name;
  for (std::size_t i = 0; i < runs.front().names.size(); ++i) {
    add_point(series, static_cast<double>(i + 1), mean_interval(shares_of_norm(runs, true, i)));
  }
  return series;
}

void add_training(Page& page, Context& context) {
  const Size size = size_at(context);
  std::vector<Watched> rms, layer;
  for (int seed = 1; seed <= context.seeds(); ++seed) {
    for (const NormKind kind : {NormKind::kRmsNorm, NormKind::kLayerNorm}) {
      const json piece = context.piece(fmt::format("watch-{}-{}", name_of(kind), seed),
                                       [&] { return watch_training(kind, size, static_cast<std::uint64_t>(seed)); });
      (kind == NormKind::kRmsNorm ? rms : layer).push_back(watched_from(piece));
    }
  }
  const std::size_t last = rms.front().steps.size() - 1;
  const auto end_over_start = [&](const std::vector<Watched>& runs) {
    return relative_mean(mean_shares(runs, last), mean_shares(runs, 0));
  };
  const auto largest = [](const std::vector<Watched>& runs) {
    std::vector<double> values;
    for (const Watched& run : runs)
      values.push_back(*std::max_element(run.share.back().begin(), run.share.back().end()));
    return mean_interval(values);
  };
  const double chance = 1.0 / static_cast<double>(size.width);

  const Interval change = end_over_start(rms), worst = largest(rms);
  page.findings.push_back(
      {"Activations centre themselves in training", "P",
       fmt::format("with RMSNorm the mean's share of a row's square is {} times what it was before training "
                   "(LayerNorm: {}); at the start {}, where a random direction has {}",
                   text(change), text(end_over_start(layer)), text(mean_interval(mean_shares(rms, 0))), text(chance)),
       self_centring(change),
       "Random weights give centred rows, to within chance, before any step. What training then does to the mean is "
       "the "
       "model's choice: no term of the loss asks for a mean of zero."});
  page.findings.push_back(
      {"The mean that LayerNorm would subtract is about zero, so it is not missed", "P",
       fmt::format("largest share among the norms after training: {} with RMSNorm, {} with LayerNorm (1/d = {})",
                   percent(worst), percent(largest(layer)), percent(chance)),
       mean_negligible(worst),
       fmt::format("A share s means that subtracting the mean would change the row by sqrt(s) of its length: {} here.",
                   percent(std::sqrt(std::max(0.0, worst.estimate))))});

  page.parts.push_back(
      Plot{"Mean's share of the square at the entry of the norms, averaged over them",
           "step (count)",
           "mean(x)^2 / mean(x^2) (ratio)",
           false,
           true,
           true,
           {share_series("RMSNorm", rms), share_series("LayerNorm", layer),
            Series{"a random direction, 1/d", {0, static_cast<double>(size.steps)}, {chance, chance}, {}, {}}}});
  page.parts.push_back(Plot{"The same after training, norm by norm in the order of the forward pass",
                            "norm (position)",
                            "mean(x)^2 / mean(x^2) (ratio)",
                            false,
                            true,
                            false,
                            {by_norm("RMSNorm", rms), by_norm("LayerNorm", layer)}});
  Table table{fmt::format("Mean's share at the entry of each norm, width {}, {} steps", size.width, size.steps),
              {"norm", "RMSNorm, start", "RMSNorm, end", "LayerNorm, start", "LayerNorm, end"},
              {}};
  for (std::size_t i = 0; i < rms.front().names.size(); ++i) {
    table.rows.push_back({rms.front().names[i], text(mean_interval(shares_of_norm(rms, false, i))),
                          text(mean_interval(shares_of_norm(rms, true, i))),
                          text(mean_interval(shares_of_norm(layer, false, i))),
                          text(mean_interval(shares_of_norm(layer, true, i)))});
  }
  page.parts.push_back(std::move(table));
}

// ---- A published model, and the sphere -----------------------------------------------------------------------------

torch::Tensor normalised(const torch::Tensor& x, double epsilon) {
  NormOptions options;
  options.epsilon = epsilon;
  options.weight = false;
  return Norm(options, x.size(-1))->forward(x.to(torch::kDouble));
}

// |y| / sqrt(d) of each row.
torch::Tensor radius(const torch::Tensor& y) { return y.square().mean(-1).sqrt(); }

double largest_departure(const torch::Tensor& y) { return (radius(y) - 1).abs().max().item<double>(); }

// Rows in every direction, their root mean square from 1e-4 to 1.
torch::Tensor rows_of_many_sizes(std::int64_t rows, std::int64_t width) {
  torch::manual_seed(5);
  const torch::Tensor direction = torch::randn({rows, width}, torch::kDouble);
  const torch::Tensor size = torch::pow(10.0, -4 * torch::rand({rows, 1}, torch::kDouble));
  return direction / radius(direction).unsqueeze(-1) * size;
}

json measure_recorded() {
  json result = json::array();
  for (const RecordedNorm& norm : recorded_norms()) {
    const torch::Tensor bare = normalised(norm.x, kRecordedEpsilon);
    const torch::Tensor weighted = bare * norm.weight.to(torch::kDouble);
    result.push_back({{"name", norm.name},
                      {"width", norm.x.size(-1)},
                      {"mean_share", mean_share(norm.x)},
                      {"without_epsilon", largest_departure(normalised(norm.x, 0))},
                      {"with_epsilon", largest_departure(bare)},
                      {"with_weight", largest_departure(weighted)},
                      {"weighted_low", radius(weighted).min().item<double>()},
                      {"weighted_high", radius(weighted).max().item<double>()}});
  }
  return result;
}

void add_recorded(Page& page, Context& context) {
  const json recorded = context.piece("recorded", measure_recorded);
  Table table{"Rows recorded inside SmolLM2-135M-Instruct (192 tokens of Moby-Dick, width 576, epsilon 1e-5)",
              {"norm", "mean's share of the square", "1/d", "largest | |y|/sqrt(d) - 1 |, epsilon 0", "with epsilon",
               "with epsilon and weight", "|y|/sqrt(d) with both"},
              {}};
  double bare = 0, in_model = 0;
  for (const json& norm : recorded) {
    bare = std::max(bare, norm.at("without_epsilon").get<double>());
    in_model = std::max(in_model, norm.at("with_weight").get<double>());
    table.rows.push_back({norm.at("name"), text(norm.at("mean_share").get<double>()),
                          text(1 / norm.at("width").get<double>()), text(norm.at("without_epsilon").get<double>()),
                          text(norm.at("with_epsilon").get<double>()), text(norm.at("with_weight").get<double>()),
                          fmt::format("{} to {}", text(norm.at("weighted_low").get<double>()),
                                      text(norm.at("weighted_high").get<double>()))});
  }
  page.parts.push_back(std::move(table));
  page.findings.push_back(
      {"RMSNorm puts every row on the sphere of radius sqrt(d)", "E",
       fmt::format("rows of a published model: within {} of the sphere by the bare formula, up to {} off it with the "
                   "model's epsilon and weight",
                   text(bare), percent(in_model)),
       on_sphere(bare, in_model),
       "Epsilon leaves a row inside the sphere, by e / (2 mean(x^2)) where that is small; the weight turns the sphere "
       "into an ellipsoid, and it is the weighted row that the next layer sees."});
}

json points_of(const torch::Tensor& y) {
  json x = json::array(), other = json::array();
  for (std::int64_t i = 0; i < y.size(0); ++i) {
    x.push_back(y[i][0].item<double>());
    other.push_back(y[i][1].item<double>());
  }
  return {{"x", x}, {"y", other}};
}

json draw_sphere() {
  const torch::Tensor rows = rows_of_many_sizes(150, 2);
  NormOptions centred;
  centred.kind = NormKind::kLayerNorm;
  centred.epsilon = 0;
  centred.weight = centred.bias = false;
  const torch::Tensor bare = normalised(rows, 0);
  return {{"RMSNorm, epsilon 0", points_of(bare)},
          {"RMSNorm, epsilon 1e-5", points_of(normalised(rows, 1e-5))},
          {"RMSNorm, epsilon 0, weight (1.3, 0.5)", points_of(bare * torch::tensor({1.3, 0.5}, torch::kDouble))},
          {"LayerNorm, epsilon 0", points_of(Norm(centred, 2)->forward(rows))}};
}

void add_sphere(Page& page, Context& context) {
  const json drawn = context.piece("sphere", draw_sphere);
  Plot plot{"Rows of two columns, root mean square from 1e-4 to 1, after the norm",
            "first column (number)",
            "second column (number)",
            false,
            false,
            false,
            {}};
  for (const auto& [name, points] : drawn.items()) {
    plot.series.push_back({name, points.at("x"), points.at("y"), {}, {}});
  }
  plot.same_scale = true;
  page.parts.push_back(std::move(plot));
  page.parts.push_back(
      Text{"In two columns the sphere is a circle of radius 1.41. Small rows fall inside it when epsilon is not 0. "
           "LayerNorm has one dimension less: of a circle two points are left, (1, -1) and (-1, 1)."});
}

// ---- The table -----------------------------------------------------------------------------------------------------

json measure_table() {
  json changes = json::array(), gradients = json::array();
  for (const Normalisation& normalisation : normalisations()) {
    json row = json::array();
    for (const Transformation& transformation : transformations()) {
      row.push_back(change_of_output(normalisation, transformation, 0, kTableSeed));
    }
    changes.push_back(row);
    gradients.push_back(gradient_ratio(normalisation, 8, kTableSeed));
  }
  return {{"changes", changes}, {"gradients", gradients}};
}

// How much RMSNorm's output changes when its input is multiplied, with epsilon 1e-5.
json measure_scales() {
  torch::manual_seed(5);
  torch::Tensor x = torch::randn({1, 256}, torch::kDouble);
  x = x / radius(x);
  json factors = json::array(), changes = json::array();
  const torch::Tensor y = normalised(x, 1e-5);
  for (int half_decades = -12; half_decades <= 6; ++half_decades) {
    if (half_decades == 0) continue;  // no change at all
    const double factor = std::pow(10.0, half_decades / 2.0);
    factors.push_back(factor);
    changes.push_back((normalised(x * factor, 1e-5) - y).abs().max().item<double>() /
                      y.square().mean().sqrt().item<double>());
  }
  return {{"factors", factors}, {"changes", changes}};
}

void add_table(Page& page, Context& context) {
  const json measured = context.piece("invariances", measure_table);
  Table table{"Largest change of the output, in units of its root mean square (f64, epsilon 0)", {"normalisation"}, {}};
  for (const Transformation& transformation : transformations()) table.columns.push_back(transformation.name);
  table.columns.push_back("gradient by W, W times 8: times 8 over before");
  int as_in_paper = 0, otherwise = 0, unclear = 0;
  for (std::size_t i = 0; i < normalisations().size(); ++i) {
    std::vector<std::string> row = {normalisations()[i].name};
    for (std::size_t j = 0; j < transformations().size(); ++j) {
      const double change = measured.at("changes").at(i).at(j);
      const Invariance found = judge_invariance(change);
      const bool same = (found == Invariance::kInvariant) == paper_table()[i][j];
      int& count = found == Invariance::kUnclear ? unclear : same ? as_in_paper : otherwise;
      ++count;
      row.push_back(fmt::format("{}: {}{}",
                                found == Invariance::kInvariant ? "invariant"
                                : found == Invariance::kChanged ? "changed"
                                                                : "unclear",
                                text(change, 2), same ? "" : " (the paper says otherwise)"));
    }
    row.push_back(text(1 / measured.at("gradients").at(i).get<double>()));
    table.rows.push_back(std::move(row));
  }
  page.parts.push_back(std::move(table));
  page.parts.push_back(Text{
      "The last column: where the output does not see the scale of W, the gradient shrinks as W grows, so that the "
      "product of both stays (1): the larger the weights, the smaller a step of gradient descent, relative to them "
      "by the square. Z calls this an implicit adaptation of the learning rate."});
  page.findings.push_back({"The table of invariances of five normalisations under six changes", "Z, table 1; E",
                           fmt::format("{} of {} cells as printed, {} otherwise, {} unclear", as_in_paper,
                                       as_in_paper + otherwise + unclear, otherwise, unclear),
                           table_verdict(as_in_paper, otherwise, unclear),
                           "Tested in f64 with epsilon 0 and positive factors, as the derivation assumes. A negative "
                           "factor turns the sign of the output, and epsilon ends the invariance for small rows."});

  const json scales = context.piece("scales", measure_scales);
  page.parts.push_back(
      Plot{"Where the invariance to re-scaling ends: RMSNorm with epsilon 1e-5, rows of root mean square 1",
           "factor on the row (ratio)",
           "largest change of the output / its root mean square (ratio)",
           true,
           true,
           true,
           {Series{"RMSNorm, epsilon 1e-5", scales.at("factors"), scales.at("changes"), {}, {}}}});
}

Page run(Context& context) {
  Page page;
  add_training(page, context);
  add_recorded(page, context);
  add_table(page, context);
  add_sphere(page, context);
  return page;
}

}  // namespace

Verdict self_centring(const Interval& end_over_start) {
  if (end_over_start.high < 1) return Verdict::kHolds;
  return end_over_start.low > 1 ? Verdict::kRefuted : Verdict::kNotSettled;
}

Verdict mean_negligible(const Interval& largest_share) {
  return within(largest_share, -kInfinity, kNegligibleMeanShare);
}

Verdict table_verdict(int as_in_paper, int otherwise, int unclear) {
  if (otherwise > 0) return as_in_paper > 0 ? Verdict::kPartly : Verdict::kRefuted;
  return unclear > 0 ? Verdict::kNotSettled : Verdict::kHolds;
}

Verdict on_sphere(double bare, double in_model) {
  if (!(bare <= kOnSphereExactly)) return Verdict::kRefuted;
  return in_model <= kOnSphere ? Verdict::kHolds : Verdict::kPartly;
}

extern const Experiment kCentring = {6, "centring", "Does the mean take care of itself?", kClaim, kDesign, kRule, &run};

}  // namespace rmsnorm::lab
