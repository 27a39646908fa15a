// From f32 to 8 bits, kLanes at a time: codes in the low bytes of an I. Round to nearest even; what is beyond the
// largest number becomes that one.
#ifndef RMSNORM_CPU_FLOAT8_INL_H_
#define RMSNORM_CPU_FLOAT8_INL_H_

#include "cpu/simd.h"

namespace rmsnorm::RMSNORM_TARGET {

// kLargest: of the largest number, as an integer.
template <int kFractionBits, int kMinExponent, int kLargest>
struct Float8 {
  static I encode(F v) {
    constexpr int kShift = 23 - kFractionBits;
    constexpr int kSmallestBinade = (kMinExponent + 127) << 23;
    const I bits = magnitude_bits(v);
    const F within = smaller(as_float(bits), splat(static_cast<float>(kLargest)));
    // 2^e of the number's binade; numbers below the smallest normal one are spaced as in the first.
    const I binade = bit_and(as_int(larger(within, as_float(splat(kSmallestBinade)))), splat(0x7f800000));
    // An f32 of this size has its last bit where the result has its own: the addition rounds there.
    const I beside = add(binade, splat(kShift << 23));
    const I count = sub(as_int(add(within, as_float(beside))), beside);
    const I code = add(shift_right<kShift>(sub(binade, splat(kSmallestBinade))), count);
    const I nan = bit_and(less(splat(0x7f800000), bits), splat(0x7f));
    const I sign = bit_and(shift_right<24>(as_int(v)), splat(0x80));
    return bit_or(bit_or(code, nan), sign);
  }
};
using F8E4M3 = Float8<3, -6, 448>;
using F8E5M2 = Float8<2, -14, 57344>;

// Whole numbers from -127 to 127; NaN becomes 0.
struct Int8 {
  static I encode(F v) {
    const F within = smaller(larger(v, splat(-127.0f)), splat(127.0f));
    const I number = less(magnitude_bits(v), splat(0x7f800001));
    // The last bit of 1.5 * 2^23 is 1, and its low byte 0.
    return bit_and(as_int(add(within, splat(0x1.8p23f))), number);
  }
};

// Whether a division by `scale` is the multiplication by 1 / scale, to the bit: where that is exact.
inline bool divides_exactly(float scale) {
  uint32_t bits;
  memcpy(&bits, &scale, sizeof bits);
  return (bits & 0x7fffff) == 0 && bits >= 0x00800000 && bits < 0x7f000000;
}

// Codes of from / scale, n of them. `from` is readable up to a whole multiple of 4 * kLanes. kExact: see
// divides_exactly. streamed: around the caches, from an aligned `to`.
template <class Q, bool kExact>
[[gnu::noinline]] void quantize_stretch(uint8_t* to, const float* from, float scale, int64_t n, bool streamed) {
  constexpr int64_t kCodes = 4 * kLanes;  // they fill a register
  const F divisor = splat(kExact ? 1 / scale : scale);
  const auto codes = [&](int64_t i) __attribute__((always_inline)) {
    I words[4];
#pragma GCC unroll 4
    for (int k = 0; k < 4; ++k) {
      const F y = load(from + i + k * kLanes);
      words[k] = Q::encode(kExact ? mul(y, divisor) : div(y, divisor));
    }
    return as_float(pack_bytes(words[0], words[1], words[2], words[3]));
  };
  int64_t i = 0;
  for (; i + kCodes <= n; i += kCodes) {
    const F packed = codes(i);
    if (streamed) {
      stream(reinterpret_cast<float*>(to + i), packed);
    } else {
      memcpy(to + i, &packed, sizeof packed);
    }
  }
  if (i < n) {
    const F packed = codes(i);
    memcpy(to + i, &packed, static_cast<size_t>(n - i));
  }
}

template <class Q>
inline void quantize_as(uint8_t* to, const float* from, float scale, int64_t n, bool streamed) {
  return divides_exactly(scale) ? quantize_stretch<Q, true>(to, from, scale, n, streamed)
                                : quantize_stretch<Q, false>(to, from, scale, n, streamed);
}

// Where `to` is not aligned, `streamed` is not heeded.
inline void quantize_stretch(uint8_t* to, rn_type type, const float* from, float scale, int64_t n, bool streamed) {
  streamed &= reinterpret_cast<uintptr_t>(to) % kVectorBytes == 0;
  switch (type) {
    case RN_F8E4M3:
      return quantize_as<F8E4M3>(to, from, scale, n, streamed);
    case RN_F8E5M2:
      return quantize_as<F8E5M2>(to, from, scale, n, streamed);
    default:
      return quantize_as<Int8>(to, from, scale, n, streamed);
  }
}

}  // namespace rmsnorm::RMSNORM_TARGET

#endif  // RMSNORM_CPU_FLOAT8_INL_H_
