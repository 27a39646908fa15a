// Tensors of PyTorch in files, and the named tensors of a model.
#ifndef RMSNORM_LAB_TRAIN_TENSORS_H_
#define RMSNORM_LAB_TRAIN_TENSORS_H_

#include <torch/torch.h>

#include <string>
#include <utility>
#include <vector>

#include "tools/formats/output_directory.h"
#include "tools/formats/output_file.h"
#include "tools/formats/safetensors.h"

namespace rmsnorm::lab {

using NamedTensors = std::vector<std::pair<std::string, torch::Tensor>>;

// Each tensor once, under its first name: a tied one has several.
NamedTensors named_parameters_once(const torch::nn::Module& module);
NamedTensors named_buffers_once(const torch::nn::Module& module);

void write_tensors(tools::OutputFile& out, const NamedTensors& tensors, const tools::SafetensorsMetadata& metadata);
void write_tensors(tools::OutputDirectory& out, const std::string& file, const NamedTensors& tensors,
                   const tools::SafetensorsMetadata& metadata);

// Fills tensors from a file that may lie. Each must be there with its type and shape, and the file must hold no other.
// Nothing is changed unless all are.
void read_tensors(const tools::Source& source, const tools::SafetensorsHeader& header, const NamedTensors& tensors);

}  // namespace rmsnorm::lab

#endif  // RMSNORM_LAB_TRAIN_TENSORS_H_
