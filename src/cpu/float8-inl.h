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

// n / (4 * kLanes) * 4 * kLanes codes and, if there is a rest, as many more: `to` and `from` have room for that.
// from / scale, n of them and more up to a whole multiple of 4 * kLanes: both have room for that.
template <class Q>
[[gnu::noinline]] void quantize_stretch(uint8_t* to, const float* from, float scale, int64_t n) {
  const F divisor = splat(scale);
  for (int64_t i = 0; i < n; i += 4 * kLanes) {
    I codes[4];
#pragma GCC unroll 4
    for (int k = 0; k < 4; ++k) codes[k] = Q::encode(div(load(from + i + k * kLanes), divisor));
    store_bytes(to + i, codes[0], codes[1], codes[2], codes[3]);
  }
}

inline void quantize_stretch(uint8_t* to, rn_type type, const float* from, float scale, int64_t n) {
  switch (type) {
    case RN_F8E4M3:
      return quantize_stretch<F8E4M3>(to, from, scale, n);
    case RN_F8E5M2:
      return quantize_stretch<F8E5M2>(to, from, scale, n);
    default:
      return quantize_stretch<Int8>(to, from, scale, n);
  }
}

}  // namespace rmsnorm::RMSNORM_TARGET

#endif  // RMSNORM_CPU_FLOAT8_INL_H_
