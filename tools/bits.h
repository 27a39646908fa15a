// A hash of a fixed set of results. It depends on the library's arithmetic alone: the same for every target, number of
// threads, compiler and architecture.
#ifndef RMSNORM_TOOLS_BITS_H_
#define RMSNORM_TOOLS_BITS_H_

#include <cstdint>
#include <string>

namespace rmsnorm::tools {

// Runs the cases on the target in use; `name` labels the progress line.
std::uint64_t hash_of_results(const std::string& name, std::int32_t threads);

}  // namespace rmsnorm::tools

#endif  // RMSNORM_TOOLS_BITS_H_
