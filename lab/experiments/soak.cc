// Experiment 14: what a burn-in finds.
#include "lab/soak/soak.h"

#include <fmt/format.h>

#include "lab/experiments/experiment.h"
#include "lab/report/text.h"

namespace rmsnorm::lab {

namespace {

constexpr char kClaim[] =
    "Before a release, an RMSNorm should run for one day under load to show that it is right and keeps its memory (P).";
constexpr char kDesign[] =
    "Random operations, shapes, types, options, values, instruction sets and numbers of threads, each result judged "
    "against the exact one, until the time is up (5 s, 30 s or an hour by scale; `rmsnorm-lab soak --seconds N` for "
    "any other). Resident and allocated memory are sampled 40 times.";
constexpr char kRule[] =
    "Holds when the run finds a fault or a leak that the tests had missed. Not settled when it finds none: N cases "
    "without a fault say only that faults are rarer than 3 in N (95 %), whatever the clock says.";

nlohmann::json run_piece(double seconds) {
  const SoakResult result = soak({.seconds = seconds, .progress = true});
  nlohmann::json memory = nlohmann::json::array(), faults = nlohmann::json::array();
  for (const MemorySample& s : result.memory) memory.push_back({s.seconds, s.resident, s.allocated});
  for (const SoakFault& f : result.faults) faults.push_back({{"case", f.line}, {"error", f.error}});
  return {{"cases", result.cases},     {"elements", result.elements},
          {"seconds", result.seconds}, {"cases_of", result.cases_of},
          {"memory", memory},          {"faults", faults}};
}

std::string mebibytes(double bytes) { return fmt::format("{:.2f} MiB", bytes / (1 << 20)); }

Page run(Context& context) {
  const double wanted = context.choose(5.0, 30.0, 3600.0);
  const nlohmann::json found = context.piece("soak", [&] { return run_piece(wanted); });
  const auto cases = found.at("cases").get<double>();
  const auto seconds = found.at("seconds").get<double>();
  const auto faults = found.at("faults").size();
  std::vector<MemorySample> samples;
  for (const auto& s : found.at("memory")) samples.push_back({s.at(0), s.at(1), s.at(2)});
  const MemoryGrowth grown = growth(samples);

  Page page;
  Finding finding;
  finding.claim = "One day of burn-in before a release shows that an RMSNorm is right and leaks nothing";
  finding.source = "P";
  finding.measured = fmt::format("{:.0f} cases in {:.0f} s: {} faults; resident memory grew by {}, allocated by {}",
                                 cases, seconds, faults, mebibytes(grown.resident), mebibytes(grown.allocated));
  const bool something = faults > 0 || grown.leaks();
  finding.verdict = something ? Verdict::kHolds : Verdict::kNotSettled;
  finding.reason =
      something
          ? "The run found what the tests had missed."
          : fmt::format(
                "Faults are rarer than {} a case (95 %). At this pace a day has {:.2g} cases; it would bring the bound "
                "to {} and says nothing of shapes and values that are not drawn. Cases count, not hours.",
                number_text(3 / cases, 2), cases / seconds * 86400, number_text(3 / (cases / seconds * 86400), 2));
  page.findings.push_back(finding);

  if (faults > 0) {
    Table table{"Faults", {"case", "error"}, {}};
    for (const auto& f : found.at("faults")) table.rows.push_back({f.at("case"), f.at("error")});
    page.parts.push_back(table);
  }
  Series resident{"resident", {}, {}, {}, {}}, allocated{"allocated by malloc", {}, {}, {}, {}};
  for (const MemorySample& s : samples) {
    resident.x.push_back(s.seconds);
    resident.y.push_back(s.resident / (1 << 20));
    allocated.x.push_back(s.seconds);
    allocated.y.push_back(s.allocated / (1 << 20));
  }
  page.parts.push_back(Plot{
      "Memory of the process", "time since the start (s)", "memory (MiB)", false, false, true, {resident, allocated}});
  Table table{"Cases of each operation", {"operation", "cases (number)"}, {}};
  for (const auto& [name, count] : found.at("cases_of").items()) {
    table.rows.push_back({name, std::to_string(count.get<std::int64_t>())});
  }
  page.parts.push_back(table);
  return page;
}

}  // namespace

const Experiment kSoak = {14, "soak", "What a burn-in finds", kClaim, kDesign, kRule, run};

}  // namespace rmsnorm::lab
