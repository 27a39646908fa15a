#include "lab/experiments/memory.h"

#include <fmt/format.h>

#include <cmath>
#include <map>

#include "lab/models/llama.h"

namespace rmsnorm::lab {
namespace {

using nlohmann::json;

constexpr const char* kClaim = "RMSNorm allows longer checkpoint intervals in training (P).";

constexpr const char* kDesign =
    "The words can mean three things, and each is measured. Checkpoints of activations, memory: the bytes that a norm "
    "keeps for its backward pass (its input lives only for it; PyTorch's CPU allocator is counted), and those of a "
    "whole "
    "Llama block, which set how many blocks may lie between two checkpoints. Checkpoints of activations, time: a step "
    "with and without recomputation of every block, interleaved, in several process starts. Checkpoints on disk: the "
    "bytes of the "
    "parameters. LayerNorm against RMSNorm in the same code form: fused with fused, eager with eager, PyTorch's with "
    "PyTorch's.";

constexpr const char* kRule =
    "Memory and disk (counted, no interval): holds where RMSNorm needs at most 95 % of LayerNorm's bytes, refuted from "
    "99 % on, partly in between; for a block the three code forms are put together, partly where they differ. Time: "
    "the "
    "factor by which recomputation lengthens a step, RMSNorm's over LayerNorm's, median and 95 % interval of the "
    "paired "
    "ratios; holds where the interval lies below 0.95, refuted where it lies above.";

// ---- One norm ------------------------------------------------------------------------------------------------------

constexpr std::int64_t kRows = 2048, kColumns = 1024;

struct Form {
  NormKind kind;
  NormCode code;
};
const std::vector<Form> kForms = {
    {NormKind::kLayerNorm, NormCode::kFused},      {NormKind::kRmsNorm, NormCode::kFused},
    {NormKind::kPartialRmsNorm, NormCode::kFused}, {NormKind::kLayerNorm, NormCode::kEager},
    {NormKind::kRmsNorm, NormCode::kEager},        {NormKind::kPartialRmsNorm, NormCode::kEager},
    {NormKind::kLayerNorm, NormCode::kNative},     {NormKind::kRmsNorm, NormCode::kNative},
};

NormOptions options_of(const Form& form) {
  NormOptions options;
  options.kind = form.kind;
  options.code = form.code;
  return options;
}

std::string key_of(const Form& form) { return name_of(form.kind) + "_" + name_of(form.code); }

// What is still allocated when the norm's input is gone and its output stands: bytes. With a residual, the sum is gone,
// too: adding to it keeps nothing, so only the norm holds it.
std::int64_t bytes_kept(const Form& form, torch::ScalarType type, bool residual) {
  const AllocationMeter meter;
  const torch::Tensor leaf = torch::randn({kRows, kColumns}).to(type).requires_grad_();
  Norm norm(options_of(form), kColumns);
  norm->to(type);
  const auto output = [&] {  // copies keep nothing for their own backward pass
    return residual ? norm->forward(leaf.clone(), leaf.clone()).first : norm->forward(leaf.clone());
  };
  output();  // what is made on the first call and stays
  const std::int64_t before = meter.live();
  const torch::Tensor y = output();
  return meter.live() - before - static_cast<std::int64_t>(y.nbytes());
}

json measure_norms() {
  json result = json::array();
  for (const Form& form : kForms) {
    json row = {{"kind", name_of(form.kind)}, {"code", name_of(form.code)}};
    for (const bool residual : {false, true}) {
      for (const torch::ScalarType type : {torch::kFloat, torch::kBFloat16}) {
        row[fmt::format("{}{}", type == torch::kFloat ? "f32" : "bf16", residual ? "_residual" : "")] =
            bytes_kept(form, type, residual);
      }
    }
    result.push_back(row);
  }
  return result;
}

void add_norms(Page& page, Context& context) {
  const json norms = context.piece("norms", measure_norms);
  Table table{
      fmt::format("Bytes that a norm keeps for its backward pass, for each element of [{}, {}]", kRows, kColumns),
      {"norm", "code", "f32", "f32, with residual", "bf16", "bf16, with residual"},
      {}};
  for (const json& norm : norms) {
    std::vector<std::string> row = {norm.at("kind"), norm.at("code")};
    for (const char* form : {"f32", "f32_residual", "bf16", "bf16_residual"}) {
      row.push_back(text(norm.at(form).get<double>() / (kRows * kColumns), 5));
    }
    table.rows.push_back(std::move(row));
  }
  page.parts.push_back(std::move(table));
  page.parts.push_back(
      Text{"4 bytes (2 in bf16) are one copy of the input. Statistics are one or two numbers a row, below 0.01 of a "
           "byte for "
           "an element; this library keeps none and computes them again. Both norms have x in their derivative, so "
           "both keep "
           "it, or a centred or normalised copy; written out in tensor operations both keep more than one."});
}

// ---- The model -----------------------------------------------------------------------------------------------------

struct Size {
  std::int64_t width, time, batch;
  int rounds;
};
Size size_at(const Context& context) {
  return context.choose(Size{64, 32, 4, 2}, Size{128, 128, 8, 4}, Size{192, 128, 8, 5});
}
constexpr std::int64_t kFewLayers = 2, kManyLayers = 6, kTimedLayers = 4;

LlamaOptions llama_of(const Form& form, const Size& size, std::int64_t layers, bool recompute) {
  LlamaOptions options;
  options.width = size.width;
  options.layers = layers;
  options.context = size.time;
  options.recompute = recompute;
  options.norm = options_of(form);
  return options;
}

Batch batch_of(const Size& size) { return text_data(moby_dick(), size.time)->train(1, 0, size.batch); }

struct ModelBytes {
  std::int64_t kept;        // between the forward and the backward pass, without parameters
  std::int64_t peak;        // of forward and backward together, likewise; gradients are in it
  std::int64_t parameters;  // what a checkpoint on disk holds
};

ModelBytes model_bytes(const Form& form, const Size& size, std::int64_t layers, bool recompute) {
  AllocationMeter meter;
  torch::manual_seed(1);
  const Model model = make_llama(llama_of(form, size, layers, recompute));
  const Batch batch = batch_of(size);
  const auto loss = [&] { return loss_of(model->forward(batch.input), batch.target); };
  loss().backward();  // what is made on the first call and stays
  model->zero_grad();
  meter.reset_peak();
  const std::int64_t before = meter.live();
  const torch::Tensor result = loss();
  const std::int64_t kept = meter.live() - before;
  result.backward();
  return {kept, meter.peak() - before, model->parameter_count() * static_cast<std::int64_t>(sizeof(float))};
}

struct BlockBytes {
  double kept;                   // by a block, everything that its backward pass needs
  double recomputed;             // the same when the block is computed again: its input
  double peak, peak_recomputed;  // of the larger model
  double parameters;
};

json measure_block(const Form& form, const Size& size) {
  const auto per_block = [&](bool recompute) {
    const ModelBytes few = model_bytes(form, size, kFewLayers, recompute);
    const ModelBytes many = model_bytes(form, size, kManyLayers, recompute);
    return std::pair(static_cast<double>(many.kept - few.kept) / (kManyLayers - kFewLayers), many);
  };
  torch::set_num_threads(kThreads);
  const auto [kept, plain] = per_block(false);
  const auto [recomputed, again] = per_block(true);
  return {{"kept", kept},
          {"recomputed", recomputed},
          {"peak", plain.peak},
          {"peak_recomputed", again.peak},
          {"parameters", plain.parameters}};
}

BlockBytes block_from(const json& piece) {
  return {piece.at("kept"), piece.at("recomputed"), piece.at("peak"), piece.at("peak_recomputed"),
          piece.at("parameters")};
}

Series interval_series(const std::string& name, const BlockBytes& block) {
  Series series;
  series.name = name;
  constexpr int kBlocks = 32;
  for (int interval = 1; interval <= kBlocks; interval *= 2) {
    series.x.push_back(interval);
    series.y.push_back(bytes_with_interval(kBlocks, interval, block.recomputed, block.kept) / (1 << 20));
  }
  return series;
}

void add_blocks(Page& page, Context& context) {
  const Size size = size_at(context);
  Table table{fmt::format("A Llama of width {}, {} x {} tokens, f32: bytes kept for the backward pass", size.width,
                          size.batch, size.time),
              {"norm", "code", "a block", "a block, recomputed", fmt::format("peak of a step, {} blocks", kManyLayers),
               "the same, recomputed"},
              {}};
  std::map<std::string, BlockBytes> blocks;
  for (const Form& form : kForms) {
    const BlockBytes block =
        block_from(context.piece("block-" + key_of(form), [&] { return measure_block(form, size); }));
    blocks[key_of(form)] = block;
    table.rows.push_back({name_of(form.kind), name_of(form.code), bytes(block.kept), bytes(block.recomputed),
                          bytes(block.peak), bytes(block.peak_recomputed)});
  }
  page.parts.push_back(std::move(table));

  std::vector<Verdict> verdicts;
  std::string measured;
  for (const NormCode code : {NormCode::kFused, NormCode::kEager, NormCode::kNative}) {
    const double ratio =
        blocks.at(key_of({NormKind::kRmsNorm, code})).kept / blocks.at(key_of({NormKind::kLayerNorm, code})).kept;
    verdicts.push_back(fewer_bytes(ratio));
    measured += fmt::format("{}{} {}", measured.empty() ? "" : ", ", name_of(code), text(ratio, 4));
  }
  page.findings.push_back(
      {"Longer checkpoint intervals, read as: more blocks between checkpoints of activations, for the same memory", "P",
       "bytes that a block keeps, RMSNorm over LayerNorm: " + measured, all_of(verdicts),
       "The interval for a given memory grows by the inverse of this ratio. The backward pass of either norm needs x; "
       "what LayerNorm needs beside it is a number a row."});
  const BlockBytes &rms = blocks.at(key_of({NormKind::kRmsNorm, NormCode::kFused})),
                   &layer = blocks.at(key_of({NormKind::kLayerNorm, NormCode::kFused}));
  page.findings.push_back(
      {"Longer checkpoint intervals, read as: checkpoints on disk are smaller, so more or fewer of them are kept", "P",
       fmt::format("bytes of the parameters of {} blocks, RMSNorm over LayerNorm: {} ({} and {})", kManyLayers,
                   text(rms.parameters / layer.parameters, 4), bytes(rms.parameters), bytes(layer.parameters)),
       fewer_bytes(rms.parameters / layer.parameters),
       "What differs is one bias vector a norm. How often one should save follows from how often the machine fails and "
       "how long saving takes; a norm changes neither."});
  page.parts.push_back(
      Plot{"Bytes kept by 32 such blocks against the interval, computed from the bytes of one block",
           "interval (blocks)",
           "memory (MiB)",
           true,
           true,
           true,
           {interval_series("LayerNorm, fused", layer), interval_series("RMSNorm, fused", rms),
            interval_series("LayerNorm, eager", blocks.at(key_of({NormKind::kLayerNorm, NormCode::kEager}))),
            interval_series("RMSNorm, eager", blocks.at(key_of({NormKind::kRmsNorm, NormCode::kEager})))}});
}

// ---- Time ----------------------------------------------------------------------------------------------------------

struct Timed {
  const char* name;
  NormKind kind;
  bool recompute;
};
constexpr Timed kTimed[] = {{"LayerNorm", NormKind::kLayerNorm, false},
                            {"LayerNorm, recomputed", NormKind::kLayerNorm, true},
                            {"RMSNorm", NormKind::kRmsNorm, false},
                            {"RMSNorm, recomputed", NormKind::kRmsNorm, true}};

json measure_seconds(const Size& size) {
  std::vector<Variant> variants;
  for (const Timed& timed : kTimed) {
    torch::manual_seed(1);
    const Form form = {timed.kind, NormCode::kFused};
    auto step =
        std::make_shared<TrainingStep>(make_llama(llama_of(form, size, kTimedLayers, timed.recompute)), batch_of(size));
    variants.push_back({timed.name, [step] { (*step)(); }});
  }
  return named_seconds(variants, size.rounds);
}

void add_seconds(Page& page, Context& context) {
  const Size size = size_at(context);
  const std::vector<json> pieces = context.timed_pieces("times", [&] { return measure_seconds(size); });
  const auto seconds_of = [&](int timed) { return of_starts(pieces, fmt::format("/{}", kTimed[timed].name)); };
  const Starts layer = seconds_of(0), layer_again = seconds_of(1), rms = seconds_of(2), rms_again = seconds_of(3);
  const Interval extra = relative(ratios(rms_again, rms), ratios(layer_again, layer));
  Table table{fmt::format("A training step of {} blocks, fused norms: median of {} process starts, {} interleaved "
                          "steps in each",
                          kTimedLayers, layer.size(), layer.front().size()),
              {"norm", "step, ms", "with recomputation, ms", "with / without"},
              {}};
  const auto row = [&](const char* name, const Starts& plain, const Starts& again) {
    const auto in_ms = [](const Starts& values) {
      const Interval i = median_interval(values);
      return text(Interval{i.estimate * 1e3, i.low * 1e3, i.high * 1e3});
    };
    table.rows.push_back({name, in_ms(plain), in_ms(again), text(relative(again, plain))});
  };
  row("LayerNorm", layer, layer_again);
  row("RMSNorm", rms, rms_again);
  page.parts.push_back(std::move(table));
  page.findings.push_back(
      {"Longer checkpoint intervals, read as: recomputing a stretch costs less", "P",
       fmt::format(
           "what recomputation multiplies a step by, RMSNorm's factor over LayerNorm's: {} (RMSNorm's factor: {})",
           text(extra), text(relative(rms_again, rms))),
       cheaper_recomputation(extra),
       "Most of what is computed again is matrix products, which do not depend on the norm."});
}

Page run(Context& context) {
  Page page;
  add_norms(page, context);
  add_blocks(page, context);
  add_seconds(page, context);
  return page;
}

}  // namespace

Verdict fewer_bytes(double ratio) {
  if (ratio <= kWorthALongerInterval) return Verdict::kHolds;
  return ratio >= kNoDifference ? Verdict::kRefuted : Verdict::kPartly;
}

Verdict cheaper_recomputation(const Interval& ratio) { return within(ratio, -kInfinity, kWorthALongerInterval); }

double bytes_with_interval(double blocks, double interval, double stream_bytes, double block_bytes) {
  return std::ceil(blocks / interval) * stream_bytes + interval * block_bytes;
}

extern const Experiment kMemory = {
    8, "memory", "What a norm keeps, and what checkpointing has to do with it", kClaim, kDesign, kRule, &run};

}  // namespace rmsnorm::lab
