// From a folder of pieces to a report: every experiment is run again on what is there, and works nothing.
#ifndef RMSNORM_LAB_EXPERIMENTS_COLLECT_H_
#define RMSNORM_LAB_EXPERIMENTS_COLLECT_H_

#include <filesystem>

#include "lab/experiments/experiment.h"
#include "lab/report/report.h"

namespace rmsnorm::lab {

// The experiments of these names, in their order; all for none. Throws tools::ToolError for an unknown name.
std::vector<const Experiment*> experiments_named(const std::vector<std::string>& names);

// The command line that repeats an experiment.
std::string run_command_line(const std::string& experiment, Scale scale);

Chapter chapter_of(const Experiment& experiment, const Context& context, Page page);

// The pieces of an experiment lie in folder/<its name>. Those that are not all there are named as missing. Throws
// tools::ToolError where there is nothing at all, and for files that are damaged or of different scales.
Report collect_report(const std::filesystem::path& folder);

}  // namespace rmsnorm::lab

#endif  // RMSNORM_LAB_EXPERIMENTS_COLLECT_H_
