// rmsnorm check: one case against the reference, or the hashes of a fixed set of cases.
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "check/judge.h"
#include "tools/arguments.h"
#include "tools/bits.h"
#include "tools/commands.h"
#include "tools/error.h"

namespace rmsnorm::tools {

namespace {

struct CheckArguments {
  std::string op;
  std::vector<std::string> operands;
  bool in_place = false;
  bool bits = false;
  bool json = false;
  OptionArguments options;
  ExecutionArguments execution;
};

check::Case parse_case(const CheckArguments& a) {
  if (a.op.empty()) fail(ExitCode::kUsage, "OP is missing; it must be one of {}, or --bits must be given", op_names());
  check::Case c = check::make_case(parse_op(a.op), RN_F32, 1, 1);
  if (a.operands.empty() || !a.operands.front().starts_with("x=")) {
    fail(ExitCode::kUsage, "the first operand is {}; it must be x=ROWSxCOLS:TYPE",
         a.operands.empty() ? "missing" : in_quotes(a.operands.front()));
  }
  for (const std::string& operand : a.operands) {
    if (const std::string error = check::parse_operand(operand, c); !error.empty()) fail(ExitCode::kUsage, "{}", error);
  }
  a.options.apply(c);
  c.target = a.execution.target;
  c.threads = a.execution.threads;
  c.in_place = a.in_place;
  if (c.in_place && (c.out != c.x || (check::is_add(c.op) && c.residual_out != c.residual))) {
    fail(ExitCode::kUsage,
         "out and residual_out have types of their own; with --in-place they must be those of x and "
         "residual");
  }
  return c;
}

void run_case(const CheckArguments& a) {
  const check::Case c = parse_case(a);
  const check::Operands operands(c);
  require(check::call(c, operands));
  const check::Report report = check::judge(c, operands);
  const std::string line = check::command_line(c);
  if (a.json) {
    const nlohmann::ordered_json json = {{"case", line},
                                         {"target", rn_target()},
                                         {"ok", report.ok()},
                                         {"max_ulp", report.max_ulp},
                                         {"mean_ulp", report.mean_ulp()},
                                         {"exact_share", report.exact_share()},
                                         {"budget_ulp", report.budget.ulps},
                                         {"error", report.error}};
    fmt::print("{}\n", json.dump());
  } else {
    fmt::print("{}\n", line);
    fmt::print("target {}: max {:.4f} ulp (budget {:.2f}), mean {:.4f} ulp, {:.2f} % exact\n", rn_target(),
               report.max_ulp, report.budget.ulps, report.mean_ulp(), 100 * report.exact_share());
    if (report.elements > 0 && report.max_ulp > 0) {
      fmt::print("worst at row {}, column {}: {} instead of {}\n", report.worst_row, report.worst_col,
                 report.worst_found, report.worst_expected);
    }
  }
  std::fflush(stdout);
  if (!report.ok()) fail(ExitCode::kOutsideBudget, "{}", report.error);
}

void run_bits(const CheckArguments& a) {
  if (!a.op.empty()) fail(ExitCode::kUsage, "OP is {}; with --bits it must not be given", in_quotes(a.op));
  std::vector<std::string> names;
  for (std::int32_t i = 0; i < rn_target_count(); ++i) {
    if (rn_target_supported(i) && (a.execution.target.empty() || a.execution.target == rn_target_name(i))) {
      names.emplace_back(rn_target_name(i));
    }
  }
  std::optional<std::uint64_t> first;
  bool equal = true;
  for (const std::string& name : names) {
    require(rn_use_target(name.c_str()));
    const std::uint64_t hash = hash_of_results(name, a.execution.threads);
    if (a.json) {
      const nlohmann::ordered_json json = {{"target", name}, {"hash", fmt::format("{:016x}", hash)}};
      fmt::print("{}\n", json.dump());
    } else {
      fmt::print("{:<14} {:016x}\n", name, hash);
    }
    std::fflush(stdout);
    equal = equal && hash == first.value_or(hash);
    first = first.value_or(hash);
  }
  if (!equal) fail(ExitCode::kOutsideBudget, "the hashes differ; they must be equal");
}

constexpr char kCheckExamples[] = R"(
Operands: x=ROWSxCOLS:TYPE[@stride=N,offset=N,values=NAME,seed=N] comes first and sets the other types to its own; then
w=TYPE, b=TYPE, residual=TYPE, residual_out=TYPE, out=TYPE. A failing test prints such a line. A wrong NAME lists all.

Examples:
  rmsnorm check rms_norm x=3x70:bf16@stride=77,values=cauchy,seed=5 w=f32 out=bf16 --epsilon 0
  rmsnorm check layer_norm x=16x4096:f32@values=offset w=f32 b=f32 --threads 2
  rmsnorm check --bits               one line per target: all hashes are the same)";

}  // namespace

void add_check_command(CLI::App& app) {
  auto* command = app.add_subcommand("check", "Compare one case with the reference, or all targets with each other");
  auto a = std::make_shared<CheckArguments>();
  command->footer(kCheckExamples);
  command->add_option("OP", a->op, op_names())->type_name("");
  command->add_option("OPERANDS", a->operands, "x=ROWSxCOLS:TYPE[@...] [w=TYPE] [b=TYPE] [out=TYPE] ..")->type_name("");
  command->add_flag("--in-place", a->in_place, "out is x, residual_out is residual");
  command->add_flag("--bits", a->bits, "print a hash of a fixed set of results for each target of this machine");
  command->add_flag("--json", a->json, "print JSON, one object a line");
  a->options.add_to(*command);
  a->execution.threads = check::Case{}.threads;
  a->execution.add_to(*command);
  add_check_operations(*command);
  command->callback([a, command] {
    if (!command->get_subcommands().empty()) return;
    a->execution.apply();
    a->bits ? run_bits(*a) : run_case(*a);
  });
}

}  // namespace rmsnorm::tools
