// run_tasks: every piece once, limits kept, nothing waits for itself, callers' floating-point modes kept out.
// ctest runs this program again with RMSNORM_THREADS set, to a number and to nonsense.
#include "cpu/threads.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cfenv>
#include <chrono>
#include <cstdlib>
#include <thread>
#include <vector>

namespace rmsnorm {
namespace {

constexpr rn_execution kPool = {0, nullptr, nullptr};

// What RMSNORM_THREADS allows, for the values that CMakeLists.txt sets.
int allowed() {
  const char* text = std::getenv("RMSNORM_THREADS");
  const int value = text == nullptr ? 0 : std::atoi(text);
  return value > 0 ? value : 1 << 30;
}

struct Counts {
  std::vector<std::atomic<int>> pieces;
  std::atomic<int> running{0};
  std::atomic<int> most{0};

  explicit Counts(size_t count) : pieces(count) {}

  static void task(void* data, int64_t index) {
    auto& self = *static_cast<Counts*>(data);
    const int now = ++self.running;
    int most = self.most;
    while (now > most && !self.most.compare_exchange_weak(most, now)) {
    }
    std::this_thread::sleep_for(std::chrono::microseconds(100));
    ++self.pieces[static_cast<size_t>(index)];
    --self.running;
  }

  bool each_once() const {
    return std::all_of(pieces.begin(), pieces.end(), [](const auto& n) { return n == 1; });
  }
};

TEST(Threads, LimitIsTheCallersOrTheCpus) {
  cpu_set_t set;
  ASSERT_EQ(sched_getaffinity(0, sizeof set, &set), 0);
  EXPECT_EQ(thread_limit(kPool), std::min(CPU_COUNT(&set), allowed()));
  EXPECT_EQ(thread_limit({1, nullptr, nullptr}), 1);
  EXPECT_EQ(thread_limit({3, nullptr, nullptr}), std::min(3, allowed()));
  EXPECT_EQ(thread_limit({1000000, nullptr, nullptr}), std::min(1000000, allowed()));
}

TEST(Threads, EveryPieceRunsOnce) {
  for (const int threads : {0, 1, 2, 3, 4, 1000000}) {
    for (const size_t count : {0u, 1u, 2u, 3u, 7u, 64u}) {
      Counts counts(count);
      run_tasks({threads, nullptr, nullptr}, static_cast<int64_t>(count), Counts::task, &counts);
      EXPECT_TRUE(counts.each_once()) << threads << " threads, " << count << " pieces";
      if (threads != 0) {
        EXPECT_LE(counts.most, threads);
      }
      EXPECT_LE(counts.most, allowed());
    }
  }
}

TEST(Threads, ThePoolIsUsed) {
  if (thread_limit(kPool) == 1) return;  // one CPU: nothing to use
  Counts counts(64);
  run_tasks(kPool, 64, Counts::task, &counts);
  EXPECT_GT(counts.most, 1);
}

TEST(Threads, WorkIsSeenOnBothSides) {
  // Plain memory that ThreadSanitizer would complain about if an edge were missing.
  std::vector<int64_t> values(1000, 1);
  for (int round = 1; round <= 50; ++round) {
    run_tasks(
        kPool, 10,
        [](void* data, int64_t i) {
          auto& all = *static_cast<std::vector<int64_t>*>(data);
          for (size_t k = 0; k < 100; ++k) ++all[static_cast<size_t>(i) * 100 + k];
        },
        &values);
    EXPECT_EQ(std::count(values.begin(), values.end(), round + 1), 1000);
  }
}

TEST(Threads, PiecesMayCallAgain) {
  std::atomic<int> done{0};
  run_tasks(
      kPool, 8,
      [](void* outer, int64_t) {
        run_tasks(
            kPool, 4,
            [](void* inner, int64_t) {
              run_tasks(
                  kPool, 2, [](void* data, int64_t) { ++*static_cast<std::atomic<int>*>(data); }, inner);
            },
            outer);
      },
      &done);
  EXPECT_EQ(done, 64);
}

TEST(Threads, ManyCallersAtOnce) {
  for (const int callers :
       {8, 32}) {  // 32: more than any CI machine has CPUs for, each with a share of the pool or none
    std::atomic<int> wrong{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < callers; ++t) {
      threads.emplace_back([&] {
        for (int i = 0; i < 20; ++i) {
          Counts counts(5);
          run_tasks({2, nullptr, nullptr}, 5, Counts::task, &counts);
          wrong += !counts.each_once();
        }
      });
    }
    for (auto& thread : threads) thread.join();
    EXPECT_EQ(wrong, 0);
  }
}

struct OwnPool {
  int calls = 0;

  static void parallel_for(void* context, int64_t count, rn_task task, void* data) {
    auto& self = *static_cast<OwnPool*>(context);
    ++self.calls;
    std::vector<std::thread> threads;  // backwards, one thread each
    for (int64_t i = count; i-- > 0;) threads.emplace_back([=] { task(data, i); });
    for (auto& thread : threads) thread.join();
  }
};

TEST(Threads, CallersOwnParallelFor) {
  OwnPool own;
  Counts counts(6);
  run_tasks({4, OwnPool::parallel_for, &own}, 6, Counts::task, &counts);
  EXPECT_TRUE(counts.each_once());
  EXPECT_LE(counts.most, std::min(4, allowed())) << "the limit holds on the caller's threads, too";
  EXPECT_EQ(own.calls, allowed() == 1 ? 0 : 1);
  Counts alone(6);
  run_tasks({1, OwnPool::parallel_for, &own}, 6, Counts::task, &alone);
  EXPECT_TRUE(alone.each_once());
  EXPECT_EQ(alone.most, 1);
  EXPECT_EQ(own.calls, allowed() == 1 ? 0 : 1) << "one thread is the caller's";
}

// The control register as it stands; tests set it as programs do that flush subnormals and round upwards.
#if defined(__x86_64__)
uint64_t control() { return __builtin_ia32_stmxcsr() & ~0x3fu; }  // without the exception flags
void set_control(uint64_t value) { __builtin_ia32_ldmxcsr(static_cast<unsigned>(value)); }
constexpr uint64_t kDefault = 0x1f80;
constexpr uint64_t kHostile = 0x1f80 | 0x8040 | 0x4000;
#elif defined(__aarch64__)
uint64_t control() { return __builtin_aarch64_get_fpcr64(); }
void set_control(uint64_t value) { __builtin_aarch64_set_fpcr64(value); }
constexpr uint64_t kDefault = 0;
constexpr uint64_t kHostile = (1u << 24) | (1u << 22);
#else
uint64_t control() { return static_cast<uint64_t>(std::fegetround()); }
void set_control(uint64_t value) { std::fesetround(static_cast<int>(value)); }
constexpr uint64_t kDefault = FE_TONEAREST;
const uint64_t kHostile = FE_UPWARD;
#endif

TEST(Threads, PiecesRunInTheDefaultEnvironment) {
  const uint64_t before = control();
  OwnPool own;
  for (const rn_execution& execution :
       {kPool, rn_execution{1, nullptr, nullptr}, rn_execution{2, OwnPool::parallel_for, &own}}) {
    std::atomic<int> wrong{0};
    set_control(kHostile);
    run_tasks(
        execution, 16,
        [](void* data, int64_t) {
          *static_cast<std::atomic<int>*>(data) += control() != kDefault;
          set_control(kHostile);  // a piece that leaves it so does not spoil the next
        },
        &wrong);
    const uint64_t after = control();
    set_control(before);
    EXPECT_EQ(wrong, 0);
    EXPECT_EQ(after, kHostile);
  }
}

TEST(Threads, CallsFromManyThreadsShareTheirInputs) {
  constexpr int64_t kRows = 256, kCols = 2048;  // some calls get the pool, the others do without
  std::vector<float> x(kRows * kCols), weight(kCols, 2.0f), expected(x.size());
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 101) - 50.0f;
  const rn_view x_view = rn_matrix(x.data(), RN_F32, kRows, kCols);
  const rn_view weight_view = rn_vector(weight.data(), RN_F32, kCols);
  const auto call = [&](std::vector<float>& out, int threads) {
    const rn_view out_view = rn_matrix(out.data(), RN_F32, kRows, kCols);
    const rn_execution execution = {threads, nullptr, nullptr};
    return rn_rms_norm(&out_view, nullptr, &x_view, &weight_view, nullptr, nullptr, &execution);
  };
  ASSERT_EQ(call(expected, 1), RN_OK);
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      std::vector<float> out(x.size());
      for (int i = 0; i < 5; ++i) wrong += call(out, t % 3) != RN_OK || out != expected;
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST(Threads, CallsKeepTheCallersEnvironment) {
  const float tiny = 1e-42f;
  float out[2] = {0, 0};
  const float x[2] = {tiny, -tiny};
  rn_view out_view = rn_matrix(out, RN_F32, 1, 2);
  const rn_view x_view = rn_matrix(const_cast<float*>(x), RN_F32, 1, 2);
  const uint64_t before = control();
  set_control(kHostile);
  const rn_status status = rn_center(&out_view, &x_view, nullptr);
  const uint64_t after = control();
  set_control(before);
  EXPECT_EQ(status, RN_OK);
  EXPECT_EQ(after, kHostile);
  EXPECT_EQ(out[0], tiny);
  EXPECT_EQ(out[1], -tiny);
}

}  // namespace
}  // namespace rmsnorm
