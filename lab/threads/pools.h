// The thread pools under comparison, each behind the same function. One is chosen when the program is compiled.
#ifndef RMSNORM_LAB_THREADS_POOLS_H_
#define RMSNORM_LAB_THREADS_POOLS_H_

#include <cstddef>
#include <cstdint>

using Task = void (*)(void*, int64_t);

#if defined(POOL_OPENMP)
#include <omp.h>
inline const char* pool_name() { return "GNU OpenMP"; }
inline void parallel_for(int64_t count, Task task, void* data) {
#pragma omp parallel for schedule(dynamic, 1)
  for (int64_t i = 0; i < count; ++i) task(data, i);
}

#elif defined(POOL_TBB)
#include <tbb/parallel_for.h>
inline const char* pool_name() { return "oneTBB"; }
inline void parallel_for(int64_t count, Task task, void* data) {
  tbb::parallel_for(
      int64_t{0}, count, [=](int64_t i) { task(data, i); }, tbb::simple_partitioner());
}

#elif defined(POOL_PTHREADPOOL)
#include <pthreadpool.h>
#include <unistd.h>
#ifdef POOL_YIELD
inline const char* pool_name() { return "pthreadpool, yield"; }
inline constexpr uint32_t kFlags = PTHREADPOOL_FLAG_YIELD_WORKERS;
#else
inline const char* pool_name() { return "pthreadpool, spin"; }
inline constexpr uint32_t kFlags = 0;
#endif
inline void parallel_for(int64_t count, Task task, void* data) {
  static pthreadpool_t pool = pthreadpool_create(static_cast<size_t>(sysconf(_SC_NPROCESSORS_ONLN)));
  struct Call {
    Task task;
    void* data;
  } call{task, data};
  const auto one = [](void* argument, size_t i) {
    const Call& c = *static_cast<Call*>(argument);
    c.task(c.data, static_cast<int64_t>(i));
  };
  pthreadpool_parallelize_1d(pool, one, &call, static_cast<size_t>(count), kFlags);
}

#else  // the library's own wrapper, as shipped
#include "cpu/threads.h"
inline const char* pool_name() { return "src/cpu/threads.cc"; }
inline void parallel_for(int64_t count, Task task, void* data) {
  rmsnorm::run_tasks({0, nullptr, nullptr}, count, task, data);
}
#endif

#endif  // RMSNORM_LAB_THREADS_POOLS_H_
