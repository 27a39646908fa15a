#include "lab/experiments/surgery.h"

#include <chrono>

#include "lab/train/tensors.h"
#include "tools/error.h"

namespace rmsnorm::lab {

namespace {

constexpr const char* kWeights = "model.safetensors";

void save(const ModelImpl& model, const nlohmann::json& config, const std::string& folder) {
  tools::OutputDirectory out(folder);
  write_tensors(out, kWeights, named_parameters_once(model), {});
  out.add("config.json", config.dump(2));
  out.finish();
  out.publish();
}

// Reads all parameters of `twin`. Whatever else is in the file must be zero, as a folded bias is.
void load(const std::string& folder, const ModelImpl& twin) {
  const tools::FileSource source(folder + "/" + kWeights);
  const tools::SafetensorsHeader header = tools::read_safetensors_header(source);
  const auto parameters = twin.named_parameters();
  NamedTensors wanted = named_parameters_once(twin), others;
  for (const auto& entry : header.entries) {
    if (!parameters.contains(entry.name)) others.emplace_back(entry.name, torch::empty(entry.shape));
  }
  wanted.insert(wanted.end(), others.begin(), others.end());
  read_tensors(source, header, wanted);
  for (const auto& [name, tensor] : others) {
    if (tensor.count_nonzero().item<std::int64_t>() != 0) {
      tools::fail_input("{}: {} has numbers other than 0; it must have none, the twin has no place for them",
                        source.name(), name);
    }
  }
}

}  // namespace

void replace_norm(NormImpl& norm, const NormOptions& options) {
  const torch::NoGradGuard no_gradient;
  const torch::Tensor weight = norm.weight;
  norm = NormImpl(options, weight.numel());
  norm.weight.copy_(weight);
}

void copy_parameters(const ModelImpl& from, ModelImpl& to) {
  const torch::NoGradGuard no_gradient;
  const auto source = from.named_parameters();
  for (auto& parameter : to.named_parameters()) {
    if (const torch::Tensor* values = source.find(parameter.key())) parameter.value().copy_(*values);
  }
}

double make_twin(const ModelImpl& model, const nlohmann::json& config, convert::Affine affine,
                 const std::filesystem::path& folder, ModelImpl& twin) {
  convert::Request request;
  request.input = folder / "layer_norm";
  request.output = folder / "rms_norm";
  request.affine = affine;
  request.threads = 1;
  std::filesystem::create_directories(folder);
  for (const std::string& path : {request.input, request.output}) std::filesystem::remove_all(path);
  save(model, config, request.input);
  convert::Report report;
  const auto start = std::chrono::steady_clock::now();
  convert::checkpoint::convert(request, report);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  load(request.output, twin);
  return seconds.count();
}

}  // namespace rmsnorm::lab
