// Norms recorded inside models, recomputed with the command line and compared with the exact result.
#ifndef RMSNORM_EXAMPLES_DEMO_RECOMPUTE_H_
#define RMSNORM_EXAMPLES_DEMO_RECOMPUTE_H_

#include <string>

namespace rmsnorm::demo {

// `program` is the command line, `folder` holds the recorded files. Prints a table; returns false if one of our results
// lies outside its budget.
bool recompute(const std::string& program, const std::string& folder);

}  // namespace rmsnorm::demo

#endif  // RMSNORM_EXAMPLES_DEMO_RECOMPUTE_H_
