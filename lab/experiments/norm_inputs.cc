#include "lab/experiments/norm_inputs.h"

#include <cstring>

#include "tools/formats/safetensors.h"

namespace rmsnorm::lab {
namespace {

torch::Tensor read(const tools::Source& source, const tools::SafetensorsHeader& header, const std::string& name) {
  const tools::Tensor tensor = tools::read_safetensors(source, header, name);
  const torch::Tensor result = torch::empty(tensor.shape, torch::kFloat);
  TORCH_CHECK_VALUE(tensor.type == RN_F32 && tensor.data.size() == result.nbytes(), name, " of ", source.name(),
                    " is not f32; the recorded rows must be");
  std::memcpy(result.data_ptr(), tensor.data.data(), tensor.data.size());
  return result;
}

}  // namespace

double mean_share(const torch::Tensor& x) {
  const torch::Tensor wide = x.detach().to(torch::kDouble).reshape({-1, x.size(-1)});
  const torch::Tensor square = wide.square().mean(-1);
  const torch::Tensor rows = square > 0;
  return (wide.mean(-1).square().masked_select(rows) / square.masked_select(rows)).mean().item<double>();
}

std::vector<NormInput> norm_inputs(ModelImpl& model, const torch::Tensor& input) {
  const torch::NoGradGuard no_gradient;
  std::vector<NormInput> seen;
  const auto norms = model.norms();
  for (const auto& [name, norm] : norms) {
    norm->observer = [&seen, name = name](const torch::Tensor& x) {
      seen.push_back({name, mean_share(x), x.to(torch::kDouble).square().mean().sqrt().item<double>()});
    };
  }
  model.forward(input);
  for (const auto& [name, norm] : norms) norm->observer = nullptr;
  return seen;
}

std::vector<RecordedNorm> recorded_norms() {
  const tools::FileSource source(RMSNORM_LAB_EXAMPLE_DATA "/smollm2_f32.safetensors");
  const tools::SafetensorsHeader header = tools::read_safetensors_header(source);
  std::vector<RecordedNorm> norms;
  for (const char* name :
       {"model.layers.10.input_layernorm", "model.layers.29.post_attention_layernorm", "model.norm"}) {
    norms.push_back(
        {name, read(source, header, std::string(name) + ".x"), read(source, header, std::string(name) + ".weight")});
  }
  return norms;
}

}  // namespace rmsnorm::lab
