// The vector vocabulary on AVX-512 (F, BW, DQ, VL; BF16 where the file is compiled with it). See simd.h.
#include <immintrin.h>

#include "cpu/f16c.h"

namespace rmsnorm::RMSNORM_TARGET {

inline constexpr int kLanes = 16;
using F = __m512;
using D = __m512d;
struct Pair {
  F a, b;
};

inline F splat(float v) { return _mm512_set1_ps(v); }
inline D splat(double v) { return _mm512_set1_pd(v); }
inline F load(const float* p) { return _mm512_loadu_ps(p); }
inline void store(float* p, F v) { _mm512_storeu_ps(p, v); }
inline void stream(float* p, F v) { _mm512_stream_ps(p, v); }
inline D load(const double* p) { return _mm512_loadu_pd(p); }
inline void store(double* p, D v) { _mm512_storeu_pd(p, v); }
inline D load_wide(const float* p) { return _mm512_cvtps_pd(_mm256_loadu_ps(p)); }

inline F add(F a, F b) { return _mm512_add_ps(a, b); }
inline F sub(F a, F b) { return _mm512_sub_ps(a, b); }
inline F mul(F a, F b) { return _mm512_mul_ps(a, b); }
inline D add(D a, D b) { return _mm512_add_pd(a, b); }
inline D sub(D a, D b) { return _mm512_sub_pd(a, b); }
inline D mul(D a, D b) { return _mm512_mul_pd(a, b); }
inline D div(D a, D b) { return _mm512_div_pd(a, b); }
inline D sqrt(D v) { return _mm512_sqrt_pd(v); }
inline bool all_within(D v, D low, D high) {
  return (_mm512_cmp_pd_mask(v, low, _CMP_GE_OQ) & _mm512_cmp_pd_mask(v, high, _CMP_LE_OQ)) == 0xff;
}
inline F div(F a, F b) { return _mm512_div_ps(a, b); }
inline F larger(F a, F b) { return _mm512_max_ps(a, b); }
inline D larger(D a, D b) { return _mm512_max_pd(a, b); }
inline F smaller(F a, F b) { return _mm512_min_ps(a, b); }
inline D smaller(D a, D b) { return _mm512_min_pd(a, b); }
inline F into_exponent(F v) { return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_castps_si512(v), 23)); }
inline D into_exponent(D v) { return _mm512_castsi512_pd(_mm512_slli_epi64(_mm512_castpd_si512(v), 52)); }
inline F add_exact_product(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
inline D add_exact_product(D a, D b, D c) { return _mm512_fmadd_pd(a, b, c); }

inline F larger_magnitude(F largest, F v) {
  const __m512i bits = _mm512_and_si512(_mm512_castps_si512(v), _mm512_set1_epi32(0x7fffffff));
  return _mm512_castsi512_ps(_mm512_max_epi32(_mm512_castps_si512(largest), bits));
}

inline D lower(F v) { return _mm512_cvtps_pd(_mm512_castps512_ps256(v)); }
inline D upper(F v) { return _mm512_cvtps_pd(_mm512_extractf32x8_ps(v, 1)); }
inline F narrow(D lo, D hi) {
  return _mm512_insertf32x8(_mm512_castps256_ps512(_mm512_cvtpd_ps(lo)), _mm512_cvtpd_ps(hi), 1);
}

inline double sum_lanes(D v) {
  const __m256d four = _mm256_add_pd(_mm512_castpd512_pd256(v), _mm512_extractf64x4_pd(v, 1));
  const __m128d two = _mm_add_pd(_mm256_castpd256_pd128(four), _mm256_extractf128_pd(four, 1));
  return _mm_cvtsd_f64(_mm_add_sd(two, _mm_unpackhi_pd(two, two)));
}

// Halves, then quarters, then neighbours: the order of sum_lanes. The order of the arguments makes up for the last step.
inline D fold_rows(const D* v) {
  const auto halves = [](D a, D b) {
    return _mm512_add_pd(_mm512_shuffle_f64x2(a, b, 0x44), _mm512_shuffle_f64x2(a, b, 0xee));
  };
  const auto quarters = [](D a, D b) {
    return _mm512_add_pd(_mm512_shuffle_f64x2(a, b, 0x88), _mm512_shuffle_f64x2(a, b, 0xdd));
  };
  const D even = quarters(halves(v[0], v[2]), halves(v[4], v[6]));
  const D odd = quarters(halves(v[1], v[3]), halves(v[5], v[7]));
  return _mm512_add_pd(_mm512_unpacklo_pd(even, odd), _mm512_unpackhi_pd(even, odd));
}

// bf16, rounded in place: the upper half of each word holds the result, the lower half is zero.
inline F round_bf16(F v) {
  const __m512i bits = _mm512_castps_si512(v);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  const __m512i sum = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd);
  const __mmask16 nan = _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
  const __m512i kept = _mm512_mask_or_epi32(sum, nan, bits, _mm512_set1_epi32(0x400000));
  return _mm512_castsi512_ps(_mm512_and_si512(kept, _mm512_set1_epi32(static_cast<int>(0xffff0000u))));
}
inline F round_f16(F v) { return _mm512_cvtph_ps(_mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT)); }

inline F load_half_bf16(const uint16_t* p) {
  const __m512i words = _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  return _mm512_castsi512_ps(_mm512_slli_epi32(words, 16));
}
// Without the extraction of upper halves.
#define RMSNORM_HAS_LOAD_WIDE_16
inline D load_wide_f16(const uint16_t* p) {
  return _mm512_cvtps_pd(_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
}
inline D load_wide_bf16(const uint16_t* p) {
  const __m256i words = _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  return _mm512_cvtps_pd(_mm256_castsi256_ps(_mm256_slli_epi32(words, 16)));
}
inline Pair load_bf16(const uint16_t* p) { return {load_half_bf16(p), load_half_bf16(p + kLanes)}; }
inline Pair load_bf16_split(const uint16_t* p) {
  const __m512i v = _mm512_loadu_si512(p);
  return {_mm512_castsi512_ps(_mm512_slli_epi32(v, 16)),
          _mm512_castsi512_ps(_mm512_and_si512(v, _mm512_set1_epi32(static_cast<int>(0xffff0000u))))};
}
inline Pair load_f16(const uint16_t* p) {
  return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))),
          _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + 16)))};
}

inline void put(uint16_t* p, __m512i v, bool streamed) {
  if (streamed) {
    _mm512_stream_si512(reinterpret_cast<__m512i*>(p), v);
  } else {
    _mm512_storeu_si512(p, v);
  }
}
inline void store_f16(uint16_t* p, Pair v, bool streamed) {
  const __m256i lo = _mm512_cvtps_ph(v.a, _MM_FROUND_TO_NEAREST_INT);
  const __m256i hi = _mm512_cvtps_ph(v.b, _MM_FROUND_TO_NEAREST_INT);
  put(p, _mm512_inserti64x4(_mm512_castsi256_si512(lo), hi, 1), streamed);
}
#if defined(__AVX512BF16__)
// v.a in the lower half, v.b in the upper. The instruction flushes subnormals, which the contract keeps: then the
// answer is false and the caller takes the integer path.
inline bool pack_bf16(Pair v, __m512i& packed) {
  const __mmask16 a = _mm512_fpclass_ps_mask(v.a, 0x20);
  const __mmask16 b = _mm512_fpclass_ps_mask(v.b, 0x20);
  if (__builtin_expect(!_kortestz_mask16_u8(a, b), 0)) return false;
  const __m512bh halves = _mm512_cvtne2ps_pbh(v.b, v.a);
  static_assert(sizeof halves == sizeof packed);
  __builtin_memcpy(&packed, &halves, sizeof packed);
  return true;
}
#endif
inline void store_bf16_split(uint16_t* p, Pair v, bool streamed) {
#if defined(__AVX512BF16__)
  // Places 0, 16, 1, 17, ..: even and odd elements in turn.
  const __m512i turns = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8,  //
                                         23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
  __m512i packed;
  if (pack_bf16(v, packed)) return put(p, _mm512_permutexvar_epi16(turns, packed), streamed);
#endif
  const __m512i even = _mm512_srli_epi32(_mm512_castps_si512(round_bf16(v.a)), 16);
  put(p, _mm512_or_si512(even, _mm512_castps_si512(round_bf16(v.b))), streamed);
}
inline void store_bf16(uint16_t* p, Pair v, bool streamed) {
#if defined(__AVX512BF16__)
  __m512i packed;
  if (pack_bf16(v, packed)) return put(p, packed, streamed);
#endif
  const __m256i lo = _mm512_cvtepi32_epi16(_mm512_srli_epi32(_mm512_castps_si512(round_bf16(v.a)), 16));
  const __m256i hi = _mm512_cvtepi32_epi16(_mm512_srli_epi32(_mm512_castps_si512(round_bf16(v.b)), 16));
  put(p, _mm512_inserti64x4(_mm512_castsi256_si512(lo), hi, 1), streamed);
}

// 2 * kLanes values in memory order -> those at even places, those at odd places; and back.
inline Pair split(Pair v) {
  const __m512i even = _mm512_set_epi32(30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
  const __m512i odd = _mm512_add_epi32(even, _mm512_set1_epi32(1));
  return {_mm512_permutex2var_ps(v.a, even, v.b), _mm512_permutex2var_ps(v.a, odd, v.b)};
}

// Partial pairs: see simd.h.
#define RMSNORM_HAS_PARTIAL_LOADS
#define RMSNORM_HAS_PARTIAL_STORES
inline __mmask32 first_lanes(int n) { return (uint32_t{1} << n) - 1; }
inline void load_first(float* to, const float* p, int n) {
  store(to, _mm512_maskz_loadu_ps(static_cast<__mmask16>(first_lanes(n)), p));
  store(to + kLanes, _mm512_maskz_loadu_ps(static_cast<__mmask16>(first_lanes(n) >> kLanes), p + kLanes));
}
inline void load_first(uint16_t* to, const uint16_t* p, int n) {
  put(to, _mm512_maskz_loadu_epi16(first_lanes(n), p), false);
}
inline void store_first(float* p, const float* from, int n) {
  _mm512_mask_storeu_ps(p, static_cast<__mmask16>(first_lanes(n)), load(from));
  _mm512_mask_storeu_ps(p + kLanes, static_cast<__mmask16>(first_lanes(n) >> kLanes), load(from + kLanes));
}
inline void store_first(uint16_t* p, const uint16_t* from, int n) {
  _mm512_mask_storeu_epi16(p, first_lanes(n), _mm512_loadu_si512(from));
}

using I = __m512i;
inline I splat(int32_t v) { return _mm512_set1_epi32(v); }
inline I as_int(F v) { return _mm512_castps_si512(v); }
inline F as_float(I v) { return _mm512_castsi512_ps(v); }
inline I add(I a, I b) { return _mm512_add_epi32(a, b); }
inline I sub(I a, I b) { return _mm512_sub_epi32(a, b); }
inline I bit_and(I a, I b) { return _mm512_and_si512(a, b); }
inline I bit_or(I a, I b) { return _mm512_or_si512(a, b); }
template <int kBits>
inline I shift_right(I v) {
  return _mm512_srli_epi32(v, kBits);
}
inline I less(I a, I b) { return _mm512_movm_epi32(_mm512_cmplt_epi32_mask(a, b)); }
inline bool any(I mask) { return _mm512_test_epi32_mask(mask, mask) != 0; }
inline I pack_bytes(I a, I b, I c, I d) {
  const I low = _mm512_set1_epi32(0xff);
  const I ab = _mm512_packus_epi32(_mm512_and_si512(a, low), _mm512_and_si512(b, low));
  const I cd = _mm512_packus_epi32(_mm512_and_si512(c, low), _mm512_and_si512(d, low));
  // Packing works per 128 bits: a b c d of the first quarter, then of the next ones.
  const I order = _mm512_set_epi32(15, 11, 7, 3, 14, 10, 6, 2, 13, 9, 5, 1, 12, 8, 4, 0);
  return _mm512_permutexvar_epi32(order, _mm512_packus_epi16(ab, cd));
}
inline int32_t largest_lane(I v) { return _mm512_reduce_max_epi32(v); }

inline Pair interleave(Pair v) {
  const __m512i low = _mm512_set_epi32(23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
  const __m512i high = _mm512_add_epi32(low, _mm512_set1_epi32(8));
  return {_mm512_permutex2var_ps(v.a, low, v.b), _mm512_permutex2var_ps(v.a, high, v.b)};
}

// Lanes: see simd.h.
#define RMSNORM_HAS_JOIN
inline constexpr int kJoinBytes = 4;
using Joint = __m512i;
inline Joint joint_behind(int bytes) {
  const __m512i lane = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
  return _mm512_add_epi32(lane, _mm512_set1_epi32(kLanes - bytes / kJoinBytes));
}
inline F join(F before, F after, Joint joint) { return _mm512_permutex2var_ps(before, joint, after); }

inline void fence() { _mm_sfence(); }
[[gnu::always_inline]] inline void prefetch(const void* p) { _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T0); }
inline constexpr int kRegisterCount = 32;
inline constexpr int kVectorBytes = 64;

inline constexpr char kFamily[] = "avx512";
#if defined(__AVX512BF16__)
inline constexpr char kDescription[] = "AVX-512 F, BW, DQ, VL and BF16";
#else
inline constexpr char kDescription[] = "AVX-512 F, BW, DQ, VL";
#endif

inline bool supported() {
#if defined(__AVX512BF16__)
  if (!__builtin_cpu_supports("avx512bf16")) return false;
#endif
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") && has_f16c() &&
         __builtin_cpu_supports("fma");
}

}  // namespace rmsnorm::RMSNORM_TARGET
