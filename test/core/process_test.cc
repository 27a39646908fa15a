// What a call does to its process: no allocation after the first, no trouble after fork or where threads are refused.
// Replaces malloc and forks with threads, so it is not built with sanitizers.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <thread>
#include <vector>

#include "arguments.h"
#include "cpu/threads.h"
#include "support/allocations.h"

namespace rmsnorm {
namespace {

using rmsnorm_test::Arguments;
using test::allocations;

// Large enough for several threads, small enough to be quick.
struct LargeCall {
  static constexpr int64_t kRows = 512;
  static constexpr int64_t kCols = 4096;
  std::vector<float> x = std::vector<float>(kRows * kCols, 2.0f);
  std::vector<float> out = std::vector<float>(kRows * kCols);

  rn_status run(int threads) {
    const rn_view out_view = rn_matrix(out.data(), RN_F32, kRows, kCols);
    const rn_view x_view = rn_matrix(x.data(), RN_F32, kRows, kCols);
    const rn_execution execution = {threads, nullptr, nullptr};
    rn_rms_norm_options options = rn_rms_norm_defaults();
    options.epsilon = 0;
    return rn_rms_norm(&out_view, nullptr, &x_view, nullptr, nullptr, &options, &execution);
  }
  bool right() const {
    for (const float value : out) {
      if (value != 1.0f) return false;
    }
    return true;
  }
};

// Runs `body` in a child; true if it returned true there within ten seconds.
template <class Body>
bool in_child(Body body) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(10);  // a hang ends in SIGALRM
    _exit(body() ? 0 : 1);
  }
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

void add_one(void* data, int64_t) { ++*static_cast<std::atomic<int>*>(data); }

bool pieces_run(int count) {
  std::atomic<int> done{0};
  run_tasks({0, nullptr, nullptr}, count, add_one, &done);
  return done == count;
}

// First in this program: the child must meet a process without a pool.
TEST(Process, RefusedThreadsAreNoError) {
  EXPECT_TRUE(in_child([] {
    const rlimit none = {0, 0};
    setrlimit(RLIMIT_NPROC, &none);
    if (geteuid() == 0 && setuid(65534) != 0) return false;  // the limit does not bind root
    LargeCall call;
    return pieces_run(8) && pieces_run(8) && call.run(0) == RN_OK && call.right();
  }));
}

TEST(Process, ForkBeforeTheFirstCall) {
  EXPECT_TRUE(in_child([] { return pieces_run(8); }));
}

TEST(Process, NoAllocationAfterTheFirstCall) {
  LargeCall large;
  Arguments small;
  EXPECT_EQ(large.run(0), RN_OK);
  EXPECT_EQ(small.add_layer_norm(), RN_OK);
  small.x.rank = 0;
  EXPECT_EQ(small.add_layer_norm(), RN_INVALID_VALUE);
  small.x.rank = 3;
  const int64_t before = allocations().count;
  bool right = true;
  for (int i = 0; i < 20; ++i) {
    right = right && large.run(0) == RN_OK && large.run(2) == RN_OK && pieces_run(8);
    right = right && small.add_layer_norm() == RN_OK && small.add_rms_norm() == RN_OK;
    right = right && small.rms_norm() == RN_OK && small.layer_norm() == RN_OK && small.center() == RN_OK;
    small.x.rank = 0;
    right = right && small.add_layer_norm() == RN_INVALID_VALUE;
    small.x.rank = 3;
  }
  const int64_t after = allocations().count;
  EXPECT_TRUE(right);
  EXPECT_EQ(after, before);
}

TEST(Process, ForkAfterUse) {
  ASSERT_TRUE(pieces_run(64));
  EXPECT_TRUE(in_child([] {
    LargeCall call;
    for (int i = 0; i < 5; ++i) {
      if (!pieces_run(64) || call.run(0) != RN_OK || !call.right()) return false;
    }
    return in_child([] { return pieces_run(64); });  // and a child of the child
  }));
  EXPECT_TRUE(pieces_run(64));
}

TEST(Process, ForkWhileThePoolIsBusy) {
  std::atomic<bool> stop{false};
  std::thread other([&] {
    while (!stop) pieces_run(64);
  });
  int failed = 0;
  for (int i = 0; i < 20; ++i) failed += !in_child([] { return pieces_run(64); });
  stop = true;
  other.join();
  EXPECT_EQ(failed, 0);
}

TEST(Process, WorkersLeaveSignalsAlone) {
  // A signal to the process must find the program's own thread, not a worker with its small stack.
  static std::atomic<pid_t> handled_by{0};
  ASSERT_TRUE(pieces_run(64));
  struct sigaction action = {};
  action.sa_handler = [](int) { handled_by = gettid(); };
  sigaction(SIGUSR1, &action, nullptr);
  sigset_t blocked;
  sigemptyset(&blocked);
  sigaddset(&blocked, SIGUSR1);
  pthread_sigmask(SIG_BLOCK, &blocked, nullptr);
  kill(getpid(), SIGUSR1);  // no thread may take it now
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(handled_by, 0);
  pthread_sigmask(SIG_UNBLOCK, &blocked, nullptr);
  EXPECT_EQ(handled_by, gettid());
}

}  // namespace
}  // namespace rmsnorm
