// rmsnorm norm: one operation on tensors in files.
#include "tools/arguments.h"
#include "tools/commands.h"
#include "tools/error.h"
#include "tools/formats/location.h"
#include "tools/norm_operands.h"
#include "tools/operation_request.h"

namespace rmsnorm::tools {

namespace {

struct NormArguments {
  std::string op, input, weight, bias, residual, type, out_type, output, residual_out, stats;
  std::int64_t axis = -1;
  bool in_place = false;
  OptionArguments options;
  ExecutionArguments execution;
};

// The files of one call: what is read, what is written.
class NormFiles {
 public:
  explicit NormFiles(const NormArguments& a) : arguments_(a) {
    if (!a.type.empty()) raw_type_ = parse_type("--type", a.type);
  }

  Tensor read(const std::string& text) {
    const Location location = parse_location(text);
    inputs_.push_back(location);
    return read_tensor(location, raw_type_, &raw_used_);
  }

  // --type names the type of x, unless it was needed for raw elements of a parameter.
  void check_type(const Tensor& x) const {
    if (raw_type_ && !raw_used_ && x.type != *raw_type_) {
      fail(ExitCode::kUsage, "--type is {}; it must be the type of {}, {}", arguments_.type, arguments_.input,
           rn_type_name(x.type));
    }
  }

  // Refuses to write over an input unless --in-place was given.
  Location output(const std::string& text) const {
    const Location location = parse_location(text);
    for (const Location& input : inputs_) {
      if (!arguments_.in_place && same_file(input, location)) {
        fail(ExitCode::kUsage,
             "{}: this output is the file of an input; it must be another file, or --in-place must "
             "be given",
             text);
      }
    }
    return location;
  }

 private:
  const NormArguments& arguments_;
  std::optional<rn_type> raw_type_;
  bool raw_used_ = false;
  std::vector<Location> inputs_;
};

void check_presence(const NormArguments& a, check::Op op) {
  const bool add = check::is_add(op);
  if (add && a.residual.empty()) fail(ExitCode::kUsage, "{}: --residual is missing; it must be given", a.op);
  if (!add && !a.residual.empty()) fail(ExitCode::kUsage, "{}: --residual is given; it must not be", a.op);
  if (!add && !a.residual_out.empty()) fail(ExitCode::kUsage, "{}: --residual-out is given; it must not be", a.op);
  if (op == check::Op::kCenter) {
    if (!a.weight.empty()) fail(ExitCode::kUsage, "center: --weight is given; it must not be");
    if (!a.bias.empty()) fail(ExitCode::kUsage, "center: --bias is given; it must not be");
    if (!a.stats.empty()) fail(ExitCode::kUsage, "center: --stats is given; it must not be");
  }
  if (a.output.empty() && !a.in_place) {
    fail(ExitCode::kUsage, "{}: the output is missing; -o OUT or --in-place must be given", a.op);
  }
}

void run_norm(const NormArguments& a) {
  if (a.op.empty()) fail(ExitCode::kUsage, "OP is missing; it must be one of {}, {}", op_names(), operation_names());
  if (a.input.empty()) fail(ExitCode::kUsage, "{}: INPUT is missing; it must be given", a.op);
  check::Case options = check::make_case(parse_op(a.op), RN_F32, 1, 1);
  check_presence(a, options.op);
  a.options.apply(options);
  a.execution.apply();

  NormFiles files(a);
  NormOperands o;
  o.x = files.read(a.input);
  if (!a.weight.empty()) o.weight = files.read(a.weight);
  if (!a.bias.empty()) o.bias = files.read(a.bias);
  if (!a.residual.empty()) o.residual = files.read(a.residual);
  files.check_type(o.x);
  o.in_place = a.in_place;
  o.out_type = a.out_type.empty() ? o.x.type : parse_type("--out-type", a.out_type);
  o.stats_wanted = !a.stats.empty();
  if (o.in_place && o.out_type != o.x.type) {
    fail(ExitCode::kUsage, "--out-type is {}; with --in-place it must be the type of {}, {}", a.out_type, a.input,
         rn_type_name(o.x.type));
  }

  // Where results go is settled before the work, so that a wrong name costs no time.
  const Location out = files.output(a.output.empty() ? a.input : a.output);
  if (a.in_place && !same_file(out, parse_location(a.input))) {
    fail(ExitCode::kUsage, "-o is {}; with --in-place it must be the file of {}, or be left out", a.output, a.input);
  }
  std::optional<Location> residual_out;
  std::optional<Location> stats;
  if (!a.residual_out.empty()) residual_out = files.output(a.residual_out);
  if (!a.stats.empty()) stats = files.output(a.stats);

  call_norm(o, options, a.axis, a.execution.threads);

  OutputSet outputs;
  outputs.add(out, o.result());
  if (residual_out) outputs.add(*residual_out, o.sum());
  if (stats) outputs.add(*stats, o.stats);
  outputs.commit();
}

constexpr char kNormExamples[] = R"(
Files: FILE.npy, or FILE.safetensors:TENSOR. An output that names an existing .safetensors file adds the tensor to it,
or puts it in the place of the one with that name. Files appear whole or not at all; no input is written over without
--in-place. A raw two-byte .npy (NumPy's V2) is read as bf16 by --type bf16.
--stats writes inv_rms with the shape of the axes that remain; for LayerNorm mean and inv_std, one behind the other,
with a leading axis of 2.

Examples:
  rmsnorm norm rms_norm x.npy --weight w.npy -o y.npy
  rmsnorm norm rms_norm x.npy --type bf16 --weight w.npy --rounding before_weight --epsilon 1e-5 -o y.npy
  rmsnorm norm layer_norm model.safetensors:x --weight model.safetensors:w --axis 1 -o out.safetensors:y
  rmsnorm norm add_rms_norm x.npy --residual r.npy --weight w.npy --residual-out r2.npy -o y.npy
  rmsnorm norm rms_norm --in-place x.npy --stats inv_rms.npy)";

}  // namespace

void add_norm_command(CLI::App& app) {
  auto* command = app.add_subcommand("norm", "Apply an operation to a tensor in a file");
  auto a = std::make_shared<NormArguments>();
  command->footer(kNormExamples);
  command->add_option("OP", a->op, op_names())->type_name("");
  command->add_option("INPUT", a->input, "x: FILE.npy or FILE.safetensors:TENSOR")->type_name("");
  command->add_option("-o,--output", a->output, "where the result goes")->type_name("OUT");
  command->add_option("--weight", a->weight, "[d], or a shape that broadcasts against x")->type_name("F");
  command->add_option("--bias", a->bias, "as --weight")->type_name("F");
  command->add_option("--residual", a->residual, "added to x; add_ operations only")->type_name("F");
  command->add_option("--residual-out", a->residual_out, "where x + residual goes")->type_name("F");
  command->add_option("--stats", a->stats, "where inv_rms, or mean and inv_std, go")->type_name("F");
  command->add_option("--axis", a->axis, "normalise over axes A to the last, as one (ONNX); default -1: the last")
      ->type_name("A");
  command->add_option("--type", a->type, "the type of x; says what raw .npy elements (V2) are")->type_name("T");
  command->add_option("--out-type", a->out_type, "default: the type of x")->type_name("T");
  command->add_flag("--in-place", a->in_place, "the result takes the place of INPUT");
  a->options.add_to(*command);
  a->execution.add_to(*command);
  add_norm_operations(*command);
  command->callback([a, command] {
    if (command->get_subcommands().empty()) run_norm(*a);
  });
}

}  // namespace rmsnorm::tools
