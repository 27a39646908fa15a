// Ranks over MPI.
#include <mpi.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <vector>

#include "lab/train/ranks.h"
#include "tools/error.h"

namespace rmsnorm::lab {

namespace {

using tools::ExitCode;

class MpiRanks : public Ranks {
 public:
  MpiRanks() {
    int level = 0;
    // Autograd's backward pass over tensors in memory stays on the thread that asks for it.
    MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &count_);
  }
  ~MpiRanks() override { MPI_Finalize(); }

  int rank() const override { return rank_; }
  int count() const override { return count_; }

  void run(const std::function<void()>& work) override {
    if (count_ == 1) return work();
    try {
      work();
    } catch (const tools::ToolError& error) {
      end_all(error.code(), error.what());
    } catch (const std::invalid_argument& error) {  // an option of a norm or a model
      end_all(ExitCode::kBadInput, error.what());
    } catch (const std::exception& error) {
      end_all(ExitCode::kInternal, error.what());
    }
  }

 protected:
  void gather(std::byte* all, const std::byte* mine, std::size_t bytes) override {
    constexpr std::size_t kPiece = std::size_t{1} << 26;  // MPI counts in int
    if (bytes <= kPiece) {
      MPI_Allgather(mine, static_cast<int>(bytes), MPI_BYTE, all, static_cast<int>(bytes), MPI_BYTE, MPI_COMM_WORLD);
      return;
    }
    std::vector<std::byte> pieces(kPiece * static_cast<std::size_t>(count_));
    for (std::size_t at = 0; at < bytes; at += kPiece) {
      const std::size_t size = std::min(kPiece, bytes - at);
      MPI_Allgather(mine + at, static_cast<int>(size), MPI_BYTE, pieces.data(), static_cast<int>(size), MPI_BYTE,
                    MPI_COMM_WORLD);
      for (std::size_t rank = 0; rank < static_cast<std::size_t>(count_); ++rank) {
        std::memcpy(all + rank * bytes + at, pieces.data() + rank * size, size);
      }
    }
  }

 private:
  [[noreturn]] void end_all(ExitCode code, const char* message) {
    std::fflush(stdout);
    fmt::print(stderr, "rmsnorm-lab: rank {}: {}\n", rank_, tools::printable(message));
    MPI_Abort(MPI_COMM_WORLD, static_cast<int>(code));
    std::abort();
  }

  int rank_ = 0, count_ = 1;
};

}  // namespace

std::unique_ptr<Ranks> join_mpi() {
  int done = 0;
  MPI_Initialized(&done);
  if (done != 0) tools::fail(ExitCode::kInternal, "MPI was joined before in this process; it must be joined once");
  return std::make_unique<MpiRanks>();
}

}  // namespace rmsnorm::lab
