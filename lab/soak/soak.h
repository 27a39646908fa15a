// Random cases of every operation against the reference, for a given time, with an eye on the memory.
#ifndef RMSNORM_LAB_SOAK_SOAK_H_
#define RMSNORM_LAB_SOAK_SOAK_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace rmsnorm::lab {

struct SoakOptions {
  double seconds = 60;
  std::uint64_t seed = 1;
  bool progress = false;                       // a live line when stderr is a terminal
  std::size_t most_faults = 10;                // it ends after so many
  std::optional<std::int64_t> spoiled = {};    // for tests: the case whose first result is changed before it is judged
  std::optional<std::int64_t> last_case = {};  // it ends after this one, if there is time left
};

struct SoakFault {
  std::int64_t number;  // of the case, from 0
  std::string line;     // `rmsnorm check ..`: runs it again
  std::string error;
};

struct MemorySample {
  double seconds;
  double resident, allocated;  // bytes: of the process; by malloc, 0 where the C library does not say
};

struct SoakResult {
  std::int64_t cases = 0, elements = 0;
  std::map<std::string, std::int64_t> cases_of;  // by operation
  std::vector<SoakFault> faults;
  std::vector<MemorySample> memory;
  double seconds = 0;
};

// Case `number` of a seed is the same on every machine with the same targets, however long the run is.
std::string soak_case_line(std::uint64_t seed, std::int64_t number);

SoakResult soak(const SoakOptions& options);

// The mean of the last quarter of the samples less that of the second one: the first is warm-up.
struct MemoryGrowth {
  double resident = 0, allocated = 0;  // bytes
  bool leaks() const { return resident > kMostResident || allocated > kMostAllocated; }
  static constexpr double kMostResident = 8 << 20;
  static constexpr double kMostAllocated = 1 << 20;
};
MemoryGrowth growth(const std::vector<MemorySample>& samples);

}  // namespace rmsnorm::lab

#endif  // RMSNORM_LAB_SOAK_SOAK_H_
