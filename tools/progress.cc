#include "tools/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>

namespace rmsnorm::tools {

namespace {
constexpr std::chrono::milliseconds kFirst{500};
constexpr std::chrono::milliseconds kBetween{100};
constexpr char kClearLine[] = "\r\x1b[K";
}  // namespace

Progress::Progress(std::string label, std::uint64_t total)
    : label_(std::move(label)), total_(total), next_(Clock::now() + kFirst), terminal_(::isatty(STDERR_FILENO) == 1) {}

Progress::~Progress() { clear(); }

void Progress::clear() {
  if (shown_) std::fputs(kClearLine, stderr);
  shown_ = false;
}

void Progress::relabel(std::string label) { label_ = std::move(label); }

void Progress::advance(std::uint64_t steps) {
  done_ += steps;
  if (!terminal_) return;
  const auto now = Clock::now();
  if (now < next_) return;
  next_ = now + kBetween;
  shown_ = true;
  const double percent = total_ == 0 ? 100.0 : 100.0 * static_cast<double>(done_) / static_cast<double>(total_);
  fmt::print(stderr, "{}{} {:.0f} %", kClearLine, label_, percent);
  std::fflush(stderr);
}

}  // namespace rmsnorm::tools
