// rmsnorm info: the machine, the targets, the thresholds.
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cpu/thresholds.h"
#include "tools/arguments.h"
#include "tools/commands.h"
#include "tools/error.h"
#include "tools/machine.h"

namespace rmsnorm::tools {

namespace {

struct Threshold {
  const char* name;
  std::int64_t value;
  const char* meaning;
};

constexpr Threshold kThresholds[] = {
    {"kBytesPerThread", kBytesPerThread, "bytes read and written per piece below which no thread is woken"},
    {"kStreamBytes", kStreamBytes, "bytes moved above which stores go around the caches"},
    {"kStreamBytesZen", kStreamBytesZen, "the same on AMD CPUs"},
    {"kGroupColumns", kGroupColumns, "columns of the rows that are taken together"},
    {"kMaxGroupColumns", kMaxGroupColumns, "columns of the widest rows that are taken together"},
    {"kFewestGrouped", kFewestGrouped, "rows below which they are not"},
    {"kMaxKeptColumns", kMaxKeptColumns, "columns up to which the sum with a residual is kept between the passes"},
    {"kJoinedColumns", kJoinedColumns, "columns from which unaligned 16-bit rows of LayerNorm go around the caches"},
    {"kApartColumns", kApartColumns, "columns from which unaligned rows of the backward go around the caches"},
    {"kFetchAhead", kFetchAhead, "bytes ahead of its reading that a pass asks for"},
    {"kSharedRowColumns", kSharedRowColumns, "columns from which threads may share a row"},
    {"kOneSegment", kOneSegment, "columns up to which a row is summed in one segment"},
    {"kChunk", kChunk, "columns after which the lanes of a sum are folded"},
};

// The target in use; asking for it makes the choice, and a wrong RMSNORM_TARGET shows here.
const char* chosen_target() {
  const char* name = rn_target();
  if (name == nullptr || *name == '\0') throw ToolError(ExitCode::kUnavailable, rn_last_error());
  return name;
}

void print_json() {
  const Machine machine = this_machine();
  nlohmann::ordered_json json = {{"version", rn_version()},
                                 {"cpu", machine.cpu},
                                 {"cpus", machine.cpus},
                                 {"l1_bytes", machine.l1_bytes},
                                 {"l2_bytes", machine.l2_bytes},
                                 {"l3_bytes", machine.l3_bytes},
                                 {"memory_bytes", machine.memory_bytes},
                                 {"target", chosen_target()},
                                 {"target_reason", rn_target_reason()}};
  for (std::int32_t i = 0; i < rn_target_count(); ++i) {
    json["targets"].push_back({{"name", rn_target_name(i)},
                               {"description", rn_target_description(i)},
                               {"supported", rn_target_supported(i) != 0}});
  }
  for (const Threshold& threshold : kThresholds) json["thresholds"][threshold.name] = threshold.value;
  fmt::print("{}\n", json.dump());
}

void print_text() {
  const Machine machine = this_machine();
  const std::string target = chosen_target();
  fmt::print("rmsnorm {}\n\n", rn_version());
  fmt::print("CPU      {}\n", machine.cpu);
  fmt::print("CPUs     {} for this process\n", machine.cpus);
  fmt::print("caches   L1 {}, L2 {}, L3 {}\n", bytes_text(machine.l1_bytes), bytes_text(machine.l2_bytes),
             bytes_text(machine.l3_bytes));
  fmt::print("memory   {}\n\n", bytes_text(machine.memory_bytes));
  fmt::print("targets, best first\n");
  for (std::int32_t i = 0; i < rn_target_count(); ++i) {
    const bool used = target == rn_target_name(i);
    fmt::print("  {} {:<13} {:<4} {}\n", used ? '*' : ' ', rn_target_name(i), rn_target_supported(i) ? "yes" : "no",
               rn_target_description(i));
  }
  fmt::print("in use   {} ({})\n\n", target, rn_target_reason());
  fmt::print("thresholds\n");
  for (const Threshold& threshold : kThresholds) {
    fmt::print("  {:<18} {:>9}  {}\n", threshold.name, threshold.value, threshold.meaning);
  }
}

constexpr char kInfoExamples[] = R"(
Examples:
  rmsnorm info
  RMSNORM_TARGET=avx2 rmsnorm info     what another choice would be
  rmsnorm info --json)";

}  // namespace

void add_info_command(CLI::App& app) {
  auto* command = app.add_subcommand("info", "Show the CPU, the targets, which one is chosen and why");
  auto json = std::make_shared<bool>(false);
  command->footer(kInfoExamples);
  command->add_flag("--json", *json, "print one JSON object");
  command->callback([json] { *json ? print_json() : print_text(); });
}

}  // namespace rmsnorm::tools
