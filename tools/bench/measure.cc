#include "tools/bench/measure.h"

#include <sched.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "cpu/threads.h"
#include "reference/values.h"

namespace rmsnorm::tools {

namespace {

using Clock = std::chrono::steady_clock;

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

double variation(const std::vector<double>& values) {
  const double count = static_cast<double>(values.size());
  const double mean = std::accumulate(values.begin(), values.end(), 0.0) / count;
  double squares = 0;
  for (const double value : values) squares += (value - mean) * (value - mean);
  return values.size() < 2 ? 0 : std::sqrt(squares / (count - 1)) / mean;
}

class Rotation {
 public:
  explicit Rotation(std::size_t sets) : sets_(sets) {}

  double ns_per_call(const Contender& contender, std::int64_t calls) {
    const auto start = Clock::now();
    for (std::int64_t i = 0; i < calls; ++i) {
      contender(next_);
      if (++next_ == sets_) next_ = 0;
    }
    const std::chrono::duration<double, std::nano> time = Clock::now() - start;
    return time.count() / static_cast<double>(calls);
  }

 private:
  std::size_t sets_;
  std::size_t next_ = 0;
};

}  // namespace

std::vector<Timing> measure(const std::vector<Contender>& contenders, std::size_t sets, const MeasureOptions& options) {
  const std::chrono::duration<double, std::nano> sample = options.sample;
  Rotation rotation(sets);
  std::vector<std::int64_t> calls;
  for (const Contender& contender : contenders) {
    rotation.ns_per_call(contender, 1);  // pages, caches, the pool
    std::int64_t count = 1;
    for (;;) {
      const double ns = rotation.ns_per_call(contender, count) * static_cast<double>(count);
      if (ns >= sample.count() / 4) {
        calls.push_back(std::max<std::int64_t>(
            1, static_cast<std::int64_t>(std::ceil(static_cast<double>(count) * sample.count() / ns))));
        break;
      }
      count *= 4;
    }
  }

  std::vector<std::vector<double>> samples(contenders.size());
  std::vector<std::size_t> order(contenders.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::uint64_t random = 1;
  for (int repeat = 0; repeat < options.repeats; ++repeat) {
    for (std::size_t i = order.size(); i > 1; --i) {
      random = reference::scatter(random);
      std::swap(order[i - 1], order[random % i]);
    }
    for (const std::size_t i : order) samples[i].push_back(rotation.ns_per_call(contenders[i], calls[i]));
  }
  std::vector<Timing> timings;
  for (const auto& values : samples) timings.push_back({median(values), variation(values)});
  return timings;
}

Pinned::Pinned() {
  // The library asks once how many CPUs there are. Asked from here on it would hear one, and every later measurement with
  // several threads would run on one.
  thread_limit({});
  cpu_set_t set;
  const int cpu = ::sched_getcpu();
  if (cpu < 0 || ::sched_getaffinity(0, sizeof set, &set) != 0) return;
  before_.resize(sizeof set);
  std::memcpy(before_.data(), &set, sizeof set);
  CPU_ZERO(&set);
  CPU_SET(static_cast<std::size_t>(cpu), &set);
  ::sched_setaffinity(0, sizeof set, &set);
}

Pinned::~Pinned() {
  if (before_.empty()) return;
  cpu_set_t set;
  std::memcpy(&set, before_.data(), sizeof set);
  ::sched_setaffinity(0, sizeof set, &set);
}

}  // namespace rmsnorm::tools
