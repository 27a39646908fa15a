#include "lab/train/checkpoint.h"

#include <nlohmann/json.hpp>

#include "lab/train/run_json.h"
#include "lab/train/tensors.h"
#include "tools/error.h"

namespace rmsnorm::lab {

namespace {

using nlohmann::json;

constexpr const char* kFile = "checkpoint.safetensors";
constexpr const char* kKey = "rmsnorm_lab.run";  // of the metadata
constexpr const char* kAverage = "average";      // what AdamW's tensors begin with
constexpr int kVersion = 1;

std::string to_hex(const torch::Tensor& bytes) {
  std::string text;
  const auto* data = bytes.data_ptr<std::uint8_t>();
  for (std::int64_t i = 0; i < bytes.numel(); ++i) text += fmt::format("{:02x}", data[i]);
  return text;
}

// A state that PyTorch's generator accepts: one of its own takes it for a trial.
torch::Tensor read_generator(const std::string& file, const std::string& text) {
  if (text.find_first_not_of("0123456789abcdef") != std::string::npos || text.size() % 2 != 0) {
    tools::fail_input("{}: the state of the random generator is {}; it must be bytes in hexadecimal", file,
                      tools::in_quotes(text));
  }
  torch::Tensor bytes = torch::empty({static_cast<std::int64_t>(text.size() / 2)}, torch::kUInt8);
  auto* data = bytes.data_ptr<std::uint8_t>();
  for (std::size_t i = 0; i < text.size(); i += 2) {
    data[i / 2] = static_cast<std::uint8_t>(std::stoul(text.substr(i, 2), nullptr, 16));
  }
  try {
    at::detail::createCPUGenerator().set_state(bytes);
  } catch (const c10::Error&) {
    tools::fail_input(
        "{}: the state of the random generator has {} bytes that PyTorch refuses; it must be one that it "
        "has given",
        file, bytes.numel());
  }
  return bytes;
}

torch::optim::AdamWParamState* state_of(torch::optim::AdamW& optimiser, const torch::Tensor& parameter) {
  const auto found = optimiser.state().find(parameter.unsafeGetTensorImpl());
  return found == optimiser.state().end() ? nullptr : static_cast<torch::optim::AdamWParamState*>(found->second.get());
}

NamedTensors model_tensors(const ModelImpl& model) {
  NamedTensors tensors;
  for (const auto& [name, tensor] : named_parameters_once(model)) tensors.emplace_back("parameter." + name, tensor);
  for (const auto& [name, tensor] : named_buffers_once(model)) tensors.emplace_back("buffer." + name, tensor);
  return tensors;
}

void add_averages(NamedTensors& tensors, const std::string& name, const torch::optim::AdamWParamState& state) {
  tensors.emplace_back(std::string(kAverage) + "." + name, state.exp_avg());
  tensors.emplace_back(std::string(kAverage) + "_square." + name, state.exp_avg_sq());
}

void remove_leftovers(const TrainOptions& options) {
  const std::string start = std::string(".") + kFile + ".rmsnorm-";
  for (const auto& entry : std::filesystem::directory_iterator(options.checkpoint)) {
    if (entry.path().filename().string().starts_with(start)) std::filesystem::remove(entry.path());
  }
}

// What the run has and the checkpoint must have had.
void require_same(const std::string& file, const std::string& what, const json& found, const json& wanted) {
  if (found != wanted) {
    tools::fail_input("{}: {} of the checkpoint is {}; it must be {}, as this run has it", file, what,
                      found.dump(-1, ' ', true, json::error_handler_t::replace), wanted.dump());
  }
}

void read_result(const std::string& file, const json& run, const TrainOptions& options, RunState& state) {
  state.step = run.at("step").get<std::int64_t>();
  if (state.step < 0 || state.step > options.steps) {
    tools::fail_input("{}: step of the checkpoint is {}; it must be from 0 to {}", file, state.step, options.steps);
  }
  for (const json& step : run.at("steps")) {
    state.result.steps.push_back(step_from_json(step));
    const auto count = static_cast<std::int64_t>(state.result.steps.size());
    if (state.result.steps.back().step != count) {
      tools::fail_input("{}: entry {} of the steps is step {}; it must be {}", file, count,
                        state.result.steps.back().step, count);
    }
  }
  if (static_cast<std::int64_t>(state.result.steps.size()) != state.step) {
    tools::fail_input("{}: the checkpoint holds {} steps; it must hold {}", file, state.result.steps.size(),
                      state.step);
  }
  for (const json& evaluation : run.at("evaluations")) {
    state.result.evaluations.push_back(evaluation_from_json(evaluation));
  }
}

void read_run(const tools::Source& source, const tools::SafetensorsHeader& header, const json& run,
              const TrainOptions& options, ModelImpl& model, torch::optim::AdamW& optimiser, RunState& state) {
  const std::string& file = source.name();
  require_same(file, "version", run.at("version"), kVersion);
  const json wanted = to_json(options);
  for (const auto& [key, value] : wanted.items()) require_same(file, key, run.at("options").at(key), value);
  require_same(file, "identity", run.at("identity"), options.identity);

  RunState read;
  read_result(file, run, options, read);

  NamedTensors tensors = model_tensors(model);
  std::vector<std::pair<void*, std::unique_ptr<torch::optim::AdamWParamState>>> averages;
  const json& updates = run.at("updates");
  for (const auto& [name, parameter] : named_parameters_once(model)) {
    if (!parameter.requires_grad() || !updates.contains(name)) continue;
    const auto count = updates.at(name).get<std::int64_t>();
    if (count < 1 || count > read.step) {
      tools::fail_input("{}: updates of {} are {}; they must be from 1 to {}", file, tools::in_quotes(name), count,
                        read.step);
    }
    auto average = std::make_unique<torch::optim::AdamWParamState>();
    average->step(count);
    average->exp_avg(torch::zeros_like(parameter).detach());
    average->exp_avg_sq(torch::zeros_like(parameter).detach());
    add_averages(tensors, name, *average);
    averages.emplace_back(parameter.unsafeGetTensorImpl(), std::move(average));
  }
  const torch::Tensor generator = read_generator(file, run.at("generator").get<std::string>());
  read_tensors(source, header, tensors);
  at::Generator own = at::detail::getDefaultCPUGenerator();
  own.set_state(generator);
  for (auto& [key, average] : averages) optimiser.state()[key] = std::move(average);
  state = std::move(read);
}

// The file and what it says of its run.
struct Kept {
  tools::FileSource source;
  tools::SafetensorsHeader header;

  explicit Kept(const std::filesystem::path& folder)
      : source((folder / kFile).string()), header(tools::read_safetensors_header(source)) {}

  void use(const std::function<void(const json&)>& read) const {
    const std::string* text = nullptr;
    if (header.metadata) {
      for (const auto& [key, value] : *header.metadata) {
        if (key == kKey) text = &value;
      }
    }
    if (text == nullptr) {
      tools::fail_input("{}: the metadata lack {}; they must have it in a checkpoint of a run", source.name(), kKey);
    }
    try {
      read(json::parse(*text));
    } catch (const json::exception& error) {
      tools::fail_input("{}: {} in the metadata is not what a run writes: {}", source.name(), kKey, error.what());
    }
  }
};

}  // namespace

void save_checkpoint(const TrainOptions& options, const ModelImpl& model, torch::optim::AdamW& optimiser,
                     const RunState& state) {
  NamedTensors tensors = model_tensors(model);
  json updates = json::object();
  for (const auto& [name, parameter] : named_parameters_once(model)) {
    if (const auto* average = state_of(optimiser, parameter)) {
      add_averages(tensors, name, *average);
      updates[name] = average->step();
    }
  }
  json steps = json::array(), evaluations = json::array();
  for (const Step& step : state.result.steps) steps.push_back(json(to_json(step)));
  for (const Evaluation& evaluation : state.result.evaluations) evaluations.push_back(json(to_json(evaluation)));
  const json run = {{"version", kVersion},
                    {"options", to_json(options)},
                    {"identity", options.identity},
                    {"step", state.step},
                    {"updates", updates},
                    {"generator", to_hex(at::detail::getDefaultCPUGenerator().get_state())},
                    {"steps", steps},
                    {"evaluations", evaluations}};
  tools::make_folder(options.checkpoint);
  tools::OutputFile out((options.checkpoint / kFile).string());
  write_tensors(out, tensors, {{kKey, run.dump()}});
  out.finish();
  out.publish();
}

bool load_checkpoint(const TrainOptions& options, ModelImpl& model, torch::optim::AdamW& optimiser, RunState& state) {
  const std::filesystem::path path = options.checkpoint / kFile;
  if (!std::filesystem::exists(options.checkpoint)) return false;
  if (!std::filesystem::is_directory(options.checkpoint)) {
    tools::fail(tools::ExitCode::kInputOutput, "{}: checkpoint is a file; it must be a folder or a new name",
                options.checkpoint.string());
  }
  if (options.workers == nullptr || options.workers->writes()) remove_leftovers(options);
  if (!std::filesystem::exists(path)) return false;
  const Kept kept(options.checkpoint);
  kept.use([&](const json& run) { read_run(kept.source, kept.header, run, options, model, optimiser, state); });
  return true;
}

std::string checkpoint_identity(const std::filesystem::path& folder) {
  std::string identity;
  Kept(folder).use([&](const json& run) { identity = run.at("identity").get<std::string>(); });
  return identity;
}

void load_parameters(const std::filesystem::path& folder, ModelImpl& model) {
  Kept kept(folder);
  std::erase_if(kept.header.entries, [](const auto& entry) { return entry.name.starts_with(kAverage); });
  read_tensors(kept.source, kept.header, model_tensors(model));
}

}  // namespace rmsnorm::lab
