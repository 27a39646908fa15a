#include "cpu/threads.h"

#include <pthread.h>
#include <pthreadpool.h>
#include <sched.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <memory>
#include <new>

#include "cpu/fp_environment.h"

namespace rmsnorm {
namespace {

int available_cpus() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) return std::max(1, CPU_COUNT(&set));
  return static_cast<int>(std::max(1L, sysconf(_SC_NPROCESSORS_ONLN)));  // more CPUs than a cpu_set_t holds
}

// The limit that RMSNORM_THREADS sets; the largest int without one.
int environment_limit() {
  constexpr int kNone = 0x7fffffff;
  const char* text = std::getenv("RMSNORM_THREADS");
  if (text == nullptr) return kNone;
  char* end = nullptr;
  const long value = std::strtol(text, &end, 10);
  return end != text && *end == '\0' && value >= 1 && value < kNone ? static_cast<int>(value) : kNone;
}

struct Limits {
  int environment = environment_limit();
  int cpus = std::min(available_cpus(), environment);
};

const Limits& limits() {
  static const Limits value;
  return value;
}

struct Work {
  rn_task task;
  void* data;
  int64_t count;
  std::atomic<int64_t> next;
};

// The pool, and a caller's parallel_for, order what was written before a call before its pieces, and these before its
// return, but often in libraries that ThreadSanitizer does not see. These counters say so again in our own code:
// Published stands around a call, Received around what another thread does of it.
std::atomic<uint32_t> published{0};
std::atomic<uint32_t> finished{0};

struct Published {
  Published() { published.fetch_add(1, std::memory_order_release); }
  ~Published() { finished.load(std::memory_order_acquire); }
};

struct Received {
  Received() { published.load(std::memory_order_acquire); }
  ~Received() { finished.fetch_add(1, std::memory_order_release); }
};

// One thread's share: pieces are taken as they come, so a thread that starts late takes fewer.
void run_lane(Work& work) {
  for (;;) {
    const int64_t index = work.next.fetch_add(1, std::memory_order_relaxed);
    if (index >= work.count) return;
    const FloatingPointGuard guard;
    work.task(work.data, index);
  }
}

void run_pool_lane(void* work, size_t) {
  const Received edge;
  run_lane(*static_cast<Work*>(work));
}

void run_caller_lane(void* work, int64_t) {
  const Received edge;
  run_lane(*static_cast<Work*>(work));
}

// Workers sleep at once after a call. Without this flag each one spins for tens of milliseconds, on CPUs that the
// caller's own threads want: lab/threads/notes.md.
constexpr uint32_t kPoolFlags = PTHREADPOOL_FLAG_YIELD_WORKERS;

class Pool {
 public:
  // False if another call has the pool, or if there is none: then nothing was run.
  bool try_run(Work& work, size_t lanes) {
    // An exchange and not a mutex: a piece that calls the library again must be turned away, not wait for itself.
    if (busy_.exchange(true, std::memory_order_acquire)) return false;
    if (!made_) make();
    const bool usable = handle_ != nullptr;
    if (usable) {
      const Published edge;
      pthreadpool_parallelize_1d(handle_, run_pool_lane, &work, lanes, kPoolFlags);
    }
    busy_.store(false, std::memory_order_release);
    return usable;
  }

  // At exit and when the library is unloaded the workers must be gone before the code they run.
  ~Pool() {
    if (!busy_.exchange(true, std::memory_order_acquire) && handle_ != nullptr) pthreadpool_destroy(handle_);
    // busy_ stays set: calls from later destructors run on their own thread.
  }

 private:
  void make();
  static void forget_in_child();

  std::atomic<bool> busy_{false};
  bool made_ = false;  // tried once: a process that was refused threads is not slowed by asking again in every call
  bool fork_handler_set_ = false;
  pthreadpool_t handle_ = nullptr;
};

Pool pool;

// The threads did not come along and the old pool's locks may be held by them: it is left behind, a few kilobytes.
void Pool::forget_in_child() {
  pool.handle_ = nullptr;
  pool.made_ = false;
  pool.busy_.store(false, std::memory_order_relaxed);
}

void* wait_for_mutex(void* mutex) {
  pthread_mutex_lock(static_cast<pthread_mutex_t*>(mutex));
  pthread_mutex_unlock(static_cast<pthread_mutex_t*>(mutex));
  return nullptr;
}

// Whether the system grants `count` more threads. pthreadpool_create does not look whether its threads came to be and
// waits for those that did not, for ever.
bool threads_granted(size_t count) {
  const std::unique_ptr<pthread_t[]> threads(new (std::nothrow) pthread_t[count]);
  if (threads == nullptr) return false;
  pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
  pthread_mutex_lock(&mutex);  // none ends before all have begun
  size_t started_threads = 0;
  while (started_threads < count && pthread_create(&threads[started_threads], nullptr, wait_for_mutex, &mutex) == 0) {
    ++started_threads;
  }
  pthread_mutex_unlock(&mutex);
  for (size_t i = 0; i < started_threads; ++i) pthread_join(threads[i], nullptr);
  pthread_mutex_destroy(&mutex);
  return started_threads == count;
}

void Pool::make() {
  made_ = true;
  if (!fork_handler_set_) {
    if (pthread_atfork(nullptr, nullptr, forget_in_child) != 0) return;
    fork_handler_set_ = true;
  }
  // The program's signal handlers belong on its own threads.
  sigset_t all;
  sigset_t previous;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &previous);
  const size_t threads = static_cast<size_t>(limits().cpus);
  if (threads_granted(threads - 1)) handle_ = pthreadpool_create(threads);
  pthread_sigmask(SIG_SETMASK, &previous, nullptr);
}

}  // namespace

int thread_limit(const rn_execution& execution) {
  return execution.threads == 0 ? limits().cpus : std::min(execution.threads, limits().environment);
}

void run_tasks(const rn_execution& execution, int64_t count, rn_task task, void* data) {
  Work work{task, data, count, {0}};
  const int64_t lanes = std::min<int64_t>(count, thread_limit(execution));
  if (lanes > 1 && execution.parallel_for != nullptr) {
    const Published edge;
    execution.parallel_for(execution.parallel_context, lanes, run_caller_lane, &work);
    return;
  }
  // A limit of one CPU makes no pool; more lanes than CPUs would only wait for each other.
  const int64_t pool_lanes = std::min<int64_t>(lanes, limits().cpus);
  if (pool_lanes > 1 && pool.try_run(work, static_cast<size_t>(pool_lanes))) return;
  run_lane(work);
}

}  // namespace rmsnorm
