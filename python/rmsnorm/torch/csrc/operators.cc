// The operators as PyTorch's dispatcher knows them, torch.ops.rmsnorm: for each one the kernel, its fake, its gradient.
// Defaults stand in rmsnorm/torch/functions.py and nowhere else: schemas have none.
#include <torch/library.h>

#include "add_norms.h"
#include "channels.h"
#include "gated_rms_norm.h"
#include "norms.h"
#include "qk_norm_rope.h"
#include "quantize.h"
#include "sharded.h"
#include "transforms.h"

TORCH_LIBRARY(rmsnorm, library) {
  library.def(
      "rms_norm(Tensor x, Tensor? weight, Tensor? bias, float epsilon, float weight_offset, str epsilon_placement, "
      "str rounding, int partial, ScalarType? dtype) -> Tensor");
  library.def(
      "layer_norm(Tensor x, Tensor? weight, Tensor? bias, float epsilon, float weight_offset, ScalarType? dtype) -> "
      "Tensor");
  library.def("center(Tensor x) -> Tensor");
  library.def(
      "add_rms_norm(Tensor x, Tensor residual, Tensor? weight, Tensor? bias, float epsilon, float weight_offset, "
      "str epsilon_placement, str rounding, int partial, str norm_input, ScalarType? dtype) -> (Tensor, Tensor)");
  library.def(
      "add_layer_norm(Tensor x, Tensor residual, Tensor? weight, Tensor? bias, float epsilon, float weight_offset, "
      "str norm_input, ScalarType? dtype) -> (Tensor, Tensor)");
  library.def(
      "gated_rms_norm(Tensor x, Tensor gate, Tensor? weight, float epsilon, str gate_order, str rounding, int groups, "
      "ScalarType? dtype) -> Tensor");
  library.def(
      "qk_norm_rope(Tensor q, Tensor k, Tensor? q_weight, Tensor? k_weight, Tensor? cos_sin, Tensor? positions, "
      "float epsilon, float weight_offset, str epsilon_placement, str rounding, str rope_layout) -> (Tensor, Tensor)");
  library.def(
      "channels(Tensor x, int groups, Tensor? weight, Tensor? bias, float epsilon, float weight_offset) -> Tensor");
  library.def(
      "rms_norm_quantize(Tensor x, Tensor? weight, Tensor? bias, float epsilon, float weight_offset, "
      "str epsilon_placement, str rounding, int partial, str scaling, float static_scale, bool power_of_two, "
      "ScalarType dtype) -> (Tensor, Tensor)");
  library.def(
      "add_rms_norm_quantize(Tensor x, Tensor residual, Tensor? weight, Tensor? bias, float epsilon, "
      "float weight_offset, str epsilon_placement, str rounding, int partial, str norm_input, str scaling, "
      "float static_scale, bool power_of_two, ScalarType dtype) -> (Tensor, Tensor, Tensor)");

  library.def(
      "rms_norm_backward(Tensor dy, Tensor x, Tensor? weight, Tensor? through, float epsilon, float weight_offset, "
      "str epsilon_placement, int partial, ScalarType dbias_type, bool[3] wants) -> (Tensor, Tensor, Tensor)");
  library.def(
      "layer_norm_backward(Tensor dy, Tensor x, Tensor? weight, Tensor? through, float epsilon, float weight_offset, "
      "ScalarType dbias_type, bool[3] wants) -> (Tensor, Tensor, Tensor)");
  library.def(
      "gated_rms_norm_backward(Tensor dy, Tensor x, Tensor gate, Tensor? weight, float epsilon, str gate_order, "
      "int groups, bool wants_dweight) -> (Tensor, Tensor, Tensor)");
  library.def(
      "channels_backward(Tensor dy, Tensor x, int groups, Tensor? weight, float epsilon, float weight_offset, "
      "ScalarType dbias_type, bool[3] wants) -> (Tensor, Tensor, Tensor)");

  library.def("rms_sum_squares(Tensor x) -> Tensor");
  library.def(
      "rms_norm_apply(Tensor x, Tensor sum_squares, int total_cols, Tensor? weight, Tensor? bias, float epsilon, "
      "float weight_offset, str epsilon_placement, str rounding, ScalarType? dtype) -> Tensor");
  library.def("rms_backward_sum(Tensor dy, Tensor x, Tensor? weight, float weight_offset) -> Tensor");
  library.def(
      "rms_norm_backward_apply(Tensor dy, Tensor x, Tensor sum_squares, Tensor sum_products, int total_cols, "
      "Tensor? weight, float epsilon, float weight_offset, str epsilon_placement, ScalarType dbias_type, bool[3] "
      "wants) "
      "-> (Tensor, Tensor, Tensor)");
  library.def("layer_sum(Tensor x) -> Tensor");
  library.def("layer_sum_squares(Tensor x, Tensor sum, int total_cols) -> Tensor");
  library.def(
      "layer_norm_apply(Tensor x, Tensor sum, Tensor sum_squares, int total_cols, Tensor? weight, Tensor? bias, "
      "float epsilon, float weight_offset, ScalarType? dtype) -> Tensor");
  library.def(
      "layer_backward_sums(Tensor dy, Tensor x, Tensor sum, int total_cols, Tensor? weight, float weight_offset) -> "
      "Tensor");
  library.def(
      "layer_norm_backward_apply(Tensor dy, Tensor x, Tensor sum, Tensor sum_squares, Tensor totals, int total_cols, "
      "Tensor? weight, float epsilon, float weight_offset, ScalarType dbias_type, bool[3] wants) -> (Tensor, Tensor, "
      "Tensor)");
}

// Kernels, and the fakes that know shapes and types only.
#define RMSNORM_KERNELS(suffix)                                                             \
  library.impl("rms_norm", rmsnorm_torch::rms_norm_##suffix);                               \
  library.impl("layer_norm", rmsnorm_torch::layer_norm_##suffix);                           \
  library.impl("center", rmsnorm_torch::center_##suffix);                                   \
  library.impl("add_rms_norm", rmsnorm_torch::add_rms_norm_##suffix);                       \
  library.impl("add_layer_norm", rmsnorm_torch::add_layer_norm_##suffix);                   \
  library.impl("gated_rms_norm", rmsnorm_torch::gated_rms_norm_##suffix);                   \
  library.impl("qk_norm_rope", rmsnorm_torch::qk_norm_rope_##suffix);                       \
  library.impl("channels", rmsnorm_torch::channels_##suffix);                               \
  library.impl("rms_norm_quantize", rmsnorm_torch::rms_norm_quantize_##suffix);             \
  library.impl("add_rms_norm_quantize", rmsnorm_torch::add_rms_norm_quantize_##suffix);     \
  library.impl("rms_norm_backward", rmsnorm_torch::rms_norm_backward_##suffix);             \
  library.impl("layer_norm_backward", rmsnorm_torch::layer_norm_backward_##suffix);         \
  library.impl("gated_rms_norm_backward", rmsnorm_torch::gated_rms_norm_backward_##suffix); \
  library.impl("channels_backward", rmsnorm_torch::channels_backward_##suffix);             \
  library.impl("rms_sum_squares", rmsnorm_torch::rms_sum_squares_##suffix);                 \
  library.impl("rms_norm_apply", rmsnorm_torch::rms_norm_apply_##suffix);                   \
  library.impl("rms_backward_sum", rmsnorm_torch::rms_backward_sum_##suffix);               \
  library.impl("rms_norm_backward_apply", rmsnorm_torch::rms_norm_backward_apply_##suffix); \
  library.impl("layer_sum", rmsnorm_torch::layer_sum_##suffix);                             \
  library.impl("layer_sum_squares", rmsnorm_torch::layer_sum_squares_##suffix);             \
  library.impl("layer_norm_apply", rmsnorm_torch::layer_norm_apply_##suffix);               \
  library.impl("layer_backward_sums", rmsnorm_torch::layer_backward_sums_##suffix);         \
  library.impl("layer_norm_backward_apply", rmsnorm_torch::layer_norm_backward_apply_##suffix)

TORCH_LIBRARY_IMPL(rmsnorm, CPU, library) { RMSNORM_KERNELS(cpu); }
TORCH_LIBRARY_IMPL(rmsnorm, Meta, library) { RMSNORM_KERNELS(meta); }

#define RMSNORM_AUTOGRAD(name) \
  library.impl(#name,          \
               rmsnorm_torch::Transformable<rmsnorm_torch::name##_autograd, rmsnorm_torch::name##_transformed>::call)

TORCH_LIBRARY_IMPL(rmsnorm, Autograd, library) {
  RMSNORM_AUTOGRAD(rms_norm);
  RMSNORM_AUTOGRAD(layer_norm);
  RMSNORM_AUTOGRAD(center);
  RMSNORM_AUTOGRAD(add_rms_norm);
  RMSNORM_AUTOGRAD(add_layer_norm);
  RMSNORM_AUTOGRAD(gated_rms_norm);
  RMSNORM_AUTOGRAD(qk_norm_rope);
  RMSNORM_AUTOGRAD(channels);
}

// Inside torch.func.vmap; _batching.py has rules that keep the kernels for the others.
TORCH_LIBRARY_IMPL(rmsnorm, FuncTorchBatched, library) {
  library.impl("gated_rms_norm", rmsnorm_torch::gated_rms_norm_transformed);
  library.impl("qk_norm_rope", rmsnorm_torch::qk_norm_rope_transformed);
  library.impl("channels", rmsnorm_torch::channels_transformed);
}

// The other operators take types as they come.
TORCH_LIBRARY_IMPL(rmsnorm, AutocastCPU, library) {
  library.impl("add_rms_norm", rmsnorm_torch::add_rms_norm_autocast);
  library.impl("add_layer_norm", rmsnorm_torch::add_layer_norm_autocast);
  library.impl("qk_norm_rope", rmsnorm_torch::qk_norm_rope_autocast);
}
