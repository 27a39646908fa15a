#include <fmt/format.h>

#include <memory>
#include <optional>

#include "lab/commands/commands.h"
#include "lab/commands/model_arguments.h"
#include "lab/train/parallel.h"
#include "lab/train/run_json.h"
#include "lab/train/sharded_llama.h"
#include "tools/error.h"

namespace rmsnorm::lab {

namespace {

using nlohmann::ordered_json;
using tools::ExitCode;

struct TrainArguments {
  ModelArguments model;
  ThreadArguments threads;
  TrainOptions options;
  std::string data, checkpoint, log, out;
  std::string mpi = "none";
  bool json = false;
};

void add_options(CLI::App& command, TrainArguments& a) {
  TrainOptions& o = a.options;
  a.model.add_to(command);
  const auto option = [&](const char* name, auto& value, const char* text) {
    return command.add_option(name, value, text)->capture_default_str()->group("Training");
  };
  option("--steps", o.steps, "updates of the parameters");
  option("--batch", o.batch, "rows a step");
  option("--accumulation", o.accumulation, "parts in which a step is taken");
  option("--learning-rate", o.learning_rate, "the highest of the schedule");
  option("--final-share", o.final_share, "of the learning rate, at the end of the cosine");
  option("--warm-up", o.warm_up, "steps to the highest learning rate");
  option("--weight-decay", o.weight_decay, "of matrices");
  option("--clip", o.clip, "largest norm of the gradient; 0: none");
  option("--seed", o.seed, "of the parameters and the batches")->check(at_least_zero);
  option("--evaluate-every", o.evaluate_every, "steps; 0: at the end only");
  option("--evaluate-parts", o.evaluate_parts, "batches of held-out text in an evaluation");
  command.add_flag("--autocast", o.autocast, "matrix products in bf16")->group("Training");
  command
      .add_option("--mpi", a.mpi, "none, data (each process has rows of the batch) or hidden (columns of the model)")
      ->capture_default_str()
      ->group("Training");
  command.add_option("--data", a.data, "a text file; its bytes are the tokens (default: Moby-Dick)")->type_name("FILE");
  command.add_option("--checkpoint", a.checkpoint, "where the run is kept; one that is there is continued")
      ->type_name("DIR");
  command.add_option("--checkpoint-every", o.checkpoint_every, "steps; 0: at the end only")->capture_default_str();
  command.add_option("--log", a.log, "JSON lines, one a step")->type_name("FILE");
  command.add_option("-o,--out", a.out, "the trained model in Hugging Face's form")->type_name("DIR");
  command.add_flag("--json", a.json, "the result as JSON on standard output");
  a.threads.add_to(command);
  command.footer(
      "\nExamples:\n"
      "  rmsnorm-lab train --steps 300 --checkpoint run/ --checkpoint-every 50 --out llama/\n"
      "  mpirun -n 2 rmsnorm-lab train --mpi hidden --steps 20 --json");
}

// A rule that would be broken at the end is told before the training.
void check_output(const TrainArguments& a, const LanguageOptions& options) {
  if (a.out.empty()) return;
  require_exportable(options);
  if (std::filesystem::exists(a.out)) {
    tools::fail(ExitCode::kInputOutput, "{}: output exists; it must be a new name", a.out);
  }
}

std::unique_ptr<Workers> make_workers(const TrainArguments& a, Ranks* ranks) {
  if (a.mpi == "data") return std::make_unique<DataWorkers>(*ranks);
  if (a.mpi == "hidden") return std::make_unique<HiddenWorkers>(*ranks);
  return std::make_unique<Workers>();
}

// What one process has sent so far, each cargo that it has sent any of.
ordered_json sent_json(const Ranks& ranks, std::int64_t tokens) {
  ordered_json result = ordered_json::object();
  for (std::size_t i = 0; i < kCargoNames.size(); ++i) {
    const Sent& sent = ranks.sent(static_cast<Cargo>(i));
    if (sent.rounds == 0) continue;
    result[kCargoNames[i]] = {{"rounds", sent.rounds},
                              {"bytes_per_token", static_cast<double>(sent.bytes) / static_cast<double>(tokens)}};
  }
  return result;
}

void print(const TrainArguments& a, const TrainResult& result, const ModelImpl& model, const Ranks* ranks,
           const ordered_json& sent) {
  if (a.json) {
    ordered_json report = {{"parameters", model.parameter_count()},
                           {"steps", ordered_json::array()},
                           {"evaluations", ordered_json::array()},
                           {"diverged", result.diverged}};
    for (const Step& step : result.steps) report["steps"].push_back(to_json(step));
    for (const Evaluation& evaluation : result.evaluations) report["evaluations"].push_back(to_json(evaluation));
    if (ranks != nullptr) {
      report["processes"] = ranks->count();
      report["sent_in_a_step"] = sent;
    }
    fmt::print("{}\n", report.dump());
    return;
  }
  fmt::print("parameters      {}\n", model.parameter_count());
  if (!result.steps.empty()) {
    fmt::print("training loss   {:.4f} at step 1, {:.4f} at step {}\n", result.steps.front().loss,
               result.steps.back().loss, result.steps.back().step);
  }
  for (const Evaluation& evaluation : result.evaluations) {
    fmt::print("held-out loss   {:.4f} nats a byte after step {}; {:.1f} % of the bytes right\n", evaluation.loss,
               evaluation.step, 100 * evaluation.accuracy);
  }
  if (ranks == nullptr) return;
  fmt::print("processes       {}\n", ranks->count());
  for (const auto& [cargo, counts] : sent.items()) {
    fmt::print("sent in a step  {}: {} rounds, {:.1f} bytes a token from each process to all others\n", cargo,
               counts["rounds"].get<std::int64_t>(), counts["bytes_per_token"].get<double>());
  }
}

void run_training(TrainArguments& a, Ranks* ranks) {
  const LanguageOptions options = a.model.options();
  check_output(a, options);
  const auto* llama = std::get_if<LlamaOptions>(&options);
  const bool hidden = a.mpi == "hidden";
  if (hidden && llama == nullptr) {
    tools::fail(ExitCode::kUsage, "--mpi is hidden with --model {}; it must be llama there", a.model.model);
  }
  if (hidden && a.options.autocast) {
    tools::fail(ExitCode::kUsage, "--autocast is given with --mpi hidden; it must be left out there");
  }
  const std::filesystem::path file = a.data.empty() ? moby_dick() : std::filesystem::path(a.data);
  const auto data = text_data(file, context_of(options));
  TrainOptions training = a.options;
  training.checkpoint = a.checkpoint;
  training.log = a.log;
  training.progress = true;
  ordered_json identity = to_json(options);
  identity["dtype"] = a.model.dtype;
  identity["data"] = file.string();
  identity["data_bytes"] = std::filesystem::file_size(file);
  training.identity = identity.dump(-1, ' ', false, ordered_json::error_handler_t::replace);

  torch::manual_seed(training.seed);
  Model whole = make_model(options), model = whole;
  whole->to(a.model.type());
  if (hidden) model = make_sharded_llama(*llama, *whole, *ranks);
  const std::unique_ptr<Workers> workers = make_workers(a, ranks);
  training.workers = workers.get();
  ordered_json sent;  // in the first step, before any evaluation
  const TrainResult result = train(*model, *data, training, [&](const Step&) {
    if (ranks != nullptr && sent.empty()) sent = sent_json(*ranks, training.batch * context_of(options));
  });
  if (hidden) collect_slices(*model, *ranks, *whole);
  if (!workers->writes()) return;
  print(a, result, *whole, ranks, sent);
  if (result.diverged) {
    tools::fail(ExitCode::kOutsideBudget, "the loss or the gradient of step {} is not finite; it must be",
                result.steps.back().step);
  }
  if (!a.out.empty()) save_model(a.out, *whole, options);
}

void run(TrainArguments& a) {
  a.threads.apply();
  if (a.mpi != "none" && a.mpi != "data" && a.mpi != "hidden") {
    tools::fail(ExitCode::kUsage, "--mpi is {}; it must be none, data or hidden", tools::in_quotes(a.mpi));
  }
  if (a.mpi == "none") return run_training(a, nullptr);
  const std::unique_ptr<Ranks> ranks = join_mpi();
  ranks->run([&] { run_training(a, ranks.get()); });
}

}  // namespace

void add_train_command(CLI::App& app) {
  auto arguments = std::make_shared<TrainArguments>();
  CLI::App* command = app.add_subcommand("train", "Train a language model of bytes.");
  add_options(*command, *arguments);
  command->callback([arguments] { run(*arguments); });
}

}  // namespace rmsnorm::lab
