#include <fmt/format.h>

#include <memory>

#include "lab/commands/commands.h"
#include "lab/commands/model_arguments.h"
#include "lab/train/checkpoint.h"
#include "tools/error.h"

namespace rmsnorm::lab {

namespace {

struct ExportArguments {
  std::string checkpoint, out;
  bool json = false;
};

void run(const ExportArguments& a) {
  LanguageOptions options;
  Model model;
  try {
    const nlohmann::json identity = nlohmann::json::parse(checkpoint_identity(a.checkpoint));
    options = language_options_from_json(identity);
    require_exportable(options);
    model = make_model(options);
    if (identity.at("dtype") == "f64") model->to(torch::kFloat64);
  } catch (const nlohmann::json::exception&) {
    tools::fail_input("{}: the checkpoint does not say which model it is of; it must be one of `rmsnorm-lab train`",
                      a.checkpoint);
  } catch (const std::invalid_argument& error) {
    tools::fail_input("{}: the model of the checkpoint: {}", a.checkpoint, error.what());
  }
  load_parameters(a.checkpoint, *model);
  save_model(a.out, *model, options);
  if (a.json) {
    fmt::print("{}\n", nlohmann::ordered_json({{"out", a.out}, {"parameters", model->parameter_count()}}).dump());
  } else {
    fmt::print("{}: {} parameters\n", tools::printable(a.out), model->parameter_count());
  }
}

}  // namespace

void add_export_command(CLI::App& app) {
  auto arguments = std::make_shared<ExportArguments>();
  CLI::App* command = app.add_subcommand("export", "Write the model of a checkpoint in Hugging Face's form.");
  command->add_option("--checkpoint", arguments->checkpoint, "of `rmsnorm-lab train`")->required()->type_name("DIR");
  command->add_option("-o,--out", arguments->out, "a new folder: config.json and model.safetensors")
      ->required()
      ->type_name("DIR");
  command->add_flag("--json", arguments->json, "the result as JSON on standard output");
  command->footer("\nExample:\n  rmsnorm-lab export --checkpoint run/ --out llama/");
  command->callback([arguments] { run(*arguments); });
}

}  // namespace rmsnorm::lab
