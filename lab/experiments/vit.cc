// Experiment 10: a trained vision transformer gets RMSNorm: by replacement and fine-tuning, and by exact conversion.
#include <fmt/format.h>

#include <algorithm>

#include "lab/experiments/experiment.h"
#include "lab/experiments/quality.h"
#include "lab/experiments/support.h"
#include "lab/experiments/surgery.h"
#include "lab/experiments/vit.h"
#include "lab/models/vit.h"
#include "lab/train/train.h"

namespace rmsnorm::lab {

namespace {

constexpr const char* kSource = "P, on vision transformers";
constexpr std::int64_t kBatch = 32;
constexpr std::int64_t kHeldOut = 256;  // pictures in a part of the evaluation
constexpr double kKept = 0.98;          // of the accuracy: the claim
constexpr double kSaved = 0.18;         // of the training time: the claim
constexpr double kMargin = 0.01;        // of accuracy, between two ways of replacement

constexpr const char* kKeptClaim =
    "Replacing LayerNorm by RMSNorm layer by layer from the bottom up, each time with fine-tuning, keeps 98 % of the "
    "accuracy";

constexpr const char* kClaim =
    "A vision transformer is trained with LayerNorm; its norms are replaced layer by layer from the bottom up, with "
    "fine-tuning after each; it keeps 98 % of its accuracy and saves 18 % of the training time (P).";

constexpr const char* kDesign =
    "A ViT (4 layers, width 64, 16 patches of 7 x 7 pixels) learns Fashion-MNIST with LayerNorm. The trained model "
    "then "
    "goes five ways. (1) The procedure: the two norms of the lowest layer become RMSNorm (the weight stays, the bias "
    "goes), some steps of fine-tuning, the next layer, at last the final norm. (2) All norms at once, then as many "
    "steps "
    "of fine-tuning. (3) LayerNorm stays, as many more steps: what the steps alone bring. (4) Exact conversion by this "
    "project's converter: no step at all. (5) For comparison, the same network with RMSNorm from the start, for the "
    "steps of the first training. The learning rates were tuned for none of them. Times are medians of ratios over "
    "interleaved rounds, in several process starts: a training step (forward, backward, AdamW) and a forward pass, "
    "fused against fused, eager against "
    "eager, native against native. Beside each stands Amdahl's prediction from the norms alone.";

constexpr const char* kRule =
    "Kept: the 95 % interval over seeds of the procedure's accuracy divided by that of the LayerNorm model it starts "
    "from "
    "lies at or above 0.98 (holds) or below (refuted). Saved: the interval of 1 - time with RMSNorm / time with "
    "LayerNorm "
    "of a training step lies at or above 18 % in every row (holds) or below in every row (refuted). That a trained "
    "model "
    "needs fine-tuning to get RMSNorm is refuted if in every seed the converted model gives at least 99.9 % of the "
    "pictures the same label and no logit moves by more than 0.1 % of the largest. Layer by layer is better than all "
    "at "
    "once if the interval of the difference lies above zero; it is not if it lies below 1 point and not above zero.";

NormOptions norm_options(NormKind kind, NormCode code = NormCode::kFused) { return {.kind = kind, .code = code}; }

Model make(NormKind kind, NormCode code = NormCode::kFused, std::int64_t width = 64) {
  VitOptions options;
  options.width = width;
  options.norm = norm_options(kind, code);
  return make_vit(options);
}

nlohmann::json hugging_face_config() {
  const VitOptions options;
  return {{"architectures", nlohmann::json::array({"ViTForImageClassification"})},
          {"model_type", "vit"},
          {"hidden_act", "gelu"},
          {"hidden_size", options.width},
          {"image_size", options.image},
          {"intermediate_size", 4 * options.width},
          {"layer_norm_eps", options.norm.epsilon},
          {"num_attention_heads", options.heads},
          {"num_channels", options.channels},
          {"num_hidden_layers", options.layers},
          {"patch_size", options.patch},
          {"qkv_bias", true}};
}

struct Plan {
  std::int64_t steps;      // of the first training
  std::int64_t fine_tune;  // steps after each replacement
  std::int64_t parts;      // of the held-out pictures
};

Plan plan_of(const Context& context) { return context.choose<Plan>({12, 2, 1}, {200, 15, 4}, {250, 20, 4}); }

// The norms of each step of the procedure: those of a layer, and the last one.
std::vector<std::vector<NormImpl*>> stages_of(ModelImpl& model) {
  std::vector<std::vector<NormImpl*>> stages;
  const auto norms = model.norms();
  for (std::size_t i = 0; i < norms.size(); ++i) {
    if (i % 2 == 0) stages.emplace_back();
    stages.back().push_back(norms[i].second);
  }
  return stages;
}

void replace(const std::vector<NormImpl*>& norms) {
  for (NormImpl* norm : norms) replace_norm(*norm, norm_options(NormKind::kRmsNorm));
}

void learn(ModelImpl& model, const Data& data, std::int64_t steps, double learning_rate, std::uint64_t seed) {
  TrainOptions options;
  options.steps = steps;
  options.batch = kBatch;
  options.learning_rate = learning_rate;
  options.warm_up = std::min<std::int64_t>(10, steps / 5);
  options.seed = seed;
  options.evaluate_parts = 0;
  if (train(model, data, options).diverged) throw std::runtime_error("a training of the ViT experiment diverged");
}

constexpr double kFirstRate = 2e-3, kFineRate = 5e-4;

torch::Tensor logits_of(ModelImpl& model, const Data& data, std::int64_t parts) {
  const torch::NoGradGuard no_gradient;
  model.eval();
  std::vector<torch::Tensor> all;
  for (std::int64_t part = 0; part < parts; ++part) all.push_back(model.forward(data.held_out(part, kHeldOut).input));
  model.train();
  return torch::cat(all);
}

double accuracy_of(const torch::Tensor& logits, const Data& data, std::int64_t parts) {
  std::vector<torch::Tensor> labels;
  for (std::int64_t part = 0; part < parts; ++part) labels.push_back(data.held_out(part, kHeldOut).target);
  return logits.argmax(-1).eq(torch::cat(labels)).to(torch::kFloat64).mean().item<double>();
}

// Everything about accuracy, of one seed.
nlohmann::json quality(const Plan& plan, int seed, const Data& data, const std::filesystem::path& scratch) {
  torch::set_num_threads(kTrainingThreads);
  const auto first_seed = static_cast<std::uint64_t>(seed), later_seed = first_seed + 1000;
  const auto fresh = [&](NormKind kind) {
    torch::manual_seed(first_seed);
    return make(kind);
  };
  const auto judge = [&](ModelImpl& model) {
    return accuracy_of(logits_of(model, data, plan.parts), data, plan.parts);
  };
  nlohmann::json result;

  const Model trained = fresh(NormKind::kLayerNorm);
  learn(*trained, data, plan.steps, kFirstRate, first_seed);
  const torch::Tensor expected = logits_of(*trained, data, plan.parts);
  result["layer_norm"] = accuracy_of(expected, data, plan.parts);
  const auto copy = [&] {
    Model model = fresh(NormKind::kLayerNorm);
    copy_parameters(*trained, *model);
    return model;
  };

  const Model procedure = copy();
  const auto stages = stages_of(*procedure);
  for (std::size_t i = 0; i < stages.size(); ++i) {
    replace(stages[i]);
    result["replaced"].push_back(judge(*procedure));
    learn(*procedure, data, plan.fine_tune, kFineRate, later_seed + i);
    result["tuned"].push_back(judge(*procedure));
  }

  const std::int64_t more = plan.fine_tune * static_cast<std::int64_t>(stages.size());
  const Model at_once = copy();
  for (const auto& stage : stages_of(*at_once)) replace(stage);
  result["at_once_replaced"] = judge(*at_once);
  learn(*at_once, data, more, kFineRate, later_seed);
  result["at_once"] = judge(*at_once);

  const Model continued = copy();
  learn(*continued, data, more, kFineRate, later_seed);
  result["continued"] = judge(*continued);

  const Model twin = fresh(NormKind::kRmsNorm);
  result["conversion_seconds"] = make_twin(*trained, hugging_face_config(), convert::Affine::kBias, scratch, *twin);
  const torch::Tensor found = logits_of(*twin, data, plan.parts);
  result["converted"] = accuracy_of(found, data, plan.parts);
  result["same_labels"] = found.argmax(-1).eq(expected.argmax(-1)).to(torch::kFloat64).mean().item<double>();
  result["logit_difference"] = ((found - expected).abs().max() / expected.abs().max()).item<double>();

  const Model scratch_model = fresh(NormKind::kRmsNorm);
  learn(*scratch_model, data, plan.steps, kFirstRate, first_seed);
  result["from_start"] = judge(*scratch_model);
  return result;
}

// ---- Times

struct TimedCase {
  NormCode code;
  std::int64_t width;
};

const std::vector<TimedCase>& timed_cases() {
  static const std::vector<TimedCase> all = {{NormCode::kFused, 64},  {NormCode::kEager, 64},
                                             {NormCode::kNative, 64}, {NormCode::kFused, 192},
                                             {NormCode::kEager, 192}, {NormCode::kNative, 192}};
  return all;
}

torch::Tensor pictures(std::int64_t batch) {
  const VitOptions options;
  return torch::randn({batch, options.channels, options.image, options.image});
}

std::function<void()> training_step(const TimedCase& timed, NormKind kind) {
  torch::manual_seed(1);
  const Model model = make(kind, timed.code, timed.width);
  const torch::Tensor input = pictures(kBatch), target = torch::randint(10, {kBatch});
  const auto optimiser = std::make_shared<torch::optim::AdamW>(model->parameters(), torch::optim::AdamWOptions(1e-4));
  return [=] {
    optimiser->zero_grad();
    loss_of(model->forward(input), target).backward();
    optimiser->step();
  };
}

// All norms of a step and nothing else, forward and backward.
std::function<void()> norms_of_step(const TimedCase& timed, NormKind kind) {
  const VitOptions options;
  const std::int64_t side = options.image / options.patch, norms = 2 * options.layers + 1;
  Norm norm(norm_options(kind, timed.code), timed.width);
  const torch::Tensor input = torch::randn({kBatch, side * side + 1, timed.width}).requires_grad_(true);
  const torch::Tensor gradient = torch::randn_like(input);
  return [=]() mutable {
    for (std::int64_t i = 0; i < norms; ++i) {
      input.mutable_grad() = torch::Tensor();
      norm->forward(input).backward(gradient);
    }
  };
}

std::function<void()> forward_pass(const TimedCase& timed, NormKind kind, std::int64_t batch) {
  torch::manual_seed(1);
  const Model model = make(kind, timed.code, timed.width);
  model->eval();
  const torch::Tensor input = pictures(batch);
  return [=] {
    const torch::NoGradGuard no_gradient;
    model->forward(input);
  };
}

// What is timed of a case, each with LayerNorm and with RMSNorm.
struct Quantity {
  const char* key;
  bool slow;  // fewer rounds
  std::function<std::function<void()>(const TimedCase&, NormKind)> make_run;
};
const std::vector<Quantity>& quantities() {
  static const std::vector<Quantity> all = {
      {"step", true, training_step},
      {"norms", false, norms_of_step},
      {"forward_1", false, [](const TimedCase& timed, NormKind kind) { return forward_pass(timed, kind, 1); }},
      {"forward_32", true, [](const TimedCase& timed, NormKind kind) { return forward_pass(timed, kind, kBatch); }}};
  return all;
}

std::string key_of(const TimedCase& timed, const Quantity& quantity) {
  return fmt::format("{}-{}-{}", quantity.key, name_of(timed.code), timed.width);
}

// Of one start: {"step-fused-64": {"layer_norm": [seconds of every round], "rms_norm": [..]}, ..}.
nlohmann::json time_once(int slow_rounds, int fast_rounds) {
  nlohmann::json result;
  for (const TimedCase& timed : timed_cases()) {
    for (const Quantity& quantity : quantities()) {
      std::vector<Variant> variants;
      for (const NormKind kind : {NormKind::kLayerNorm, NormKind::kRmsNorm}) {
        variants.push_back({name_of(kind), quantity.make_run(timed, kind)});
      }
      result[key_of(timed, quantity)] = named_seconds(variants, quantity.slow ? slow_rounds : fast_rounds);
    }
  }
  return result;
}

struct Times {
  Starts layer_norm, rms_norm;
  Interval saved() const { return saving(relative(rms_norm, layer_norm)); }
};

struct TimedRow {  // in the order of quantities()
  TimedCase timed;
  Times step, norms, forward_one, forward_batch;
  double predicted_saving() const {  // Amdahl
    const double share = median(norms.layer_norm) / median(step.layer_norm);
    return 1 - amdahl(share, relative(norms.rms_norm, norms.layer_norm).estimate);
  }
};

std::vector<TimedRow> time_all(Context& context) {
  const int slow = context.choose(2, 5, 7), fast = context.choose(3, 13, 20);
  const auto pieces = context.timed_pieces("times", [&] { return time_once(slow, fast); });
  std::vector<TimedRow> rows;
  for (const TimedCase& timed : timed_cases()) {
    std::vector<Times> times;
    for (const Quantity& quantity : quantities()) {
      const auto seconds = [&](NormKind kind) {
        return of_starts(pieces, fmt::format("/{}/{}", key_of(timed, quantity), name_of(kind)));
      };
      times.push_back({seconds(NormKind::kLayerNorm), seconds(NormKind::kRmsNorm)});
    }
    rows.push_back({timed, times[0], times[1], times[2], times[3]});
  }
  return rows;
}

// ---- The page

std::vector<double> numbers(const std::vector<nlohmann::json>& seeds, const char* key) {
  std::vector<double> values;
  for (const auto& seed : seeds) values.push_back(seed.at(key).is_array() ? seed.at(key).back() : seed.at(key));
  return values;
}

Finding kept_finding(const std::vector<nlohmann::json>& seeds) {
  const auto start = numbers(seeds, "layer_norm");
  const Interval kept = mean_interval(ratios(numbers(seeds, "tuned"), start));
  const Interval continued = mean_interval(ratios(numbers(seeds, "continued"), start));
  return {kKeptClaim, kSource, percent(kept) + " of the LayerNorm model's accuracy", within(kept, kKept, kInfinity),
          fmt::format("The LayerNorm model itself has {} of it after as many more steps.", percent(continued))};
}

Finding conversion_finding(const std::vector<nlohmann::json>& seeds) {
  const auto same = numbers(seeds, "same_labels"), difference = numbers(seeds, "logit_difference");
  const Interval dropped = mean_interval(ratios(numbers(seeds, "at_once_replaced"), numbers(seeds, "layer_norm")));
  return {
      "A trained LayerNorm model must be fine-tuned to work with RMSNorm", kSource,
      fmt::format("the converted model gives {} to {} of the pictures the same label, logits move by at most {} of the "
                  "largest; the conversion takes {} and no training step",
                  percent(*std::min_element(same.begin(), same.end())),
                  percent(*std::max_element(same.begin(), same.end())),
                  text(*std::max_element(difference.begin(), difference.end()), 2),
                  milliseconds(median(numbers(seeds, "conversion_seconds")))),
      needs_fine_tuning(same, difference),
      fmt::format(
          "LayerNorm is RMSNorm of a centred vector, and the centring moves into the weights before it. Putting "
          "RMSNorm in without that, and dropping the bias, leaves {} of the accuracy before fine-tuning.",
          percent(dropped))};
}

Finding order_finding(const std::vector<nlohmann::json>& seeds) {
  const auto gain = differences(numbers(seeds, "tuned"), numbers(seeds, "at_once"));
  return {"Layer by layer, from the bottom up, is the way to replace the norms", kSource,
          points(mean_interval(gain)) + " over replacing all at once, with as many steps in all", better(gain, kMargin),
          "The rule asks for an interval above zero."};
}

std::string case_text(const TimedCase& timed) { return fmt::format("{}, width {}", name_of(timed.code), timed.width); }

Finding saved_finding(const std::vector<TimedRow>& rows, const Plan& plan, std::int64_t stages) {
  std::vector<Verdict> verdicts;
  std::string measured = "of a training step:";
  for (const TimedRow& row : rows) {
    verdicts.push_back(within(row.step.saved(), kSaved, kInfinity));
    measured += fmt::format("{} {} saved ({})", verdicts.size() == 1 ? "" : ",", percent(row.step.saved()),
                            case_text(row.timed));
  }
  const double more = static_cast<double>(plan.fine_tune * stages) / static_cast<double>(plan.steps);
  return {
      "With RMSNorm the training of a ViT takes 18 % less time", kSource, measured, all_of(verdicts),
      fmt::format("The procedure trains with LayerNorm first, so that it saves nothing of that time; its fine-tuning "
                  "adds {} of the steps here.",
                  percent(more))};
}

Plot path_plot(const std::vector<nlohmann::json>& seeds) {
  Plot plot{.title = "Accuracy along the procedure",
            .x_label = "layers with RMSNorm (the last: the final norm)",
            .y_label = "right labels, %",
            .series = {}};
  const auto at = [&](const char* key, std::size_t i) {
    std::vector<double> values;
    for (const auto& seed : seeds) values.push_back(100 * seed.at(key).at(i).get<double>());
    return mean_interval(values);
  };
  Series replaced{"just replaced", {}, {}, {}, {}}, tuned{"after fine-tuning", {}, {}, {}, {}};
  std::vector<double> start = numbers(seeds, "layer_norm");
  for (double& value : start) value *= 100;
  add_point(tuned, 0, mean_interval(start));
  for (std::size_t i = 0; i < seeds.front().at("tuned").size(); ++i) {
    add_point(replaced, static_cast<double>(i + 1), at("replaced", i));
    add_point(tuned, static_cast<double>(i + 1), at("tuned", i));
  }
  plot.series = {replaced, tuned};
  return plot;
}

Table accuracy_table(const std::vector<nlohmann::json>& seeds, const Plan& plan, std::int64_t stages) {
  Table table{.title = "Right labels among held-out pictures, mean and 95 % interval",
              .columns = {"way", "steps with LayerNorm", "steps with RMSNorm", "right", "minus the first row"},
              .rows = {}};
  const auto steps = std::to_string(plan.steps), more = std::to_string(plan.fine_tune * stages);
  const auto both = std::to_string(plan.steps + plan.fine_tune * stages);
  const auto base = numbers(seeds, "layer_norm");
  const auto add = [&](const char* name, const std::string& with_layer, const std::string& with_rms, const char* key) {
    const auto values = numbers(seeds, key);
    table.rows.push_back(
        {name, with_layer, with_rms, percent(mean_interval(values)), points(mean_interval(differences(values, base)))});
  };
  add("LayerNorm", steps, "0", "layer_norm");
  add("exact conversion", steps, "0", "converted");
  add("all at once, not tuned", steps, "0", "at_once_replaced");
  add("layer by layer, fine-tuned", steps, more, "tuned");
  add("all at once, fine-tuned", steps, more, "at_once");
  add("LayerNorm, trained on", both, "0", "continued");
  add("RMSNorm from the start", "0", steps, "from_start");
  return table;
}

Table time_table(const std::vector<TimedRow>& rows) {
  Table table{.title = "Time saved with RMSNorm, median of ratios and 95 % interval",
              .columns = {"code, width", "training step with LayerNorm", "saved", "Amdahl predicts", "norms alone",
                          "forward, 1 picture", fmt::format("forward, {} pictures", kBatch)},
              .rows = {}};
  for (const TimedRow& row : rows) {
    table.rows.push_back({case_text(row.timed), milliseconds(median(row.step.layer_norm)), percent(row.step.saved()),
                          percent(row.predicted_saving()), percent(row.norms.saved()), percent(row.forward_one.saved()),
                          percent(row.forward_batch.saved())});
  }
  return table;
}

Page run(Context& context) {
  const auto rows = time_all(context);
  const Plan plan = plan_of(context);
  const std::int64_t stages = VitOptions().layers + 1;
  Page page{.findings = {saved_finding(rows, plan, stages)}, .parts = {time_table(rows)}};
  const auto data = fashion_mnist(0);
  if (data == nullptr) {
    page.findings.push_back({kKeptClaim, kSource, "nothing", Verdict::kCannotBeTestedHere,
                             "Fashion-MNIST is not installed here (Debian: dataset-fashion-mnist)."});
    return page;
  }
  std::vector<nlohmann::json> seeds;
  for (int seed = 1; seed <= context.seeds(); ++seed) {
    seeds.push_back(
        context.piece(fmt::format("quality-{}", seed), [&] { return quality(plan, seed, *data, context.scratch()); }));
  }
  page.findings.insert(page.findings.begin(), {kept_finding(seeds), conversion_finding(seeds), order_finding(seeds)});
  page.parts.insert(page.parts.begin(), {path_plot(seeds), accuracy_table(seeds, plan, stages)});
  return page;
}

}  // namespace

Verdict needs_fine_tuning(const std::vector<double>& same_labels, const std::vector<double>& logit_differences) {
  const auto every = [](const std::vector<double>& values, auto good) {
    return !values.empty() && std::all_of(values.begin(), values.end(), good);
  };
  if (every(same_labels, [](double share) { return share >= 0.999; }) &&
      every(logit_differences, [](double difference) { return difference <= 1e-3; })) {
    return Verdict::kRefuted;
  }
  const bool moved = every(same_labels, [](double share) { return share < 0.999; });
  return moved ? Verdict::kHolds : Verdict::kNotSettled;
}

const Experiment kVit = {10, "vit", "RMSNorm in a trained vision transformer", kClaim, kDesign, kRule, run};

}  // namespace rmsnorm::lab
