// A recurrent language model (Cho et al. 2014) with the norms of Ba, Kiros and Hinton 2016, "Layer Normalization".
#include "lab/models/gru.h"

#include <cmath>

#include "lab/models/linear.h"

namespace rmsnorm::lab {
namespace {

using torch::Tensor;

// [r z] = sigmoid(norm(W1 x) + norm(U1 h) + b1)
// n     = tanh(norm(W2 x) + b2 + r norm(U2 h))
// h'    = (1 - z) n + z h
// W = [W1; W2] and U = [U1; U2] are [3 width, width]; each of the four norms has its parameters.
class GruImpl : public ModelImpl {
 public:
  explicit GruImpl(const GruOptions& options) : vocabulary_(options.vocabulary), width_(options.width) {
    // The variance of torch.nn.GRU's uniform distribution on +-1/sqrt(width).
    const double deviation = 1 / std::sqrt(3 * static_cast<double>(width_));
    embedding_ = register_module("embedding", make_embedding(vocabulary_, width_));
    input_ = register_module("input", Linear(width_, 3 * width_, LinearOptions{.deviation = deviation}));
    input_gates_norm_ = register_module("input_gates_norm", Norm(options.norm, 2 * width_));
    input_norm_ = register_module("input_norm", Norm(options.norm, width_));
    hidden_ = register_module("hidden", Linear(width_, 3 * width_, LinearOptions{.deviation = deviation}));
    hidden_gates_norm_ = register_module("hidden_gates_norm", Norm(options.norm, 2 * width_));
    hidden_norm_ = register_module("hidden_norm", Norm(options.norm, width_));
    bias_ = register_parameter("bias", torch::zeros({3 * width_}));
    output_ = register_module("output", Linear(width_, vocabulary_, LinearOptions{.bias = true}));
  }

  Tensor forward(const Tensor& tokens) override {
    check_tokens(tokens, vocabulary_, 0);
    const Tensor x = embedding_->forward(tokens);
    // What does not depend on the hidden state is done for all steps at once.
    const auto wx = gates_and_candidate(input_->forward(x));
    const Tensor gates_x = input_gates_norm_->forward(wx[0]) + bias_.narrow(0, 0, 2 * width_);
    const Tensor candidate_x = input_norm_->forward(wx[1]) + bias_.narrow(0, 2 * width_, width_);
    Tensor h = torch::zeros({x.size(0), width_}, x.options());
    std::vector<Tensor> states;
    for (std::int64_t step = 0; step < x.size(1); ++step) {
      const auto uh = gates_and_candidate(hidden_->forward(h));
      const auto gates = torch::sigmoid(gates_x.select(1, step) + hidden_gates_norm_->forward(uh[0])).chunk(2, -1);
      const Tensor n = torch::tanh(candidate_x.select(1, step) + gates[0] * hidden_norm_->forward(uh[1]));
      h = n + gates[1] * (h - n);
      states.push_back(h);
    }
    return output_->forward(torch::stack(states, 1));
  }

 private:
  std::vector<Tensor> gates_and_candidate(const Tensor& x) const {
    return x.split_with_sizes({2 * width_, width_}, -1);
  }

  std::int64_t vocabulary_, width_;
  torch::nn::Embedding embedding_{nullptr};
  Linear input_{nullptr}, hidden_{nullptr}, output_{nullptr};
  Norm input_gates_norm_{nullptr}, input_norm_{nullptr}, hidden_gates_norm_{nullptr}, hidden_norm_{nullptr};
  Tensor bias_;
};

}  // namespace

Model make_gru(const GruOptions& options) {
  require(options.vocabulary >= 1, "vocabulary", options.vocabulary, "at least 1");
  require(options.width >= 1, "width", options.width, "at least 1");
  return std::make_shared<GruImpl>(options);
}

}  // namespace rmsnorm::lab
