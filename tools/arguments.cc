#include "tools/arguments.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <iterator>
#include <span>

#include "tools/error.h"
#include "tools/formats/tensor.h"

namespace rmsnorm::tools {

namespace {

// Sets `value` to the place of `name` in the list; an empty name leaves it.
template <class Enum>
void choose(Enum& value, const char* option, const std::string& name, std::span<const std::string_view> names) {
  if (name.empty()) return;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (names[i] != name) continue;
    value = static_cast<Enum>(i);
    return;
  }
  fail(ExitCode::kUsage, "{} is {}; it must be one of {}", option, in_quotes(name), fmt::join(names, ", "));
}

void refuse_unless(bool fits, bool given, const char* option, check::Op op, const char* rule) {
  if (given && !fits) {
    fail(ExitCode::kUsage, "{}: {} is given; it must not be: only {} take it", check::name_of(op), option, rule);
  }
}

}  // namespace

void OptionArguments::add_to(CLI::App& command) {
  command.add_option("--epsilon", epsilon, "added to the mean square or variance; the operation's default otherwise")
      ->type_name("E");
  command.add_option("--weight-offset", weight_offset, "added to each weight; 1 for Gemma-like models")->type_name("O");
  command.add_option("--epsilon-placement", epsilon_placement, "inside (default) or outside the square root")
      ->type_name("P");
  command.add_option("--rounding", rounding, "once (default), before_weight (Llama, Qwen) or exact")->type_name("R");
  command.add_option("--partial", partial, "mean square of the first K columns only")->type_name("K");
  command
      .add_option("--norm-input", norm_input, "add_ operations: the norm reads the rounded (default) or unrounded sum")
      ->type_name("S");
}

void OptionArguments::apply(check::Case& c) const {
  const bool center = c.op == check::Op::kCenter;
  refuse_unless(!center, epsilon.has_value(), "--epsilon", c.op, "the norms");
  refuse_unless(!center, weight_offset.has_value(), "--weight-offset", c.op, "the norms");
  refuse_unless(check::is_rms(c.op), partial.has_value(), "--partial", c.op, "rms_norm and add_rms_norm");
  refuse_unless(check::is_rms(c.op), !epsilon_placement.empty(), "--epsilon-placement", c.op,
                "rms_norm and add_rms_norm");
  refuse_unless(check::is_rms(c.op), !rounding.empty(), "--rounding", c.op, "rms_norm and add_rms_norm");
  refuse_unless(check::is_add(c.op), !norm_input.empty(), "--norm-input", c.op, "add_rms_norm and add_layer_norm");
  if (partial && *partial < 1) {
    fail(ExitCode::kUsage, "--partial is {}; it must be a number of columns, at least 1", *partial);
  }
  if (epsilon) c.epsilon = *epsilon;
  if (weight_offset) c.weight_offset = *weight_offset;
  if (partial) c.partial = *partial;
  choose(c.epsilon_placement, "--epsilon-placement", epsilon_placement, check::kPlacementNames);
  choose(c.rounding, "--rounding", rounding, check::kRoundingNames);
  choose(c.norm_input, "--norm-input", norm_input, check::kNormInputNames);
}

void ExecutionArguments::add_to(CLI::App& command) {
  command.add_option("--threads", threads, "at most N threads; 0 (default): one per CPU")
      ->type_name("N")
      ->check(CLI::Range(0, 1 << 16));
  command.add_option("--target", target, "the instruction set, see `rmsnorm info`; default: the best")->type_name("T");
}

void ExecutionArguments::apply() const {
  // The first call of the library makes the choice; asking for it here gives a wrong RMSNORM_TARGET its own exit code.
  if (!target.empty()) require(rn_use_target(target.c_str()));
}

std::string op_names() {
  std::string names;
  for (const check::Op op : check::kAllOps) names += (names.empty() ? "" : ", ") + std::string(check::name_of(op));
  return names;
}

check::Op parse_op(const std::string& name) {
  const auto op = check::op_named(name);
  if (!op) fail(ExitCode::kUsage, "OP is {}; it must be one of {}", in_quotes(name), op_names());
  return *op;
}

rn_type parse_type(const std::string& option, const std::string& name) {
  const auto type = type_from_name(name);
  if (!type) fail(ExitCode::kUsage, "{} is {}; it must be {}", option, in_quotes(name), type_names());
  return *type;
}

void require(rn_status status) {
  if (status == RN_OK) return;
  throw ToolError(status == RN_UNAVAILABLE ? ExitCode::kUnavailable : ExitCode::kBadInput, rn_last_error());
}

}  // namespace rmsnorm::tools
