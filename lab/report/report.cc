#include "lab/report/report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "lab/report/text.h"

namespace rmsnorm::lab {

namespace {

constexpr Verdict kVerdicts[] = {Verdict::kHolds, Verdict::kPartly, Verdict::kRefuted, Verdict::kNotSettled,
                                 Verdict::kCannotBeTestedHere};

// "time (ns)", "loss, nats", "share of the step", "bytes per token": a quantity and what it is counted in.
bool names_unit(const std::string& label) {
  constexpr const char* kMarks[] = {"(", "[", ", ", "%", " of ", " per ", "number"};
  return std::any_of(std::begin(kMarks), std::end(kMarks),
                     [&](const char* mark) { return label.find(mark) != std::string::npos; });
}

void find_faults(const Table& table, const std::string& where, std::vector<std::string>& faults) {
  if (table.columns.empty()) faults.push_back(fmt::format("{}: table \"{}\" has no columns", where, table.title));
  for (std::size_t i = 0; i < table.rows.size(); ++i) {
    if (table.rows[i].size() != table.columns.size()) {
      faults.push_back(fmt::format("{}: row {} of table \"{}\" has {} cells; it must have {}", where, i, table.title,
                                   table.rows[i].size(), table.columns.size()));
    }
  }
}

void find_faults(const Plot& plot, const std::string& where, std::vector<std::string>& faults) {
  if (plot.title.empty()) faults.push_back(where + ": a plot has no title");
  for (const std::string& label : {plot.x_label, plot.y_label}) {
    if (!names_unit(label)) {
      faults.push_back(fmt::format("{}: an axis of plot \"{}\" is \"{}\"; it must name its unit, \"time (ns)\"", where,
                                   plot.title, label));
    }
  }
  if (plot.series.empty()) faults.push_back(fmt::format("{}: plot \"{}\" has no series", where, plot.title));
  for (const Series& s : plot.series) {
    const bool intervals = s.low.size() == s.x.size() && s.high.size() == s.x.size();
    if (s.x.empty() || s.y.size() != s.x.size() || (!intervals && !(s.low.empty() && s.high.empty()))) {
      faults.push_back(
          fmt::format("{}: series \"{}\" of plot \"{}\" has {} x, {} y, {} low and {} high; they must be "
                      "equally many, low and high as many or none",
                      where, s.name, plot.title, s.x.size(), s.y.size(), s.low.size(), s.high.size()));
    }
  }
}

void find_faults(const Text& text, const std::string& where, std::vector<std::string>& faults) {
  if (text.paragraph.empty()) faults.push_back(where + ": a paragraph is empty");
}

void find_faults(const Finding& finding, const std::string& where, std::vector<std::string>& faults) {
  const std::pair<const char*, const std::string*> members[] = {{"claim", &finding.claim},
                                                                {"source", &finding.source},
                                                                {"measured value", &finding.measured},
                                                                {"reason", &finding.reason}};
  for (const auto& [name, value] : members) {
    if (value->empty()) faults.push_back(fmt::format("{}: finding \"{}\" has no {}", where, finding.claim, name));
  }
}

}  // namespace

std::vector<std::string> faults_of(const Report& report) {
  std::vector<std::string> faults;
  for (const Chapter& chapter : report.chapters) {
    const std::pair<const char*, const std::string*> members[] = {{"title", &chapter.title},
                                                                  {"claim", &chapter.claim},
                                                                  {"design", &chapter.design},
                                                                  {"rule", &chapter.rule},
                                                                  {"command", &chapter.command}};
    for (const auto& [name, value] : members) {
      if (value->empty()) faults.push_back(fmt::format("{}: it has no {}", chapter.name, name));
    }
    if (chapter.page.findings.empty()) faults.push_back(chapter.name + ": it has no finding");
    if (chapter.machines.empty()) faults.push_back(chapter.name + ": no number of it comes from a piece");
    for (const Finding& finding : chapter.page.findings) find_faults(finding, chapter.name, faults);
    for (const auto& part : chapter.page.parts) {
      std::visit([&](const auto& p) { find_faults(p, chapter.name, faults); }, part);
    }
  }
  return faults;
}

std::vector<std::string> machines_of(const Report& report) {
  std::vector<std::string> machines;
  for (const Chapter& chapter : report.chapters) {
    for (const std::string& machine : chapter.machines) {
      if (std::find(machines.begin(), machines.end(), machine) == machines.end()) machines.push_back(machine);
    }
  }
  return machines;
}

std::string machine_letters(const Chapter& chapter, const std::vector<std::string>& machines) {
  std::string letters;
  for (const std::string& machine : chapter.machines) {
    const auto at = std::find(machines.begin(), machines.end(), machine) - machines.begin();
    letters += (letters.empty() ? "" : ", ") + std::string(1, static_cast<char>('A' + at % 26));
  }
  return letters;
}

std::string verdict_counts(const Report& report) {
  std::vector<std::string> parts;
  for (const Verdict verdict : kVerdicts) {
    std::size_t count = 0;
    for (const Chapter& chapter : report.chapters) {
      count +=
          static_cast<std::size_t>(std::count_if(chapter.page.findings.begin(), chapter.page.findings.end(),
                                                 [&](const Finding& finding) { return finding.verdict == verdict; }));
    }
    if (count > 0) parts.push_back(fmt::format("{} × {}", count, name_of(verdict)));
  }
  return fmt::format("{}", fmt::join(parts, ", "));
}

std::vector<std::string> introduction(const Report& report) {
  std::vector<std::string> paragraphs = {
      "E is an explainer of RMSNorm, P a practice report on a Llama whose LayerNorm was replaced by RMSNorm, Z the "
      "paper "
      "by Zhang and Sennrich (2019). Intervals hold the true value 95 times in 100. Times are medians over interleaved "
      "repeats. A claim that the interval does not decide is \"not settled\".",
      fmt::format("Scale of this run: {}. Verdicts: {}.", report.scale, verdict_counts(report))};
  if (report.scale == "smoke") {
    paragraphs.emplace_back(
        "A smoke run shows that the program works. Its sizes are too small for its verdicts to mean "
        "anything.");
  }
  const std::vector<std::string> machines = machines_of(report);
  for (std::size_t i = 0; i < machines.size(); ++i) {
    paragraphs.push_back(fmt::format("Machine {}: {}.", static_cast<char>('A' + i % 26), machines[i]));
  }
  for (const std::string& missing : report.missing)
    paragraphs.push_back(fmt::format("Not in this report: {}.", missing));
  return paragraphs;
}

}  // namespace rmsnorm::lab
