// Whether the CPU converts between f16 and f32. clang 14 does not know "f16c" in __builtin_cpu_supports.
#ifndef RMSNORM_CPU_F16C_H_
#define RMSNORM_CPU_F16C_H_

#include <cpuid.h>

namespace rmsnorm::RMSNORM_TARGET {

// The operating system's part, saved AVX registers, is asked with "avx2".
inline bool has_f16c() {
  unsigned eax, ebx, ecx, edx;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
}

}  // namespace rmsnorm::RMSNORM_TARGET

#endif  // RMSNORM_CPU_F16C_H_
