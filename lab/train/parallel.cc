#include "lab/train/parallel.h"

#include "tools/error.h"

namespace rmsnorm::lab {

std::pair<std::int64_t, std::int64_t> DataWorkers::rows(std::int64_t batch) const {
  if (batch < ranks_.count()) {
    tools::fail(tools::ExitCode::kUsage, "batch is {}; it must be at least {}, a row for each process", batch,
                ranks_.count());
  }
  return {batch * ranks_.rank() / ranks_.count(), batch * (ranks_.rank() + 1) / ranks_.count()};
}

void DataWorkers::add_gradients(const std::vector<torch::Tensor>& parameters) {
  // A parameter that this process's rows did not reach counts as one with a gradient of zero.
  const torch::NoGradGuard no_grad;
  std::vector<torch::Tensor> flat;
  for (const auto& parameter : parameters) {
    if (!parameter.grad().defined()) parameter.mutable_grad() = torch::zeros_like(parameter);
    flat.push_back(parameter.grad().reshape({-1}));
  }
  const torch::Tensor total = ranks_.sum(torch::cat(flat), Cargo::kGradients);
  std::int64_t at = 0;
  for (const auto& parameter : parameters) {
    parameter.mutable_grad().copy_(total.slice(0, at, at + parameter.numel()).view_as(parameter));
    at += parameter.numel();
  }
}

}  // namespace rmsnorm::lab
