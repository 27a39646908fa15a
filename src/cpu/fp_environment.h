// The floating-point environment that kernels need: round to nearest even, subnormals kept, no traps.
// A caller may run with others (flush to zero is common in audio and inference programs); results must not depend on
// it.
#ifndef RMSNORM_CPU_FP_ENVIRONMENT_H_
#define RMSNORM_CPU_FP_ENVIRONMENT_H_

#if defined(__SSE__)
#include <xmmintrin.h>
#elif !defined(__aarch64__)
#include <cfenv>
#endif

#include <cstdint>

namespace rmsnorm {

// Sets the default environment while it lives, then puts the caller's back, exception flags included.
class FloatingPointGuard {
 public:
  FloatingPointGuard() : saved_(read()) {
    if (saved_ != kDefault) write(kDefault);
  }
  ~FloatingPointGuard() { write(saved_); }
  FloatingPointGuard(const FloatingPointGuard&) = delete;
  FloatingPointGuard& operator=(const FloatingPointGuard&) = delete;

 private:
#if defined(__SSE__)
  using Control = unsigned int;
  static constexpr Control kDefault = 0x1f80;  // MXCSR: all exceptions masked, nearest, neither FTZ nor DAZ
  static Control read() { return _mm_getcsr(); }
  static void write(Control control) { _mm_setcsr(control); }
#elif defined(__aarch64__)
  using Control = std::uint64_t;
  static constexpr Control kDefault = 0;  // FPCR: nearest, no flush to zero, IEEE NaN, no traps
  static Control read() {
    Control control;
    asm volatile("mrs %0, fpcr" : "=r"(control));
    return control;
  }
  static void write(Control control) { asm volatile("msr fpcr, %0" : : "r"(control)); }
#else
  using Control = int;
  static constexpr Control kDefault = FE_TONEAREST;
  static Control read() { return std::fegetround(); }
  static void write(Control control) { std::fesetround(control); }
#endif

  Control saved_;
};

}  // namespace rmsnorm

#endif  // RMSNORM_CPU_FP_ENVIRONMENT_H_
