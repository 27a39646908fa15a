// Times several ways of doing the same work against each other, in one run, in turns of random order: clock and
// neighbours change from second to second, and only what they do to all contenders alike cancels in a ratio.
#ifndef RMSNORM_TOOLS_BENCH_MEASURE_H_
#define RMSNORM_TOOLS_BENCH_MEASURE_H_

#include <chrono>
#include <functional>
#include <vector>

namespace rmsnorm::tools {

// One call on set number `set` of the buffers.
using Contender = std::function<void(std::size_t set)>;

struct Timing {
  double ns = 0;  // median of the repetitions, per call
  double cv = 0;  // standard deviation / mean of the repetitions
};

struct MeasureOptions {
  int repeats = 11;
  std::chrono::microseconds sample{4000};  // a repetition goes on at least so long
};

// One timing per contender. All of them share one rotation through the sets, so that a set comes back only after all
// others have been used.
std::vector<Timing> measure(const std::vector<Contender>& contenders, std::size_t sets, const MeasureOptions& options);

// Keeps the calling thread on its CPU while it lives. Only for work on one thread: a pool made meanwhile would inherit
// it.
class Pinned {
 public:
  Pinned();
  ~Pinned();
  Pinned(const Pinned&) = delete;
  Pinned& operator=(const Pinned&) = delete;

 private:
  std::vector<unsigned char> before_;  // the CPU set to go back to; empty if it could not be read
};

}  // namespace rmsnorm::tools

#endif  // RMSNORM_TOOLS_BENCH_MEASURE_H_
