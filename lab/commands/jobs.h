// This program, several times side by side.
#ifndef RMSNORM_LAB_COMMANDS_JOBS_H_
#define RMSNORM_LAB_COMMANDS_JOBS_H_

#include <string>
#include <vector>

#include "tools/exit_code.h"

namespace rmsnorm::lab {

// Runs this program once with each list of arguments, in their order, up to `jobs` at once, and waits for all. Returns
// their exit codes (kInternal for one that a signal ended). They write to this process's standard output and error, and
// end when it is killed. Throws tools::ToolError when one cannot be started.
std::vector<tools::ExitCode> run_side_by_side(const std::vector<std::vector<std::string>>& arguments, int jobs);

}  // namespace rmsnorm::lab

#endif  // RMSNORM_LAB_COMMANDS_JOBS_H_
