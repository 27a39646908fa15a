// silu(g) = g / (1 + e^-g): the numbers that its fixed sequences of operations share. No mathematical library: those
// differ from machine to machine.
//   e^-g = 2^k (1 + p),  k = round(-g log2 e),  p = expm1(-r),  r = g + k ln 2,  |r| <= ln 2 / 2
//   1 + e^-g = max(1, 2^k) + (min(1, 2^k) + 2^k p)
#ifndef RMSNORM_CPU_SILU_H_
#define RMSNORM_CPU_SILU_H_

namespace rmsnorm {

struct SiluF32 {
  static constexpr float kShift = 0x1.8p23f + 127;  // added: rounds to a whole number, bits ready for the exponent
  static constexpr float kLog2E = 0x1.715476p+0f;
  static constexpr float kLn2High = 0x1.62ep-1f;  // 14 bits: its product with k is exact
  static constexpr float kLn2Low = 0x1.0bfbe8p-15f;
  // expm1(-r) = -r + r^2 (kTerms[0] + r (kTerms[1] + ..)): minimax on [-ln 2 / 2, ln 2 / 2], error 2^-28.2 of e^-r.
  static constexpr float kTerms[] = {0x1.fffffcp-2f, -0x1.555492p-3f, 0x1.5558b2p-5f, -0x1.12398ep-7f, 0x1.6a4b36p-10f};
  // Below kLeast silu is -2^-121 and less: it fades from there on, by a factor kFade - g.
  static constexpr float kLeast = -88, kFade = -87;
  static constexpr float kMost = 43;  // above, e^-g is below 2^-62

  // With everything multiplied by 2^32.
  static constexpr float kScale = 0x1p32f;
  static constexpr float kScaledShift = kShift - 32;
  static constexpr float kScaledLeast = -110;
};

// f64. The error of the polynomial is 2^-57.
struct SiluF64 {
  static constexpr double kShift = 0x1.8p52 + 1023;
  static constexpr double kLog2E = 0x1.71547652b82fep+0;
  static constexpr double kLn2High = 0x1.62e42fefa2p-1;  // 40 bits
  static constexpr double kLn2Low = 0x1.9ef35793c7673p-41;
  static constexpr double kTerms[] = {0x1.0000000000008p-1,  -0x1.555555555556cp-3,  0x1.555555555148ap-5,
                                      -0x1.1111111113b77p-7, 0x1.6c16c181823e9p-10,  -0x1.a01a0179ece08p-13,
                                      0x1.a019a0e994e7dp-16, -0x1.71de9f346bdddp-19, 0x1.28a77db3a5f8ap-22,
                                      -0x1.ae2235d9c8b6bp-26};
  static constexpr int kTermCount = 10;
  static constexpr double kBound = 708;
  // A product with these two in turn leaves 0 of what is below 2^-974: silu of -infinity,
  // and its slope.
  static constexpr double kDown = 0x1p-100, kUp = 0x1p100;
};

}  // namespace rmsnorm

#endif  // RMSNORM_CPU_SILU_H_
