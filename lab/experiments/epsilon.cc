// Experiment 4. Claim, design and rule come first.
#include "lab/experiments/epsilon.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "lab/experiments/support.h"
#include "lab/models/llama.h"

namespace rmsnorm::lab {
namespace {

constexpr double kRangeLow = 1e-6, kRangeHigh = 1e-5;  // the recommended ones
constexpr double kSmallest = 1e-12, kUsual = 1e-5;
constexpr double kLossMargin = 0.01;    // nats
constexpr double kOutputMargin = 0.01;  // relative difference of outputs

constexpr char kClaim[] =
    "An epsilon of 1e-5 to 1e-6 is best, and a smaller one explodes (P). The forms with epsilon inside and outside of "
    "the "
    "root are the same thing (P prints both).";

constexpr char kDesign[] =
    "RMSNorm with epsilon from 1e-12 to 1e-1, inside (x / sqrt(mean(x^2) + e)) and outside (x / (sqrt(mean(x^2)) + e)) "
    "of "
    "the root, in f32, bf16 and f16. Rows: 64 rows of 256 normal numbers, scaled to a root mean square of 1, 1e-3 and "
    "0, "
    "through three codes: fused (this library), eager with statistics in f32 (as transformers has it), and eager all "
    "in "
    "the type of x (as an article's formula runs when x is of 16 bits). Output error: the distance to the exact norm "
    "without epsilon (f64, of the same stored x), over the length of that; gradient gain: the length of the gradient "
    "that "
    "comes out over the length of the one that goes in. Trainings: a small Llama on bytes of Moby-Dick, whose first "
    "norm "
    "reads embeddings of a root mean square of 0.02, with paired seeds; all weights and activations in the type, with "
    "AdamW on f32 copies, and for f16 the loss scaled by 1024.";

constexpr char kRule[] =
    "Best: per type and form, refuted when an epsilon outside of 1e-6 to 1e-5 reaches a final loss less than 0.01 nats "
    "above the best inside (the interval of the paired difference lies below 0.01); holds when all of them lie above "
    "0. "
    "Explodes: per type and code, holds when an output, a gradient or a training is not finite at 1e-12 where all are "
    "finite at 1e-5, is refuted when all are finite at 1e-12, too; where 1e-5 is not finite either, nothing is "
    "settled. "
    "The same: two cells, rows in f32 and trainings in f32. Rows hold when at 1e-6 and 1e-5 the outputs of the two "
    "forms differ by less than 1 % at every scale but 0, trainings when the losses at these epsilons are equal by two "
    "one-sided tests against 0.01 nats. Cells that disagree make a claim hold partly.";

const std::vector<double> kEpsilons = {1e-12, 1e-11, 1e-10, 1e-9, 1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1};
const std::vector<double> kScales = {1, 1e-3, 0};

struct Type {
  const char* name;
  torch::ScalarType scalar;
  double loss_scale;
};
const Type kTypes[] = {{"f32", torch::kFloat, 1}, {"bf16", torch::kBFloat16, 1}, {"f16", torch::kHalf, 1024}};

// The third code of the rows, beside those of NormCode.
constexpr char kOwnType[] = "own_type";
const std::vector<std::string> kRowCodes = {"fused", "eager", kOwnType};

std::string exponent(double epsilon) { return fmt::format("e{:.0f}", -std::log10(epsilon)); }  // of 1e-5: "e5"
std::string form(bool inside) { return inside ? "inside" : "outside"; }
std::string place(const std::string& type, const std::string& code, bool inside, double epsilon) {
  return fmt::format("{}-{}-{}-{}", type, code, form(inside), exponent(epsilon));
}

// ---- Rows

torch::Tensor norm_in_own_type(const torch::Tensor& x, double epsilon, bool inside) {
  const torch::Tensor mean_square = x.square().mean(-1, true);
  return x / (inside ? (mean_square + epsilon).sqrt() : mean_square.sqrt() + epsilon);
}

torch::Tensor norm_of(const torch::Tensor& x, const std::string& code, double epsilon, bool inside) {
  if (code == kOwnType) return norm_in_own_type(x, epsilon, inside);
  Norm norm(NormOptions{.kind = NormKind::kRmsNorm,
                        .code = norm_code(code),
                        .epsilon = epsilon,
                        .epsilon_inside = inside,
                        .weight = false},
            x.size(-1));
  return norm->forward(x);
}

// What one norm does to rows of one scale.
nlohmann::json measure_rows(const Type& type, const std::string& code, bool inside, double epsilon, double scale) {
  torch::manual_seed(1);
  const auto f64 = torch::kDouble;
  const torch::Tensor normal = torch::randn({64, 256}, f64);
  const torch::Tensor stored = (normal / normal.square().mean(-1, true).sqrt() * scale).to(type.scalar);
  const torch::Tensor upstream = torch::randn({64, 256}, f64).to(type.scalar);
  const torch::Tensor x = stored.clone().set_requires_grad(true);
  const torch::Tensor y = norm_of(x, code, epsilon, inside);
  y.backward(upstream);
  const torch::Tensor out = y.detach().to(f64), gradient = x.grad().to(f64);
  // Exact: x / sqrt(mean(x^2)); of a row of zeros, whose limit does not exist, zero.
  const torch::Tensor wide = stored.to(f64);
  const torch::Tensor exact = scale == 0 ? wide : wide / wide.square().mean(-1, true).sqrt();
  const double error = (out - exact).norm().item<double>();
  return {{"error", scale == 0 ? error : error / exact.norm().item<double>()},
          {"gain", gradient.norm().item<double>() / upstream.to(f64).norm().item<double>()},
          {"finite", torch::isfinite(out).all().item<bool>() && torch::isfinite(gradient).all().item<bool>()}};
}

nlohmann::json measure_all_rows() {
  torch::set_num_threads(kTrainingThreads);
  nlohmann::json rows;
  for (const Type& type : kTypes) {
    for (const std::string& code : kRowCodes) {
      for (const bool inside : {true, false}) {
        for (const double epsilon : kEpsilons) {
          nlohmann::json& here = rows[place(type.name, code, inside, epsilon)];
          for (const double scale : kScales) here.push_back(measure_rows(type, code, inside, epsilon, scale));
        }
      }
    }
  }
  return rows;
}

// Relative difference of the outputs of both forms, f32.
nlohmann::json measure_forms() {
  torch::manual_seed(1);
  const torch::Tensor normal = torch::randn({64, 256});
  nlohmann::json result;
  for (const double epsilon : kEpsilons) {
    for (const double scale : kScales) {
      if (scale == 0) continue;
      const torch::Tensor x = normal / normal.square().mean(-1, true).sqrt() * scale;
      const torch::Tensor inside = norm_of(x, "fused", epsilon, true), outside = norm_of(x, "fused", epsilon, false);
      result[exponent(epsilon)].push_back(((inside - outside).norm() / inside.norm()).item<double>());
    }
  }
  return result;
}

// ---- Trainings

struct Size {
  std::int64_t steps, batch, time;
};

// Weights of the type, AdamW on their f32 originals; so the norms see rows of the type.
nlohmann::json train_in(const Type& type, const NormOptions& norm, const Size& size, const Data& data, int seed) {
  torch::set_num_threads(kTrainingThreads);
  const auto make = [&] {
    torch::manual_seed(static_cast<std::uint64_t>(seed));
    return make_llama({.width = 64, .layers = 2, .heads = 2, .key_value_heads = 1, .context = size.time, .norm = norm});
  };
  const Model original = make(), narrow = make();
  narrow->to(type.scalar);
  const auto weights = original->parameters(), narrow_weights = narrow->parameters();
  TrainOptions options;
  options.steps = size.steps;
  options.batch = size.batch;
  torch::optim::AdamW optimizer(weights, torch::optim::AdamWOptions(options.learning_rate)
                                             .betas({options.beta1, options.beta2})
                                             .weight_decay(options.weight_decay));
  const auto copy_down = [&] {
    const torch::NoGradGuard no_grad;
    for (std::size_t i = 0; i < weights.size(); ++i) narrow_weights[i].copy_(weights[i]);
  };
  double largest = 0;
  for (std::int64_t step = 0; step < options.steps; ++step) {
    for (auto& group : optimizer.param_groups()) group.options().set_lr(learning_rate_at(options, step));
    const Batch batch = data.train(static_cast<std::uint64_t>(seed), step, options.batch);
    narrow->zero_grad();
    (loss_of(narrow->forward(batch.input), batch.target) * type.loss_scale).backward();
    for (std::size_t i = 0; i < weights.size(); ++i) {
      torch::Tensor weight = weights[i];
      weight.mutable_grad() = narrow_weights[i].grad().to(torch::kFloat) / type.loss_scale;
    }
    const double norm_of_gradient = torch::nn::utils::clip_grad_norm_(weights, options.clip);
    if (!std::isfinite(norm_of_gradient)) {
      return {{"loss", std::nan("")}, {"gradient", norm_of_gradient}, {"diverged", true}};
    }
    largest = std::max(largest, norm_of_gradient);
    optimizer.step();
    copy_down();
  }
  const double loss = evaluate(*narrow, data, options.batch, options.evaluate_parts).loss;
  return {{"loss", loss}, {"gradient", largest}, {"diverged", !std::isfinite(loss)}};
}

struct Training {
  const Type* type;
  bool inside;
  double epsilon;
  std::vector<double> losses, gradients;  // of each seed; gradient: the largest norm of a step
  int diverged = 0;
};

std::vector<Training> all_trainings(Context& context, const Data& data, const Size& size) {
  const auto epsilons = context.choose<std::vector<double>>({1e-12, 1e-5, 1e-1}, {1e-12, 1e-8, 1e-6, 1e-5, 1e-3, 1e-1},
                                                            {1e-12, 1e-8, 1e-6, 1e-5, 1e-4, 1e-3, 1e-1});
  std::vector<Training> trainings;
  for (const Type& type : kTypes) {
    for (const bool inside : {true, false}) {
      if (!inside && type.scalar != torch::kFloat && context.scale() != Scale::kFull) continue;
      for (const double epsilon : epsilons) {
        Training training{&type, inside, epsilon, {}, {}};
        const NormOptions norm = {.epsilon = epsilon, .epsilon_inside = inside};
        const auto seeds = context.piece("train-" + place(type.name, name_of(norm.code), inside, epsilon), [&] {
          nlohmann::json runs;
          for (int seed = 1; seed <= context.seeds(); ++seed) runs.push_back(train_in(type, norm, size, data, seed));
          return runs;
        });
        for (const auto& run : seeds) {
          training.losses.push_back(run.at("loss"));
          training.gradients.push_back(run.at("gradient"));
          training.diverged += run.at("diverged").get<bool>();
        }
        trainings.push_back(training);
      }
    }
  }
  return trainings;
}

bool recommended(double epsilon) {
  return epsilon > kRangeLow / 2 && epsilon < kRangeHigh * 2;  // decades: no equality of floating point wanted
}

std::vector<Training> of_type(const std::vector<Training>& all, const Type& type, bool inside) {
  std::vector<Training> chosen;
  for (const Training& t : all) {
    if (t.type == &type && t.inside == inside) chosen.push_back(t);
  }
  return chosen;
}

// The recommended epsilon with the smallest mean loss.
const Training& best_recommended(const std::vector<Training>& trainings) {
  const Training* best = nullptr;
  for (const Training& t : trainings) {
    if (recommended(t.epsilon) &&
        (best == nullptr || finite_mean(t.losses).estimate < finite_mean(best->losses).estimate))
      best = &t;
  }
  return *best;
}

// ---- Findings

Finding finding_best(const std::vector<Training>& all) {
  std::vector<std::string> numbers;
  std::vector<Verdict> verdicts;
  for (const Type& type : kTypes) {
    for (const bool inside : {true, false}) {
      const auto trainings = of_type(all, type, inside);
      if (trainings.empty()) continue;
      const Training& best = best_recommended(trainings);
      std::vector<Interval> others;
      std::vector<std::string> as_good;
      for (const Training& t : trainings) {
        if (recommended(t.epsilon)) continue;
        others.push_back(mean_difference(t.losses, best.losses));
        if (within(others.back(), -kInfinity, kLossMargin) == Verdict::kHolds) as_good.push_back(text(t.epsilon));
      }
      verdicts.push_back(best_range(others, kLossMargin));
      numbers.push_back(fmt::format("{}, {}: as good as {}: {}", type.name, form(inside), text(best.epsilon),
                                    as_good.empty() ? "none" : fmt::format("{}", fmt::join(as_good, ", "))));
    }
  }
  return {"An epsilon of 1e-5 to 1e-6 is best", "P", fmt::format("{}.", fmt::join(numbers, "; ")), all_of(verdicts),
          fmt::format("As good: the final loss is less than {} nats above it, by the paired interval. What matters is "
                      "epsilon against the mean square of the rows.",
                      kLossMargin)};
}

Finding finding_explodes(const nlohmann::json& rows, const std::vector<Training>& all) {
  std::vector<std::string> numbers;
  std::vector<Verdict> verdicts;
  for (const Type& type : kTypes) {
    for (const std::string& code : kRowCodes) {
      const auto finite = [&](double epsilon) {
        const auto& here = rows.at(place(type.name, code, true, epsilon));
        bool all_finite = std::all_of(here.begin(), here.end(), [](const auto& r) { return r.at("finite"); });
        if (code != name_of(NormOptions().code)) return all_finite;
        for (const Training& t : of_type(all, type, true)) {
          if (t.epsilon == epsilon && t.diverged > 0) all_finite = false;
        }
        return all_finite;
      };
      verdicts.push_back(explodes(finite(kSmallest), finite(kUsual)));
      const double gain = rows.at(place(type.name, code, true, kSmallest)).back().at("gain");
      numbers.push_back(fmt::format("{}, {}: {}, gradient gain {} at a row of zeros", type.name, code,
                                    finite(kSmallest) ? "finite" : "not finite", text(gain)));
    }
  }
  return {
      "A smaller epsilon than 1e-6 explodes", "P",
      fmt::format("At {}, inside the root: {}.", text(kSmallest), fmt::join(numbers, "; ")), all_of(verdicts),
      "Inside, the gradient at a row of zeros is up to 1 / sqrt(e) times what comes in: at 1e-12 a million, which f32 "
      "and bf16 hold and f16, whose largest number is 65504, does not. And a statistic in f16 cannot hold an epsilon "
      "below 6e-8 at all."};
}

Finding finding_forms(const nlohmann::json& forms, const std::vector<Training>& all) {
  double largest = 0;
  std::vector<std::string> losses;
  std::vector<Verdict> trainings;
  for (const double epsilon : kEpsilons) {
    if (!recommended(epsilon)) continue;
    for (const double difference : forms.at(exponent(epsilon))) largest = std::max(largest, difference);
    for (const Training& inside : of_type(all, kTypes[0], true)) {
      for (const Training& outside : of_type(all, kTypes[0], false)) {
        if (inside.epsilon != epsilon || outside.epsilon != epsilon) continue;
        const auto paired = differences(outside.losses, inside.losses);
        const Equivalence equal = equivalence(paired, kLossMargin);
        trainings.push_back(equal == Equivalence::kEqual       ? Verdict::kHolds
                            : equal == Equivalence::kDifferent ? Verdict::kRefuted
                                                               : Verdict::kNotSettled);
        losses.push_back(fmt::format("{} at {}", text(mean_difference(outside.losses, inside.losses)), text(epsilon)));
      }
    }
  }
  const Verdict in_rows = within({largest, largest, largest}, -kInfinity, kOutputMargin);
  return {"Epsilon inside and outside of the root are the same", "P prints both forms",
          fmt::format("Outputs of rows differ by up to {}; final losses, outside less inside, in nats: {}.",
                      percent(largest), fmt::join(losses, "; ")),
          all_of({in_rows, all_of(trainings)}),
          "Inside, epsilon counts against the mean square; outside, against its root. The same number is another "
          "strength: e inside does to a small row about what sqrt(e) does outside."};
}

// ---- Plots and tables

Plot error_plot(const nlohmann::json& rows, std::size_t scale) {
  Plot plot{fmt::format("Output error, rows of root mean square {}", text(kScales[scale])),
            "epsilon (absolute)",
            "error / length of the exact output (ratio)",
            true,
            true,
            true,
            {}};
  for (const Type& type : kTypes) {
    for (const bool inside : {true, false}) {
      Series series{fmt::format("{}, {}", type.name, form(inside)), {}, {}, {}, {}};
      for (const double epsilon : kEpsilons) {
        series.x.push_back(epsilon);
        series.y.push_back(rows.at(place(type.name, "fused", inside, epsilon)).at(scale).at("error"));
      }
      plot.series.push_back(series);
    }
  }
  return plot;
}

Plot gain_plot(const nlohmann::json& rows) {
  Plot plot{"Gradient gain at a row of zeros (points that are missing are not finite)",
            "epsilon (absolute)",
            "gradient out / gradient in (ratio)",
            true,
            true,
            true,
            {}};
  for (const auto& [type, code] : std::vector<std::pair<std::string, std::string>>{
           {"f32", "fused"}, {"f32", kOwnType}, {"f16", "fused"}, {"f16", kOwnType}}) {
    for (const bool inside : {true, false}) {
      Series series{fmt::format("{}, {}, {}", type, code, form(inside)), {}, {}, {}, {}};
      for (const double epsilon : kEpsilons) {
        const double gain = rows.at(place(type, code, inside, epsilon)).back().at("gain");
        if (!std::isfinite(gain) || gain == 0) continue;
        series.x.push_back(epsilon);
        series.y.push_back(gain);
      }
      if (!series.x.empty()) plot.series.push_back(series);
    }
  }
  return plot;
}

Table rows_table(const nlohmann::json& rows) {
  Table table{"What is not finite, by code (rows of root mean square 1, 1e-3 and 0)",
              {"type", "code", "form", "epsilons with an output or gradient that is not finite"},
              {}};
  for (const Type& type : kTypes) {
    for (const std::string& code : kRowCodes) {
      for (const bool inside : {true, false}) {
        std::vector<std::string> failing;
        for (std::size_t scale = 0; scale < kScales.size(); ++scale) {
          std::vector<std::string> epsilons;
          for (const double epsilon : kEpsilons) {
            const auto& here = rows.at(place(type.name, code, inside, epsilon));
            if (!here.at(scale).at("finite").get<bool>()) epsilons.push_back(text(epsilon));
          }
          if (epsilons.empty()) continue;
          const bool all = epsilons.size() == kEpsilons.size();
          failing.push_back(fmt::format("rows of {}: {}", text(kScales[scale]),
                                        all ? "all" : fmt::format("{}", fmt::join(epsilons, ", "))));
        }
        table.rows.push_back(
            {type.name, code, form(inside), failing.empty() ? "none" : fmt::format("{}", fmt::join(failing, "; "))});
      }
    }
  }
  return table;
}

Table training_table(const std::vector<Training>& all) {
  Table table{"Trainings",
              {"type", "form", "epsilon", "final loss (nats a byte)", "less the loss of the best recommended epsilon",
               "largest gradient norm of a step", "runs that diverged"},
              {}};
  for (const Training& t : all) {
    const auto peers = of_type(all, *t.type, t.inside);
    const Training& best = best_recommended(peers);
    table.rows.push_back({t.type->name, form(t.inside), text(t.epsilon), text(finite_mean(t.losses)),
                          t.epsilon == best.epsilon ? "0" : text(mean_difference(t.losses, best.losses)),
                          text(finite_mean(t.gradients)), fmt::format("{} of {}", t.diverged, t.losses.size())});
  }
  return table;
}

Plot training_plot(const std::vector<Training>& all) {
  Plot plot{"Final loss against epsilon", "epsilon (absolute)", "held-out loss (nats a byte)", true, false, true, {}};
  for (const Type& type : kTypes) {
    for (const bool inside : {true, false}) {
      Series series{fmt::format("{}, {}", type.name, form(inside)), {}, {}, {}, {}};
      for (const Training& t : of_type(all, type, inside)) {
        const Interval loss = finite_mean(t.losses);
        if (std::isfinite(loss.estimate)) add_point(series, t.epsilon, loss);
      }
      if (!series.x.empty()) plot.series.push_back(series);
    }
  }
  return plot;
}

Page run(Context& context) {
  const Size size = context.choose<Size>({10, 8, 16}, {80, 8, 32}, {200, 8, 32});
  const auto data = text_data(moby_dick(), size.time);
  const nlohmann::json rows = context.piece("rows", &measure_all_rows);
  const nlohmann::json forms = context.piece("forms", &measure_forms);
  const auto trainings = all_trainings(context, *data, size);

  Page page;
  page.findings = {finding_best(trainings), finding_explodes(rows, trainings), finding_forms(forms, trainings)};
  page.parts.push_back(error_plot(rows, 0));
  page.parts.push_back(error_plot(rows, 1));
  page.parts.push_back(gain_plot(rows));
  page.parts.push_back(rows_table(rows));
  page.parts.push_back(training_plot(trainings));
  page.parts.push_back(training_table(trainings));
  return page;
}

}  // namespace

Verdict best_range(const std::vector<Interval>& others, double margin) {
  std::vector<Verdict> worse;
  for (const Interval& other : others) {
    if (other.high < margin) return Verdict::kRefuted;
    worse.push_back(other.low > 0 ? Verdict::kHolds : Verdict::kNotSettled);
  }
  return all_of(worse);
}

Verdict explodes(bool smallest_finite, bool usual_finite) {
  if (!usual_finite) return Verdict::kNotSettled;
  return smallest_finite ? Verdict::kRefuted : Verdict::kHolds;
}

const Experiment kEpsilon = {4, "epsilon", "Epsilon: how large, and where", kClaim, kDesign, kRule, &run};

}  // namespace rmsnorm::lab
