#include <filesystem>
#include <optional>

#include "convert/checkpoint/apply.h"
#include "convert/checkpoint/report.h"
#include "convert/checkpoint/verify.h"
#include "convert/checkpoint/write.h"
#include "convert/convert.h"

namespace rmsnorm::convert::checkpoint {

namespace {

// What every command begins with; members point into each other.
struct Opened {
  explicit Opened(const Request& request)
      : config(read_config(request.input)),
        recipe(choose_recipe(config, request.recipe)),
        checkpoint(request.input),
        model(recipe, config, checkpoint) {}
  Opened(const Opened&) = delete;
  Opened& operator=(const Opened&) = delete;

  Json config;
  Recipe recipe;
  Checkpoint checkpoint;
  Model model;
};

void refuse_provenance(const std::string& folder) {
  if (std::filesystem::exists(folder + "/" + kProvenanceFile)) {
    refuse(RefusalCode::kAlreadyConverted, kProvenanceFile,
           "the folder holds it: this model was written by rmsnorm already; give the original");
  }
}

void write(const Request& request, Purpose purpose, Report& report) {
  // Said early: the same is checked again when the name is taken.
  if (std::filesystem::exists(request.output)) {
    tools::fail(tools::ExitCode::kInputOutput, "{}: output exists; it must be a new name", request.output);
  }
  refuse_provenance(request.input);
  const Opened opened(request);
  refuse_converted(opened.checkpoint);
  Plan plan = make_plan(opened.model, request, purpose);
  std::vector<std::string> left_out;
  extra_files(opened.checkpoint, left_out);
  for (const std::string& name : left_out) plan.warnings.push_back(tools::in_quotes(name) + " is not copied");
  const bool program =
      purpose == Purpose::kConvert && (request.target == Target::kAuto || request.target == Target::kHf);
  describe(opened.model, plan, purpose, report);
  WriteOptions options{request.output, request.chunk, request.threads, request.carry_rounding, program};
  std::optional<Checkpoint> adapter;
  AdapterPlan adapter_plan;
  if (!request.adapter.empty()) {
    adapter.emplace(request.adapter, kAdapterFile, std::string(kAdapterFile) + ".index.json");
    refuse_converted(*adapter);
    const std::string path = request.adapter + "/" + kAdapterConfig;
    adapter_plan =
        plan_adapter(*adapter, parse_json(read_text(path, kMaxConfigBytes), path, kMaxConfigBytes), opened.model, plan);
    options.adapter = &*adapter;
    options.adapter_plan = &adapter_plan;
    report.json["adapter"] = request.output + "/" + kAdapterFolder;
    report.text +=
        fmt::format("adapter: {} tensors, in {}/{}\n", adapter_plan.actions.size(), request.output, kAdapterFolder);
  }
  write_checkpoint(opened.checkpoint, plan, provenance_of(opened.model, plan, request, purpose), options);
  report.json["output"] = request.output;
  report.text += fmt::format("written: {}\n", request.output);
}

}  // namespace

void inspect(const Request& request, Report& report) {
  refuse_provenance(request.input);
  const Opened opened(request);
  refuse_converted(opened.checkpoint);
  const Purpose purpose = opened.recipe.rms ? Purpose::kFold : Purpose::kConvert;
  describe(opened.model, make_plan(opened.model, request, purpose), purpose, report);
}

void convert(const Request& request, Report& report) { write(request, Purpose::kConvert, report); }
void fold(const Request& request, Report& report) { write(request, Purpose::kFold, report); }

void verify(const Request& request, Report& report) {
  refuse_provenance(request.input);
  const Opened opened(request);
  refuse_converted(opened.checkpoint);
  verify_checkpoint(opened.model, request, report);
}

}  // namespace rmsnorm::convert::checkpoint
