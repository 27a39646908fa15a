// Experiment 1: what RMSNorm costs beside LayerNorm.
#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>
#include <cmath>

#include "lab/experiments/cost_loops.h"
#include "lab/experiments/cost_times.h"
#include "lab/experiments/eager_l2.h"
#include "lab/experiments/experiment.h"
#include "lab/experiments/instructions.h"
#include "lab/experiments/support.h"
#include "lab/models/norm.h"
#include "lab/report/text.h"
#include "rmsnorm/rmsnorm.h"

namespace rmsnorm::lab {

namespace {

constexpr char kClaim[] =
    "RMSNorm needs 20 to 40 % less computation than LayerNorm; for [512, 1024] on an A100 a call takes 2.1 ms instead "
    "of "
    "3.2 ms; the form by the L2 norm uses optimised instructions (P).";
constexpr char kDesign[] =
    "Arithmetic operations of both norms as plain loops, counted by a type of number that counts. Executed "
    "instructions of "
    "rows of 1024, counted one by one. Time of one element in four regimes, one thread: a scalar loop; eager, one "
    "tensor "
    "operation after the other (mean of squares, and L2 norm); this library's fused norm in cache; the same from "
    "memory. "
    "All regimes of a width take turns within one process, in several process starts. 80 norms in a row at [512, "
    "1024]. The "
    "figure for the A100 stands beside the time that its memory needs for the bytes.";
constexpr char kRule[] =
    "The saving 1 - RMSNorm / LayerNorm holds where its interval lies in 20 to 40 %, is refuted where it lies outside, "
    "at "
    "each width; a regime holds, or is refuted, when all its widths do; holds in part when both occur. The L2 form is "
    "faster when the interval of its time over the other form's lies below 1 at all widths. Nothing here can time an "
    "A100.";

constexpr double kLeastSaving = 0.20, kMostSaving = 0.40;
constexpr std::int64_t kCountedWidth = 1024;

// Each instruction is a stop of the process: a smoke run has no time for many.
std::int64_t counted_rows(Scale scale) { return scale == Scale::kSmoke ? 1 : 8; }

// The A100 with 40 GB: memory bandwidth, as its data sheet gives it.
constexpr double kA100Bandwidth = 1.555e12;                        // bytes/s
constexpr double kClaimedBefore = 3.2e-3, kClaimedAfter = 2.1e-3;  // s

struct Regime {
  const char* key;
  const char* name;
};
constexpr Regime kRegimes[] = {{"scalar", "scalar loop"},
                               {"eager", "eager (tensor operations)"},
                               {"in_cache", "fused, in cache"},
                               {"from_memory", "fused, from memory"}};

// ---- Counts

Operations operations_of(const std::function<void(Counted*, const Counted*, const Counted*, const Counted*)>& norm) {
  std::vector<Counted> x(kCountedWidth, 1.5), y(kCountedWidth), weight(kCountedWidth, 1), bias(kCountedWidth, 0);
  Counted::done() = {};
  norm(y.data(), x.data(), weight.data(), bias.data());
  return Counted::done();
}

struct NamedOperations {
  const char* name;
  Operations operations;
};

std::vector<NamedOperations> count_operations() {
  constexpr std::int64_t d = kCountedWidth;
  return {
      {"LayerNorm, two passes",
       operations_of([](auto* y, auto* x, auto* w, auto* b) { layer_norm_row<Counted>(y, x, w, b, d, 1e-5); })},
      {"LayerNorm, E[x²] − mean²", operations_of([](auto* y, auto* x, auto* w, auto* b) {
         layer_norm_one_pass_row<Counted>(y, x, w, b, d, 1e-5);
       })},
      {"RMSNorm", operations_of([](auto* y, auto* x, auto* w, auto*) { rms_norm_row<Counted>(y, x, w, d, 1e-5); })},
  };
}

Table operations_table(const std::vector<NamedOperations>& counted) {
  Table table{"Arithmetic operations for one row of 1024",
              {"norm", "additions", "multiplications", "divisions and roots", "all", "all, per element"},
              {}};
  for (const auto& [name, o] : counted) {
    table.rows.push_back({name, std::to_string(o.additions), std::to_string(o.multiplications),
                          std::to_string(o.divisions + o.roots), std::to_string(o.total()),
                          fmt::format("{:.2f}", static_cast<double>(o.total()) / kCountedWidth)});
  }
  return table;
}

// {"target": .., "scalar": {"layer_norm": n, "rms_norm": n}, ..}; a count that the system forbids is null.
nlohmann::json count_all_instructions(std::int64_t rows) {
  const torch::NoGradGuard no_gradients;
  const int threads = torch::get_num_threads();
  torch::set_num_threads(1);
  const torch::Tensor x = torch::randn({rows, kCountedWidth}), y = torch::empty_like(x);
  const torch::Tensor weight = torch::ones({kCountedWidth}), bias = torch::zeros({kCountedWidth});
  nlohmann::json result = {{"target", rn_target()}, {"rows", rows}};
  const auto keep = [&](const char* regime, const char* norm, const std::function<void()>& work) {
    const std::optional<std::int64_t> count = count_instructions(work);
    result[regime][norm] = count ? nlohmann::json(*count) : nlohmann::json(nullptr);
  };
  float* const out = y.data_ptr<float>();
  const float *const in = x.data_ptr<float>(), *const w = weight.data_ptr<float>(), *const b = bias.data_ptr<float>();
  keep("scalar", "layer_norm", [&] { scalar_layer_norm(out, in, w, b, rows, kCountedWidth, 1e-5F); });
  keep("scalar", "rms_norm", [&] { scalar_rms_norm(out, in, w, rows, kCountedWidth, 1e-5F); });
  const rn_view x_view = rn_matrix(x.data_ptr<float>(), RN_F32, rows, kCountedWidth);
  const rn_view y_view = rn_matrix(out, RN_F32, rows, kCountedWidth);
  const rn_view w_view = rn_vector(weight.data_ptr<float>(), RN_F32, kCountedWidth);
  const rn_view b_view = rn_vector(bias.data_ptr<float>(), RN_F32, kCountedWidth);
  const rn_execution alone{1, nullptr, nullptr};
  keep("in_cache", "layer_norm",
       [&] { rn_layer_norm(&y_view, nullptr, nullptr, &x_view, &w_view, &b_view, nullptr, &alone); });
  keep("in_cache", "rms_norm", [&] { rn_rms_norm(&y_view, nullptr, &x_view, &w_view, nullptr, nullptr, &alone); });
  for (const NormKind kind : {NormKind::kLayerNorm, NormKind::kRmsNorm}) {
    NormOptions options;
    options.kind = kind;
    options.code = NormCode::kEager;
    Norm norm(options, kCountedWidth);
    keep("eager", kind == NormKind::kLayerNorm ? "layer_norm" : "rms_norm", [&] { norm->forward(x); });
  }
  keep("eager", "rms_norm_l2", [&] { eager_rms_norm_l2(x, weight, 1e-5); });
  torch::set_num_threads(threads);
  return result;
}

// The saving in a count, which has no interval; nothing where it could not be counted.
std::optional<double> counted_saving(const nlohmann::json& counts, const char* regime) {
  const auto& of = counts.at(regime);
  if (of.at("layer_norm").is_null() || of.at("rms_norm").is_null()) return std::nullopt;
  return 1 - of.at("rms_norm").get<double>() / of.at("layer_norm").get<double>();
}

Table instructions_table(const nlohmann::json& counts) {
  Table table{fmt::format("Executed instructions for {} rows of {}, fused for {}",
                          counts.at("rows").get<std::int64_t>(), kCountedWidth, counts.at("target").get<std::string>()),
              {"regime", "LayerNorm (number)", "RMSNorm (number)", "saving (%)"},
              {}};
  for (const Regime& regime : kRegimes) {
    if (!counts.contains(regime.key)) continue;
    const auto cell = [&](const char* norm) {
      const auto& count = counts.at(regime.key).at(norm);
      return count.is_null() ? std::string("not available") : std::to_string(count.get<std::int64_t>());
    };
    const std::optional<double> saved = counted_saving(counts, regime.key);
    table.rows.push_back({regime.name, cell("layer_norm"), cell("rms_norm"),
                          saved ? fmt::format("{:.1f}", 100 * *saved) : "not available"});
  }
  return table;
}

Verdict verdict_of(double saved) { return within({saved, saved, saved}, kLeastSaving, kMostSaving); }

Finding operations_finding(const std::vector<NamedOperations>& counted) {
  const auto total = [&](std::size_t i) { return static_cast<double>(counted[i].operations.total()); };
  const double two_passes = 1 - total(2) / total(0), one_pass = 1 - total(2) / total(1);
  return {"RMSNorm needs 20 to 40 % fewer operations than LayerNorm", "P",
          fmt::format("{} fewer than LayerNorm in two passes, {} fewer than by E[x²] − mean²", percent(two_passes),
                      percent(one_pass)),
          all_of({verdict_of(two_passes), verdict_of(one_pass)}),
          "The subtraction of the mean, its sum and the bias go. The operations are not what a norm waits for."};
}

Finding instructions_finding(const nlohmann::json& counts) {
  Finding finding{"RMSNorm executes 20 to 40 % fewer instructions", "P", "", Verdict::kCannotBeTestedHere,
                  "This system forbids tracing a process, so that nothing was counted."};
  std::vector<Verdict> verdicts;
  for (const Regime& regime : kRegimes) {
    const std::optional<double> saved = counts.contains(regime.key) ? counted_saving(counts, regime.key) : std::nullopt;
    if (!saved) continue;
    verdicts.push_back(verdict_of(*saved));
    finding.measured += fmt::format("{}{}: {} fewer", verdicts.size() > 1 ? "; " : "", regime.name, percent(*saved));
  }
  if (verdicts.empty()) {
    finding.measured = "not counted";
    return finding;
  }
  finding.verdict = all_of(verdicts);
  finding.reason = "The count depends on how each norm is written, more than on which norm it is.";
  return finding;
}

// ---- Times

class Times {
 public:
  Times(std::vector<nlohmann::json> starts, std::vector<std::int64_t> widths)
      : starts_(std::move(starts)), widths_(std::move(widths)) {}

  const std::vector<std::int64_t>& widths() const { return widths_; }

  // ns per element, one value for each start.
  std::vector<double> cell(const std::string& regime, const std::string& norm, std::int64_t width) const {
    std::vector<double> values;
    for (const auto& start : starts_) {
      values.push_back(start.at("cells").at(regime).at(norm).at(std::to_string(width)).get<double>());
    }
    return values;
  }

  std::vector<double> layers(const std::string& name) const {  // ms
    std::vector<double> values;
    for (const auto& start : starts_) values.push_back(start.at("layers").at(name).get<double>());
    return values;
  }

  Interval saved(const std::string& regime, std::int64_t width) const {
    return saving(relative(cell(regime, "rms_norm", width), cell(regime, "layer_norm", width)));
  }

 private:
  std::vector<nlohmann::json> starts_;
  std::vector<std::int64_t> widths_;
};

std::string range_of(const std::vector<Interval>& values) {
  const auto [least, most] = std::minmax_element(
      values.begin(), values.end(), [](const Interval& a, const Interval& b) { return a.estimate < b.estimate; });
  return fmt::format("{} to {}", percent(*least), percent(*most));
}

Finding regime_finding(const Times& times, const Regime& regime) {
  std::vector<Verdict> verdicts;
  std::vector<Interval> savings;
  for (const std::int64_t width : times.widths()) {
    savings.push_back(times.saved(regime.key, width));
    verdicts.push_back(within(savings.back(), kLeastSaving, kMostSaving));
  }
  Finding finding;
  finding.claim = fmt::format("RMSNorm takes 20 to 40 % less time: {}", regime.name);
  finding.source = "P";
  finding.measured = fmt::format("saves {} by width, {} to {} columns", range_of(savings), times.widths().front(),
                                 times.widths().back());
  finding.verdict = all_of(verdicts);
  const std::string key = regime.key;
  finding.reason =
      key == "from_memory" ? "Both norms read and write the same bytes; what memory brings is what there is."
      : key == "in_cache"  ? "Fused and in cache, sums and loads decide, and the mean costs one more of each."
      : key == "eager"     ? "Each tensor operation goes through memory once; the saving is the share of the "
                             "operations that are left out."
                           : "A loop without vector instructions waits for its sums: one for RMSNorm, two for "
                             "LayerNorm.";
  return finding;
}

Finding l2_finding(const Times& times) {
  std::vector<Verdict> verdicts;
  std::vector<Interval> all;
  for (const std::int64_t width : times.widths()) {
    all.push_back(relative(times.cell("eager", "rms_norm_l2", width), times.cell("eager", "rms_norm", width)));
    verdicts.push_back(within(all.back(), 0, 1));
  }
  std::string measured;
  for (std::size_t i = 0; i < all.size(); ++i) {
    measured += fmt::format("{}{} columns: {}", i > 0 ? "; " : "", times.widths()[i], text(all[i]));
  }
  return {
      "Written with the L2 norm, RMSNorm is faster: it uses optimised instructions", "P",
      "time over that of the mean of squares: " + measured, all_of(verdicts),
      "Both forms are sums of squares by vector instructions; `norm` saves the tensor of squares that `mean` reads."};
}

Finding layers_finding(const Times& times, std::int64_t layers) {
  std::vector<Verdict> verdicts;
  std::string measured;
  for (const char* code : {"eager", "native", "fused"}) {
    const Interval saved = saving(
        relative(times.layers(fmt::format("rms_norm-{}", code)), times.layers(fmt::format("layer_norm-{}", code))));
    verdicts.push_back(within(saved, kLeastSaving, kMostSaving));
    measured += fmt::format("{}{}: saves {}", measured.empty() ? "" : "; ", code, percent(saved));
  }
  return {
      fmt::format("At [512, 1024], {} norms in a row, RMSNorm saves a third (2.1 ms of 3.2 ms)", layers), "P", measured,
      all_of(verdicts),
      "Judged by the 20 to 40 % above; eager against eager, fused against fused. As in a model, each call makes "
      "new tensors, of 2 MiB; the table of widths times the same code in cache, and what a call takes longer here is "
      "mostly memory, which PyTorch's CPU allocator gives back to the system and asks for again."};
}

double limit_of_call() { return 2.0 * kLayerRows * kLayerWidth * sizeof(float) / kA100Bandwidth; }

Finding a100_finding() {
  const double limit = limit_of_call();
  return {"On an A100, [512, 1024] takes 3.2 ms with LayerNorm and 2.1 ms with RMSNorm", "P",
          fmt::format(
              "its memory needs {:.1f} µs for the bytes of a call: 3.2 ms are {:.0f} times that, 2.1 ms {:.0f} times",
              limit * 1e6, kClaimedBefore / limit, kClaimedAfter / limit),
          Verdict::kCannotBeTestedHere,
          "No A100 here. The figures cannot be those of one call of a kernel that is bound by memory. Divided by 80 "
          "calls they "
          "are 40 and 26 µs, what some launches of small kernels take: then they measure launches, not the norm."};
}

// ---- Plots and tables of times

Plot savings_plot(const Times& times) {
  Plot plot{"Time that RMSNorm saves", "width (columns)", "saving (% of LayerNorm's time)", true, false, true, {}};
  for (const Regime& regime : kRegimes) {
    Series series{regime.name, {}, {}, {}, {}};
    for (const std::int64_t width : times.widths()) {
      const Interval s = times.saved(regime.key, width);
      add_point(series, static_cast<double>(width), {100 * s.estimate, 100 * s.low, 100 * s.high});
    }
    plot.series.push_back(series);
  }
  return plot;
}

Plot times_plot(const Times& times) {
  Plot plot{"Time of one element", "width (columns)", "time (ns per element)", true, true, true, {}};
  for (const Regime& regime : kRegimes) {
    for (const auto& [key, name] : {std::pair("layer_norm", "LayerNorm"), {"rms_norm", "RMSNorm"}}) {
      Series series{fmt::format("{}, {}", name, regime.name), {}, {}, {}, {}};
      for (const std::int64_t width : times.widths()) {
        add_point(series, static_cast<double>(width), median_interval(times.cell(regime.key, key, width)));
      }
      plot.series.push_back(series);
    }
  }
  return plot;
}

Table times_table(const Times& times) {
  Table table{
      "Time of one element (ns), and the saving", {"regime", "width (columns)", "LayerNorm", "RMSNorm", "saving"}, {}};
  constexpr Regime kNative = {"native", "PyTorch's own functions"};
  const auto add = [&](const Regime& regime) {
    for (const std::int64_t width : times.widths()) {
      table.rows.push_back(
          {regime.name, std::to_string(width), text(median(times.cell(regime.key, "layer_norm", width))),
           text(median(times.cell(regime.key, "rms_norm", width))), percent(times.saved(regime.key, width))});
    }
  };
  for (const Regime& regime : kRegimes) add(regime);
  add(kNative);
  return table;
}

Table layers_table(const Times& times, std::int64_t layers) {
  Table table{fmt::format("{} norms in a row at [{}, {}], f32, one thread", layers, kLayerRows, kLayerWidth),
              {"code", "LayerNorm (ms)", "RMSNorm (ms)", "one call of RMSNorm (µs)"},
              {}};
  const auto add = [&](const std::string& name, const std::string& before, const std::string& after) {
    const Interval time = median_interval(times.layers(after));
    table.rows.push_back({name, before.empty() ? "–" : text(median_interval(times.layers(before))), text(time),
                          text(1000 * time.estimate / static_cast<double>(layers))});
  };
  for (const std::string code : {"eager", "native", "fused"}) add(code, "layer_norm-" + code, "rms_norm-" + code);
  add("eager, L2 norm", "", "rms_norm_l2-eager");
  return table;
}

Page run(Context& context) {
  const nlohmann::json counts =
      context.piece("instructions", [&] { return count_all_instructions(counted_rows(context.scale())); });
  const Times times(context.timed_pieces("times", [&] { return measure_cost(context.scale()); }),
                    cost_widths(context.scale()));
  const std::int64_t layers = cost_layers(context.scale());
  const std::vector<NamedOperations> counted = count_operations();

  Page page;
  page.findings = {operations_finding(counted), instructions_finding(counts)};
  for (const Regime& regime : kRegimes) page.findings.push_back(regime_finding(times, regime));
  page.findings.push_back(l2_finding(times));
  page.findings.push_back(layers_finding(times, layers));
  page.findings.push_back(a100_finding());

  page.parts = {savings_plot(times),        times_plot(times),  operations_table(counted),
                instructions_table(counts), times_table(times), layers_table(times, layers)};
  page.parts.push_back(Text{fmt::format(
      "The A100: a call reads and writes 512 × 1024 × 4 bytes, 4.2 MB together. At 1.555 TB/s that takes {:.2f} µs, "
      "and 80 "
      "calls take {:.2f} ms. A fused norm of either kind comes near it, and the difference between both is then a "
      "matter of arithmetic that hides behind the memory.",
      limit_of_call() * 1e6, 80 * limit_of_call() * 1e3)});
  return page;
}

}  // namespace

const Experiment kCost = {1, "cost", "What RMSNorm costs beside LayerNorm", kClaim, kDesign, kRule, run};

}  // namespace rmsnorm::lab
