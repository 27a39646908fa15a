// How many instructions a piece of work executes, counted one by one.
#ifndef RMSNORM_LAB_EXPERIMENTS_INSTRUCTIONS_H_
#define RMSNORM_LAB_EXPERIMENTS_INSTRUCTIONS_H_

#include <cstdint>
#include <functional>
#include <optional>

namespace rmsnorm::lab {

// Exact and the same each time; it needs no counters, which virtual machines hide, and takes every instruction of this
// CPU. Takes some microseconds for each. `work` runs in a child process on one thread and may start none; it runs once
// before, so that what is done only the first time is not counted. Nothing where the system forbids tracing.
std::optional<std::int64_t> count_instructions(const std::function<void()>& work);

}  // namespace rmsnorm::lab

#endif  // RMSNORM_LAB_EXPERIMENTS_INSTRUCTIONS_H_
