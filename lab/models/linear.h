// The linear layer of all models, with a slot for a low-rank adapter.
#ifndef RMSNORM_LAB_MODELS_LINEAR_H_
#define RMSNORM_LAB_MODELS_LINEAR_H_

#include <torch/torch.h>

#include <cstdint>

namespace rmsnorm::lab {

// Of weights and embeddings, as GPT-2 has it; those that write to the residual stream of a model of n layers have it
// over sqrt(2 n), so that the stream does not grow with depth.
inline constexpr double kInitialDeviation = 0.02;
double residual_deviation(std::int64_t layers);

torch::nn::Embedding make_embedding(std::int64_t count, std::int64_t width);

struct LinearOptions {
  bool bias = false;
  bool transposed = false;  // weight [in, out], as transformers' Conv1D has it; otherwise [out, in], as torch.nn.Linear
  double deviation = kInitialDeviation;
};

// y = W x + b + s B A x
class LinearImpl : public torch::nn::Module {
 public:
  LinearImpl(std::int64_t in, std::int64_t out, const LinearOptions& options = {});

  torch::Tensor forward(const torch::Tensor& x);

  // Adds A [rank, in], random, and B [out, rank], zero. `scale` is s.
  void add_adapter(std::int64_t rank, double scale);

  torch::Tensor weight, bias;    // bias: undefined without one
  torch::Tensor lora_a, lora_b;  // undefined without an adapter

 private:
  std::int64_t in_, out_;
  bool transposed_;
  double scale_ = 0;
};
TORCH_MODULE(Linear);

}  // namespace rmsnorm::lab

#endif  // RMSNORM_LAB_MODELS_LINEAR_H_
