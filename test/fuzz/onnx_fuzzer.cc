// Any bytes are either refused with a ToolError or are a graph that can be planned and rewritten, and then the proof
// succeeds.
#include <cstdlib>

#include "convert/onnx/expand.h"
#include "convert/onnx/layer_scale.h"
#include "convert/onnx/opset.h"
#include "convert/onnx/rewrite.h"
#include "convert/onnx/verify.h"
#include "convert/refusal.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace rmsnorm;
  using namespace rmsnorm::convert::onnx;
  const tools::MemorySource source("fuzz.onnx", std::as_bytes(std::span(data, size)));
  try {
    Model model = parse_model(source, "/nonexistent");
    expand_norms(model);
    const auto moved = move_layer_scales(model);
    const Graph graph(model);
    const Shapes shapes(graph);
    const Norms norms = recognise_norms(graph, shapes);
    const Plan plan = make_plan(graph, shapes, norms, {});
    if (plan.converted == 0) return 0;
    rewrite(model, graph, shapes, norms, plan, convert::Target::kOnnxPlain, false);
    restore_layer_scales(model, moved, plan);
    Model original = parse_model(source, "/nonexistent");
    expand_norms(original);
    move_layer_scales(original, &model);
    if (!prove_equal(original, model, 1).faults.empty()) std::abort();
  } catch (const tools::ToolError& error) {
    const bool expected = error.code() == tools::ExitCode::kBadInput || error.code() == tools::ExitCode::kInputOutput;
    if (!expected) std::abort();
  }
  return 0;
}
