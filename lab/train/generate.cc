#include "lab/train/generate.h"

#include <cmath>
#include <vector>

#include "tools/error.h"

namespace rmsnorm::lab {

namespace {

using tools::ExitCode;

constexpr std::int64_t kBytes = 256;

// One token from logits [vocabulary].
std::int64_t choose(torch::Tensor logits, const GenerateOptions& options, at::Generator& generator) {
  if (!logits.isfinite().all().item<bool>()) {
    tools::fail_input("the model's logits are not finite; they must be, for a token to be chosen");
  }
  if (options.temperature == 0) return logits.argmax().item<std::int64_t>();
  logits = logits.to(torch::kFloat64);
  if (options.top > 0 && options.top < logits.size(0)) {
    const auto [values, indices] = logits.topk(options.top);
    const torch::Tensor drawn = torch::multinomial((values / options.temperature).softmax(0), 1, false, generator);
    return indices[drawn.item<std::int64_t>()].item<std::int64_t>();
  }
  return torch::multinomial((logits / options.temperature).softmax(0), 1, false, generator).item<std::int64_t>();
}

}  // namespace

std::string generate(ModelImpl& model, const std::string& prompt, const GenerateOptions& options) {
  if (prompt.empty()) tools::fail(ExitCode::kUsage, "the prompt is empty; it must have at least one byte");
  if (options.tokens < 0) tools::fail(ExitCode::kUsage, "tokens is {}; it must be at least 0", options.tokens);
  if (options.context < 1) tools::fail(ExitCode::kUsage, "context is {}; it must be at least 1", options.context);
  if (options.top < 0) tools::fail(ExitCode::kUsage, "top is {}; it must be at least 0", options.top);
  if (!(options.temperature >= 0 && std::isfinite(options.temperature))) {
    tools::fail(ExitCode::kUsage, "temperature is {}; it must be a finite number, at least 0", options.temperature);
  }
  const torch::NoGradGuard no_grad;
  const bool training = model.is_training();
  model.eval();
  at::Generator generator = at::detail::createCPUGenerator(options.seed);
  std::string text = prompt;
  KeyValueCache cache;
  for (std::int64_t i = 0; i < options.tokens; ++i) {
    const bool fits = text.size() <= static_cast<std::size_t>(options.context);
    const torch::Tensor logits =
        fits ? model.forward_cached(tokens_of(text.substr(static_cast<std::size_t>(cache.length)), options.context),
                                    cache)
             : model.forward(tokens_of(text, options.context));
    if (logits.size(-1) > kBytes) {
      tools::fail_input("the model's vocabulary is {}; it must be at most {}, one token a byte", logits.size(-1),
                        kBytes);
    }
    text += static_cast<char>(choose(logits[0][-1], options, generator));
  }
  model.train(training);
  return text.substr(prompt.size());
}

torch::Tensor tokens_of(const std::string& text, std::int64_t context) {
  const auto seen = std::min(text.size(), static_cast<std::size_t>(context));
  std::vector<std::int64_t> tokens;
  for (const char byte : text.substr(text.size() - seen)) tokens.push_back(static_cast<unsigned char>(byte));
  return torch::tensor(tokens).unsqueeze(0);
}

}  // namespace rmsnorm::lab
