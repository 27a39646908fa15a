// rmsnorm-lab soak.
#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "lab/commands/commands.h"
#include "lab/soak/soak.h"
#include "tools/error.h"

namespace rmsnorm::lab {

namespace {

struct SoakArguments {
  SoakOptions options;
  bool json = false;
};

void print(const SoakResult& result, const MemoryGrowth& grown, bool json) {
  if (json) {
    nlohmann::ordered_json faults = nlohmann::ordered_json::array();
    for (const SoakFault& fault : result.faults) {
      faults.push_back({{"case", fault.line}, {"number", fault.number}, {"error", fault.error}});
    }
    const nlohmann::ordered_json line = {{"cases", result.cases},
                                         {"elements", result.elements},
                                         {"seconds", result.seconds},
                                         {"cases_of", result.cases_of},
                                         {"resident_growth_bytes", grown.resident},
                                         {"allocated_growth_bytes", grown.allocated},
                                         {"faults", faults}};
    fmt::print("{}\n", line.dump());
  } else {
    fmt::print("{} cases with {} elements in {:.0f} s, {} faults; memory grew by {:.1f} MiB, allocated {:.2f} MiB\n",
               result.cases, result.elements, result.seconds, result.faults.size(), grown.resident / (1 << 20),
               grown.allocated / (1 << 20));
    for (const SoakFault& fault : result.faults) fmt::print("{}\n  {}\n", fault.line, fault.error);
  }
  std::fflush(stdout);
}

void run_soak(const SoakArguments& a) {
  if (!(a.options.seconds > 0 && std::isfinite(a.options.seconds))) {
    tools::fail(tools::ExitCode::kUsage, "--seconds is {}; it must be a finite number > 0", a.options.seconds);
  }
  const SoakResult result = soak(a.options);
  const MemoryGrowth grown = growth(result.memory);
  print(result, grown, a.json);
  if (!result.faults.empty()) {
    tools::fail(tools::ExitCode::kOutsideBudget, "{} faults, the first in case {} of seed {}; its line runs it again",
                result.faults.size(), result.faults[0].number, a.options.seed);
  }
  if (grown.leaks()) {
    tools::fail(tools::ExitCode::kOutsideBudget,
                "memory grew by {:.1f} MiB, allocated {:.2f} MiB; it must not grow by {} or {}",
                grown.resident / (1 << 20), grown.allocated / (1 << 20), MemoryGrowth::kMostResident / (1 << 20),
                MemoryGrowth::kMostAllocated / (1 << 20));
  }
}

constexpr char kSoakExamples[] = R"(
Shapes, types, options, values, targets and threads of a case follow from the seed and its number. A fault prints the
line with which `rmsnorm check` runs the case again, and the program ends with exit code 5.

Examples:
  rmsnorm-lab soak
  rmsnorm-lab soak --seconds 86400 --seed 7     a day)";

}  // namespace

void add_soak_command(CLI::App& app) {
  auto* command = app.add_subcommand("soak", "Random cases of every operation against the reference, for a given time");
  auto a = std::make_shared<SoakArguments>();
  a->options.progress = true;
  command->footer(kSoakExamples);
  command->add_option("--seconds", a->options.seconds, "how long")->type_name("N")->capture_default_str();
  command->add_option("--seed", a->options.seed, "of all cases")
      ->check(at_least_zero)
      ->type_name("N")
      ->capture_default_str();
  command->add_flag("--json", a->json, "print JSON");
  command->callback([a] { run_soak(*a); });
}

}  // namespace rmsnorm::lab
