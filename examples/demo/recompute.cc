#include "examples/demo/recompute.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <vector>

#include "reference/budgets.h"
#include "reference/layer_norm.h"
#include "reference/rms_norm.h"
#include "reference/ulp.h"
#include "tools/error.h"
#include "tools/formats/location.h"
#include "tools/formats/safetensors.h"
#include "tools/table.h"

extern char** environ;

namespace rmsnorm::demo {

using reference::Quad;
using tools::ExitCode;
using tools::fail;
using tools::Tensor;

namespace {

// The norms that the files hold; those of one file share operation and rounding.
struct Recording {
  const char* file;
  const char* op;
  const char* rounding;  // that of the model's program; "": the operation has no choice
  std::vector<std::string> norms;
};

const std::vector<Recording>& recordings() {
  static const std::vector<std::string> smollm2 = {"model.layers.10.input_layernorm",
                                                   "model.layers.29.post_attention_layernorm", "model.norm"};
  static const std::vector<Recording> list = {
      {"smollm2_f32.safetensors", "rms_norm", "once", smollm2},
      {"smollm2_bf16.safetensors", "rms_norm", "before_weight", smollm2},
      {"ppocr_layernorm_f32.safetensors", "layer_norm", "", {"norm0", "norm1", "norm2", "norm3", "norm4"}},
  };
  return list;
}

class TemporaryFolder {
 public:
  TemporaryFolder() {
    path_ = (std::filesystem::temp_directory_path() / "rmsnorm-demo-XXXXXX").string();
    if (::mkdtemp(path_.data()) == nullptr) tools::fail_errno(path_, "make a folder");
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

void run_program(const std::vector<std::string>& arguments) {
  std::vector<char*> pointers;
  for (const std::string& argument : arguments) pointers.push_back(const_cast<char*>(argument.c_str()));
  pointers.push_back(nullptr);
  pid_t child = 0;
  int status = 0;
  const int error = ::posix_spawn(&child, pointers[0], nullptr, nullptr, pointers.data(), environ);
  if (error != 0 || ::waitpid(child, &status, 0) != child || status != 0) {
    fail(ExitCode::kInternal, "this command failed: {}", fmt::join(arguments, " "));
  }
}

std::vector<double> widen(const Tensor& t) {
  std::vector<double> values(t.data.size() / rn_type_size(t.type));
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = reference::load(t.type, t.data.data(), static_cast<std::int64_t>(i));
  }
  return values;
}

// One recorded norm: its operands and what the model's program made of them.
struct Norm {
  std::string op, rounding;
  double epsilon;
  Tensor x, weight, bias, theirs;
};

// The exact result, row by row, before its last rounding.
std::vector<Quad> exact_result(const Norm& norm) {
  const std::vector<double> x = widen(norm.x);
  const std::vector<double> weight = widen(norm.weight);
  const std::vector<double> bias = widen(norm.bias);
  const reference::Parameters parameters{weight.data(), bias.empty() ? nullptr : bias.data(), 0};
  rn_rms_norm_options options = rn_rms_norm_defaults();
  options.epsilon = norm.epsilon;
  options.rounding = norm.rounding == "before_weight" ? RN_ROUND_BEFORE_WEIGHT : RN_ROUND_ONCE;
  const std::int64_t cols = norm.x.shape.back();
  std::vector<Quad> out(x.size());
  for (std::size_t at = 0; at < x.size(); at += static_cast<std::size_t>(cols)) {
    if (norm.op == "rms_norm") {
      reference::rms_norm(&out[at], &x[at], cols, norm.x.type, parameters, options);
    } else {
      reference::layer_norm(&out[at], &x[at], cols, parameters, norm.epsilon);
    }
  }
  return out;
}

struct Error {
  double max = 0, mean = 0;
};

// In ulps of the result. Where a bias is added, ulps of its f32 if that is larger: the sum may cancel.
Error error_of(const Tensor& found, const std::vector<Quad>& exact, const std::vector<double>& bias) {
  Error error;
  const std::vector<double> values = widen(found);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const Quad addend = bias.empty() ? Quad{0} : reference::absolute(bias[i % bias.size()]);
    const Quad scale = std::max({reference::absolute(exact[i]), addend,
                                 bias.empty() ? Quad{0} : reference::absolute(exact[i] - bias[i % bias.size()])});
    const double ulps = reference::ulp_distance(found.type, values[i], exact[i], scale);
    error.max = std::max(error.max, ulps);
    error.mean += ulps / static_cast<double>(values.size());
  }
  return error;
}

// The share of elements that are equal to the last bit.
double equal_share(const Tensor& a, const Tensor& b) {
  const std::vector<double> ours = widen(a);
  const std::vector<double> theirs = widen(b);
  std::size_t equal = 0;
  for (std::size_t i = 0; i < ours.size(); ++i) equal += ours[i] == theirs[i] ? 1 : 0;
  return static_cast<double>(equal) / static_cast<double>(ours.size());
}

double largest(const Tensor& t) {
  double result = 0;
  for (const double value : widen(t)) result = std::max(result, value < 0 ? -value : value);
  return result;
}

class File {
 public:
  explicit File(const std::string& path) : source_(path), header_(tools::read_safetensors_header(source_)) {}

  Tensor read(const std::string& name) const { return tools::read_safetensors(source_, header_, name); }
  bool has(const std::string& name) const { return header_.find(name) != nullptr; }

  // Recorded beside the norm, or for the whole file.
  double epsilon(const std::string& norm) const {
    if (has(norm + ".epsilon")) return widen(read(norm + ".epsilon"))[0];
    for (const auto& [key, value] : header_.metadata.value()) {
      if (key == "epsilon") return std::stod(value);
    }
    fail(ExitCode::kBadInput, "{}: epsilon of {} is missing; it must be there", source_.name(), norm);
  }

 private:
  tools::FileSource source_;
  tools::SafetensorsHeader header_;
};

}  // namespace

bool recompute(const std::string& program, const std::string& folder) {
  const TemporaryFolder temporary;
  const std::string result = temporary.path() + "/out.npy";
  const tools::Table table({{"norm", 40, true},
                            {"op", 10, true},
                            {"type", 4, true},
                            {"max |x|", 8},
                            {"ours max", 8},
                            {"mean", 6},
                            {"theirs max", 10},
                            {"mean", 6},
                            {"budget", 6},
                            {"same bits", 9}});
  fmt::print(
      "Norms recorded inside SmolLM2-135M reading Moby-Dick and inside the PP-OCRv4 recogniser reading an image,\n"
      "recomputed by `rmsnorm norm`. Error against the exact result in ulp: ours, and that of the models' own "
      "programs\n"
      "(transformers on PyTorch; ONNX Runtime). Last column: elements where both agree to the last bit.\n\n");
  table.print_header();
  bool good = true;
  std::string example;
  for (const Recording& recording : recordings()) {
    const std::string path = folder + "/" + recording.file;
    const File file(path);
    for (const std::string& name : recording.norms) {
      Norm norm{recording.op,
                recording.rounding,
                file.epsilon(name),
                file.read(name + ".x"),
                file.read(name + ".weight"),
                {},
                file.read(name + ".out")};
      std::vector<std::string> command = {program,      "norm",
                                          recording.op, path + ":" + name + ".x",
                                          "--weight",   path + ":" + name + ".weight",
                                          "--epsilon",  fmt::format("{}", norm.epsilon)};
      if (file.has(name + ".bias")) {
        norm.bias = file.read(name + ".bias");
        command.insert(command.end(), {"--bias", path + ":" + name + ".bias"});
      }
      if (!norm.rounding.empty()) command.insert(command.end(), {"--rounding", norm.rounding});
      if (norm.x.type == RN_BF16) command.insert(command.end(), {"--type", "bf16"});
      command.insert(command.end(), {"-o", result});
      run_program(command);
      const Tensor ours = tools::read_tensor({result, ""}, norm.x.type);

      const std::vector<Quad> exact = exact_result(norm);
      const std::vector<double> bias = widen(norm.bias);
      const Error our_error = error_of(ours, exact, bias);
      const Error their_error = error_of(norm.theirs, exact, bias);
      const reference::Judged judged =
          norm.op == "rms_norm" ? reference::Judged::kRmsNorm : reference::Judged::kLayerNorm;
      const double budget = reference::budget(judged, norm.x.type, ours.type, !bias.empty(), false, RN_ROUND_ONCE).ulps;
      good = good && our_error.max <= budget;
      table.print_row({name, norm.op, rn_type_name(norm.x.type), fmt::format("{:.1f}", largest(norm.x)),
                       fmt::format("{:.3f}", our_error.max), fmt::format("{:.3f}", our_error.mean),
                       fmt::format("{:.3f}", their_error.max), fmt::format("{:.3f}", their_error.mean),
                       fmt::format("{:.2f}", budget), fmt::format("{:.2f} %", 100 * equal_share(ours, norm.theirs))});
      if (example.empty()) {
        command.front() = "rmsnorm";
        command.back() = "out.npy";
        example = fmt::format("{}", fmt::join(command, " "));
      }
    }
  }
  fmt::print("\nThe first line came from:\n  {}\n", example);
  fmt::print("{}\n", good ? "All of ours are within their budget." : "At least one of ours is OUTSIDE its budget.");
  return good;
}

}  // namespace rmsnorm::demo
