// What the process returns: the one list that --help, the documentation test and the code read.
#ifndef RMSNORM_TOOLS_EXIT_CODE_H_
#define RMSNORM_TOOLS_EXIT_CODE_H_

namespace rmsnorm::tools {

enum class ExitCode : int {
  kOk = 0,
  kInternal = 1,
  kUsage = 2,
  kBadInput = 3,
  kInputOutput = 4,
  kOutsideBudget = 5,
  kUnavailable = 6,
};

struct ExitCodeText {
  ExitCode code;
  const char* meaning;
};

inline constexpr ExitCodeText kExitCodes[] = {
    {ExitCode::kOk, "success"},
    {ExitCode::kInternal, "a fault of this program: please report it"},
    {ExitCode::kUsage, "the command line is wrong: an unknown option, a value out of range, a missing argument"},
    {ExitCode::kBadInput, "a file is malformed, or a tensor, an option's value or a model is refused"},
    {ExitCode::kInputOutput, "a file cannot be opened, read or written"},
    {ExitCode::kOutsideBudget, "a result lies outside its error budget, targets disagree, or two models differ"},
    {ExitCode::kUnavailable, "the machine cannot: a target this CPU lacks, not enough memory"},
};

}  // namespace rmsnorm::tools

#endif  // RMSNORM_TOOLS_EXIT_CODE_H_
