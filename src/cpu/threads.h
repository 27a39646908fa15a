// Where pieces of work run: on the built-in pool, on the caller's own parallel_for, or on the calling thread.
#ifndef RMSNORM_CPU_THREADS_H_
#define RMSNORM_CPU_THREADS_H_

#include <cstdint>

#include "rmsnorm/rmsnorm.h"

namespace rmsnorm {

// How many pieces `execution` lets run at once, at least 1: its `threads`, or with 0 the number of CPUs that the first
// caller could use; in both cases at most the value of the environment variable RMSNORM_THREADS, if that is a number
// from 1.
int thread_limit(const rn_execution& execution);

// Runs task(data, i) for i = 0 .. count-1, in any order, at most thread_limit() at once, and returns when all have
// ended. Each piece starts in the default floating-point environment. Allocates only when it makes the pool: in the
// first call of the process, or of a forked child, that has something to share. Where the pool is busy (another caller,
// or a call from inside a piece) or cannot be made, the pieces run on the calling thread.
void run_tasks(const rn_execution& execution, int64_t count, rn_task task, void* data);

}  // namespace rmsnorm

#endif  // RMSNORM_CPU_THREADS_H_
