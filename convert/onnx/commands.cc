#include <span>

#include "convert/convert.h"
#include "convert/names.h"
#include "convert/onnx/draw.h"
#include "convert/onnx/expand.h"
#include "convert/onnx/layer_scale.h"
#include "convert/onnx/opset.h"
#include "convert/onnx/report.h"
#include "convert/refusal.h"
#include "tools/formats/output_file.h"

namespace rmsnorm::convert::onnx {

namespace {

// A model with everything that is known about it. The parts point at each other: it stays where it is.
struct Understood {
  explicit Understood(const Request& request)
      : model(load_model(request.input)),
        nodes(model.proto.graph().node_size()),
        expansions(expand_norms(model)),
        scales(move_layer_scales(model)),
        graph(model),
        shapes(graph),
        norms(recognised()),
        target(chosen_target(request.target, graph.opset())),
        plan(make_plan(graph, shapes, norms, {request.entry == Entry::kWeights, request.tie == Tie::kKeep})) {}
  Understood(const Understood&) = delete;
  Understood& operator=(const Understood&) = delete;

  Norms recognised() const {
    Norms found = recognise_norms(graph, shapes);
    for (const Expansion& expansion : expansions) {
      for (Norm& norm : found.all) {
        if (norm.y == expansion.y) norm.origin = expansion.form;
      }
    }
    return found;
  }

  Model model;
  int nodes;  // in the file
  std::vector<Expansion> expansions;
  std::vector<MovedScale> scales;
  Graph graph;
  Shapes shapes;
  Norms norms;
  Target target;
  Plan plan;
};

void refuse_converted(const Model& model) {
  if (const std::string* provenance = metadata(model.proto, kProvenance)) {
    refuse(RefusalCode::kAlreadyConverted, model.path, "the file is the output of {}; convert the original",
           tools::in_quotes(*provenance));
  }
}

// Options that mean something for directories only.
void check_options(const Request& request) {
  const auto only = [](bool given, const char* option, const char* rule) {
    if (given) tools::fail(tools::ExitCode::kUsage, "{} {} for an ONNX file", option, rule);
  };
  only(request.affine == Affine::kBias || request.affine == Affine::kFull, "--affine", "must be auto or keep");
  only(request.entry == Entry::kOp, "--entry", "must be auto or weights");
  only(request.type.has_value(), "--dtype", "must be same");
  only(!request.recipe.empty(), "--recipe", "has no meaning: a graph needs none; it must be absent");
  only(!request.adapter.empty(), "--adapter", "must be absent");
  only(request.chunk != kDefaultChunkBytes, "--chunk", "has no meaning: a graph is held in memory; it must be absent");
  only(request.threads != 0, "--threads", "has no meaning: one thread does the work; it must be absent");
}

void write_text(const std::string& path, const std::string& text) {
  tools::OutputFile file(path);
  file.write(std::as_bytes(std::span(text)));
  file.finish();
  file.publish();
}

// What is said where nothing can be converted: the first reason that is not merely the lack of gain.
[[noreturn]] void refuse_all(const Understood& it) {
  if (it.norms.all.empty()) {
    refuse(RefusalCode::kNormKind, it.model.path,
           "the graph has no LayerNorm that is recognised; graphs inside nodes and functions are not searched");
  }
  std::size_t shown = 0;
  for (std::size_t i = 0; i < it.norms.all.size(); ++i) {
    if (it.plan.verdicts[i].code < it.plan.verdicts[shown].code) shown = i;
  }
  const Verdict& verdict = it.plan.verdicts[shown];
  refuse(verdict.code, it.norms.all[shown].name, "{} (none of {} norms can be converted)", verdict.why,
         it.norms.all.size());
}

}  // namespace

void inspect(const Request& request, Report& report) {
  check_options(request);
  const Understood it(request);
  refuse_converted(it.model);
  report_plan(it.graph, it.nodes, it.norms, it.plan, it.target, report);
  if (!request.drawing.empty()) write_text(request.drawing, draw_streams(it.graph, it.norms, it.plan));
}

void convert(const Request& request, Report& report) {
  check_options(request);
  Understood it(request);
  refuse_converted(it.model);
  report_plan(it.graph, it.nodes, it.norms, it.plan, it.target, report);
  if (it.plan.converted == 0) refuse_all(it);
  check_target(it.graph, it.target);
  Changes changes = rewrite(it.model, it.graph, it.shapes, it.norms, it.plan, it.target, request.carry_rounding);
  std::vector<std::string> stays;
  for (std::size_t i = 0; i < it.norms.all.size(); ++i) {
    if (!it.plan.verdicts[i].converted) stays.push_back(it.norms.all[i].y);
  }
  restore_norms(it.model, it.expansions, stays);
  restore_layer_scales(it.model, it.scales, it.plan);
  changes.nodes_before = it.nodes;
  changes.nodes_after = it.model.proto.graph().node_size();
  auto& property = *it.model.proto.add_metadata_props();
  property.set_key(kProvenance);
  property.set_value(fmt::format("rmsnorm {}, target {}, {} of {} norms", rn_version(), name_of(kTargets, it.target),
                                 changes.norms, it.norms.all.size()));
  if (request.carry_rounding) {
    auto& rounding = *it.model.proto.add_metadata_props();
    rounding.set_key(kRounding);
    rounding.set_value(kCarried);
  }
  save_model(it.model, request.output);
  report_changes(changes, it.norms, it.target, request.output, report);
}

void fold(const Request&, Report&) {
  tools::fail(tools::ExitCode::kUsage, "fold takes a directory (config.json and safetensors files), not an ONNX file");
}

void verify(const Request& request, Report& report) {
  check_options(request);
  Model original = load_model(request.input), converted = load_model(request.output);
  if (identical(original, converted)) {
    report_identical(original, converted, report);
    return;
  }
  expand_norms(original);
  expand_norms(converted);
  move_layer_scales(original, &converted);
  const Proof proof = prove_equal(original, converted, request.vectors);
  report.json["original"] = request.input;
  report.json["converted"] = request.output;
  report_proof(proof, report);
  if (!proof.faults.empty()) {
    tools::fail(tools::ExitCode::kOutsideBudget, "{}: {}: {}", request.output, proof.faults[0].site,
                proof.faults[0].what);
  }
}

}  // namespace rmsnorm::convert::onnx
