// One line on standard error that says how far long work has come. Nothing is written when standard error is no
// terminal, nor by work that ends within half a second.
#ifndef RMSNORM_TOOLS_PROGRESS_H_
#define RMSNORM_TOOLS_PROGRESS_H_

#include <chrono>
#include <cstdint>
#include <string>

namespace rmsnorm::tools {

class Progress {
 public:
  Progress(std::string label, std::uint64_t total);
  ~Progress();  // clears the line
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void advance(std::uint64_t steps);
  void relabel(std::string label);  // shown by the next advance()
  void clear();                     // makes room for a line of output

 private:
  using Clock = std::chrono::steady_clock;

  std::string label_;
  std::uint64_t total_;
  std::uint64_t done_ = 0;
  Clock::time_point next_;
  bool terminal_;
  bool shown_ = false;
};

}  // namespace rmsnorm::tools

#endif  // RMSNORM_TOOLS_PROGRESS_H_
