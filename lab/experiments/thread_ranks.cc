#include "lab/experiments/thread_ranks.h"

#include <atomic>
#include <barrier>
#include <cstring>
#include <exception>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <vector>

namespace rmsnorm::lab {

namespace {

struct Meeting {
  explicit Meeting(int count) : all_here(count), parts(static_cast<std::size_t>(count)) {}

  // Waits for all; throws where one will not come.
  void wait() {
    all_here.arrive_and_wait();
    if (failed) throw std::runtime_error("another rank failed");
  }

  void fail(std::exception_ptr error) {
    {
      const std::lock_guard<std::mutex> lock(mutex);
      if (!first_error) first_error = error;
    }
    failed = true;
    all_here.arrive_and_drop();
  }

  std::barrier<> all_here;
  std::vector<const std::byte*> parts;
  std::atomic<bool> failed{false};
  std::mutex mutex;
  std::exception_ptr first_error;
};

class ThreadRanks : public Ranks {
 public:
  ThreadRanks(Meeting& meeting, int rank) : meeting_(meeting), rank_(rank) {}
  int rank() const override { return rank_; }
  int count() const override { return static_cast<int>(meeting_.parts.size()); }
  void run(const std::function<void()>& work) override { work(); }

 protected:
  void gather(std::byte* all, const std::byte* mine, std::size_t bytes) override {
    meeting_.parts[static_cast<std::size_t>(rank_)] = mine;
    meeting_.wait();
    for (std::size_t rank = 0; rank < meeting_.parts.size(); ++rank) {
      std::memcpy(all + rank * bytes, meeting_.parts[rank], bytes);
    }
    meeting_.wait();  // nobody's part goes before all have it
  }

 private:
  Meeting& meeting_;
  int rank_;
};

}  // namespace

void run_ranks(int count, const std::function<void(Ranks&)>& work) {
  Meeting meeting(count);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < count; ++rank) {
    threads.emplace_back([&meeting, &work, rank] {
      ThreadRanks ranks(meeting, rank);
      try {
        work(ranks);
      } catch (...) {
        meeting.fail(std::current_exception());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  if (meeting.first_error) std::rethrow_exception(meeting.first_error);
}

}  // namespace rmsnorm::lab
