#include "lab/models/recompute.h"

#include <ATen/autocast_mode.h>

namespace rmsnorm::lab {
namespace {

using torch::Tensor;
using torch::autograd::variable_list;

// Autocast as it was in the forward pass. It keeps no cast weights: those cast without a graph in the forward pass
// would be found again in the backward pass, and their weights get no gradient.
class Autocast {
 public:
  Autocast(bool enabled, at::ScalarType type) {
    at::autocast::set_autocast_enabled(at::kCPU, enabled);
    at::autocast::set_autocast_dtype(at::kCPU, type);
    at::autocast::set_autocast_cache_enabled(false);
  }
  ~Autocast() {
    at::autocast::set_autocast_enabled(at::kCPU, enabled_);
    at::autocast::set_autocast_dtype(at::kCPU, type_);
    at::autocast::set_autocast_cache_enabled(cache_);
  }
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  bool enabled_ = at::autocast::is_autocast_enabled(at::kCPU);
  at::ScalarType type_ = at::autocast::get_autocast_dtype(at::kCPU);
  bool cache_ = at::autocast::is_autocast_cache_enabled();
};

// What the graph keeps beside tensors.
struct Work : torch::CustomClassHolder {
  TensorFunction function;
  std::size_t inputs;
  bool autocast;
  at::ScalarType autocast_type;
};

class Recomputed : public torch::autograd::Function<Recomputed> {
 public:
  // tensors: the inputs, then the parameters, which stand here so that the graph has edges to them.
  static variable_list forward(torch::autograd::AutogradContext* context, const c10::intrusive_ptr<Work>& work,
                               at::TensorList tensors) {
    context->set_materialize_grads(false);
    context->save_for_backward(tensors.vec());
    context->saved_data["work"] = c10::IValue::make_capsule(work);
    const Autocast autocast(work->autocast, work->autocast_type);
    return work->function(tensors.slice(0, work->inputs).vec());
  }

  static variable_list backward(torch::autograd::AutogradContext* context, const variable_list& output_gradients) {
    TORCH_CHECK(!at::GradMode::is_enabled(),
                "recompute: create_graph is true; it must be false, a recomputed part has "
                "no second derivative");
    const auto work = c10::static_intrusive_pointer_cast<Work>(context->saved_data["work"].toCapsule());
    const variable_list tensors = context->get_saved_variables();
    variable_list leaves = tensors;
    for (std::size_t i = 0; i < work->inputs; ++i) {
      leaves[i] = tensors[i].detach().set_requires_grad(tensors[i].requires_grad());
    }
    variable_list outputs;
    {
      const torch::AutoGradMode with_graph(true);
      const Autocast autocast(work->autocast, work->autocast_type);
      outputs = work->function({leaves.begin(), leaves.begin() + static_cast<std::ptrdiff_t>(work->inputs)});
    }
    variable_list reached, given, wanted;
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      if (!output_gradients[i].defined() || !outputs[i].requires_grad()) continue;
      reached.push_back(outputs[i]);
      given.push_back(output_gradients[i]);
    }
    for (const Tensor& leaf : leaves) {
      if (leaf.requires_grad()) wanted.push_back(leaf);
    }
    variable_list gradients(1 + leaves.size());  // the first belongs to `work` and stays undefined
    if (reached.empty() || wanted.empty()) return gradients;
    const variable_list found = torch::autograd::grad(reached, wanted, given, /*retain_graph=*/false,
                                                      /*create_graph=*/false, /*allow_unused=*/true);
    std::size_t next = 0;
    for (std::size_t i = 0; i < leaves.size(); ++i) {
      if (leaves[i].requires_grad()) gradients[1 + i] = found[next++];
    }
    return gradients;
  }
};

}  // namespace

variable_list recomputed(const TensorFunction& function, const variable_list& inputs,
                         const std::vector<Tensor>& parameters) {
  if (!at::GradMode::is_enabled()) return function(inputs);
  auto work = c10::make_intrusive<Work>();
  work->function = function;
  work->inputs = inputs.size();
  work->autocast = at::autocast::is_autocast_enabled(at::kCPU);
  work->autocast_type = at::autocast::get_autocast_dtype(at::kCPU);
  variable_list tensors = inputs;
  tensors.insert(tensors.end(), parameters.begin(), parameters.end());
  return Recomputed::apply(work, at::TensorList(tensors));
}

}  // namespace rmsnorm::lab
