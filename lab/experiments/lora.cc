// Experiment 11: does LoRA work better on RMSNorm? Paired bases, and a base and its converted twin.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>

#include "lab/experiments/experiment.h"
#include "lab/experiments/quality.h"
#include "lab/experiments/support.h"
#include "lab/experiments/surgery.h"
#include "lab/models/llama.h"
#include "lab/models/lora.h"
#include "lab/train/train.h"
#include "tools/error.h"
#include "tools/formats/output_file.h"

namespace rmsnorm::lab {

namespace {

constexpr const char* kSource = "P, on LoRA";
constexpr double kMargin = 0.02;  // nats a byte: what would matter
constexpr std::int64_t kTime = 64, kBatch = 16;
constexpr std::int64_t kRank = 4;
constexpr double kLearningRate = 1e-2;  // of the adapters, before it is tuned

constexpr const char* kClaim = "LoRA works better on models with RMSNorm than on models with LayerNorm (P).";

constexpr const char* kDesign =
    "A small Llama (3 layers, width 64, bytes, untied head) learns Moby-Dick twice, with LayerNorm without bias and "
    "with "
    "RMSNorm: same seed, same batches. The LayerNorm base is also converted by this project's converter, into a model "
    "with RMSNorm that computes the same function: the twin. All three then learn another task with all weights frozen "
    "but adapters of rank 4: Moby-Dick with the letters of each word in reverse order, the last tenth held out in both "
    "tasks. The adapters stand on the linear layers that read a norm's output (queries, keys, values, gate, up), or on "
    "all linear layers of the blocks; the first are the case in which theory says that base and twin take the same "
    "steps, "
    "because only what is written to the stream can be seen with or without its mean. What counts is the loss on the "
    "held-out part of the new task, in nats a byte. The bases learn with one rate; that of the adapters is tuned, for "
    "each place, and "
    "the twin takes its base's. ";

constexpr const char* kRule =
    "Paired by seed, for both places of the adapters: loss on the LayerNorm base minus loss on the RMSNorm base after "
    "the "
    "same steps. The claim holds if the 95 % interval lies above zero, is refuted if it lies below 0.02 nats and not "
    "above "
    "zero. The same rule for base and twin, where all that differs is the form of the norm. If the cases differ, "
    "partly; "
    "else not settled.";

enum class Place { kReaders, kAll };
constexpr Place kPlaces[] = {Place::kReaders, Place::kAll};
const char* key_of(Place place) { return place == Place::kReaders ? "readers" : "all"; }
const char* label_of(Place place) {
  return place == Place::kReaders ? "on the readers of norms" : "on all linear layers";
}

bool is_adapted(Place place, const std::string& name) {
  if (name.find("layers.") == std::string::npos) return false;
  return place == Place::kAll || (!name.ends_with("o_proj") && !name.ends_with("down_proj"));
}

LlamaOptions llama_options(NormKind kind) {
  LlamaOptions options;
  options.width = 64;
  options.layers = 3;
  options.heads = 4;
  options.key_value_heads = 2;
  options.context = kTime;
  options.tied = false;
  options.norm = {.kind = kind, .bias = false};
  return options;
}

Model make(NormKind kind) { return make_llama(llama_options(kind)); }

// StableLM is what transformers calls a Llama with LayerNorm; with all of a head rotated it is this one.
nlohmann::json hugging_face_config() {
  const LlamaOptions options = llama_options(NormKind::kLayerNorm);
  return {{"architectures", nlohmann::json::array({"StableLmForCausalLM"})},
          {"model_type", "stablelm"},
          {"hidden_size", options.width},
          {"layer_norm_eps", options.norm.epsilon},
          {"num_attention_heads", options.heads},
          {"num_hidden_layers", options.layers},
          {"num_key_value_heads", options.key_value_heads},
          {"partial_rotary_factor", 1.0},
          {"rope_theta", options.rope_theta},
          {"tie_word_embeddings", false},
          {"use_qkv_bias", false},
          {"vocab_size", options.vocabulary}};
}

// The letters of each word in reverse order; all else stays, so that the held-out part does.
std::filesystem::path reversed_words(const std::filesystem::path& file, const std::filesystem::path& folder) {
  std::ifstream in(file, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(in), {}};
  if (!in || text.empty()) tools::fail(tools::ExitCode::kInputOutput, "{}: cannot read", file.string());
  const auto is_letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
  for (auto begin = text.begin(); begin != text.end();) {
    const auto end = std::find_if_not(begin, text.end(), is_letter);
    std::reverse(begin, end);
    begin = std::find_if(end, text.end(), is_letter);
  }
  std::filesystem::create_directories(folder);
  const std::filesystem::path result = folder / "reversed.txt";
  tools::OutputFile out(result.string());
  out.write(std::as_bytes(std::span(text)));
  out.finish();
  out.publish();
  return result;
}

struct Plan {
  std::int64_t base_steps, steps, every, parts;
};

Plan plan_of(const Context& context) { return context.choose<Plan>({10, 6, 3, 2}, {200, 60, 15, 8}, {250, 80, 20, 8}); }

// Losses on the held-out part along the way, the first before the first step; NaN alone of a run that diverged.
nlohmann::json adapt(Model base, Place place, double factor, const Data& task, const Plan& plan, std::uint64_t seed) {
  torch::manual_seed(seed + 1000);  // of the adapters: the same for all bases
  add_lora(*base, {.rank = kRank, .alpha = 2.0 * kRank},
           [&](const std::string& name) { return is_adapted(place, name); });
  TrainOptions options;
  options.steps = plan.steps;
  options.batch = kBatch;
  options.learning_rate = factor * kLearningRate;
  options.warm_up = plan.steps / 10;
  options.weight_decay = 0;
  options.seed = seed + 1000;
  options.evaluate_every = plan.every;
  options.evaluate_parts = plan.parts;
  nlohmann::json path = nlohmann::json::array({evaluate(*base, task, kBatch, plan.parts).loss});
  const TrainResult result = train(*base, task, options);
  if (result.diverged) return nlohmann::json::array({std::nan("")});
  for (const Evaluation& evaluation : result.evaluations) path.push_back(evaluation.loss);
  return path;
}

struct Base {
  const char* key;
  const char* label;
};
constexpr Base kLayer = {"layer_norm", "LayerNorm"}, kRms = {"rms_norm", "RMSNorm"},
               kTwin = {"twin", "LayerNorm, converted to RMSNorm"};
constexpr Base kBases[] = {kLayer, kRms, kTwin};

// The factors on the learning rate that adapters are trained with, one after the other.
using Factors = std::function<std::vector<double>(const Base&, Place)>;

// {"layer_norm": {"base": loss on the first task, "readers": [losses], "all": [losses]}, ..}, and how far the twin's
// logits are from the base's. The losses are a list for each factor.
nlohmann::json one_seed(const Plan& plan, int number, const Factors& factors, const std::filesystem::path& scratch) {
  torch::set_num_threads(kTrainingThreads);
  const auto seed = static_cast<std::uint64_t>(number);
  const auto first = text_data(moby_dick(), kTime), second = text_data(reversed_words(moby_dick(), scratch), kTime);
  const auto fresh = [&](NormKind kind) {
    torch::manual_seed(seed);
    return make(kind);
  };
  nlohmann::json result;
  const auto use = [&](const Base& base, NormKind kind, const ModelImpl& model) {
    for (const Place place : kPlaces) {
      for (const double factor : factors(base, place)) {
        Model copy = fresh(kind);
        copy_parameters(model, *copy);
        result[base.key][key_of(place)].push_back(adapt(copy, place, factor, *second, plan, seed));
      }
    }
  };
  for (const auto& [base, kind] : {std::pair{kLayer, NormKind::kLayerNorm}, std::pair{kRms, NormKind::kRmsNorm}}) {
    const Model model = fresh(kind);
    TrainOptions options;
    options.steps = plan.base_steps;
    options.batch = kBatch;
    options.warm_up = plan.base_steps / 10;
    options.seed = seed;
    options.evaluate_parts = plan.parts;
    const TrainResult trained = train(*model, *first, options);
    if (trained.diverged) throw std::runtime_error("the training of a base of the LoRA experiment diverged");
    result[base.key]["base"] = trained.evaluations.back().loss;
    use(base, kind, *model);
    if (kind != NormKind::kLayerNorm) continue;
    const Model twin = fresh(NormKind::kRmsNorm);
    make_twin(*model, hugging_face_config(), convert::Affine::kKeep, scratch, *twin);
    result[kTwin.key]["base"] = evaluate(*twin, *first, kBatch, plan.parts).loss;
    use(kTwin, NormKind::kRmsNorm, *twin);
    const torch::NoGradGuard no_gradient;
    const torch::Tensor input = second->held_out(0, kBatch).input, expected = model->forward(input);
    result["twin_difference"] = ((twin->forward(input) - expected).abs().max() / expected.abs().max()).item<double>();
  }
  return result;
}

using Seeds = std::vector<nlohmann::json>;

std::vector<double> losses(const Seeds& seeds, const Base& base, Place place, std::size_t at) {
  std::vector<double> values;
  for (const auto& seed : seeds) values.push_back(seed.at(base.key).at(key_of(place)).at(0).at(at));
  return values;
}

std::size_t count_of_losses(const Seeds& seeds, const Base& base, Place place) {
  return seeds.front().at(base.key).at(key_of(place)).at(0).size();
}

std::vector<double> last_losses(const Seeds& seeds, const Base& base, Place place) {
  return losses(seeds, base, place, count_of_losses(seeds, base, place) - 1);
}

// The best factor of the seed that is set apart. The twin takes its base's: between those two only the norm's form may
// differ.
double chosen_factor(const nlohmann::json& apart, const Base& base, Place place) {
  const std::string key = std::string(base.key) == kTwin.key ? kLayer.key : base.key;
  std::vector<double> gains;
  for (const auto& path : apart.at(key).at(key_of(place))) gains.push_back(-path.back().get<double>());
  return kRateFactors[best_rate(gains)];
}

// The loss on LayerNorm minus the loss on `base`: positive where `base` is better.
std::vector<double> advantage(const Seeds& seeds, const Base& base, Place place) {
  return differences(last_losses(seeds, kLayer, place), last_losses(seeds, base, place));
}

Finding finding_of(const Seeds& seeds, const std::string& claim, const Base& base, const std::string& reason) {
  std::vector<Verdict> verdicts;
  std::string measured = "loss on LayerNorm minus that on ";
  measured += std::string(base.label) + ", nats a byte:";
  for (const Place place : kPlaces) {
    const auto values = advantage(seeds, base, place);
    verdicts.push_back(better(values, kMargin));
    measured += fmt::format("{} {} with adapters {}", verdicts.size() == 1 ? "" : ",", text(mean_interval(values)),
                            label_of(place));
  }
  return {claim, kSource, measured, all_of(verdicts), reason};
}

Plot path_plot(const Seeds& seeds, const Plan& plan, Place place) {
  Plot plot{.title = fmt::format("LoRA of rank {} {}", kRank, label_of(place)),
            .x_label = "training step (number)",
            .y_label = "loss on the held-out part of the new task, nats a byte",
            .series = {}};
  for (const Base& base : kBases) {
    Series series{base.label, {}, {}, {}, {}};
    const std::size_t count = count_of_losses(seeds, base, place);
    for (std::size_t i = 0; i < count; ++i) {
      const auto step = std::min(static_cast<std::int64_t>(i) * plan.every, plan.steps);
      add_point(series, static_cast<double>(step), mean_interval(losses(seeds, base, place, i)));
    }
    plot.series.push_back(series);
  }
  return plot;
}

Table loss_table(const Seeds& seeds, const nlohmann::json& rates) {
  Table table{.title = "Losses on held-out parts, nats a byte, mean and 95 % interval",
              .columns = {"base", "first task", "adapters", "learning rate", "new task before", "after", "gain"},
              .rows = {}};
  for (const Base& base : kBases) {
    std::vector<double> first;
    for (const auto& seed : seeds) first.push_back(seed.at(base.key).at("base"));
    for (const Place place : kPlaces) {
      const auto before = losses(seeds, base, place, 0), after = last_losses(seeds, base, place);
      table.rows.push_back({base.label, text(mean_interval(first)), label_of(place),
                            text(chosen_factor(rates, base, place) * kLearningRate, 2), text(mean_interval(before)),
                            text(mean_interval(after)), text(mean_interval(differences(before, after)))});
    }
  }
  return table;
}

Page run(Context& context) {
  const Plan plan = plan_of(context);
  const auto all_factors = [](const Base&, Place) {
    return std::vector<double>(std::begin(kRateFactors), std::end(kRateFactors));
  };
  const nlohmann::json rates =
      context.piece("rates", [&] { return one_seed(plan, kSeedApart, all_factors, context.scratch()); });
  const auto chosen = [&](const Base& base, Place place) { return std::vector{chosen_factor(rates, base, place)}; };
  Seeds seeds;
  std::vector<double> apart;
  for (int seed = 1; seed <= context.seeds(); ++seed) {
    seeds.push_back(
        context.piece(fmt::format("tuned-{}", seed), [&] { return one_seed(plan, seed, chosen, context.scratch()); }));
    apart.push_back(seeds.back().at("twin_difference"));
  }
  Page page;
  page.findings = {
      finding_of(
          seeds,
          "LoRA of the same rank works better on a model trained with RMSNorm than on one trained with LayerNorm", kRms,
          "Two bases, trained alike but for the norm."),
      finding_of(
          seeds, "It is the form of the norm that makes LoRA work better", kTwin,
          fmt::format("Base and twin are the same function (logits apart by at most {} of the largest); only the "
                      "norm's form differs while the adapters learn.",
                      text(*std::max_element(apart.begin(), apart.end()), 2)))};
  for (const Place place : kPlaces) page.parts.push_back(path_plot(seeds, plan, place));
  page.parts.push_back(loss_table(seeds, rates));
  page.parts.push_back(Text{
      "Where the adapters only read norms, all that base and twin can differ in is rounding, which a large learning "
      "rate makes grow: the gradients are the same function of the same numbers. On layers that write to the stream, "
      "LayerNorm hides the mean of what they "
      "write and RMSNorm does not, so that the adapters of the twin have a direction more to learn."});
  return page;
}

}  // namespace

const Experiment kLora = {11,    "lora", "LoRA on LayerNorm and RMSNorm", kClaim, std::string(kDesign) + kTuning,
                          kRule, run};

}  // namespace rmsnorm::lab
