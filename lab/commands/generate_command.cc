#include <fmt/format.h>

#include <memory>

#include "lab/commands/commands.h"
#include "lab/commands/model_arguments.h"
#include "lab/train/generate.h"
#include "tools/error.h"

namespace rmsnorm::lab {

namespace {

struct GenerateArguments {
  ThreadArguments threads;
  GenerateOptions options;
  std::string model, prompt;
  std::string code = name_of(NormCode::kFused);
  bool json = false, logits = false;
};

// [bytes][vocabulary], of the bytes of the prompt that the model sees.
nlohmann::json logits_of(ModelImpl& model, const std::string& prompt, std::int64_t context) {
  const torch::NoGradGuard no_grad;
  model.eval();
  const torch::Tensor tokens = tokens_of(prompt, context);
  const torch::Tensor logits = model.forward(tokens)[0].to(torch::kFloat64).contiguous();
  nlohmann::json rows = nlohmann::json::array();
  for (std::int64_t row = 0; row < logits.size(0); ++row) {
    const auto* begin = logits[row].data_ptr<double>();
    rows.push_back(std::vector<double>(begin, begin + logits.size(1)));
  }
  return rows;
}

void run(const GenerateArguments& a) {
  a.threads.apply();
  if (a.logits && !a.json) {
    tools::fail(tools::ExitCode::kUsage, "--logits is given without --json; it must come with it");
  }
  const LoadedModel loaded = load_model(a.model, norm_code(a.code));
  GenerateOptions options = a.options;
  options.context = context_of(loaded.options);
  const std::string text = generate(*loaded.model, a.prompt, options);
  if (a.json) {
    nlohmann::ordered_json json = {{"prompt", a.prompt}, {"text", text}};
    if (a.logits) json["logits"] = logits_of(*loaded.model, a.prompt, options.context);
    // A character that is cut at the end has no other form in JSON.
    fmt::print("{}\n", json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
  } else {
    // Text of a model is anybody's: no control characters reach the terminal.
    fmt::print("{}\n", tools::printable(a.prompt + text, /*lines=*/true));
  }
}

}  // namespace

void add_generate_command(CLI::App& app) {
  auto arguments = std::make_shared<GenerateArguments>();
  GenerateArguments& a = *arguments;
  CLI::App* command = app.add_subcommand("generate", "Continue a text with a trained model.");
  command->add_option("model", a.model, "a folder that `train --out` or `export` has written")
      ->required()
      ->type_name("DIR");
  command->add_option("--prompt", a.prompt, "what to continue")->required()->type_name("TEXT");
  command->add_option("--tokens", a.options.tokens, "bytes to add")->capture_default_str();
  command->add_option("--temperature", a.options.temperature, "of the draws; 0: always the likeliest byte")
      ->capture_default_str();
  command->add_option("--top", a.options.top, "draw from so many likeliest bytes; 0: from all")->capture_default_str();
  command->add_option("--seed", a.options.seed, "of the draws")->check(at_least_zero)->capture_default_str();
  command->add_option("--code", a.code, "of the norms: fused, eager or native")->capture_default_str();
  command->add_flag("--json", a.json, "the result as JSON on standard output");
  command->add_flag("--logits", a.logits, "with --json: the logits at every byte of the prompt, too");
  a.threads.add_to(*command);
  command->footer("\nExample:\n  rmsnorm-lab generate llama/ --prompt 'Call me ' --temperature 0.8 --top 40");
  command->callback([arguments] { run(*arguments); });
}

}  // namespace rmsnorm::lab
