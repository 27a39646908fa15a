// Independent jobs on some threads; the first error ends all of them and is thrown.
#ifndef RMSNORM_CONVERT_CHECKPOINT_PARALLEL_H_
#define RMSNORM_CONVERT_CHECKPOINT_PARALLEL_H_

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "tools/formats/temporaries.h"

namespace rmsnorm::convert::checkpoint {

// How many threads there will be, this one included. wanted 0: one per CPU.
inline std::size_t thread_count(int wanted, std::size_t jobs) {
  const std::size_t most =
      wanted > 0 ? static_cast<std::size_t>(wanted) : std::max(1u, std::thread::hardware_concurrency());
  return std::max<std::size_t>(1, std::min(most, jobs));
}

// Calls job(i) for i in 0 .. jobs.
template <class Job>
void run_parallel(std::size_t jobs, std::size_t threads, const Job& job) {
  std::mutex mutex;
  std::exception_ptr error;
  std::atomic<std::size_t> next{0};
  std::atomic<bool> stop{false};
  const auto work = [&] {
    for (std::size_t i = next++; i < jobs && !stop; i = next++) {
      try {
        job(i);
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (!error) error = std::current_exception();
        stop = true;
      }
    }
  };
  std::vector<std::thread> helpers;
  {
    // Signals are for the main thread: its handler must not run while another thread makes files.
    const tools::SignalsBlocked blocked;
    for (std::size_t t = 1; t < threads; ++t) helpers.emplace_back(work);
  }
  work();
  for (std::thread& helper : helpers) helper.join();
  if (error) std::rethrow_exception(error);
}

}  // namespace rmsnorm::convert::checkpoint

#endif  // RMSNORM_CONVERT_CHECKPOINT_PARALLEL_H_
