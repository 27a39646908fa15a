// What the autograd kernels share.
#ifndef RMSNORM_TORCH_AUTOGRAD_H_
#define RMSNORM_TORCH_AUTOGRAD_H_

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/csrc/autograd/custom_function.h>

#include "tensors.h"

namespace rmsnorm_torch {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// The operator of that name, to be called through the dispatcher: whatever mode is active sees it.
template <class Signature>
auto find(const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<Signature>();
}

inline bool needs_gradient(const Tensor& tensor) { return tensor.defined() && tensor.requires_grad(); }
inline bool needs_gradient(const OptionalTensor& tensor) { return tensor.has_value() && needs_gradient(*tensor); }

// Whether a graph is to be made: otherwise an operator costs no more than its call.
template <class... Tensors>
bool records(const Tensors&... tensors) {
  return at::GradMode::is_enabled() && (needs_gradient(tensors) || ...);
}

inline Tensor or_undefined(const OptionalTensor& tensor) { return tensor.value_or(Tensor()); }
inline OptionalTensor or_absent(const Tensor& tensor) {
  return tensor.defined() ? OptionalTensor(tensor) : std::nullopt;
}

// Whether torch.func has wrapped it, or it carries a tangent (forward mode).
inline bool transformed(const Tensor& tensor) {
  if (!tensor.defined()) return false;
  const c10::DispatchKeySet keys = tensor.key_set();
  return keys.has(c10::DispatchKey::FuncTorchGradWrapper) || keys.has(c10::DispatchKey::FuncTorchBatched) ||
         tensor._fw_grad(/*level=*/0).defined();
}

// Fused backward kernels take a weight that all rows share; they have no derivative of their own. Where one of the two
// is asked for, the formula is evaluated with PyTorch's operators, which have.
template <class... Tensors>
bool formula_wanted(const Tensor& dy, const Tensors&... parameters) {
  return at::GradMode::is_enabled() || transformed(dy) || ((parameters.defined() && parameters.dim() > 1) || ...);
}

// Which of dx, dweight and dbias are wanted; dx always. Absent tensors have no edge in the graph; the weight's is `edge`.
inline std::array<bool, 3> wanted_gradients(AutogradContext* context, const Tensor& weight, const Tensor& bias,
                                            size_t edge) {
  const bool dweight = weight.defined() && context->needs_input_grad(edge);
  return {true, dweight, bias.defined() && context->needs_input_grad(edge + (weight.defined() ? 1 : 0))};
}

// A gradient in the shape and type of what it belongs to.
inline Tensor as(const Tensor& gradient, const Tensor& of) {
  return at::sum_to(gradient, of.sym_sizes()).to(of.scalar_type());
}

// The type that the formulas compute in.
inline at::ScalarType wide(const Tensor& x) { return x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat; }

}  // namespace rmsnorm_torch

#endif  // RMSNORM_TORCH_AUTOGRAD_H_
