#include "lab/models/linear.h"

#include <cmath>
#include <stdexcept>

#include "lab/models/model.h"

namespace rmsnorm::lab {

using torch::Tensor;

double residual_deviation(std::int64_t layers) {
  return kInitialDeviation / std::sqrt(2 * static_cast<double>(layers));
}

torch::nn::Embedding make_embedding(std::int64_t count, std::int64_t width) {
  return torch::nn::Embedding::from_pretrained(torch::randn({count, width}) * kInitialDeviation,
                                               torch::nn::EmbeddingFromPretrainedOptions().freeze(false));
}

LinearImpl::LinearImpl(std::int64_t in, std::int64_t out, const LinearOptions& options)
    : in_(in), out_(out), transposed_(options.transposed) {
  require(in >= 1, "width of a linear layer's input", in, "at least 1");
  require(out >= 1, "width of a linear layer's output", out, "at least 1");
  const Tensor initial = (transposed_ ? torch::randn({in, out}) : torch::randn({out, in})) * options.deviation;
  weight = register_parameter("weight", initial);
  if (options.bias) bias = register_parameter("bias", torch::zeros({out}));
}

Tensor LinearImpl::forward(const Tensor& x) {
  require(x.size(-1) == in_, "last axis of a linear layer's input", x.size(-1), std::to_string(in_));
  const Tensor matrix = transposed_ ? weight.t() : weight;
  const Tensor y = bias.defined() ? torch::linear(x, matrix, bias) : torch::linear(x, matrix);
  if (!lora_a.defined()) return y;
  return y + scale_ * torch::linear(torch::linear(x, lora_a), lora_b);
}

void LinearImpl::add_adapter(std::int64_t rank, double scale) {
  require(rank >= 1, "rank of an adapter", rank, "at least 1");
  if (lora_a.defined()) throw std::invalid_argument("the linear layer has an adapter; it must have none to get one");
  // Uniform in +-1/sqrt(in), as the paper's own code has it.
  const double bound = 1 / std::sqrt(static_cast<double>(in_));
  lora_a = register_parameter("lora_A", torch::empty({rank, in_}, weight.options()).uniform_(-bound, bound));
  lora_b = register_parameter("lora_B", torch::zeros({out_, rank}, weight.options()));
  scale_ = scale;
}

}  // namespace rmsnorm::lab
