#include "lab/experiments/half_precision.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "lab/experiments/byte_loss.h"
#include "lab/experiments/half_training.h"
#include "lab/models/llama.h"

namespace rmsnorm::lab {
namespace {

using nlohmann::json;

constexpr const char* kClaim = "RMSNorm is numerically more stable than LayerNorm in half precision (P).";

constexpr const char* kDesign =
    "Rows: normally distributed numbers of deviation 2^k in f16 and bf16 go through RMSNorm and LayerNorm (variance in "
    "two passes, and as E[x^2] - mean^2) with every intermediate result in the 16-bit type, f32 or f64, through "
    "PyTorch's "
    "own functions and this library's; the error is taken against f64 on the same numbers. Which k are right tells "
    "where "
    "squares overflow and vanish. Then rows of mean 1 and deviation 2^-k, epsilon 0: what a common offset costs. "
    "Trainings: a small residual network learns Moby-Dick in mixed precision (16-bit activations, products summed in "
    "f32, "
    "f32 master weights, a loss scale for f16) with the squares of its norms in each type, from an ordinary residual "
    "stream, one that is 256 times as large and one with a common offset of 32; and a Llama in f32 and under bf16 "
    "autocast with this library's norms. Each run is compared with the same run in f32, from the same seed.";

constexpr const char* kRule =
    "Like against like: the same type of squares, LayerNorm in two passes. Range: holds where RMSNorm is right (error "
    "below 2 % of the result) for an octave more at one end and none fewer at the other, in every type of squares; "
    "refuted where in none. Offset: holds where RMSNorm's error is below half of LayerNorm's at a mean of 64 "
    "deviations "
    "in every type of squares; refuted where in none; partly otherwise. Trainings: what 16 bits cost (final held-out "
    "loss minus that of the f32 run, by seed) with LayerNorm minus the same with RMSNorm; refuted where two one-sided "
    "tests call the two costs equal within 0.02 nats a byte or the 95 % interval lies below 0; holds where they do not "
    "and it lies above 0; else not settled. Several settings are put together: partly where they differ.";

constexpr torch::ScalarType kHalfTypes[] = {torch::kHalf, torch::kBFloat16};
constexpr double kUsualEpsilon = 1e-5;
constexpr int kOffsetOfVerdict = 6;  // the mean is 2^6 deviations

// ---- Rows ----------------------------------------------------------------------------------------------------------

json measure_ranges(torch::ScalarType type) {
  json result = json::array();
  for (const RowNorm& norm : row_norms(type)) {
    for (const double epsilon : {0.0, kUsualEpsilon}) {
      const Octaves o = right_octaves(norm, type, epsilon);
      result.push_back({{"norm", norm.name},
                        {"epsilon", epsilon},
                        {"low", o.low},
                        {"high", o.high},
                        {"low_is_type", o.low_is_type},
                        {"high_is_type", o.high_is_type}});
    }
  }
  return result;
}

Octaves octaves_from(const json& piece) {
  return {piece.at("low"), piece.at("high"), piece.at("low_is_type"), piece.at("high_is_type")};
}

Octaves find_range(const json& ranges, const std::string& norm, double epsilon) {
  for (const json& range : ranges) {
    if (range.at("norm") == norm && range.at("epsilon") == epsilon) return octaves_from(range);
  }
  throw std::logic_error("no range of " + norm);
}

std::string squares_in(RowForm form, torch::ScalarType squares) {
  return fmt::format("{}, squares in {}", name_of(form), type_name(squares));
}

void add_ranges(Page& page, Context& context) {
  std::vector<Verdict> verdicts;
  std::string measured;
  for (const torch::ScalarType type : kHalfTypes) {
    const std::string name = type_name(type);
    const json ranges = context.piece("range-" + name, [&] { return measure_ranges(type); });
    Table table{fmt::format("Rows of {}: deviations that come out right (error below {})", name, percent(kRightBelow)),
                {"norm", "epsilon 0", "epsilon 1e-5"},
                {}};
    const auto shown = [](const Octaves& o) {
      return fmt::format("2^{}{} to 2^{}{}", o.low, o.low_is_type ? " (the type's)" : "", o.high,
                         o.high_is_type ? " (the type's)" : "");
    };
    for (const RowNorm& norm : row_norms(type)) {
      table.rows.push_back(
          {norm.name, shown(find_range(ranges, norm.name, 0)), shown(find_range(ranges, norm.name, kUsualEpsilon))});
    }
    page.parts.push_back(std::move(table));
    for (const torch::ScalarType squares : {type, torch::kFloat, torch::kDouble}) {
      const Octaves rms = find_range(ranges, squares_in(RowForm::kRmsNorm, squares), kUsualEpsilon);
      const Octaves layer = find_range(ranges, squares_in(RowForm::kLayerNormTwoPass, squares), kUsualEpsilon);
      verdicts.push_back(wider_range(rms, layer));
      measured += fmt::format("{}{} with squares in {}: up to 2^{} against 2^{}", measured.empty() ? "" : "; ", name,
                              type_name(squares), rms.high, layer.high);
    }
  }
  page.findings.push_back({"RMSNorm overflows and vanishes later than LayerNorm in half precision", "P",
                           "largest deviation that comes out right, RMSNorm against LayerNorm: " + measured,
                           all_of(verdicts),
                           "Both square numbers of the same size, so both meet the same limit (256 in f16); what moves "
                           "the limit is the type "
                           "of the squares, not the norm."});
}

struct OffsetCurve {
  std::string norm;
  std::vector<double> k, of_size, of_spread;
};

// Up to where rounding to the type leaves several different numbers in a row.
int largest_offset(torch::ScalarType type) { return type == torch::kHalf ? 10 : type == torch::kBFloat16 ? 7 : 20; }

json measure_offsets(torch::ScalarType type) {
  json result = json::array();
  for (const RowNorm& norm : row_norms(type)) {
    json k = json::array(), of_size = json::array(), of_spread = json::array();
    for (int exponent = 0; exponent <= largest_offset(type); ++exponent) {
      const RowError error = row_error(norm, offset_rows(type, exponent), 0);
      k.push_back(exponent);
      of_size.push_back(error.of_size);
      of_spread.push_back(error.of_spread);
    }
    result.push_back({{"norm", norm.name}, {"k", k}, {"of_size", of_size}, {"of_spread", of_spread}});
  }
  return result;
}

OffsetCurve curve_of(const json& curves, const std::string& norm) {
  for (const json& curve : curves) {
    if (curve.at("norm") == norm) return {norm, curve.at("k"), curve.at("of_size"), curve.at("of_spread")};
  }
  throw std::logic_error("no curve of " + norm);
}

// Points that are not finite have no place in a plot.
Series offset_series(const OffsetCurve& curve, bool of_spread) {
  Series series;
  series.name = curve.norm;
  for (std::size_t i = 0; i < curve.k.size(); ++i) {
    const double error = (of_spread ? curve.of_spread : curve.of_size)[i];
    if (!std::isfinite(error) || error <= 0) continue;
    series.x.push_back(std::ldexp(1.0, static_cast<int>(curve.k[i])));
    series.y.push_back(error);
  }
  return series;
}

Plot offset_plot(const json& curves, torch::ScalarType type, bool of_spread, const std::vector<std::string>& norms) {
  Plot plot{fmt::format("Rows of {} with a common offset: error in units of the result's {}", type_name(type),
                        of_spread ? "spread around its mean" : "root mean square"),
            "mean of the row / its deviation (ratio)",
            "error (ratio)",
            true,
            true,
            true,
            {}};
  for (const std::string& norm : norms) plot.series.push_back(offset_series(curve_of(curves, norm), of_spread));
  return plot;
}

void add_offsets(Page& page, Context& context) {
  std::vector<Verdict> two_pass, one_pass;
  std::string measured, measured_one;
  for (const torch::ScalarType type : {torch::kHalf, torch::kBFloat16, torch::kFloat}) {
    const std::string name = type_name(type);
    const json curves = context.piece("offset-" + name, [&] { return measure_offsets(type); });
    std::vector<std::string> shown;
    for (const RowForm form : {RowForm::kRmsNorm, RowForm::kLayerNormTwoPass, RowForm::kLayerNormOnePass}) {
      shown.push_back(squares_in(form, type));
      if (type != torch::kFloat) shown.push_back(squares_in(form, torch::kFloat));
    }
    shown.push_back("LayerNorm, this library");
    page.parts.push_back(offset_plot(curves, type, false, shown));
    if (type == torch::kFloat) continue;
    page.parts.push_back(offset_plot(curves, type, true, shown));

    Table table{fmt::format("Rows of {}, mean 2^{} deviations, epsilon 0: error", name, kOffsetOfVerdict),
                {"norm", "of the result's root mean square", "of its spread"},
                {}};
    for (const RowNorm& norm : row_norms(type)) {
      const OffsetCurve curve = curve_of(curves, norm.name);
      table.rows.push_back(
          {norm.name, text(curve.of_size.at(kOffsetOfVerdict), 2), text(curve.of_spread.at(kOffsetOfVerdict), 2)});
    }
    page.parts.push_back(std::move(table));
    for (const torch::ScalarType squares : {type, torch::kFloat, torch::kDouble}) {
      const auto error = [&, s = squares](RowForm form) {
        return curve_of(curves, squares_in(form, s)).of_size.at(kOffsetOfVerdict);
      };
      const double rms = error(RowForm::kRmsNorm), two = error(RowForm::kLayerNormTwoPass),
                   one = error(RowForm::kLayerNormOnePass);
      two_pass.push_back(smaller_error(rms, two));
      one_pass.push_back(smaller_error(rms, one));
      const std::string where =
          fmt::format("{} with squares in {}: {} against ", name, type_name(squares), text(rms, 2));
      measured += (measured.empty() ? "" : "; ") + where + text(two, 2);
      measured_one += (measured_one.empty() ? "" : "; ") + where + text(one, 2);
    }
  }
  page.findings.push_back(
      {"With a common offset in the row RMSNorm is more exact than LayerNorm (two passes)", "P",
       "error of RMSNorm against LayerNorm, of the result's root mean square: " + measured, all_of(two_pass),
       "LayerNorm subtracts two large numbers, which costs digits where that is done in 16 bits. RMSNorm does not "
       "subtract, and so leaves the offset in its result: seen against the spread that carries the information, its "
       "own "
       "rounding grows with the offset as well."});
  page.findings.push_back(
      {"The same against LayerNorm with the variance as E[x^2] - mean^2", "P, as its code is often written",
       "error of RMSNorm against LayerNorm, of the result's root mean square: " + measured_one, all_of(one_pass),
       "The difference of two nearly equal squares loses twice the digits of a difference of the numbers, and may come "
       "out negative, whose root is no number."});
}

// ---- Trainings of the small network --------------------------------------------------------------------------------

const std::vector<StreamShape>& streams() {
  static const std::vector<StreamShape> all = {{"ordinary", 1, 0}, {"large", 256, 0}, {"offset", 1, 32}};
  return all;
}

struct Precision {
  torch::ScalarType type, squares;
  std::string name() const {
    return type == torch::kFloat ? "f32" : fmt::format("{}_{}", type_name(type), type_name(squares));
  }
};
// f64 squares of 16-bit numbers differ from f32 ones only where those leave their range, and no stream here comes near
// that: they are tried on the ordinary one.
std::vector<Precision> precisions(const StreamShape& stream) {
  std::vector<Precision> all = {{torch::kFloat, torch::kFloat},
                                {torch::kHalf, torch::kHalf},
                                {torch::kHalf, torch::kFloat},
                                {torch::kBFloat16, torch::kBFloat16},
                                {torch::kBFloat16, torch::kFloat}};
  if (stream.scale == 1 && stream.offset == 0) {
    all.push_back({torch::kHalf, torch::kDouble});
    all.push_back({torch::kBFloat16, torch::kDouble});
  }
  return all;
}

struct Outcome {
  std::vector<double> loss, skipped;  // by seed
};

// A seed of a stream: {"<form>-<precision>": {loss, skipped}}.
json train_stream(const StreamShape& stream, std::int64_t steps, std::uint64_t seed) {
  torch::set_num_threads(kTrainingThreads);
  const auto data = text_data(moby_dick(), kWindow);
  json result = json::object();
  for (const RowForm form : {RowForm::kRmsNorm, RowForm::kLayerNormTwoPass, RowForm::kLayerNormOnePass}) {
    for (const Precision& precision : precisions(stream)) {
      const HalfResult run = train_half({form, precision.type, precision.squares, stream, steps, seed}, *data);
      result[fmt::format("{}-{}", static_cast<int>(form), precision.name())] = {{"loss", run.loss},
                                                                                {"skipped", run.skipped}};
    }
  }
  return result;
}

void add_small_trainings(Page& page, Context& context) {
  const std::int64_t steps = context.choose(6, 100, 100);
  Table table{
      fmt::format("A small network after {} steps, {} seeds: what 16 bits cost, nats a byte", steps, context.seeds()),
      {"stream", "activations", "squares", "RMSNorm", "LayerNorm, two passes", "LayerNorm, E[x^2] - mean^2",
       "LayerNorm (two passes) minus RMSNorm", "steps without a finite gradient: the three"},
      {}};
  Table baselines{"The same network in f32: held-out loss, nats a byte",
                  {"stream", "RMSNorm", "LayerNorm, two passes", "LayerNorm, E[x^2] - mean^2"},
                  {}};
  std::vector<Verdict> verdicts;
  std::vector<std::string> holds_in, refuted_in, open_in;
  for (const StreamShape& stream : streams()) {
    std::vector<json> seeds;
    for (int seed = 1; seed <= context.seeds(); ++seed) {
      seeds.push_back(context.piece(fmt::format("small-{}-{}", stream.name, seed),
                                    [&] { return train_stream(stream, steps, static_cast<std::uint64_t>(seed)); }));
    }
    const auto outcome = [&](RowForm form, const Precision& precision) {
      Outcome result;
      for (const json& seed : seeds) {
        const json& run = seed.at(fmt::format("{}-{}", static_cast<int>(form), precision.name()));
        result.loss.push_back(run.at("loss"));
        result.skipped.push_back(run.at("skipped"));
      }
      return result;
    };
    const Precision full = precisions(stream).front();
    std::vector<std::string> baseline = {stream.name};
    for (const RowForm form : {RowForm::kRmsNorm, RowForm::kLayerNormTwoPass, RowForm::kLayerNormOnePass}) {
      baseline.push_back(text(mean_interval(outcome(form, full).loss)));
    }
    baselines.rows.push_back(std::move(baseline));
    for (const Precision& precision : precisions(stream)) {
      if (precision.type == torch::kFloat) continue;
      const auto cost = [&](RowForm form) {
        return differences(outcome(form, precision).loss, outcome(form, full).loss);
      };
      const std::vector<double> rms = cost(RowForm::kRmsNorm), two = cost(RowForm::kLayerNormTwoPass),
                                one = cost(RowForm::kLayerNormOnePass), paired = differences(two, rms);
      const auto skipped = [&](RowForm form) { return text(mean(outcome(form, precision).skipped)); };
      table.rows.push_back({stream.name, type_name(precision.type), type_name(precision.squares),
                            text(mean_interval(rms)), text(mean_interval(two)), text(mean_interval(one)),
                            text(mean_interval(paired)),
                            fmt::format("{}, {}, {}", skipped(RowForm::kRmsNorm), skipped(RowForm::kLayerNormTwoPass),
                                        skipped(RowForm::kLayerNormOnePass))});
      verdicts.push_back(costs_more(paired));
      auto& list = verdicts.back() == Verdict::kHolds     ? holds_in
                   : verdicts.back() == Verdict::kRefuted ? refuted_in
                                                          : open_in;
      list.push_back(fmt::format("{} stream, {} with squares in {}", stream.name, type_name(precision.type),
                                 type_name(precision.squares)));
    }
  }
  page.parts.push_back(std::move(baselines));
  page.parts.push_back(std::move(table));
  const auto listed = [](const std::vector<std::string>& where) {
    return where.empty() ? std::string() : fmt::format(" ({})", fmt::join(where, "; "));
  };
  page.findings.push_back(
      {"Training in half precision costs a model with LayerNorm more than one with RMSNorm (small network)", "P",
       fmt::format("of {} settings: LayerNorm loses more in {}{}, not more in {}, not settled in {}{}", verdicts.size(),
                   holds_in.size(), listed(holds_in), refuted_in.size(), open_in.size(), listed(open_in)),
       all_of(verdicts),
       "Where squares overflow, both norms give zeros and neither learns; where they are kept in f32, neither is "
       "troubled. The forms differ where an offset is subtracted in 16 bits."});
}

// ---- A Llama under autocast ----------------------------------------------------------------------------------------

void add_llama(Page& page, Context& context) {
  struct Size {
    std::int64_t width, layers, time, batch, steps;
  };
  const Size size = context.choose(Size{32, 2, 32, 8, 15}, Size{64, 2, 64, 16, 120}, Size{64, 3, 64, 16, 120});
  std::vector<Arm> arms;
  for (const NormKind kind : {NormKind::kRmsNorm, NormKind::kLayerNorm}) {
    for (const bool autocast : {false, true}) {
      TrainOptions training;
      training.steps = size.steps;
      training.batch = size.batch;
      training.autocast = autocast;
      arms.push_back({name_of(kind) + (autocast ? "_bf16" : "_f32"),
                      [=] {
                        LlamaOptions options;
                        options.width = size.width;
                        options.layers = size.layers;
                        options.context = size.time;
                        options.norm.kind = kind;
                        return make_llama(options);
                      },
                      training});
    }
  }
  const auto data = text_data(moby_dick(), size.time);
  const auto runs = paired_runs(context, "llama", arms, *data, context.seeds());
  const auto losses = [](const std::vector<Run>& of) {
    return collect(of, [](const Run& run) { return byte_loss(run.final_loss()); });
  };
  const std::vector<double> rms = differences(losses(runs[1]), losses(runs[0])),
                            layer = differences(losses(runs[3]), losses(runs[2])), paired = differences(layer, rms);
  Table table{
      fmt::format("A Llama of width {} and {} blocks after {} steps, {} seeds, fused norms: held-out loss, nats a byte",
                  size.width, size.layers, size.steps, context.seeds()),
      {"norm", "f32", "bf16 autocast", "bf16 minus f32"},
      {}};
  table.rows.push_back({"RMSNorm", text(mean_interval(losses(runs[0]))), text(mean_interval(losses(runs[1]))),
                        text(mean_interval(rms))});
  table.rows.push_back({"LayerNorm", text(mean_interval(losses(runs[2]))), text(mean_interval(losses(runs[3]))),
                        text(mean_interval(layer))});
  page.parts.push_back(std::move(table));
  page.parts.push_back(Plot{"Training loss in f32 and under bf16 autocast",
                            "step (count)",
                            "loss (nats a byte)",
                            false,
                            false,
                            true,
                            {loss_series("RMSNorm, f32", runs[0], 5), loss_series("RMSNorm, bf16", runs[1], 5),
                             loss_series("LayerNorm, f32", runs[2], 5), loss_series("LayerNorm, bf16", runs[3], 5)}});
  page.findings.push_back(
      {"Training under bf16 autocast costs a Llama with LayerNorm more than one with RMSNorm", "P",
       fmt::format("cost to LayerNorm minus cost to RMSNorm: {} nats a byte (costs {} and {}; margin {})",
                   text(mean_interval(paired)), text(mean_interval(layer)), text(mean_interval(rms)), kSameLoss),
       costs_more(paired),
       "The norms here take their sums in f32 and f64 whatever the type of the row, as every library in use does."});
}

Page run(Context& context) {
  Page page;
  add_ranges(page, context);
  add_offsets(page, context);
  add_small_trainings(page, context);
  add_llama(page, context);
  return page;
}

}  // namespace

Verdict wider_range(const Octaves& rms, const Octaves& layer) {
  const bool no_less = rms.high >= layer.high && rms.low <= layer.low;
  const bool more = rms.high > layer.high || rms.low < layer.low;
  return no_less && more ? Verdict::kHolds : Verdict::kRefuted;
}

Verdict smaller_error(double rms, double layer) {
  if (!std::isfinite(rms)) return Verdict::kRefuted;
  return !std::isfinite(layer) || rms < kSmallerError * layer ? Verdict::kHolds : Verdict::kRefuted;
}

Verdict costs_more(const std::vector<double>& paired) {
  const Interval interval = mean_interval(paired);
  if (interval.high < 0) return Verdict::kRefuted;
  if (equivalence(paired, kSameLoss) == Equivalence::kEqual) return Verdict::kRefuted;
  return interval.low > 0 ? Verdict::kHolds : Verdict::kNotSettled;
}

extern const Experiment kHalfPrecision = {7, "half_precision", "Sixteen bits", kClaim, kDesign, kRule, &run};

}  // namespace rmsnorm::lab
