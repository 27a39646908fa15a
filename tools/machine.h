// What the operating system says about this machine.
#ifndef RMSNORM_TOOLS_MACHINE_H_
#define RMSNORM_TOOLS_MACHINE_H_

#include <cstdint>
#include <string>

namespace rmsnorm::tools {

struct Machine {
  std::string cpu;            // the model's name, or the architecture where there is none
  int cpus = 0;               // that this process may use
  std::int64_t l1_bytes = 0;  // data cache; 0 where unknown, as below
  std::int64_t l2_bytes = 0;
  std::int64_t l3_bytes = 0;
  std::int64_t memory_bytes = 0;
  std::int64_t available_bytes = 0;  // of memory, now
};

Machine this_machine();

// "32 KiB", "1.5 GiB"; "unknown" for 0.
std::string bytes_text(std::int64_t bytes);

}  // namespace rmsnorm::tools

#endif  // RMSNORM_TOOLS_MACHINE_H_
