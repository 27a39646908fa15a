#include "lab/train/tensors.h"

#include <cstring>
#include <set>

#include "tools/error.h"
#include "tools/formats/safetensors_dtype.h"

namespace rmsnorm::lab {

namespace {

struct TypePair {
  torch::ScalarType type;
  rn_type file;
};

constexpr TypePair kTypes[] = {
    {torch::kFloat32, RN_F32}, {torch::kFloat64, RN_F64}, {torch::kBFloat16, RN_BF16},
    {torch::kFloat16, RN_F16}, {torch::kInt64, RN_I64},
};

rn_type file_type(const std::string& name, torch::ScalarType type) {
  for (const TypePair& pair : kTypes) {
    if (pair.type == type) return pair.file;
  }
  tools::fail(tools::ExitCode::kUsage, "type of {} is {}; it must be f32, f64, bf16, f16 or i64", name,
              c10::toString(type));
}

NamedTensors once(const torch::OrderedDict<std::string, torch::Tensor>& all) {
  NamedTensors result;
  std::set<const void*> seen;
  for (const auto& item : all) {
    if (item.value().defined() && seen.insert(item.value().unsafeGetTensorImpl()).second) {
      result.emplace_back(item.key(), item.value());
    }
  }
  return result;
}

// The bytes of tensors as the file formats take them.
class FileTensors {
 public:
  explicit FileTensors(const NamedTensors& tensors) {
    tensors_.reserve(tensors.size());
    for (const auto& [name, tensor] : tensors) {
      const torch::Tensor dense = tensor.detach().contiguous();
      tensors_.push_back(tools::make_tensor(file_type(name, dense.scalar_type()), dense.sizes().vec()));
      if (dense.nbytes() > 0) std::memcpy(tensors_.back().data.data(), dense.data_ptr(), dense.nbytes());
      named_.push_back({name, &tensors_.back()});
    }
  }
  const std::vector<tools::NamedTensor>& named() const { return named_; }

 private:
  std::vector<tools::Tensor> tensors_;
  std::vector<tools::NamedTensor> named_;
};

}  // namespace

NamedTensors named_parameters_once(const torch::nn::Module& module) { return once(module.named_parameters()); }
NamedTensors named_buffers_once(const torch::nn::Module& module) { return once(module.named_buffers()); }

void write_tensors(tools::OutputFile& out, const NamedTensors& tensors, const tools::SafetensorsMetadata& metadata) {
  tools::write_safetensors(out, nullptr, FileTensors(tensors).named(), metadata);
}

void write_tensors(tools::OutputDirectory& out, const std::string& file, const NamedTensors& tensors,
                   const tools::SafetensorsMetadata& metadata) {
  tools::write_safetensors(out, file, FileTensors(tensors).named(), metadata);
}

void read_tensors(const tools::Source& source, const tools::SafetensorsHeader& header, const NamedTensors& tensors) {
  std::set<std::string> expected;
  for (const auto& [name, tensor] : tensors) {
    expected.insert(name);
    const tools::SafetensorsEntry* entry = header.find(name);
    if (entry == nullptr) {
      tools::fail_input("{}: tensor {} is missing; it must be there", source.name(), tools::in_quotes(name));
    }
    const std::string type(tools::safetensors_name(file_type(name, tensor.scalar_type())));
    const std::vector<std::int64_t> shape = tensor.sizes().vec();
    if (entry->dtype != type || entry->shape != shape) {
      tools::fail_input("{}: tensor {} is {} {}; it must be {} {}, as the model has it", source.name(),
                        tools::in_quotes(name), entry->dtype, tools::shape_text(entry->shape), type,
                        tools::shape_text(shape));
    }
  }
  for (const auto& entry : header.entries) {
    if (!expected.contains(entry.name)) {
      tools::fail_input("{}: the file holds tensor {}; it must hold none that the model lacks", source.name(),
                        tools::in_quotes(entry.name));
    }
  }
  std::vector<torch::Tensor> read;
  for (const auto& [name, tensor] : tensors) {
    const tools::Tensor bytes = tools::read_safetensors(source, header, name);
    read.push_back(torch::empty(tensor.sizes(), tensor.options().requires_grad(false)));
    if (bytes.data.size() > 0) std::memcpy(read.back().data_ptr(), bytes.data.data(), bytes.data.size());
  }
  const torch::NoGradGuard no_grad;
  for (std::size_t i = 0; i < tensors.size(); ++i) torch::Tensor(tensors[i].second).copy_(read[i]);
}

}  // namespace rmsnorm::lab
