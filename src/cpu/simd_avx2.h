// The vector vocabulary on AVX2 with FMA and F16C. See simd.h.
#include <immintrin.h>

#include "cpu/f16c.h"

namespace rmsnorm::RMSNORM_TARGET {

inline constexpr int kLanes = 8;
using F = __m256;
using D = __m256d;
struct Pair {
  F a, b;
};

inline F splat(float v) { return _mm256_set1_ps(v); }
inline D splat(double v) { return _mm256_set1_pd(v); }
inline F load(const float* p) { return _mm256_loadu_ps(p); }
inline void store(float* p, F v) { _mm256_storeu_ps(p, v); }
inline void stream(float* p, F v) { _mm256_stream_ps(p, v); }
inline D load(const double* p) { return _mm256_loadu_pd(p); }
inline void store(double* p, D v) { _mm256_storeu_pd(p, v); }
inline D load_wide(const float* p) { return _mm256_cvtps_pd(_mm_loadu_ps(p)); }

inline F add(F a, F b) { return _mm256_add_ps(a, b); }
inline F sub(F a, F b) { return _mm256_sub_ps(a, b); }
inline F mul(F a, F b) { return _mm256_mul_ps(a, b); }
inline D add(D a, D b) { return _mm256_add_pd(a, b); }
inline D sub(D a, D b) { return _mm256_sub_pd(a, b); }
inline D mul(D a, D b) { return _mm256_mul_pd(a, b); }
inline D div(D a, D b) { return _mm256_div_pd(a, b); }
inline D sqrt(D v) { return _mm256_sqrt_pd(v); }
inline bool all_within(D v, D low, D high) {
  const D inside = _mm256_and_pd(_mm256_cmp_pd(v, low, _CMP_GE_OQ), _mm256_cmp_pd(v, high, _CMP_LE_OQ));
  return _mm256_movemask_pd(inside) == 0xf;
}
inline F div(F a, F b) { return _mm256_div_ps(a, b); }
inline F larger(F a, F b) { return _mm256_max_ps(a, b); }
inline D larger(D a, D b) { return _mm256_max_pd(a, b); }
inline F smaller(F a, F b) { return _mm256_min_ps(a, b); }
inline D smaller(D a, D b) { return _mm256_min_pd(a, b); }
inline F into_exponent(F v) { return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_castps_si256(v), 23)); }
inline D into_exponent(D v) { return _mm256_castsi256_pd(_mm256_slli_epi64(_mm256_castpd_si256(v), 52)); }
inline F add_exact_product(F a, F b, F c) { return _mm256_fmadd_ps(a, b, c); }
inline D add_exact_product(D a, D b, D c) { return _mm256_fmadd_pd(a, b, c); }

inline F larger_magnitude(F largest, F v) {
  const __m256i bits = _mm256_and_si256(_mm256_castps_si256(v), _mm256_set1_epi32(0x7fffffff));
  return _mm256_castsi256_ps(_mm256_max_epi32(_mm256_castps_si256(largest), bits));
}

inline D lower(F v) { return _mm256_cvtps_pd(_mm256_castps256_ps128(v)); }
inline D upper(F v) { return _mm256_cvtps_pd(_mm256_extractf128_ps(v, 1)); }
inline F narrow(D lo, D hi) {
  return _mm256_insertf128_ps(_mm256_castps128_ps256(_mm256_cvtpd_ps(lo)), _mm256_cvtpd_ps(hi), 1);
}

inline double sum_lanes(D v) {
  const __m128d two = _mm_add_pd(_mm256_castpd256_pd128(v), _mm256_extractf128_pd(v, 1));
  return _mm_cvtsd_f64(_mm_add_sd(two, _mm_unpackhi_pd(two, two)));
}

// Halves, then neighbours: the order of sum_lanes.
inline D fold_rows(const D* v) {
  const auto halves = [](D a, D b) {
    return _mm256_add_pd(_mm256_permute2f128_pd(a, b, 0x20), _mm256_permute2f128_pd(a, b, 0x31));
  };
  const D even = halves(v[0], v[2]);
  const D odd = halves(v[1], v[3]);
  return _mm256_add_pd(_mm256_unpacklo_pd(even, odd), _mm256_unpackhi_pd(even, odd));
}

// The bits of v with half an ulp of bf16 added, ties to even: the upper half of each word is the result, but for NaNs,
// which may carry.
inline __m256i rounded_up_bf16(F v) {
  const __m256i bits = _mm256_castps_si256(v);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  return _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd);
}
// The same with NaNs made quiet.
inline __m256i rounded_bf16_or_nan(F v) {
  const F quiet = _mm256_or_ps(v, _mm256_castsi256_ps(_mm256_set1_epi32(0x400000)));
  const F nan = _mm256_cmp_ps(v, v, _CMP_UNORD_Q);
  return _mm256_castps_si256(_mm256_blendv_ps(_mm256_castsi256_ps(rounded_up_bf16(v)), quiet, nan));
}
inline bool has_nan(F a, F b) {
  return __builtin_expect(_mm256_movemask_ps(_mm256_cmp_ps(a, b, _CMP_UNORD_Q)), 0) != 0;
}
// Both registers of a pair; one question serves both, and NaNs are rare.
inline void rounded_bf16(Pair v, __m256i& a, __m256i& b) {
  a = rounded_up_bf16(v.a);
  b = rounded_up_bf16(v.b);
  if (has_nan(v.a, v.b)) {
    a = rounded_bf16_or_nan(v.a);
    b = rounded_bf16_or_nan(v.b);
  }
}

// Rounded in place: the lower half of each word is zero.
#define RMSNORM_HAS_ROUND_PAIR
inline Pair round_bf16(Pair v) {
  __m256i a, b;
  rounded_bf16(v, a, b);
  const __m256i upper = _mm256_set1_epi32(static_cast<int>(0xffff0000u));
  return {_mm256_castsi256_ps(_mm256_and_si256(a, upper)), _mm256_castsi256_ps(_mm256_and_si256(b, upper))};
}
inline F round_f16(F v) { return _mm256_cvtph_ps(_mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT)); }

inline Pair load_bf16(const uint16_t* p) {
  const auto widen = [](const uint16_t* from) {
    const __m256i v = _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
    return _mm256_castsi256_ps(_mm256_slli_epi32(v, 16));
  };
  return {widen(p), widen(p + 8)};
}
inline Pair load_bf16_split(const uint16_t* p) {
  const __m256i v = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  return {_mm256_castsi256_ps(_mm256_slli_epi32(v, 16)),
          _mm256_castsi256_ps(_mm256_and_si256(v, _mm256_set1_epi32(static_cast<int>(0xffff0000u))))};
}
inline Pair load_f16(const uint16_t* p) {
  return {_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))),
          _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 8)))};
}

inline void put(uint16_t* p, __m256i v, bool streamed) {
  if (streamed) {
    _mm256_stream_si256(reinterpret_cast<__m256i*>(p), v);
  } else {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), v);
  }
}
inline void store_f16(uint16_t* p, Pair v, bool streamed) {
  const __m128i lo = _mm256_cvtps_ph(v.a, _MM_FROUND_TO_NEAREST_INT);
  const __m128i hi = _mm256_cvtps_ph(v.b, _MM_FROUND_TO_NEAREST_INT);
  put(p, _mm256_inserti128_si256(_mm256_castsi128_si256(lo), hi, 1), streamed);
}
// Split order is for rows all of whose operands are bf16. The lower half of a NaN that comes of these is zero, so
// rounding cannot carry it into an infinity or a zero, and no NaN needs looking for.
inline void store_bf16_split(uint16_t* p, Pair v, bool streamed) {
  const __m256i even = _mm256_srli_epi32(rounded_up_bf16(v.a), 16);
  put(p, _mm256_blend_epi16(even, rounded_up_bf16(v.b), 0xaa), streamed);
}
inline void store_bf16(uint16_t* p, Pair v, bool streamed) {
  __m256i a, b;
  rounded_bf16(v, a, b);
  const __m256i packed = _mm256_packus_epi32(_mm256_srli_epi32(a, 16), _mm256_srli_epi32(b, 16));
  put(p, _mm256_permute4x64_epi64(packed, 0xd8), streamed);  // pack works per 128 bits
}

// 2 * kLanes values in memory order -> those at even places, those at odd places.
inline Pair split(Pair v) {
  const F even = _mm256_shuffle_ps(v.a, v.b, 0x88);
  const F odd = _mm256_shuffle_ps(v.a, v.b, 0xdd);
  const auto order = [](F f) { return _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(f), 0xd8)); };
  return {order(even), order(odd)};
}

// Partial pairs: see simd.h. Masked loads are fast everywhere; masked stores are microcode on AMD.
#define RMSNORM_HAS_PARTIAL_LOADS
inline __m256i first_words(int n) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
inline void load_first(float* to, const float* p, int n) {
  store(to, _mm256_maskload_ps(p, first_words(n)));
  store(to + kLanes, _mm256_maskload_ps(p + kLanes, first_words(n - kLanes)));
}
inline void load_first(uint16_t* to, const uint16_t* p, int n) {
  __m256i v = _mm256_maskload_epi32(reinterpret_cast<const int*>(p), first_words(n / 2));
  if (n % 2 != 0) {
    const __m256i last = _mm256_andnot_si256(first_words(n / 2), first_words(n / 2 + 1));
    v = _mm256_or_si256(v, _mm256_and_si256(last, _mm256_set1_epi32(p[n - 1])));
  }
  put(to, v, false);
}

using I = __m256i;
inline I splat(int32_t v) { return _mm256_set1_epi32(v); }
inline I as_int(F v) { return _mm256_castps_si256(v); }
inline F as_float(I v) { return _mm256_castsi256_ps(v); }
inline I add(I a, I b) { return _mm256_add_epi32(a, b); }
inline I sub(I a, I b) { return _mm256_sub_epi32(a, b); }
inline I bit_and(I a, I b) { return _mm256_and_si256(a, b); }
inline I bit_or(I a, I b) { return _mm256_or_si256(a, b); }
template <int kBits>
inline I shift_right(I v) {
  return _mm256_srli_epi32(v, kBits);
}
inline I less(I a, I b) { return _mm256_cmpgt_epi32(b, a); }
inline bool any(I mask) { return _mm256_testz_si256(mask, mask) == 0; }
inline I pack_bytes(I a, I b, I c, I d) {
  const I low = _mm256_set1_epi32(0xff);
  const I halves[] = {_mm256_packus_epi32(bit_and(a, low), bit_and(b, low)),
                      _mm256_packus_epi32(bit_and(c, low), bit_and(d, low))};
  // Packing works per 128 bits: a b c d of the lower half, then of the upper.
  const I order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  return _mm256_permutevar8x32_epi32(_mm256_packus_epi16(halves[0], halves[1]), order);
}
inline int32_t largest_lane(I v) {
  const __m128i four = _mm_max_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
  const __m128i two = _mm_max_epi32(four, _mm_shuffle_epi32(four, 0x4e));
  return _mm_cvtsi128_si32(_mm_max_epi32(two, _mm_shuffle_epi32(two, 0xb1)));
}

// The inverse of split.
inline Pair interleave(Pair v) {
  const F low = _mm256_unpacklo_ps(v.a, v.b), high = _mm256_unpackhi_ps(v.a, v.b);
  return {_mm256_permute2f128_ps(low, high, 0x20), _mm256_permute2f128_ps(low, high, 0x31)};
}

// Halves only: what malloc returns is aligned to 16 bytes. See simd.h.
#define RMSNORM_HAS_JOIN
inline constexpr int kJoinBytes = 16;
struct Joint {};
inline Joint joint_behind(int) { return {}; }
inline F join(F before, F after, Joint) { return _mm256_permute2f128_ps(before, after, 0x21); }

inline void fence() { _mm_sfence(); }
[[gnu::always_inline]] inline void prefetch(const void* p) { _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T0); }
inline constexpr int kRegisterCount = 16;
inline constexpr int kVectorBytes = 32;

inline constexpr char kFamily[] = "avx2";
inline constexpr char kDescription[] = "AVX2 with FMA and F16C";

inline bool supported() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c(); }

}  // namespace rmsnorm::RMSNORM_TARGET
