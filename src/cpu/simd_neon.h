// The vector vocabulary on aarch64 NEON, which every aarch64 CPU has. See simd.h.
#include <arm_neon.h>

namespace rmsnorm::RMSNORM_TARGET {

inline constexpr int kLanes = 4;
using F = float32x4_t;
using D = float64x2_t;
struct Pair {
  F a, b;
};

inline F splat(float v) { return vdupq_n_f32(v); }
inline D splat(double v) { return vdupq_n_f64(v); }
inline F load(const float* p) { return vld1q_f32(p); }
inline void store(float* p, F v) { vst1q_f32(p, v); }
inline void stream(float* p, F v) { vst1q_f32(p, v); }  // NEON has no streaming store worth its alignment rules
inline D load(const double* p) { return vld1q_f64(p); }
inline void store(double* p, D v) { vst1q_f64(p, v); }
inline D load_wide(const float* p) { return vcvt_f64_f32(vld1_f32(p)); }

inline F add(F a, F b) { return vaddq_f32(a, b); }
inline F sub(F a, F b) { return vsubq_f32(a, b); }
inline F mul(F a, F b) { return vmulq_f32(a, b); }
inline D add(D a, D b) { return vaddq_f64(a, b); }
inline D sub(D a, D b) { return vsubq_f64(a, b); }
inline D mul(D a, D b) { return vmulq_f64(a, b); }
inline D div(D a, D b) { return vdivq_f64(a, b); }
inline D sqrt(D v) { return vsqrtq_f64(v); }
inline bool all_within(D v, D low, D high) {
  const uint64x2_t inside = vandq_u64(vcgeq_f64(v, low), vcleq_f64(v, high));
  return (vgetq_lane_u64(inside, 0) & vgetq_lane_u64(inside, 1)) != 0;
}
inline F div(F a, F b) { return vdivq_f32(a, b); }
inline F larger(F a, F b) { return vbslq_f32(vcgtq_f32(a, b), a, b); }  // vmaxq would keep a NaN in a, too
inline D larger(D a, D b) { return vbslq_f64(vcgtq_f64(a, b), a, b); }
inline F smaller(F a, F b) { return vbslq_f32(vcltq_f32(a, b), a, b); }
inline D smaller(D a, D b) { return vbslq_f64(vcltq_f64(a, b), a, b); }
inline F into_exponent(F v) { return vreinterpretq_f32_u32(vshlq_n_u32(vreinterpretq_u32_f32(v), 23)); }
inline D into_exponent(D v) { return vreinterpretq_f64_u64(vshlq_n_u64(vreinterpretq_u64_f64(v), 52)); }
inline F add_exact_product(F a, F b, F c) { return vfmaq_f32(c, a, b); }
inline D add_exact_product(D a, D b, D c) { return vfmaq_f64(c, a, b); }

inline F larger_magnitude(F largest, F v) {
  const int32x4_t bits = vreinterpretq_s32_f32(vabsq_f32(v));
  return vreinterpretq_f32_s32(vmaxq_s32(vreinterpretq_s32_f32(largest), bits));
}

inline D lower(F v) { return vcvt_f64_f32(vget_low_f32(v)); }
inline D upper(F v) { return vcvt_high_f64_f32(v); }
inline F narrow(D lo, D hi) { return vcvt_high_f32_f64(vcvt_f32_f64(lo), hi); }

inline double sum_lanes(D v) { return vgetq_lane_f64(v, 0) + vgetq_lane_f64(v, 1); }
inline D fold_rows(const D* v) { return vpaddq_f64(v[0], v[1]); }

// bf16, rounded in place: the upper half of each word holds the result, the lower half is zero.
inline F round_bf16(F v) {
  const uint32x4_t bits = vreinterpretq_u32_f32(v);
  const uint32x4_t odd = vandq_u32(vshrq_n_u32(bits, 16), vdupq_n_u32(1));
  const uint32x4_t sum = vaddq_u32(vaddq_u32(bits, vdupq_n_u32(0x7fff)), odd);
  const uint32x4_t quiet = vorrq_u32(bits, vdupq_n_u32(0x400000));
  const uint32x4_t kept = vbslq_u32(vceqq_f32(v, v), sum, quiet);
  return vreinterpretq_f32_u32(vandq_u32(kept, vdupq_n_u32(0xffff0000u)));
}
inline F round_f16(F v) { return vcvt_f32_f16(vcvt_f16_f32(v)); }

inline Pair load_bf16(const uint16_t* p) {
  const uint16x8_t v = vld1q_u16(p);
  return {vreinterpretq_f32_u32(vshll_n_u16(vget_low_u16(v), 16)), vreinterpretq_f32_u32(vshll_high_n_u16(v, 16))};
}
inline Pair load_bf16_split(const uint16_t* p) {
  const uint32x4_t v = vreinterpretq_u32_u16(vld1q_u16(p));
  return {vreinterpretq_f32_u32(vshlq_n_u32(v, 16)), vreinterpretq_f32_u32(vandq_u32(v, vdupq_n_u32(0xffff0000u)))};
}
inline Pair load_f16(const uint16_t* p) {
  const float16x8_t v = vreinterpretq_f16_u16(vld1q_u16(p));
  return {vcvt_f32_f16(vget_low_f16(v)), vcvt_high_f32_f16(v)};
}

inline void store_f16(uint16_t* p, Pair v, bool) {
  vst1q_u16(p, vreinterpretq_u16_f16(vcvt_high_f16_f32(vcvt_f16_f32(v.a), v.b)));
}
inline void store_bf16_split(uint16_t* p, Pair v, bool) {
  const uint32x4_t even = vshrq_n_u32(vreinterpretq_u32_f32(round_bf16(v.a)), 16);
  vst1q_u16(p, vreinterpretq_u16_u32(vorrq_u32(even, vreinterpretq_u32_f32(round_bf16(v.b)))));
}
inline void store_bf16(uint16_t* p, Pair v, bool) {
  const uint16x4_t lo = vshrn_n_u32(vreinterpretq_u32_f32(round_bf16(v.a)), 16);
  vst1q_u16(p, vshrn_high_n_u32(lo, vreinterpretq_u32_f32(round_bf16(v.b)), 16));
}

// 2 * kLanes values in memory order -> those at even places, those at odd places.
inline Pair split(Pair v) { return {vuzp1q_f32(v.a, v.b), vuzp2q_f32(v.a, v.b)}; }

using I = int32x4_t;
inline I splat(int32_t v) { return vdupq_n_s32(v); }
inline I as_int(F v) { return vreinterpretq_s32_f32(v); }
inline F as_float(I v) { return vreinterpretq_f32_s32(v); }
inline I add(I a, I b) { return vaddq_s32(a, b); }
inline I sub(I a, I b) { return vsubq_s32(a, b); }
inline I bit_and(I a, I b) { return vandq_s32(a, b); }
inline I bit_or(I a, I b) { return vorrq_s32(a, b); }
template <int kBits>
inline I shift_right(I v) {
  return vreinterpretq_s32_u32(vshrq_n_u32(vreinterpretq_u32_s32(v), kBits));
}
inline I less(I a, I b) { return vreinterpretq_s32_u32(vcltq_s32(a, b)); }
inline bool any(I mask) { return vmaxvq_u32(vreinterpretq_u32_s32(mask)) != 0; }
inline I pack_bytes(I a, I b, I c, I d) {
  const int16x8_t ab = vcombine_s16(vmovn_s32(a), vmovn_s32(b)), cd = vcombine_s16(vmovn_s32(c), vmovn_s32(d));
  return vreinterpretq_s32_s8(vcombine_s8(vmovn_s16(ab), vmovn_s16(cd)));
}
inline int32_t largest_lane(I v) { return vmaxvq_s32(v); }

// The inverse of split.
inline Pair interleave(Pair v) { return {vzip1q_f32(v.a, v.b), vzip2q_f32(v.a, v.b)}; }

inline void fence() {}
[[gnu::always_inline]] inline void prefetch(const void* p) { __builtin_prefetch(p); }
inline constexpr int kRegisterCount = 32;
inline constexpr int kVectorBytes = 16;

inline constexpr char kFamily[] = "neon";
inline constexpr char kDescription[] = "NEON";

inline bool supported() { return true; }

}  // namespace rmsnorm::RMSNORM_TARGET
