#include "convert/onnx/report.h"
#include "convert/names.h"

#include <algorithm>

#include "convert/onnx/opset.h"

namespace rmsnorm::convert::onnx {

namespace {

using Json = nlohmann::ordered_json;

// A name in a column: its end says more than its beginning.
std::string fitted(const std::string& name, std::size_t width) {
  const std::string text = tools::printable(name);
  if (text.size() <= width) return text;
  std::size_t start = text.size() - width + 3;
  while (start < text.size() && (static_cast<unsigned char>(text[start]) & 0xc0) == 0x80) ++start;  // inside a letter
  return "..." + text.substr(start);
}

std::string readers(const Graph& graph, const Edit& edit) {
  std::string text;
  for (const Use& use : edit.uses) {
    text +=
        fmt::format("{}{} {}", text.empty() ? "" : ", ", graph.node(use.node).op_type(), label(graph.node(use.node)));
  }
  return text;
}

}  // namespace

void report_plan(const Graph& graph, int nodes, const Norms& norms, const Plan& plan, Target target, Report& report) {
  Json& json = report.json;
  std::string& text = report.text;
  const auto& model = graph.model();
  json["input"] = model.path;
  json["operator_set"] = graph.opset();
  json["nodes"] = nodes;
  json["target"] = name_of(kTargets, target);
  text += fmt::format("{}: ONNX, operator set {}, {} nodes, target {}\n", tools::printable(model.path), graph.opset(),
                      nodes, name_of(kTargets, target));
  json["norms"] = Json::array();
  text += fmt::format("\n{:<40} {:<22} {:>8} {:>6}  {}\n", "norm", "form", "epsilon", "stream", "what is done");
  for (std::size_t i = 0; i < norms.all.size(); ++i) {
    const Norm& norm = norms.all[i];
    const Verdict& verdict = plan.verdicts[i];
    Json entry{{"name", norm.name}, {"form", norm.origin}, {"input", norm.x}, {"epsilon", norm.epsilon}};
    entry["stream"] = verdict.stream < 0 ? Json(nullptr) : Json(verdict.stream);
    entry["converted"] = verdict.converted;
    if (!verdict.converted) {
      entry["code"] = refusal_name(verdict.code);
      entry["why"] = verdict.why;
    }
    json["norms"].push_back(std::move(entry));
    text += fmt::format("{:<40} {:<22} {:>8.3g} {:>6}  {}\n", fitted(norm.name, 40), fitted(norm.origin, 22),
                        norm.epsilon, verdict.stream < 0 ? "-" : std::to_string(verdict.stream),
                        verdict.converted
                            ? "becomes RMSNorm"
                            : fmt::format("stays: {}, {}", refusal_name(verdict.code), tools::printable(verdict.why)));
  }
  json["streams"] = Json::array();
  for (std::size_t s = 0; s < plan.streams.size(); ++s) {
    const Stream& stream = plan.streams[s];
    Json entry{{"converted", stream.converted}, {"norms", stream.norms.size()}};
    if (!stream.converted) {
      entry["code"] = refusal_name(stream.code);
      entry["why"] = stream.why;
    }
    text += fmt::format("\nstream {}: {} norms, {} constants to centre, {} operations to insert: {}\n", s,
                        stream.norms.size(), stream.edits.size(), stream.inserts.size(),
                        stream.converted ? "converted" : fmt::format("stays ({})", refusal_name(stream.code)));
    entry["writers"] = Json::array();
    entry["operations"] = Json::array();
    for (const Edit& edit : stream.edits) {
      entry["writers"].push_back(
          {{"tensor", edit.tensor}, {"axis", edit.axis}, {"readers", readers(graph, edit)}, {"copied", edit.shared}});
      text += fmt::format("  centre  {:<40} axis {}{}  for {}\n", fitted(edit.tensor, 40), edit.axis,
                          edit.shared ? " (a copy: others read it, too)" : "", tools::printable(readers(graph, edit)));
    }
    for (const Insert& insert : stream.inserts) {
      const bool raw = std::find(stream.taps.begin(), stream.taps.end(), insert.tensor) != stream.taps.end();
      entry["operations"].push_back(
          {{"tensor", insert.tensor}, {"axis", insert.axis}, {"raw_tap", raw}, {"why", insert.why}});
      text += fmt::format("  insert  {:<40} axis {}  {}{}\n", fitted(insert.tensor, 40), insert.axis,
                          raw ? "raw tap: " : "", tools::printable(insert.why));
    }
    json["streams"].push_back(std::move(entry));
  }
  json["converted"] = plan.converted;
  text += fmt::format("\n{} of {} norms {} converted\n", plan.converted, norms.all.size(),
                      plan.converted == 1 ? "is" : "are");
}

void report_changes(const Changes& changes, const Norms& norms, Target target, const std::string& output,
                    Report& report) {
  Json& json = report.json;
  json["output"] = output;
  json["target"] = name_of(kTargets, target);
  json["weights_centred"] = changes.weights;
  json["biases_centred"] = changes.biases;
  json["constants_copied"] = changes.copied;
  json["operations_inserted"] = changes.inserted;
  json["nodes_before"] = changes.nodes_before;
  json["nodes_after"] = changes.nodes_after;
  json["written_out"] = changes.plain;
  report.text += fmt::format(
      "{}: {} of {} norms are RMSNorm ({})\n"
      "{} weights and {} biases centred, {} of them as copies; {} operations inserted; {} nodes, before {}\n",
      tools::printable(output), changes.norms, norms.all.size(), name_of(kTargets, target), changes.weights,
      changes.biases, changes.copied, changes.inserted, changes.nodes_after, changes.nodes_before);
  for (const auto& plain : changes.plain) {
    report.text += fmt::format("written out with plain operators: {}\n", tools::printable(plain));
  }
}

void report_identical(const Model& original, const Model& converted, Report& report) {
  Json& json = report.json;
  json["original"] = original.path;
  json["converted"] = converted.path;
  json["equal"] = true;
  json["identical"] = true;
  json["faults"] = Json::array();
  report.text += "identical: both files hold the same bytes\n";
}

void report_proof(const Proof& proof, Report& report) {
  Json& json = report.json;
  json["equal"] = proof.faults.empty();
  json["identical"] = false;
  json["nodes"] = proof.nodes;
  json["norms"] = proof.norms;
  json["constants"] = proof.constants;
  json["operations"] = proof.operations;
  json["worst_mean_in_roundoffs"] = proof.worst_mean;
  json["worst_error_of_allowed"] = proof.worst_error;
  json["faults"] = Json::array();
  for (const Fault& fault : proof.faults) json["faults"].push_back({{"site", fault.site}, {"what", fault.what}});
  report.text += fmt::format(
      "{:5} nodes compute what they did, {} of them carry a mean on or ignore it\n"
      "{:5} norms are RMSNorms of centred tensors\n"
      "{:5} constants are the original's, centred (worst mean {:.2f} roundoffs of the rms)\n"
      "{:5} operations centre\n",
      proof.nodes, proof.carried, proof.norms, proof.constants, proof.worst_mean, proof.operations);
  for (const Fault& fault : proof.faults) {
    report.text += fmt::format("differs at {}: {}\n", tools::printable(fault.site), tools::printable(fault.what));
  }
  report.text += proof.faults.empty() ? "equal: every output is the original's\n" : "not shown to be equal\n";
}

}  // namespace rmsnorm::convert::onnx
