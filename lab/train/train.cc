#include "lab/train/train.h"

#include <ATen/autocast_mode.h>

#include <chrono>
#include <cmath>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <numbers>
#include <optional>

#include "lab/train/checkpoint.h"
#include "lab/train/log.h"
#include "lab/train/tensors.h"
#include "tools/error.h"
#include "tools/progress.h"

namespace rmsnorm::lab {

namespace {

using tools::ExitCode;
using Clock = std::chrono::steady_clock;

// Matrix products in bf16 while one lives, with parameters and sums in f32.
class Autocast {
 public:
  explicit Autocast(bool wanted)
      : before_(at::autocast::is_autocast_enabled(at::kCPU)), type_(at::autocast::get_autocast_dtype(at::kCPU)) {
    at::autocast::increment_nesting();
    at::autocast::set_autocast_enabled(at::kCPU, wanted);
    at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
  }
  ~Autocast() {
    // Copies of parameters in bf16 must not outlive the step that changes the parameters.
    if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(at::kCPU, before_);
    at::autocast::set_autocast_dtype(at::kCPU, type_);
  }
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  bool before_;
  at::ScalarType type_;
};

void require_at_least(const char* name, std::int64_t value, std::int64_t least) {
  if (value < least) tools::fail(ExitCode::kUsage, "{} is {}; it must be at least {}", name, value, least);
}

void require_between(const char* name, double value, double low, double high) {
  if (!(value >= low && value <= high)) {
    tools::fail(ExitCode::kUsage, "{} is {}; it must be from {} to {}", name, value, low, high);
  }
}

void check(const TrainOptions& options) {
  require_at_least("steps", options.steps, 0);
  require_at_least("batch", options.batch, 1);
  require_at_least("accumulation", options.accumulation, 1);
  require_at_least("warm_up", options.warm_up, 0);
  require_at_least("evaluate_every", options.evaluate_every, 0);
  require_at_least("evaluate_parts", options.evaluate_parts, 0);
  require_at_least("checkpoint_every", options.checkpoint_every, 0);
  if (options.accumulation > options.batch) {
    tools::fail(ExitCode::kUsage, "accumulation is {}; it must be at most the batch, {}", options.accumulation,
                options.batch);
  }
  constexpr double kLargest = std::numeric_limits<double>::max();
  require_between("learning_rate", options.learning_rate, 0, kLargest);
  require_between("final_share", options.final_share, 0, 1);
  require_between("weight_decay", options.weight_decay, 0, kLargest);
  require_between("clip", options.clip, 0, kLargest);
  constexpr double kBelowOne = 1 - std::numeric_limits<double>::epsilon() / 2;
  require_between("beta1", options.beta1, 0, kBelowOne);
  require_between("beta2", options.beta2, 0, kBelowOne);
}

// Two groups: matrices decay, vectors (norm weights, biases) do not.
torch::optim::AdamW make_optimiser(const std::vector<torch::Tensor>& parameters, const TrainOptions& options) {
  std::vector<torch::Tensor> matrices, vectors;
  for (const auto& parameter : parameters) (parameter.dim() >= 2 ? matrices : vectors).push_back(parameter);
  torch::optim::AdamWOptions decaying(options.learning_rate);
  decaying.betas({options.beta1, options.beta2}).weight_decay(options.weight_decay);
  torch::optim::AdamWOptions plain = decaying;
  plain.weight_decay(0);
  std::vector<torch::optim::OptimizerParamGroup> groups;
  if (!matrices.empty()) groups.emplace_back(matrices, std::make_unique<torch::optim::AdamWOptions>(decaying));
  if (!vectors.empty()) groups.emplace_back(vectors, std::make_unique<torch::optim::AdamWOptions>(plain));
  return torch::optim::AdamW(groups, decaying);
}

// Leaves the gradients of the mean loss of the whole batch, and returns this loss.
double forward_backward(ModelImpl& model, const Batch& batch, const TrainOptions& options, Workers& workers,
                        const std::vector<torch::Tensor>& parameters) {
  const auto [first, last] = workers.rows(batch.input.size(0));
  double mine = 0;
  const std::int64_t rows = last - first, parts = std::min(options.accumulation, rows);
  for (std::int64_t part = 0; part < parts; ++part) {
    const std::int64_t begin = first + rows * part / parts, end = first + rows * (part + 1) / parts;
    const double share = static_cast<double>(end - begin) / static_cast<double>(batch.input.size(0));
    torch::Tensor loss;
    {
      const Autocast autocast(options.autocast);
      const torch::Tensor logits = model.forward(batch.input.slice(0, begin, end));
      loss = loss_of(logits, batch.target.slice(0, begin, end)) * share;
    }
    loss.backward();
    mine += loss.item<double>();
  }
  workers.add_gradients(parameters);
  return workers.loss(mine);
}

double gradient_norm(const std::vector<torch::Tensor>& parameters, Workers& workers) {
  double squares = 0;
  for (const auto& parameter : parameters) {
    if (!parameter.grad().defined()) continue;
    const double norm = torch::linalg_vector_norm(parameter.grad(), 2, {}, false, torch::kFloat64).item<double>();
    squares += norm * norm;
  }
  return std::sqrt(workers.squared_norm(squares));
}

void clip(const std::vector<torch::Tensor>& parameters, double norm, double largest) {
  if (largest == 0 || norm <= largest) return;
  const torch::NoGradGuard no_grad;
  for (const auto& parameter : parameters) {
    if (parameter.grad().defined()) parameter.mutable_grad().mul_(largest / norm);
  }
}

std::vector<torch::Tensor> trained_parameters(const ModelImpl& model) {
  std::vector<torch::Tensor> result;
  for (const auto& [name, tensor] : named_parameters_once(model)) {
    if (tensor.requires_grad()) result.push_back(tensor);
  }
  if (result.empty()) tools::fail(ExitCode::kUsage, "the model has no parameters that train; it must have one");
  return result;
}

bool is_due(std::int64_t step, std::int64_t every) { return every > 0 && step % every == 0; }

}  // namespace

double learning_rate_at(const TrainOptions& options, std::int64_t step) {
  if (step < options.warm_up) {
    return options.learning_rate * static_cast<double>(step + 1) / static_cast<double>(options.warm_up);
  }
  const double way = static_cast<double>(step - options.warm_up) /
                     static_cast<double>(std::max<std::int64_t>(1, options.steps - options.warm_up));
  const double wave = 0.5 * (1 + std::cos(std::numbers::pi * std::min(way, 1.0)));
  return options.learning_rate * (options.final_share + (1 - options.final_share) * wave);
}

torch::Tensor loss_of(const torch::Tensor& logits, const torch::Tensor& target) {
  const bool narrow = logits.scalar_type() == torch::kBFloat16 || logits.scalar_type() == torch::kFloat16;
  const torch::Tensor rows = (narrow ? logits.to(torch::kFloat32) : logits).reshape({-1, logits.size(-1)});
  return torch::nn::functional::cross_entropy(rows, target.reshape({-1}));
}

Evaluation evaluate(ModelImpl& model, const Data& data, std::int64_t batch, std::int64_t parts) {
  require_at_least("parts", parts, 1);
  const torch::NoGradGuard no_grad;
  const Autocast none(false);
  const bool training = model.is_training();
  model.eval();
  const std::int64_t present = data.parts(batch), taken = std::min(parts, present);
  double loss = 0, right = 0, count = 0;
  for (std::int64_t part = 0; part < taken; ++part) {
    const Batch held_out = data.held_out(part * present / taken, batch);
    const torch::Tensor logits = model.forward(held_out.input);
    const auto targets = static_cast<double>(held_out.target.numel());
    loss += targets * loss_of(logits, held_out.target).item<double>();
    right += logits.argmax(-1).eq(held_out.target).sum().item<double>();
    count += targets;
  }
  model.train(training);
  return {0, loss / count, right / count};
}

TrainResult train(ModelImpl& model, const Data& data, const TrainOptions& options,
                  const std::function<void(const Step&)>& on_step) {
  check(options);
  Workers alone;
  Workers& workers = options.workers == nullptr ? alone : *options.workers;
  if (!options.checkpoint.empty() && !workers.has_whole_model()) {
    tools::fail(ExitCode::kUsage, "checkpoint is {}; it must be empty where each process has a part of the model",
                options.checkpoint.string());
  }
  const std::vector<torch::Tensor> parameters = trained_parameters(model);
  torch::optim::AdamW optimiser = make_optimiser(parameters, options);
  RunState state;
  if (!options.checkpoint.empty()) load_checkpoint(options, model, optimiser, state);
  TrainResult& result = state.result;

  std::optional<Log> log;
  if (!options.log.empty() && workers.writes()) log.emplace(options, result);
  std::optional<tools::Progress> progress;
  if (options.progress && workers.writes()) {
    progress.emplace("training", static_cast<std::uint64_t>(options.steps));
    progress->advance(static_cast<std::uint64_t>(state.step));
  }
  const auto evaluate_now = [&] {
    Evaluation evaluation = evaluate(model, data, options.batch, options.evaluate_parts);
    evaluation.step = state.step;
    result.evaluations.push_back(evaluation);
    if (log) log->write(evaluation);
  };
  const auto keep = [&] {
    if (!options.checkpoint.empty() && workers.writes()) save_checkpoint(options, model, optimiser, state);
  };

  model.train();
  const bool was_finished = state.step == options.steps;
  while (state.step < options.steps) {
    const Batch batch = data.train(options.seed, state.step, options.batch);
    const auto start = Clock::now();
    for (auto& group : optimiser.param_groups()) group.options().set_lr(learning_rate_at(options, state.step));
    optimiser.zero_grad();
    const double loss = forward_backward(model, batch, options, workers, parameters);
    const double norm = gradient_norm(parameters, workers);
    result.diverged = !std::isfinite(loss) || !std::isfinite(norm);
    if (!result.diverged) {
      clip(parameters, norm, options.clip);
      optimiser.step();
    }
    const std::chrono::duration<double> seconds = Clock::now() - start;
    result.steps.push_back({state.step + 1, loss, norm, seconds.count()});
    if (log) log->write(result.steps.back());
    if (on_step) on_step(result.steps.back());
    if (result.diverged) break;
    ++state.step;
    if (progress) {
      progress->relabel(fmt::format("training: step {} of {}, loss {:.4f}", state.step, options.steps, loss));
      progress->advance(1);
    }
    if (state.step == options.steps) break;
    if (options.evaluate_parts > 0 && is_due(state.step, options.evaluate_every)) evaluate_now();
    if (is_due(state.step, options.checkpoint_every)) keep();
  }
  optimiser.zero_grad();
  if (!was_finished || result.evaluations.empty()) {
    if (options.evaluate_parts > 0) evaluate_now();
    if (!result.diverged) keep();
  }
  if (log) log->end(result);
  return result;
}

}  // namespace rmsnorm::lab
