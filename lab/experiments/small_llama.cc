// Experiment 3. Claim, design and rule come first.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <map>

#include "lab/experiments/support.h"
#include "lab/models/llama.h"

namespace rmsnorm::lab {
namespace {

constexpr double kClaimedSaving = 0.095;  // of a step
constexpr double kLeastMemory = 0.01;     // a saving of peak memory that counts
constexpr double kFewerSteps = 0.98;      // ratio of steps to the loss that counts as fewer
constexpr double kLossMargin = 0.02;      // nats; 2 % of perplexity
constexpr int kWindow = 10;               // steps that a training loss is averaged over
constexpr double kTargetAt = 0.75;        // of the steps: LayerNorm's loss there is what the steps are counted to

constexpr char kClaim[] =
    "With RMSNorm in place of LayerNorm a Llama of 13 billion parameters takes 9.5 % less time a step, less memory and "
    "fewer steps to converge, and reaches a perplexity that is no worse (P, table).";

constexpr char kDesign[] =
    "A small Llama (bytes of Moby-Dick, tied embedding, grouped heads, SwiGLU, pre-norm) with LayerNorm, RMSNorm and "
    "partial RMSNorm (mean over 6.25 % of the columns). Quality: trainings with paired seeds, the same initial values "
    "and "
    "batches for all norms, in fused code; one seed of each in eager code, too, to show that the code does not change "
    "the result. Steps to a loss: the first step at which the mean training loss of the last 10 steps is at most "
    "LayerNorm's after three quarters of the run with the same seed. Final loss: held-out, nats a byte; perplexity is "
    "its exponential. Time: steps of all norms in "
    "eager and in fused code, interleaved, in several process starts; medians. Memory: the high-water mark of "
    "PyTorch's CPU allocator over one step, with weights, gradients, optimiser and activations; scratch memory of the "
    "matrix products' library is not in it. The table of P gives no seeds, no intervals and no hardware hours, and 13 "
    "billion parameters cannot be trained here.";

constexpr char kRule[] =
    "The step time of the 13B model cannot be tested here; the small model's saving and its bound stand beside it. "
    "Less "
    "memory: holds when the peak falls by at least 1 % in eager and in fused code, is refuted when in neither, partly "
    "when in one. Fewer steps: holds when the interval of the ratio of steps lies below 0.98, is refuted when it lies "
    "above. Perplexity: holds when the interval of the paired difference of final loss, RMSNorm less LayerNorm, lies "
    "below 0.02 nats, is refuted when it lies above, and is not settled otherwise.";

constexpr NormKind kKinds[] = {NormKind::kLayerNorm, NormKind::kRmsNorm, NormKind::kPartialRmsNorm};
constexpr NormCode kCodes[] = {NormCode::kEager, NormCode::kFused};

struct Size {
  std::int64_t width, layers, time, batch, steps;
};

Model model_of(const Size& size, const NormOptions& norm) {
  return make_llama({.width = size.width,
                     .layers = size.layers,
                     .heads = size.width / 32,
                     .key_value_heads = size.width / 64,
                     .context = size.time,
                     .norm = norm});
}

std::vector<NormOptions> all_norms() {
  std::vector<NormOptions> norms;
  for (const NormKind kind : kKinds) {
    for (const NormCode code : kCodes) norms.push_back({.kind = kind, .code = code});
  }
  return norms;
}

nlohmann::json measure_times(const Size& size, const Data& data, int rounds) {
  const Batch batch = data.train(1, 0, size.batch);
  std::vector<Variant> variants;
  for (const NormOptions& norm : all_norms()) {
    torch::manual_seed(1);
    variants.push_back({norm_name(norm), TrainingStep(model_of(size, norm), batch)});
  }
  return named_seconds(variants, rounds);
}

// By the name of the norm.
std::map<std::string, Starts> times_from(const std::vector<nlohmann::json>& pieces) {
  std::map<std::string, Starts> times;
  for (const NormOptions& norm : all_norms()) {
    const std::string name = norm_name(norm);
    times[name] = of_starts(pieces, fmt::format("/{}", name));
  }
  return times;
}

nlohmann::json measure_memory(const Size& size, const Data& data) {
  torch::set_num_threads(kThreads);
  const Batch batch = data.train(1, 0, size.batch);
  nlohmann::json memory;
  for (const NormOptions& norm : all_norms()) {
    AllocationMeter meter;
    TrainingStep step(model_of(size, norm), batch);
    step();  // makes the optimiser's state
    memory[norm_name(norm)] = {{"parameters", step.model()->parameter_count()}};
    meter.reset_peak();
    step();
    memory[norm_name(norm)]["peak"] = meter.peak();
    memory[norm_name(norm)]["between_steps"] = meter.live();
  }
  return memory;
}

struct Quality {
  std::vector<std::vector<Run>> fused;  // [kind][seed - 1]
  std::vector<std::vector<Run>> eager;  // [kind][0]
};

// The mean training loss of the last steps before three quarters of the run.
double target_loss(const Run& layer_norm) {
  const auto end = layer_norm.losses.begin() + std::lround(kTargetAt * static_cast<double>(layer_norm.losses.size()));
  return mean({end - kWindow, end});
}

// Of each seed, to the loss that is LayerNorm's target with that seed.
std::vector<double> steps_of(const std::vector<Run>& runs, const std::vector<Run>& layer_norm) {
  std::vector<double> steps;
  for (std::size_t i = 0; i < runs.size(); ++i) steps.push_back(steps_to(runs[i], target_loss(layer_norm[i]), kWindow));
  return steps;
}

Table quality_table(const Quality& quality) {
  Table table{"Quality",
              {"norm", "final loss (nats a byte)", "perplexity (a byte)", "less LayerNorm's loss",
               fmt::format("steps to LayerNorm's loss after {}", percent(kTargetAt)), "of LayerNorm's steps",
               "eager less fused, final loss of seed 1"},
              {}};
  const auto base_losses = final_losses(quality.fused[0]);
  const auto base_steps = steps_of(quality.fused[0], quality.fused[0]);
  for (std::size_t k = 0; k < std::size(kKinds); ++k) {
    const auto losses = final_losses(quality.fused[k]);
    const auto steps = steps_of(quality.fused[k], quality.fused[0]);
    const Interval loss = finite_mean(losses);
    const Interval mean_steps = finite_mean(steps);
    const bool base = k == 0;
    table.rows.push_back(
        {name_of(kKinds[k]), text(loss), text({std::exp(loss.estimate), std::exp(loss.low), std::exp(loss.high)}),
         base ? "0" : text(mean_difference(losses, base_losses)), text(mean_steps),
         base ? "1" : text(relative_mean(steps, base_steps)), text(quality.eager[k][0].final_loss() - losses[0])});
  }
  return table;
}

Table cost_table(const std::map<std::string, Starts>& times, const nlohmann::json& memory) {
  Table table{"Time and memory of a step",
              {"norm", "code", "step", "of LayerNorm's step in the same code", "parameters", "peak of tensors",
               "less than LayerNorm's peak"},
              {}};
  for (const NormCode code : kCodes) {
    const std::string base = norm_name({.kind = NormKind::kLayerNorm, .code = code});
    for (const NormKind kind : kKinds) {
      const std::string name = norm_name({.kind = kind, .code = code});
      const double peak = memory.at(name).at("peak"), base_peak = memory.at(base).at("peak");
      table.rows.push_back({name_of(kind), name_of(code), milliseconds(median(times.at(name))),
                            name == base ? "1" : text(relative(times.at(name), times.at(base))),
                            fmt::format("{}", memory.at(name).at("parameters").get<std::int64_t>()), bytes(peak),
                            name == base ? "0" : percent(1 - peak / base_peak)});
    }
  }
  return table;
}

// What the bias of LayerNorm is worth in a Llama of 13 billion parameters: 40 blocks of width 5120, two norms in each
// and one at the end (Touvron et al. 2023, table 2); weight, gradient and two moments in f32.
Text bound_of_13b() {
  constexpr double kParameters = 13.0e9, kNorms = 2 * 40 + 1, kWidth = 5120, kBytes = 16;
  return {fmt::format(
      "What is certain about 13 billion parameters: the biases that RMSNorm does without are {:.0f} numbers, {} % of "
      "the "
      "parameters; with gradients and both moments of AdamW in f32 they take {} of {}. A fused LayerNorm keeps one "
      "more "
      "number a token than a fused RMSNorm. A larger saving of memory comes from the code, not from the formula.",
      kNorms * kWidth, text(100 * kNorms * kWidth / kParameters, 1), bytes(kNorms * kWidth * kBytes),
      bytes(kParameters * kBytes))};
}

std::vector<Finding> findings_of(const std::map<std::string, Starts>& times, const nlohmann::json& memory,
                                 const Quality& quality) {
  const char* const source = "P, table of the 13B model";
  std::vector<std::string> savings, peaks;
  std::vector<Verdict> less_memory;
  for (const NormCode code : kCodes) {
    const std::string layer = norm_name({.kind = NormKind::kLayerNorm, .code = code});
    const std::string rms = norm_name({.kind = NormKind::kRmsNorm, .code = code});
    savings.push_back(fmt::format("{}: {}", name_of(code), percent(saving(relative(times.at(rms), times.at(layer))))));
    const double peak = 1 - memory.at(rms).at("peak").get<double>() / memory.at(layer).at("peak").get<double>();
    peaks.push_back(fmt::format("{}: {}", name_of(code), percent(peak)));
    less_memory.push_back(within({peak, peak, peak}, kLeastMemory, kInfinity));
  }
  const auto layer_steps = steps_of(quality.fused[0], quality.fused[0]),
             rms_steps = steps_of(quality.fused[1], quality.fused[0]);
  const Interval ratio = relative_mean(rms_steps, layer_steps);
  const auto reached = [](const std::vector<double>& steps) {
    return std::count_if(steps.begin(), steps.end(), [](double s) { return std::isfinite(s); });
  };
  const Interval difference = mean_difference(final_losses(quality.fused[1]), final_losses(quality.fused[0]));
  return {
      {fmt::format("A training step of the 13B model is {} faster with RMSNorm", percent(kClaimedSaving)), source,
       fmt::format("The small Llama's step, saved: {}.", fmt::join(savings, "; ")), Verdict::kCannotBeTestedHere,
       "No 13B model fits a training step on this machine. No saving can exceed the norms' share of the step, which "
       "experiment 2 measures and which falls with the width."},
      {"RMSNorm takes less memory than LayerNorm", source,
       fmt::format("Peak of a step of the small Llama, saved: {}.", fmt::join(peaks, "; ")), all_of(less_memory),
       "The formula saves a bias and one number a token; what more is saved are tensors that eager code keeps for the "
       "backward pass."},
      {"RMSNorm needs fewer steps to converge", source,
       fmt::format("Steps to the training loss that LayerNorm has after {} of the run: {} of LayerNorm's.",
                   percent(kTargetAt), text(ratio)),
       within(ratio, -kInfinity, kFewerSteps),
       fmt::format("{} of {} runs reached that loss with LayerNorm, {} with RMSNorm.", reached(layer_steps),
                   layer_steps.size(), reached(rms_steps))},
      {"RMSNorm's perplexity is no worse than LayerNorm's", source,
       fmt::format("Final held-out loss, RMSNorm less LayerNorm: {} nats a byte over {} paired seeds.",
                   text(difference), quality.fused[0].size()),
       within(difference, -kInfinity, kLossMargin),
       fmt::format("The margin is {} nats, {} of perplexity.", kLossMargin, percent(std::expm1(kLossMargin)))},
  };
}

Page run(Context& context) {
  const Size size = context.choose<Size>({64, 2, 32, 8, 30}, {64, 4, 64, 8, 150}, {128, 4, 64, 8, 200});
  const auto data = text_data(moby_dick(), size.time);

  const auto times =
      times_from(context.timed_pieces("times", [&] { return measure_times(size, *data, context.choose(2, 3, 4)); }));
  const nlohmann::json memory = context.piece("memory", [&] { return measure_memory(size, *data); });
  TrainOptions options;
  options.steps = size.steps;
  options.batch = size.batch;
  std::vector<Arm> fused, eager;
  for (const NormOptions& norm : all_norms()) {
    const Arm arm{norm_name(norm), [size, norm] { return model_of(size, norm); }, options};
    (norm.code == NormCode::kFused ? fused : eager).push_back(arm);
  }
  const Quality quality = {paired_runs(context, "train", fused, *data, context.seeds()),
                           paired_runs(context, "train", eager, *data, 1)};

  Page page;
  page.findings = findings_of(times, memory, quality);
  page.parts.push_back(Text{fmt::format(
      "The model: width {}, {} blocks, {} parameters; {} steps of {} x {} bytes.", size.width, size.layers,
      memory.at(norm_name(all_norms()[0])).at("parameters").get<std::int64_t>(), size.steps, size.batch, size.time)});
  page.parts.push_back(quality_table(quality));
  page.parts.push_back(cost_table(times, memory));
  page.parts.push_back(bound_of_13b());
  Plot plot{"Training loss", "step (number)", "loss (nats a byte), mean of 10 steps", false, false, true, {}};
  for (std::size_t k = 0; k < std::size(kKinds); ++k) {
    plot.series.push_back(loss_series(name_of(kKinds[k]), quality.fused[k], kWindow));
  }
  page.parts.push_back(plot);
  return page;
}

}  // namespace

const Experiment kSmallLlama = {
    3, "small_llama", "A small Llama with LayerNorm, RMSNorm and partial RMSNorm", kClaim, kDesign, kRule, &run};

}  // namespace rmsnorm::lab
