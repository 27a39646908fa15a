// The report: the ledger of claims and a chapter for each experiment, as one HTML page and as Markdown.
#ifndef RMSNORM_LAB_REPORT_REPORT_H_
#define RMSNORM_LAB_REPORT_REPORT_H_

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "lab/report/document.h"

namespace rmsnorm::lab {

// One experiment with its results and where they come from.
struct Chapter {
  int number = 0;
  std::string name, title, claim, design, rule;
  std::string command;                // repeats it
  std::vector<std::string> machines;  // that its numbers come from, each once
  std::vector<std::string> commits;
  std::size_t pieces = 0;
  double seconds = 0;  // all pieces took
  Page page;
};

struct Report {
  std::string scale;
  std::vector<Chapter> chapters;
  std::vector<std::string> missing;  // experiments that have not been run: name and reason
};

// What a report must not lack: a finding for each experiment, and for each its claim, source, measured value and
// reason; labels with units on all axes; as many cells in a row as the table has columns. One line for each fault.
std::vector<std::string> faults_of(const Report& report);

// Machines by their place in the list; the ledger calls them A, B, ..
std::vector<std::string> machines_of(const Report& report);
std::string machine_letters(const Chapter& chapter, const std::vector<std::string>& machines);

// "2 hold, 1 refuted": how many findings have which verdict.
std::string verdict_counts(const Report& report);

// One page with everything in it; well-formed as XML, too.
std::string html(const Report& report);

// Markdown, and the files of its plots with their paths beside it.
struct Markdown {
  std::string text;
  std::vector<std::pair<std::string, std::string>> files;
};
Markdown markdown(const Report& report);

// The words that both begin with.
inline constexpr char kReportTitle[] = "The lab: claims about RMSNorm, measured";
std::vector<std::string> introduction(const Report& report);

inline constexpr const char* kLedgerColumns[] = {"", "Claim", "Source", "Measured", "Machine", "Verdict", "Why"};

}  // namespace rmsnorm::lab

#endif  // RMSNORM_LAB_REPORT_REPORT_H_
