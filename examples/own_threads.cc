// The work of a call on the program's own threads. Results have the same bits as on the built-in pool.
#include <cstdint>
#include <cstdio>
#include <thread>
#include <vector>

#include "rmsnorm/rmsnorm.hpp"

namespace {

// A parallel_for as any thread pool offers one; here simply a thread for each piece but the first.
void parallel_for(void* context, std::int64_t count, rn_task task, void* task_data) {
  *static_cast<std::int64_t*>(context) += count;
  std::vector<std::thread> threads;
  for (std::int64_t i = 1; i < count; ++i) threads.emplace_back([=] { task(task_data, i); });
  task(task_data, 0);
  for (std::thread& thread : threads) thread.join();
}

}  // namespace

int main() {
  constexpr std::int64_t kRows = 4096, kCols = 1024;
  std::vector<float> x(kRows * kCols), own(x.size()), pool(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 1009) - 504;

  std::int64_t pieces = 0;
  const rmsnorm::Execution execution = {.threads = 4, .parallel_for = parallel_for, .parallel_context = &pieces};
  rmsnorm::rms_norm(rmsnorm::matrix(own.data(), kRows, kCols), {}, rmsnorm::matrix(x.data(), kRows, kCols), {}, {}, {},
                    execution);
  rmsnorm::rms_norm(rmsnorm::matrix(pool.data(), kRows, kCols), {}, rmsnorm::matrix(x.data(), kRows, kCols));

  std::printf("pieces on own threads: %d\n", static_cast<int>(pieces));
  std::printf("same bits as the pool: %s\n", own == pool ? "yes" : "no");

  // Small work is not worth a thread, whoever owns it.
  pieces = 0;
  rmsnorm::rms_norm(rmsnorm::matrix(own.data(), 2, kCols), {}, rmsnorm::matrix(x.data(), 2, kCols), {}, {}, {},
                    execution);
  std::printf("pieces for two rows: %d\n", static_cast<int>(pieces));
}
