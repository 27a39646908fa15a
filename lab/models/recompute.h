// Activation recomputation: what lies between two points of a model is not kept for the backward pass but computed
// again when that arrives there (Chen et al. 2016, "Training Deep Nets with Sublinear Memory Cost").
#ifndef RMSNORM_LAB_MODELS_RECOMPUTE_H_
#define RMSNORM_LAB_MODELS_RECOMPUTE_H_

#include <torch/torch.h>

#include <functional>

namespace rmsnorm::lab {

using TensorFunction = std::function<torch::autograd::variable_list(const torch::autograd::variable_list&)>;

// work(inputs), of which the graph keeps the inputs alone. `work` must give the same bits each time (no dropout) and
// live as long as the graph; `parameters` are those that it uses beside its inputs. Gradients are those of the plain
// call, bit for bit. It has no second derivative.
torch::autograd::variable_list recomputed(const TensorFunction& work, const torch::autograd::variable_list& inputs,
                                          const std::vector<torch::Tensor>& parameters);

}  // namespace rmsnorm::lab

#endif  // RMSNORM_LAB_MODELS_RECOMPUTE_H_
