// A build without MPI.
#include "lab/train/ranks.h"
#include "tools/error.h"

namespace rmsnorm::lab {

std::unique_ptr<Ranks> join_mpi() {
  tools::fail(
      tools::ExitCode::kUnavailable,
      "this build has no MPI; for parallel runs it must be built where CMake finds one (Debian: libopenmpi-dev, "
      "openmpi-bin)");
}

}  // namespace rmsnorm::lab
