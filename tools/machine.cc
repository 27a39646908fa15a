#include "tools/machine.h"

#include <fmt/format.h>
#include <sched.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

namespace rmsnorm::tools {

namespace {

// The value behind "key :" in a file of such lines; empty if there is none.
std::string find_line(const char* file, const std::string& key) {
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    if (!line.starts_with(key)) continue;
    const std::size_t colon = line.find(':');
    const std::size_t value = colon == std::string::npos ? colon : line.find_first_not_of(" \t", colon + 1);
    if (value != std::string::npos) return line.substr(value);
  }
  return {};
}

std::string cpu_name() {
  const std::string name = find_line("/proc/cpuinfo", "model name");
  if (!name.empty()) return name;
  utsname system{};
  return ::uname(&system) == 0 ? system.machine : "unknown";
}

std::int64_t kibibytes(const std::string& text) {
  std::int64_t value = 0;
  for (const char c : text) {
    if (c < '0' || c > '9') break;
    value = value * 10 + (c - '0');
  }
  return value * 1024;
}

}  // namespace

Machine this_machine() {
  Machine machine;
  machine.cpu = cpu_name();
  cpu_set_t set;
  machine.cpus = ::sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
#ifdef _SC_LEVEL1_DCACHE_SIZE
  machine.l1_bytes = std::max(0L, ::sysconf(_SC_LEVEL1_DCACHE_SIZE));
  machine.l2_bytes = std::max(0L, ::sysconf(_SC_LEVEL2_CACHE_SIZE));
  machine.l3_bytes = std::max(0L, ::sysconf(_SC_LEVEL3_CACHE_SIZE));
#endif
  machine.memory_bytes = kibibytes(find_line("/proc/meminfo", "MemTotal"));
  machine.available_bytes = kibibytes(find_line("/proc/meminfo", "MemAvailable"));
  return machine;
}

std::string bytes_text(std::int64_t bytes) {
  if (bytes <= 0) return "unknown";
  const char* const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (value >= 1024 && unit + 1 < std::size(units)) {
    value /= 1024;
    ++unit;
  }
  return value == static_cast<double>(static_cast<std::int64_t>(value)) ? fmt::format("{:.0f} {}", value, units[unit])
                                                                        : fmt::format("{:.1f} {}", value, units[unit]);
}

}  // namespace rmsnorm::tools
