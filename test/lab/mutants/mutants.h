// Known bugs, in copies of the lab's sources (mutate.cmake puts them in), one of them switched on by its name. The
// lab's tests must see each of them.
#ifndef RMSNORM_TEST_LAB_MUTANTS_MUTANTS_H_
#define RMSNORM_TEST_LAB_MUTANTS_MUTANTS_H_

#include <cstdlib>
#include <string_view>

namespace rmsnorm::lab {

inline bool mutant(std::string_view name) {
  const char* const active = std::getenv("RMSNORM_LAB_MUTANT");
  return active != nullptr && name == active;
}

}  // namespace rmsnorm::lab

#endif  // RMSNORM_TEST_LAB_MUTANTS_MUTANTS_H_
