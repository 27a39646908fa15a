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

// The data or common cache of a level, as the kernel says; 0 where it does not. sysconf multiplies the last level of some
// AMD processors (seen with glibc 2.36: 320 MiB of 32) and stands in where there is no /sys.
std::int64_t cache_bytes(int level) {
  for (int index = 0; index < 8; ++index) {
    const std::string folder = fmt::format("/sys/devices/system/cpu/cpu0/cache/index{}/", index);
    std::string found, type, size;
    if (!(std::ifstream(folder + "level") >> found) || !(std::ifstream(folder + "type") >> type)) continue;
    if (found == std::to_string(level) && type != "Instruction" && std::ifstream(folder + "size") >> size) {
      return kibibytes(size);
    }
  }
#ifdef _SC_LEVEL1_DCACHE_SIZE
  constexpr int kNames[] = {_SC_LEVEL1_DCACHE_SIZE, _SC_LEVEL2_CACHE_SIZE, _SC_LEVEL3_CACHE_SIZE};
  return std::max(0L, ::sysconf(kNames[level - 1]));
#else
  return 0;
#endif
}

}  // namespace

Machine this_machine() {
  Machine machine;
  machine.cpu = cpu_name();
  cpu_set_t set;
  machine.cpus = ::sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
  machine.l1_bytes = cache_bytes(1);
  machine.l2_bytes = cache_bytes(2);
  machine.l3_bytes = cache_bytes(3);
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
