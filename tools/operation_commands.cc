// `rmsnorm norm OP` and `rmsnorm check OP` for the operations that check/operation.h describes: one subcommand each,
// with an option for every setting and every operand.
#include <fmt/format.h>

#include <charconv>
#include <nlohmann/json.hpp>

#include "tools/arguments.h"
#include "tools/commands.h"
#include "tools/error.h"
#include "tools/formats/location.h"
#include "tools/operation_request.h"

namespace rmsnorm::tools {

namespace {

using check::Operation;
using check::option_name;
using check::Request;
using check::Role;
using check::Slot;

// ---- norm ----

struct NormOperationArguments {
  std::string input, type;
  std::string main_output;                                // the operand that -o is for
  std::map<std::string, std::string, std::less<>> files;  // by operand; empty: not given
  std::vector<std::string> types;                         // NAME=TYPE of outputs
  SettingArguments settings;
  ExecutionArguments execution;
};

// A request with every operand that may be absent there: what the command can be asked for.
Request everything(const Operation& op) {
  Request r;
  r.shape = op.shape_for(1, 128);
  for (const auto& [name, present] : op.optional()) r.present[std::string(name)] = true;
  return r;
}

class OperationFiles {
 public:
  explicit OperationFiles(const NormOperationArguments& a) {
    if (!a.type.empty()) raw_type_ = parse_type("--type", a.type);
  }
  Tensor read(const std::string& text) {
    inputs_.push_back(parse_location(text));
    return read_tensor(inputs_.back(), raw_type_);
  }
  Location output(const std::string& text) const {
    const Location location = parse_location(text);
    for (const Location& input : inputs_) {
      if (same_file(input, location)) {
        fail(ExitCode::kUsage, "{}: this output is the file of an input; it must be another file", text);
      }
    }
    return location;
  }

 private:
  std::optional<rn_type> raw_type_;
  std::vector<Location> inputs_;
};

// The file of an operand that must be there.
const std::string& file_of(const Operation& op, const NormOperationArguments& a, std::string_view name) {
  const std::string& file = a.files.find(name)->second;
  if (file.empty()) {
    fail(ExitCode::kUsage, "{}: {} is missing; it must be given", op.name(),
         name == a.main_output ? "-o OUT" : option_name(name));
  }
  return file;
}

void run_norm_operation(const Operation& op, const NormOperationArguments& a) {
  a.execution.apply();
  OperationFiles files(a);
  std::map<std::string, Tensor, std::less<>> tensors;
  const std::string x_name(op.x_name());
  tensors[x_name] = files.read(a.input);
  Request request;
  request.shape = tensors[x_name].shape;
  request.x = tensors[x_name].type;
  request.threads = a.execution.threads;
  a.settings.apply(op, request);
  // What is there: inputs that were named, outputs that were asked for.
  for (const auto& [name, present] : op.optional()) {
    request.present[std::string(name)] = !a.files.find(name)->second.empty();
  }
  for (const std::string& text : a.types) apply_operand(op, text, request);
  for (const Slot& slot : slots_of(op, request)) {
    if (slot.role != Role::kInput || slot.name == op.x_name()) continue;
    const Tensor& read = tensors[std::string(slot.name)] = files.read(file_of(op, a, slot.name));
    request.types[std::string(slot.name)] = read.type;
  }

  check::Tensors operands;
  std::vector<std::pair<std::string, Location>> outputs;
  for (const Slot& slot : slots_of(op, request)) {
    const std::string name(slot.name);
    if (slot.role == Role::kInput) {
      const Shape& shape = tensors[name].shape;
      if (shape != slot.shape) {
        fail_input("{}: shape is {}; it must be {} where {} is {}", name, shape_text(shape), shape_text(slot.shape),
                   x_name, shape_text(request.shape));
      }
    } else {
      outputs.emplace_back(name, files.output(file_of(op, a, name)));
      // What it holds beforehand counts where it is added to.
      tensors[name] = slot.holds_values ? read_tensor(outputs.back().second) : make_tensor(slot.type, slot.shape);
      if (tensors[name].shape != slot.shape || tensors[name].type != slot.type) {
        fail_input("{}: it is {} of shape {}; it must be {} of shape {}", name, rn_type_name(tensors[name].type),
                   shape_text(tensors[name].shape), rn_type_name(slot.type), shape_text(slot.shape));
      }
    }
    check::Tensor operand;
    operand.slot = slot;
    operands.all.push_back(std::move(operand));
    operands.elsewhere[name] = reinterpret_cast<char*>(tensors[name].data.data());
  }
  check::give_scratch(op, request, operands);
  require(check::call(op, request, operands));
  OutputSet set;
  for (const auto& [name, location] : outputs) set.add(location, tensors[name]);
  set.commit();
}

void add_norm_operation(CLI::App& norm, const Operation& op) {
  auto* command = norm.add_subcommand(std::string(op.name()), std::string(op.summary()));
  auto a = std::make_shared<NormOperationArguments>();
  command->add_option("INPUT", a->input, fmt::format("{}: FILE.npy or FILE.safetensors:TENSOR", op.x_name()))
      ->required()
      ->type_name("");
  for (const Slot& slot : op.slots(everything(op))) {
    if (slot.name == op.x_name()) continue;
    const bool output = slot.role == Role::kOutput;
    std::string& file = a->files[std::string(slot.name)];
    if (output && a->main_output.empty()) {
      a->main_output = slot.name;
      command->add_option("-o,--output", file, fmt::format("where {} goes", slot.name))->type_name("OUT");
    } else {
      const auto help =
          fmt::format("{}{}", output ? "where it goes" : "read from", output ? "; left out: not wanted" : "");
      command->add_option(option_name(slot.name), file, help)->type_name("F");
    }
  }
  command->add_option("--types", a->types, "types of outputs: NAME=TYPE,..")->delimiter(',')->type_name("N=T,..");
  command->add_option("--type", a->type, "what raw .npy elements (V2) are")->type_name("T");
  a->settings.add_to(*command, op);
  a->execution.add_to(*command);
  command->callback([a, &op] { run_norm_operation(op, *a); });
}

// ---- check ----

struct CheckOperationArguments {
  std::vector<std::string> operands;
  bool in_place = false, json = false;
  SettingArguments settings;
  ExecutionArguments execution;
};

template <class Number>
Number parse_whole(const std::string& what, std::string_view text) {
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) {
    fail(ExitCode::kUsage, "{} is {}; it must be a whole number", what, in_quotes(std::string(text)));
  }
  return number;
}

// "x=3x4x70:bf16@padding=7,offset=1,values=cauchy,seed=5"
void parse_x(std::string_view text, Request& request) {
  constexpr std::int64_t kMostElements = std::int64_t{1} << 31;
  std::string_view shape = text.substr(0, text.find_first_of(":@"));
  text.remove_prefix(shape.size());
  std::int64_t elements = 1;
  for (;;) {
    const std::string_view axis = shape.substr(0, shape.find('x'));
    request.shape.push_back(parse_whole<std::int64_t>("the shape of x", axis));
    const std::int64_t size = request.shape.back();
    if (size < 0 || (size > 0 && elements > kMostElements / size)) {
      fail(ExitCode::kUsage, "the shape of x has {}; each axis must be at least 0 and all together at most 2^31", size);
    }
    elements *= std::max<std::int64_t>(size, 1);
    if (axis.size() == shape.size()) break;
    shape.remove_prefix(axis.size() + 1);
  }
  const std::string_view type = text.substr(0, text.find('@'));
  if (!type.empty()) request.x = parse_type("the type of x", std::string(type.substr(1)));
  text.remove_prefix(type.size());
  while (!text.empty()) {
    text.remove_prefix(1);
    const std::string_view item = text.substr(0, text.find(','));
    text.remove_prefix(item.size());
    const std::string_view key = item.substr(0, item.find('='));
    const std::string_view value = key.size() == item.size() ? "" : item.substr(key.size() + 1);
    if (key == "padding") {
      request.padding = parse_whole<std::int64_t>("padding", value);
    } else if (key == "offset") {
      request.offset = parse_whole<std::int64_t>("offset", value);
    } else if (key == "seed") {
      request.seed = parse_whole<std::uint64_t>("seed", value);
    } else if (const auto values = reference::values_named(value); key == "values" && values) {
      request.values = *values;
    } else {
      fail(ExitCode::kUsage,
           "the layout of x has {}; it must be padding=, offset=, values= or seed=", in_quotes(std::string(item)));
    }
  }
  if (request.padding < 0 || request.offset < 0 || request.padding > 4096 || request.offset > 4096) {
    fail(ExitCode::kUsage, "padding is {} and offset is {}; both must be from 0 to 4096", request.padding,
         request.offset);
  }
}

void run_check_operation(const Operation& op, const CheckOperationArguments& a) {
  a.execution.apply();
  Request request;
  if (a.operands.empty() || !a.operands.front().starts_with("x=")) {
    fail(ExitCode::kUsage, "the first operand is {}; it must be x=SHAPE:TYPE",
         a.operands.empty() ? "missing" : in_quotes(a.operands.front()));
  }
  parse_x(std::string_view(a.operands.front()).substr(2), request);
  for (std::size_t i = 1; i < a.operands.size(); ++i) apply_operand(op, a.operands[i], request);
  a.settings.apply(op, request);
  request.in_place = a.in_place;
  request.threads = a.execution.threads;
  request.target = a.execution.target;
  slots_of(op, request);
  const check::Tensors tensors = check::make_tensors(op, request);
  require(check::call(op, request, tensors));
  std::string damage = check::damage(request, tensors);
  const check::Finding finding = op.judge(request, tensors);
  const std::string error = damage.empty() ? finding.error : damage;
  const std::string line = check::command_line(op, request);
  const check::Measured all = finding.in_ulps();
  if (a.json) {
    const nlohmann::ordered_json json = {{"case", line},
                                         {"target", rn_target()},
                                         {"ok", error.empty()},
                                         {"max_ulp", all.worst},
                                         {"mean_ulp", all.mean()},
                                         {"exact_share", all.exact_share()},
                                         {"budget_ulp", all.limit.ulps},
                                         {"error", error}};
    fmt::print("{}\n", json.dump());
  } else {
    fmt::print("{}\n", line);
    for (const check::Measured& m : finding.measured) {
      fmt::print("target {}: {}: max {:.4g}, mean {:.4g} (limit: {}), {:.2f} % exact\n", rn_target(), m.name, m.worst,
                 m.mean(), check::in_words(m.limit), 100 * m.exact_share());
    }
  }
  std::fflush(stdout);
  if (!error.empty()) fail(ExitCode::kOutsideBudget, "{}", error);
}

void add_check_operation(CLI::App& check, const Operation& op) {
  auto* command = check.add_subcommand(std::string(op.name()), std::string(op.summary()));
  auto a = std::make_shared<CheckOperationArguments>();
  command
      ->add_option("OPERANDS", a->operands,
                   "x=SHAPE:TYPE[@padding=N,offset=N,values=NAME,seed=N], then NAME=TYPE, NAME=absent or NAME=present")
      ->type_name("");
  command->add_flag("--in-place", a->in_place, "outputs take the place of their inputs");
  command->add_flag("--json", a->json, "print JSON");
  a->settings.add_to(*command, op);
  a->execution.threads = Request{}.threads;
  a->execution.add_to(*command);
  command->callback([a, &op] { run_check_operation(op, *a); });
}

}  // namespace

void add_norm_operations(CLI::App& norm) {
  for (const Operation* op : check::operations()) add_norm_operation(norm, *op);
}

void add_check_operations(CLI::App& check) {
  for (const Operation* op : check::operations()) add_check_operation(check, *op);
}

}  // namespace rmsnorm::tools
