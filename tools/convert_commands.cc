// rmsnorm inspect, convert, fold, verify: models, as Hugging Face directories or ONNX files.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <optional>
#include <span>
#include <utility>

#include "convert/convert.h"
#include "convert/names.h"
#include "convert/refusal.h"
#include "tools/arguments.h"
#include "tools/commands.h"
#include "tools/error.h"
#include "tools/formats/output_file.h"
#include "tools/formats/source.h"

namespace rmsnorm::tools {

namespace {

using convert::all_names;
using convert::kAffines;
using convert::kEntries;
using convert::kTargets;
using convert::Report;
using convert::Request;
using convert::Tie;

template <class Enum>
Enum chosen(const char* option, const std::string& name, convert::Names<Enum> names) {
  if (const auto value = convert::value_named(names, name)) return *value;
  fail(ExitCode::kUsage, "{} is {}; it must be one of {}", option, in_quotes(name), convert::all_names(names));
}

// What the command line says, before it is understood.
struct ModelArguments {
  Request request;
  std::string affine = "auto";
  std::string entry = "auto";
  std::string target = "auto";
  std::string type = "same";
  std::string report;
  bool untie = false;
  bool keep_tie = false;
  bool json = false;

  void understand() {
    request.affine = chosen("--affine", affine, kAffines);
    request.entry = chosen("--entry", entry, kEntries);
    request.target = chosen("--target", target, kTargets);
    if (type != "same") request.type = parse_type("--dtype", type);
    if (request.type == RN_F64) fail(ExitCode::kUsage, "--dtype is f64; it must be same, f32, f16 or bf16");
    if (untie && keep_tie) fail(ExitCode::kUsage, "--untie and --keep-tie are both given; at most one may be");
    request.tie = untie ? Tie::kUntie : keep_tie ? Tie::kKeep : Tie::kAuto;
  }
};

struct Command {
  const char* name;
  const char* summary;
  void (*checkpoint)(const Request&, Report&);
  void (*onnx)(const Request&, Report&);
  bool writes;  // a model
};

constexpr Command kCommands[] = {
    {"inspect", "Show the streams, norms and writers of a model and what `convert` would do",
     convert::checkpoint::inspect, convert::onnx::inspect, false},
    {"convert", "Write the same function with RMSNorm in place of LayerNorm", convert::checkpoint::convert,
     convert::onnx::convert, true},
    {"fold", "Fold the norms' weights into the linear layers that read them", convert::checkpoint::fold,
     convert::onnx::fold, true},
    {"verify", "Prove that OUT computes what ORIGINAL computes", convert::checkpoint::verify, convert::onnx::verify,
     false},
};

constexpr char kExamples[] = R"(
IN is a Hugging Face directory (config.json and safetensors files) or an ONNX file. IN is never changed; OUT must not
exist, and appears whole or not at all.

Examples:
  rmsnorm inspect gpt2/
  rmsnorm convert gpt2/ gpt2-rms/
  rmsnorm verify gpt2/ gpt2-rms/
  rmsnorm convert recogniser.onnx recogniser-rms.onnx --target onnx-plain

Refusals (exit code 3):
)";

std::string footer() {
  std::string text = kExamples;
  for (const auto& refusal : convert::kRefusals) text += fmt::format("  {}  {}\n", refusal.name, refusal.meaning);
  return text;
}

// Names of files need not be UTF-8; JSON must be.
std::string json_text(const Report& report, int indent) {
  return report.json.dump(indent, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

// The name with every link followed, as far as it exists.
std::filesystem::path real_path(const std::string& path) {
  std::error_code error;
  const std::filesystem::path real = std::filesystem::weakly_canonical(path, error);
  std::filesystem::path plain = error ? std::filesystem::absolute(path).lexically_normal() : real;
  return plain.has_filename() ? plain : plain.parent_path();
}

// True also for the folder itself.
bool lies_in(const std::string& path, const std::string& folder) {
  const std::filesystem::path inner = real_path(path);
  const std::filesystem::path outer = real_path(folder);
  return std::mismatch(outer.begin(), outer.end(), inner.begin(), inner.end()).first == outer.end();
}

// Said before the work: nothing of a model may be replaced by a report or a drawing, which begin with `first`.
void check_beside(const char* option, const char* kind, char first, const std::string& path, const Request& request) {
  for (const std::string& model : {request.input, request.output, request.adapter, request.recipe}) {
    if (!model.empty() && lies_in(path, model)) {
      fail(ExitCode::kUsage, "{} is {}; it must not lie in {}", option, path, model);
    }
  }
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return;
  const FileSource old(path);
  std::byte found{};
  if (old.size() > 0) old.read(0, std::span(&found, 1));
  if (old.size() > 0 && found != std::byte(first)) {
    fail(ExitCode::kUsage, "{} is {}, which exists and is no {}; it must be a new name or a {}", option, path, kind,
         kind);
  }
}

void check_paths(const Command& command, const ModelArguments& a, bool directory) {
  if (command.writes && directory && lies_in(a.request.output, a.request.input) &&
      !std::filesystem::exists(a.request.output)) {
    fail(ExitCode::kUsage, "OUT is {}; it must not lie in IN, which is {}", a.request.output, a.request.input);
  }
  if (directory && !a.request.drawing.empty()) {
    fail(ExitCode::kUsage, "--svg is {}; it is for ONNX files only and {} is a directory", a.request.drawing,
         a.request.input);
  }
  const bool compares = !command.writes && !a.request.output.empty();
  if (compares && !std::filesystem::exists(a.request.output)) {
    fail(ExitCode::kInputOutput, "{}: there is no such file or directory", a.request.output);
  }
  std::error_code error;
  if (compares && std::filesystem::equivalent(a.request.input, a.request.output, error)) {
    fail(ExitCode::kUsage, "ORIGINAL and OUT are both {}; they must be two models", a.request.output);
  }
  if (compares && std::filesystem::is_directory(a.request.output, error) != directory) {
    fail(ExitCode::kUsage, "{} is {} and {} is {}; they must both be one or the other", a.request.input,
         directory ? "a directory" : "a file", a.request.output, directory ? "a file" : "a directory");
  }
  if (!a.report.empty()) check_beside("--report", "report", '{', a.report, a.request);
  if (!a.request.drawing.empty()) check_beside("--svg", "drawing", '<', a.request.drawing, a.request);
  if (!a.report.empty() && !a.request.drawing.empty() && real_path(a.report) == real_path(a.request.drawing)) {
    fail(ExitCode::kUsage, "--report and --svg are both {}; they must be two files", a.report);
  }
}

void write_report(OutputFile& file, const Report& report) {
  const std::string text = json_text(report, 2) + "\n";
  file.write(std::as_bytes(std::span(text)));
  file.finish();
  file.publish();
}

void run(const Command& command, ModelArguments& a) {
  a.understand();
  const bool directory = std::filesystem::is_directory(a.request.input);
  if (!directory && !std::filesystem::exists(a.request.input)) {
    fail(ExitCode::kInputOutput, "{}: there is no such file or directory", a.request.input);
  }
  check_paths(command, a, directory);
  Report report;
  std::optional<OutputFile> file;  // begun here, so that it can be written after hours of work
  if (!a.report.empty()) file.emplace(a.report);
  const auto show = [&] {
    if (file) write_report(*file, report);
    if (a.json) {
      fmt::print("{}\n", json_text(report, -1));
    } else {
      fmt::print("{}", printable(report.text, true));
    }
    std::fflush(stdout);
  };
  try {
    (directory ? command.checkpoint : command.onnx)(a.request, report);
  } catch (const convert::Refusal& refusal) {
    report.json["refused"] = {
        {"code", refusal_name(refusal.refusal())}, {"site", refusal.site()}, {"message", refusal.what()}};
    show();
    throw;
  } catch (const ToolError& error) {
    if (error.code() == ExitCode::kOutsideBudget) show();
    throw;
  }
  show();
}

void add_command(CLI::App& app, const Command& c) {
  auto* command = app.add_subcommand(c.name, c.summary);
  auto a = std::make_shared<ModelArguments>();
  Request& r = a->request;
  const bool convert = std::string_view(c.name) == "convert";
  const bool verify = std::string_view(c.name) == "verify";
  const bool inspect = std::string_view(c.name) == "inspect";
  command->footer(footer());
  command->add_option(verify ? "ORIGINAL" : "IN", r.input, "the model")->required()->type_name("");
  if (!inspect) {
    command->add_option("OUT", r.output, verify ? "what `convert` or `fold` wrote" : "the new model")
        ->required()
        ->type_name("");
  }
  if (!verify) {
    command->add_option("--affine", a->affine, all_names(kAffines) + ": what becomes of the norms' weights and biases")
        ->type_name("MODE");
  }
  command->add_option("--recipe", r.recipe, "a recipe of your own, see docs/recipes.md")->type_name("F");
  if (convert || inspect) {
    command->add_option("--entry", a->entry, all_names(kEntries) + ": centre the entry by weights or by an operation")
        ->type_name("E");
    command->add_flag("--untie", a->untie, "store the head apart from the embedding");
    command->add_flag("--keep-tie", a->keep_tie,
                      "keep the head tied to the embedding: centre the entry by an operation");
    command
        ->add_option("--target", a->target,
                     all_names(kTargets) + "; auto (default): hf for a directory, what the opset has for ONNX")
        ->type_name("T");
  }
  if (c.writes) {
    command->add_option("--dtype", a->type, "same (default), f32, f16 or bf16: the type of changed tensors")
        ->type_name("TYPE");
    command->add_option("--adapter", r.adapter, "a LoRA adapter's directory to convert along")->type_name("DIR");
    command->add_flag("--carry-rounding", r.carry_rounding,
                      "carry each rounding error along a column, so that columns keep a mean near 0");
  }
  if (!inspect) {
    command->add_option("--chunk", r.chunk, "bytes of memory for tensors in flight (default 64 MiB)")
        ->type_name("N")
        ->transform(CLI::AsSizeValue(false))
        ->check(CLI::Range(std::size_t{4096}, std::size_t{1} << 40));
    command->add_option("--threads", r.threads, "at most N threads; 0 (default): one per CPU")
        ->type_name("N")
        ->check(CLI::Range(0, 1 << 10));
  }
  if (verify) {
    command->add_option("--vectors", r.vectors, "random vectors for each norm, reader and writer (default 8)")
        ->type_name("K")
        ->check(CLI::Range(1, 1 << 16));
  }
  if (inspect) {
    command->add_option("--svg", r.drawing, "draw the streams of an ONNX graph into this file")->type_name("F");
  }
  command->add_option("--report", a->report, "write the report as JSON into this file, too")->type_name("F");
  command->add_flag("--json", a->json, "print JSON instead of text");
  command->callback([a, &c] { run(c, *a); });
}

}  // namespace

void add_convert_commands(CLI::App& app) {
  for (const Command& command : kCommands) add_command(app, command);
}

}  // namespace rmsnorm::tools
