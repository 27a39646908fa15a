// What a thread pool costs and how it behaves where libraries get hurt. Prints one Markdown row; run.sh makes the
// table.
#include <dlfcn.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string>
#include <thread>
#include <vector>

#include "pools.h"

namespace {
std::atomic<int64_t> allocations{0};
}

// Counts what the pool allocates, by malloc and by operator new, which calls it.
extern "C" void* malloc(size_t size) {
  static const auto real = reinterpret_cast<void* (*)(size_t)>(dlsym(RTLD_NEXT, "malloc"));
  allocations.fetch_add(1, std::memory_order_relaxed);
  return real(size);
}

namespace {

using Clock = std::chrono::steady_clock;

double microseconds_since(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

double process_cpu_ms() {
  timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) * 1e3 + static_cast<double>(t.tv_nsec) / 1e6;
}

double quantile(std::vector<double> values, double q) {
  const size_t i = static_cast<size_t>(q * static_cast<double>(values.size() - 1));
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(i), values.end());
  return values[i];
}

void nothing(void*, int64_t) {}

// About 20 microseconds of arithmetic that is the same for every pool.
void some_work(void* data, int64_t) {
  volatile double value = 1.0;
  for (int i = 0; i < 20000; ++i) value = value * 1.0000001;
  static_cast<std::atomic<int64_t>*>(data)->fetch_add(1);
}

void call_again(void* data, int64_t) { parallel_for(2, some_work, data); }

// Runs `f` in a child process; "ok", or "hangs" after two seconds, or how it died.
template <class F>
std::string in_child(F f) {
  const pid_t child = fork();
  if (child == 0) {
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, nullptr);
    alarm(2);
    f();
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  if (WIFSIGNALED(status)) return WTERMSIG(status) == SIGALRM ? "hangs" : "signal " + std::to_string(WTERMSIG(status));
  return WEXITSTATUS(status) == 0 ? "ok" : "exits " + std::to_string(WEXITSTATUS(status));
}

// Wall time in ms for `callers` threads that make 200 calls each of two pieces of some_work.
double callers_at_once(int callers) {
  std::atomic<int64_t> done{0};
  std::vector<std::thread> threads;
  const auto start = Clock::now();
  for (int t = 0; t < callers; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 200; ++i) parallel_for(2, some_work, &done);
    });
  }
  for (auto& t : threads) t.join();
  return microseconds_since(start) / 1e3;
}

std::string without_threads() {
  return in_child([] {
    rlimit none{0, 0};
    setrlimit(RLIMIT_NPROC, &none);
    if (setuid(65534) != 0) _exit(9);
    std::atomic<int64_t> done{0};
    parallel_for(2, some_work, &done);
    if (done != 2) _exit(8);
  });
}

}  // namespace

int main() {
  std::atomic<int64_t> done{0};
  // In children of a process that has no pool yet, so that nothing but the named trouble is at work.
  const std::string refused = without_threads();
  const std::string nested = in_child([] {
    std::atomic<int64_t> nested_done{0};
    parallel_for(4, call_again, &nested_done);
    if (nested_done != 8) _exit(8);
  });

  const auto start = Clock::now();
  parallel_for(2, nothing, nullptr);
  const double first = microseconds_since(start);

  std::vector<double> warm;
  for (int i = 0; i < 3000; ++i) {
    const auto t = Clock::now();
    parallel_for(2, nothing, nullptr);
    warm.push_back(microseconds_since(t));
  }
  const int64_t before = allocations;
  for (int i = 0; i < 1000; ++i) parallel_for(2, some_work, &done);
  const double per_call = static_cast<double>(allocations - before) / 1000;

  std::vector<double> idle;
  const double cpu_before = process_cpu_ms();
  for (int i = 0; i < 60; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    const auto t = Clock::now();
    parallel_for(2, nothing, nullptr);
    idle.push_back(microseconds_since(t));
  }
  const double burnt = (process_cpu_ms() - cpu_before) / 60;

  const std::string forked = in_child([] {
    std::atomic<int64_t> in_child_done{0};
    for (int i = 0; i < 10; ++i) parallel_for(2, some_work, &in_child_done);
    if (in_child_done != 20) _exit(8);
  });
  const double two = callers_at_once(2);
  const double eight = callers_at_once(8);

  std::printf("| %s | %.0f | %.1f | %.1f | %.1f | %.2f | %.3f | %s | %s | %s | %.0f | %.0f |\n", pool_name(), first,
              quantile(warm, 0.5), quantile(warm, 0.99), quantile(idle, 0.5), burnt, per_call, forked.c_str(),
              nested.c_str(), refused.c_str(), two, eight);
}
