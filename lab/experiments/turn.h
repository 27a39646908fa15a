// Processes that make pieces in one folder take turns: one that measures time is alone, others work side by side.
#ifndef RMSNORM_LAB_EXPERIMENTS_TURN_H_
#define RMSNORM_LAB_EXPERIMENTS_TURN_H_

#include <filesystem>

namespace rmsnorm::lab {

// From the constructor, which waits, to the destructor. The turns are kept by two locked files in `folder`, which must
// be there; the system unlocks them when a process dies. Throws tools::ToolError where they cannot be made. A process must
// not ask for a second turn while it has one.
class Turn {
 public:
  Turn(const std::filesystem::path& folder, bool alone);
  ~Turn();
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

 private:
  int turn_ = -1;
};

}  // namespace rmsnorm::lab

#endif  // RMSNORM_LAB_EXPERIMENTS_TURN_H_
