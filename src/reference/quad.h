// The arithmetic that judges: 113 bits and 15 bits of exponent. It counts tenths of an ulp of an f64; squares of f64
// values neither overflow nor underflow in it, so the references need no scaling and stay as short as their formulas.
#ifndef RMSNORM_REFERENCE_QUAD_H_
#define RMSNORM_REFERENCE_QUAD_H_

#include <bit>
#include <cfloat>
#include <cmath>
#include <cstdint>
#include <limits>

namespace rmsnorm::reference {

#if LDBL_MANT_DIG == 113
using Quad = long double;
#else
__extension__ typedef __float128 Quad;
#endif
__extension__ typedef unsigned __int128 QuadBits;

// 2^n, for normal n of the type.
inline Quad power_of_two(int n) { return std::bit_cast<Quad>(static_cast<QuadBits>(n + 16383) << 112); }

// Most targets compute in Quad by software, where these on the bits cost next to nothing.
inline constexpr QuadBits kQuadSign = QuadBits{1} << 127;
inline constexpr QuadBits kQuadInfinity = QuadBits{0x7fff} << 112;
inline QuadBits magnitude_bits(Quad v) { return std::bit_cast<QuadBits>(v) & ~kQuadSign; }
inline std::uint64_t magnitude_bits(double v) { return std::bit_cast<std::uint64_t>(v) & ~(std::uint64_t{1} << 63); }

// floor(log2 |v|) for finite v other than 0, and below any normal number's for 0. (Products of two f64 never come near
// Quad's subnormals.)
inline int exponent_of(Quad v) { return static_cast<int>(magnitude_bits(v) >> 112) - 16383; }

inline bool is_nan(Quad v) { return magnitude_bits(v) > kQuadInfinity; }
inline bool is_finite(Quad v) { return magnitude_bits(v) < kQuadInfinity; }
inline Quad absolute(Quad v) { return std::bit_cast<Quad>(magnitude_bits(v)); }
inline bool sign_of(Quad v) { return (std::bit_cast<QuadBits>(v) & kQuadSign) != 0; }

inline bool is_nan(double v) { return v != v; }
inline bool is_finite(double v) { return v - v == 0; }
inline bool sign_of(double v) { return std::signbit(v); }

inline double square_root(double v) { return std::sqrt(v); }

// Two Newton steps double f64's 53 bits twice.
inline Quad square_root(Quad v) {
  if (v < 0) return std::numeric_limits<double>::quiet_NaN();
  if (v == 0 || !is_finite(v)) return v;
  const int half = exponent_of(v) >> 1;
  const Quad mantissa = v * power_of_two(-2 * half);  // 1 <= mantissa < 4
  Quad root = std::sqrt(static_cast<double>(mantissa));
  for (int step = 0; step < 2; ++step) root = (root + mantissa / root) / 2;
  return root * power_of_two(half);
}

}  // namespace rmsnorm::reference

#endif  // RMSNORM_REFERENCE_QUAD_H_
