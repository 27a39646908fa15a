// Experiment 2. Claim, design and rule stand in kStepShare, at the end of the texts below and before the code.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>

#include "lab/experiments/norm_profile.h"
#include "lab/experiments/support.h"
#include "lab/models/gru.h"
#include "lab/models/llama.h"

namespace rmsnorm::lab {
namespace {

constexpr double kClaimedShare = 0.15, kShareLow = 0.12, kShareHigh = 0.18;  // "15 %", give or take a fifth
constexpr double kClaimedSaving = 0.095;
constexpr double kPaperLow = 0.07, kPaperHigh = 0.64;

constexpr char kClaim[] =
    "Norms take 15 % of the training time, and RMSNorm in place of LayerNorm makes a training step 9.5 % faster (P). "
    "RMSNorm takes 7 to 64 % off the running time (Z, abstract; recurrent models gain most there).";

constexpr char kDesign[] =
    "Training steps (forward, backward, clipping, AdamW; f32, 2 threads, 512 tokens) of a Llama with two blocks at "
    "several widths, a decoding step of it (batch 1, the last token of a context of 256, keys and values of the others "
    "cached), and training steps of a GRU language model whose gates are normalised at every time step. Each with "
    "LayerNorm, RMSNorm and no norm; the norms in eager "
    "code, fused (this library) and native (PyTorch's). The share of the norms is measured twice. By profile: the time "
    "inside the norms' forward code and in the autograd nodes it made, less what the same places take with no norm "
    "(the "
    "residual additions), over the time of the step. By ablation: 1 - time without norms / time with LayerNorm. Steps "
    "of all variants are interleaved, in several process starts; each start gives the median of its steps, and what "
    "is printed is the median of the starts with its interval from order statistics. Beside each saving stands "
    "Amdahl's prediction from the profile: share x (1 - "
    "time "
    "of RMSNorm / time of LayerNorm). Codes are compared with themselves; the one mixed row says so.";

constexpr char kRule[] =
    "15 %: a cell (width and code of the Llama with LayerNorm) holds when the interval of its share by profile lies in "
    "12 to 18 %, and is refuted when it lies outside. 9.5 %: a cell holds when the interval of the saving lies above "
    "9.5 %, and is refuted when it lies below. 7 to 64 %: a cell (code of the GRU) holds when the interval of the "
    "saving "
    "lies in that range, and is refuted when it lies outside. A claim holds or is refuted when all its cells say so, "
    "holds partly when some hold and some are refuted, and is not settled otherwise.";

constexpr NormCode kCodes[] = {NormCode::kEager, NormCode::kFused, NormCode::kNative};
constexpr char kNone[] = "none";

struct Workload {
  std::string key, label;
  std::int64_t width;
  bool decode;
  std::function<Model(const NormOptions&)> make;
  Batch batch;                              // decoding: the context, its last token comes
  std::vector<nlohmann::json> starts = {};  // what each of them measured
};

std::vector<std::pair<std::string, NormOptions>> norms_compared() {
  std::vector<std::pair<std::string, NormOptions>> norms = {{kNone, {.kind = NormKind::kNone}}};
  for (const NormKind kind : {NormKind::kLayerNorm, NormKind::kRmsNorm}) {
    for (const NormCode code : kCodes) {
      const NormOptions norm = {.kind = kind, .code = code};
      norms.emplace_back(norm_name(norm), norm);
    }
  }
  return norms;
}

std::function<void()> step_of(const Workload& workload, const NormOptions& norm) {
  torch::manual_seed(1);
  Model model = workload.make(norm);
  if (!workload.decode) return TrainingStep(model, workload.batch);
  model->eval();
  const std::int64_t earlier = workload.batch.input.size(1) - 1;
  const auto cache = std::make_shared<KeyValueCache>();
  model->forward_cached(workload.batch.input.slice(1, 0, earlier), *cache);
  return [model, cache, earlier, token = workload.batch.input.slice(1, earlier)] {
    cache->length = earlier;
    model->forward_cached(token, *cache);
  };
}

// {"<norm>": {"seconds": [of every round], "profiled_step": [..], "profiled_norms": [..]}}
nlohmann::json measure(const Workload& workload, int rounds, int profiled) {
  std::vector<Variant> variants;
  for (const auto& [name, norm] : norms_compared()) variants.push_back({name, step_of(workload, norm)});
  nlohmann::json measured;
  const auto seconds = interleaved_seconds(variants, rounds);
  for (std::size_t i = 0; i < variants.size(); ++i) measured[variants[i].name]["seconds"] = seconds[i];

  // The profile has rounds of its own, because watching costs time.
  constexpr int kWarmUp = 1;
  for (int round = 0; round < kWarmUp + profiled; ++round) {
    for (const Variant& variant : variants) {
      const NormProfile profile;
      const auto start = std::chrono::steady_clock::now();
      variant.run();
      const std::chrono::duration<double> step = std::chrono::steady_clock::now() - start;
      if (profile.calls() == 0) throw std::logic_error(fmt::format("{}: no norm was seen", workload.key));
      if (round < kWarmUp) continue;
      measured[variant.name]["profiled_step"].push_back(step.count());
      measured[variant.name]["profiled_norms"].push_back(profile.seconds());
    }
  }
  return measured;
}

// One code of one workload.
struct Cell {
  const Workload* workload;
  NormCode code;
  double layer_norm_seconds, rms_norm_seconds, none_seconds;
  Interval profile, ablation, saving;
  double predicted;  // saving

  std::string where() const { return fmt::format("{}, {}", workload->label, name_of(code)); }
};

Starts values_of(const Workload& workload, const std::string& norm, const char* what) {
  return of_starts(workload.starts, fmt::format("/{}/{}", norm, what));
}

Cell cell_of(const Workload& workload, NormCode code) {
  const auto values = [&](const std::string& norm, const char* what) { return values_of(workload, norm, what); };
  const Starts residual_additions = values(kNone, "profiled_norms");
  const auto net = [&](const std::string& norm) {
    Starts seconds = values(norm, "profiled_norms");
    for (std::size_t start = 0; start < seconds.size(); ++start) {
      for (double& s : seconds[start]) s -= median(residual_additions[start]);
    }
    return seconds;
  };
  const std::string layer = norm_name({.kind = NormKind::kLayerNorm, .code = code});
  const std::string rms = norm_name({.kind = NormKind::kRmsNorm, .code = code});
  Cell cell{&workload,
            code,
            median(values(layer, "seconds")),
            median(values(rms, "seconds")),
            median(values(kNone, "seconds")),
            {},
            {},
            {},
            0};
  cell.profile = relative(net(layer), values(layer, "profiled_step"));
  cell.ablation = saving(relative(values(kNone, "seconds"), values(layer, "seconds")));
  cell.saving = saving(relative(values(rms, "seconds"), values(layer, "seconds")));
  cell.predicted = 1 - amdahl(cell.profile.estimate, median(net(rms)) / median(net(layer)));
  return cell;
}

// A claim about one interval of each cell.
Finding finding_of(const std::string& claim, const std::string& source, const std::string& quantity,
                   const std::vector<Cell>& cells, Interval Cell::*interval, double low, double high) {
  std::vector<std::string> numbers;
  std::vector<Verdict> verdicts;
  for (const Cell& cell : cells) {
    numbers.push_back(fmt::format("{}: {}", cell.where(), percent(cell.*interval)));
    verdicts.push_back(within(cell.*interval, low, high));
  }
  const auto count = [&](Verdict v) { return std::count(verdicts.begin(), verdicts.end(), v); };
  const auto [least, most] = std::minmax_element(cells.begin(), cells.end(), [&](const Cell& a, const Cell& b) {
    return (a.*interval).estimate < (b.*interval).estimate;
  });
  return {claim, source, fmt::format("{}: {}.", quantity, fmt::join(numbers, "; ")), all_of(verdicts),
          fmt::format("From {} ({}) to {} ({}). Of {} cells {} hold, {} are refuted, {} are not settled.",
                      percent(((*least).*interval).estimate), least->where(), percent(((*most).*interval).estimate),
                      most->where(), cells.size(), count(Verdict::kHolds), count(Verdict::kRefuted),
                      count(Verdict::kNotSettled))};
}

Table table_of(const std::string& title, const std::vector<Cell>& cells) {
  Table table{title,
              {"workload", "code of the norm", "LayerNorm", "RMSNorm", "no norm", "LayerNorm's share, profile",
               "LayerNorm's share, ablation", "saved by RMSNorm", "Amdahl's prediction of that"},
              {}};
  for (const Cell& c : cells) {
    table.rows.push_back({c.workload->label, name_of(c.code), milliseconds(c.layer_norm_seconds),
                          milliseconds(c.rms_norm_seconds), milliseconds(c.none_seconds), percent(c.profile),
                          percent(c.ablation), percent(c.saving), percent(c.predicted)});
  }
  return table;
}

Plot plot_of(const std::string& title, const std::string& label, const std::vector<Cell>& cells,
             const std::vector<std::pair<std::string, std::function<Interval(const Cell&)>>>& quantities) {
  Plot plot{title, "width (numbers in a row)", label, true, false, true, {}};
  for (const auto& [name, quantity] : quantities) {
    for (const NormCode code : kCodes) {
      Series series{fmt::format("{}, {}", name_of(code), name), {}, {}, {}, {}};
      for (const Cell& cell : cells) {
        if (cell.code != code) continue;
        const Interval share = quantity(cell);
        add_point(series, static_cast<double>(cell.workload->width),
                  {share.estimate * 100, share.low * 100, share.high * 100});
      }
      plot.series.push_back(series);
    }
  }
  return plot;
}

// LayerNorm in PyTorch's code against RMSNorm written out: what happens to who follows an article to the letter.
Table mixed_table(const std::vector<Workload>& workloads) {
  Table table{"Mixed, for warning: PyTorch's LayerNorm replaced by RMSNorm in eager code",
              {"workload", "time with RMSNorm (eager) / time with LayerNorm (native)"},
              {}};
  const std::string layer = norm_name({.kind = NormKind::kLayerNorm, .code = NormCode::kNative});
  const std::string rms = norm_name({.kind = NormKind::kRmsNorm, .code = NormCode::kEager});
  for (const Workload& w : workloads) {
    table.rows.push_back({w.label, text(relative(values_of(w, rms, "seconds"), values_of(w, layer, "seconds")))});
  }
  return table;
}

Page run(Context& context) {
  struct Size {
    std::int64_t width, layers;
  };
  const auto sizes = context.choose<std::vector<Size>>({{64, 2}}, {{64, 2}, {128, 2}, {256, 2}},
                                                       {{64, 2}, {128, 2}, {256, 2}, {512, 2}, {1024, 1}});
  const int rounds = context.choose(3, 3, 4);
  constexpr int kProfiled = 3;
  constexpr std::int64_t kTime = 64, kBatch = 8, kContext = 256;
  std::vector<Workload> workloads;
  for (const bool decode : {false, true}) {
    const std::int64_t time = decode ? kContext : kTime;
    for (const Size& size : sizes) {
      const auto make = [size, time](const NormOptions& norm) {
        return make_llama({.width = size.width,
                           .layers = size.layers,
                           .heads = size.width / 32,
                           .key_value_heads = size.width / 64,
                           .context = time,
                           .norm = norm});
      };
      workloads.push_back({fmt::format("{}-{}", decode ? "decode" : "train", size.width),
                           fmt::format("Llama {}, width {}, {} block{}", decode ? "decoding" : "training", size.width,
                                       size.layers, size.layers == 1 ? "" : "s"),
                           size.width, decode, make, text_data(moby_dick(), time)->train(1, 0, decode ? 1 : kBatch)});
    }
  }
  const std::int64_t gru_width = context.choose(64, 128, 256), gru_time = context.choose(8, 32, 32);
  workloads.push_back({"gru", fmt::format("GRU training, width {}, {} time steps", gru_width, gru_time), gru_width,
                       false,
                       [gru_width](const NormOptions& norm) { return make_gru({.width = gru_width, .norm = norm}); },
                       text_data(moby_dick(), gru_time)->train(1, 0, 16)});

  std::vector<Cell> training, decoding, recurrent;
  for (Workload& workload : workloads) {
    // Decoding steps are short: more of them cost nothing.
    const int factor = workload.decode ? 4 : 1;
    workload.starts =
        context.timed_pieces(workload.key, [&] { return measure(workload, factor * rounds, factor * kProfiled); });
    const bool gru = workload.key == "gru";
    for (const NormCode code : kCodes) {
      (gru ? recurrent : workload.decode ? decoding : training).push_back(cell_of(workload, code));
    }
  }

  Page page;
  page.findings.push_back(finding_of(fmt::format("Norms take {} of the training time", percent(kClaimedShare)), "P",
                                     "LayerNorm's share of a training step, by profile", training, &Cell::profile,
                                     kShareLow, kShareHigh));
  page.findings.push_back(
      finding_of(fmt::format("RMSNorm instead of LayerNorm makes a step {} faster", percent(kClaimedSaving)), "P",
                 "Saved of a Llama's training step", training, &Cell::saving, kClaimedSaving, kInfinity));
  page.findings.push_back(finding_of(
      fmt::format("RMSNorm takes {} to {} off the running time of LayerNorm", percent(kPaperLow), percent(kPaperHigh)),
      "Z, abstract", "Saved of a GRU's training step", recurrent, &Cell::saving, kPaperLow, kPaperHigh));

  std::vector<Cell> transformer = training;
  transformer.insert(transformer.end(), decoding.begin(), decoding.end());
  page.parts.push_back(table_of("The Llama: training and decoding steps", transformer));
  page.parts.push_back(table_of("The GRU: training steps", recurrent));
  page.parts.push_back(mixed_table(workloads));
  const auto predicted = [](const Cell& c) { return Interval{c.predicted, c.predicted, c.predicted}; };
  page.parts.push_back(plot_of(
      "LayerNorm's share of a training step", "share (%)", training,
      {{"profile", [](const Cell& c) { return c.profile; }}, {"ablation", [](const Cell& c) { return c.ablation; }}}));
  page.parts.push_back(plot_of("Training time saved by RMSNorm", "saved (%)", training,
                               {{"measured", [](const Cell& c) { return c.saving; }}, {"Amdahl", predicted}}));
  page.parts.push_back(plot_of(
      "LayerNorm's share of a decoding step", "share (%)", decoding,
      {{"profile", [](const Cell& c) { return c.profile; }}, {"ablation", [](const Cell& c) { return c.ablation; }}}));
  page.parts.push_back(
      Text{"The matrix products of a step grow with the square of the width and the norms with the width, so the share "
           "falls as models grow; at small widths the share of eager code is mostly the cost of calling many small "
           "operations. No saving can exceed the share: with LayerNorm's share known, Amdahl's law bounds what any "
           "other norm can bring. A residual addition that a norm takes in counts as no norm's."});
  return page;
}

}  // namespace

const Experiment kStepShare = {2, "step_share", "The share of norms in a step", kClaim, kDesign, kRule, &run};

}  // namespace rmsnorm::lab
