// Counts what the process takes from the heap. A program that links allocations.cc has its malloc replaced, so it is not
// built with sanitizers.
#ifndef RMSNORM_TEST_SUPPORT_ALLOCATIONS_H_
#define RMSNORM_TEST_SUPPORT_ALLOCATIONS_H_

#include <cstdint>

namespace rmsnorm::test {

// Since the start of the process, in all threads.
struct Allocations {
  std::int64_t count;
  std::int64_t bytes;
};
Allocations allocations();

}  // namespace rmsnorm::test

#endif  // RMSNORM_TEST_SUPPORT_ALLOCATIONS_H_
