// The vector vocabulary on SSE4.1. There is no fused multiply-add and no f16: products are exact where this matters,
// and f16 is converted with integer arithmetic. See simd.h.
#include <smmintrin.h>

namespace rmsnorm::RMSNORM_TARGET {

inline constexpr int kLanes = 4;
using F = __m128;
using D = __m128d;
struct Pair {
  F a, b;
};

inline F splat(float v) { return _mm_set1_ps(v); }
inline D splat(double v) { return _mm_set1_pd(v); }
inline F load(const float* p) { return _mm_loadu_ps(p); }
inline void store(float* p, F v) { _mm_storeu_ps(p, v); }
inline void stream(float* p, F v) { _mm_stream_ps(p, v); }
inline D load(const double* p) { return _mm_loadu_pd(p); }
inline void store(double* p, D v) { _mm_storeu_pd(p, v); }
inline D load_wide(const float* p) {
  return _mm_cvtps_pd(_mm_castsi128_ps(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
}

inline F add(F a, F b) { return _mm_add_ps(a, b); }
inline F sub(F a, F b) { return _mm_sub_ps(a, b); }
inline F mul(F a, F b) { return _mm_mul_ps(a, b); }
inline D add(D a, D b) { return _mm_add_pd(a, b); }
inline D sub(D a, D b) { return _mm_sub_pd(a, b); }
inline D mul(D a, D b) { return _mm_mul_pd(a, b); }
inline D div(D a, D b) { return _mm_div_pd(a, b); }
inline D sqrt(D v) { return _mm_sqrt_pd(v); }
inline bool all_within(D v, D low, D high) {
  return _mm_movemask_pd(_mm_and_pd(_mm_cmpge_pd(v, low), _mm_cmple_pd(v, high))) == 3;
}
inline F div(F a, F b) { return _mm_div_ps(a, b); }
inline F larger(F a, F b) { return _mm_max_ps(a, b); }
inline D larger(D a, D b) { return _mm_max_pd(a, b); }
inline F smaller(F a, F b) { return _mm_min_ps(a, b); }
inline D smaller(D a, D b) { return _mm_min_pd(a, b); }
inline F into_exponent(F v) { return _mm_castsi128_ps(_mm_slli_epi32(_mm_castps_si128(v), 23)); }
inline D into_exponent(D v) { return _mm_castsi128_pd(_mm_slli_epi64(_mm_castpd_si128(v), 52)); }
inline F add_exact_product(F a, F b, F c) { return add(mul(a, b), c); }
inline D add_exact_product(D a, D b, D c) { return add(mul(a, b), c); }

inline F larger_magnitude(F largest, F v) {
  const __m128i bits = _mm_and_si128(_mm_castps_si128(v), _mm_set1_epi32(0x7fffffff));
  return _mm_castsi128_ps(_mm_max_epi32(_mm_castps_si128(largest), bits));
}

inline D lower(F v) { return _mm_cvtps_pd(v); }
inline D upper(F v) { return _mm_cvtps_pd(_mm_movehl_ps(v, v)); }
inline F narrow(D lo, D hi) { return _mm_movelh_ps(_mm_cvtpd_ps(lo), _mm_cvtpd_ps(hi)); }

inline double sum_lanes(D v) { return _mm_cvtsd_f64(_mm_add_sd(v, _mm_unpackhi_pd(v, v))); }

inline D fold_rows(const D* v) { return _mm_add_pd(_mm_unpacklo_pd(v[0], v[1]), _mm_unpackhi_pd(v[0], v[1])); }

// bf16, rounded in place: the upper half of each word holds the result, the lower half is zero.
inline F round_bf16(F v) {
  const __m128i bits = _mm_castps_si128(v);
  const __m128i odd = _mm_and_si128(_mm_srli_epi32(bits, 16), _mm_set1_epi32(1));
  const __m128i sum = _mm_add_epi32(_mm_add_epi32(bits, _mm_set1_epi32(0x7fff)), odd);
  const __m128i quiet = _mm_or_si128(bits, _mm_set1_epi32(0x400000));
  const F kept = _mm_blendv_ps(_mm_castsi128_ps(sum), _mm_castsi128_ps(quiet), _mm_cmpunord_ps(v, v));
  return _mm_and_ps(kept, _mm_castsi128_ps(_mm_set1_epi32(static_cast<int>(0xffff0000u))));
}

// The scalar algorithms of core/float16.h, four at a time: f16 bits in the low half of each word.
inline F f16_words_to_f32(__m128i half) {
  const __m128i sign = _mm_slli_epi32(_mm_and_si128(half, _mm_set1_epi32(0x8000)), 16);
  const __m128i magnitude = _mm_slli_epi32(_mm_and_si128(half, _mm_set1_epi32(0x7fff)), 13);
  const F scaled = _mm_mul_ps(_mm_castsi128_ps(magnitude), _mm_set1_ps(0x1p112f));
  const __m128i special = _mm_cmpgt_epi32(magnitude, _mm_set1_epi32(0x0f7fffff));
  const __m128i exponent = _mm_and_si128(special, _mm_set1_epi32(0x7f800000));
  const F value = _mm_blendv_ps(scaled, _mm_castsi128_ps(_mm_or_si128(magnitude, exponent)), _mm_castsi128_ps(special));
  return _mm_or_ps(value, _mm_castsi128_ps(sign));
}
inline __m128i f32_to_f16_words(F v) {
  const __m128i bits = _mm_castps_si128(v);
  const __m128i sign = _mm_and_si128(_mm_srli_epi32(bits, 16), _mm_set1_epi32(0x8000));
  const __m128i magnitude = _mm_and_si128(bits, _mm_set1_epi32(0x7fffffff));
  const __m128i odd = _mm_and_si128(_mm_srli_epi32(magnitude, 13), _mm_set1_epi32(1));
  const __m128i rounded = _mm_add_epi32(_mm_add_epi32(magnitude, _mm_set1_epi32(0xfff)), odd);
  const __m128i normal = _mm_srli_epi32(_mm_sub_epi32(rounded, _mm_set1_epi32(0x38000000)), 13);
  const F shifted = _mm_add_ps(_mm_castsi128_ps(magnitude), _mm_set1_ps(0.5f));
  const __m128i small = _mm_sub_epi32(_mm_castps_si128(shifted), _mm_set1_epi32(0x3f000000));
  const __m128i payload = _mm_and_si128(_mm_srli_epi32(magnitude, 13), _mm_set1_epi32(0x3ff));
  const __m128i nan = _mm_or_si128(payload, _mm_set1_epi32(0x7e00));
  __m128i half = _mm_blendv_epi8(normal, small, _mm_cmplt_epi32(magnitude, _mm_set1_epi32(0x38800000)));
  half = _mm_blendv_epi8(half, _mm_set1_epi32(0x7c00), _mm_cmpgt_epi32(magnitude, _mm_set1_epi32(0x477fefff)));
  half = _mm_blendv_epi8(half, nan, _mm_cmpgt_epi32(magnitude, _mm_set1_epi32(0x7f800000)));
  return _mm_or_si128(half, sign);
}
inline F round_f16(F v) { return f16_words_to_f32(f32_to_f16_words(v)); }

inline __m128i load_halves(const uint16_t* p) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p)); }
inline Pair load_bf16(const uint16_t* p) {
  const __m128i v = load_halves(p);
  const __m128i zero = _mm_setzero_si128();
  return {_mm_castsi128_ps(_mm_unpacklo_epi16(zero, v)), _mm_castsi128_ps(_mm_unpackhi_epi16(zero, v))};
}
inline Pair load_bf16_split(const uint16_t* p) {
  const __m128i v = load_halves(p);
  return {_mm_castsi128_ps(_mm_slli_epi32(v, 16)),
          _mm_castsi128_ps(_mm_and_si128(v, _mm_set1_epi32(static_cast<int>(0xffff0000u))))};
}
inline Pair load_f16(const uint16_t* p) {
  const __m128i v = load_halves(p);
  const __m128i zero = _mm_setzero_si128();
  return {f16_words_to_f32(_mm_unpacklo_epi16(v, zero)), f16_words_to_f32(_mm_unpackhi_epi16(v, zero))};
}

inline void put(uint16_t* p, __m128i v, bool streamed) {
  if (streamed) {
    _mm_stream_si128(reinterpret_cast<__m128i*>(p), v);
  } else {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), v);
  }
}
inline void store_f16(uint16_t* p, Pair v, bool streamed) {
  put(p, _mm_packus_epi32(f32_to_f16_words(v.a), f32_to_f16_words(v.b)), streamed);
}
inline void store_bf16_split(uint16_t* p, Pair v, bool streamed) {
  const __m128i even = _mm_srli_epi32(_mm_castps_si128(round_bf16(v.a)), 16);
  put(p, _mm_or_si128(even, _mm_castps_si128(round_bf16(v.b))), streamed);
}
inline void store_bf16(uint16_t* p, Pair v, bool streamed) {
  const __m128i lo = _mm_srli_epi32(_mm_castps_si128(round_bf16(v.a)), 16);
  const __m128i hi = _mm_srli_epi32(_mm_castps_si128(round_bf16(v.b)), 16);
  put(p, _mm_packus_epi32(lo, hi), streamed);
}

// 2 * kLanes values in memory order -> those at even places, those at odd places.
inline Pair split(Pair v) { return {_mm_shuffle_ps(v.a, v.b, 0x88), _mm_shuffle_ps(v.a, v.b, 0xdd)}; }

using I = __m128i;
inline I splat(int32_t v) { return _mm_set1_epi32(v); }
inline I as_int(F v) { return _mm_castps_si128(v); }
inline F as_float(I v) { return _mm_castsi128_ps(v); }
inline I add(I a, I b) { return _mm_add_epi32(a, b); }
inline I sub(I a, I b) { return _mm_sub_epi32(a, b); }
inline I bit_and(I a, I b) { return _mm_and_si128(a, b); }
inline I bit_or(I a, I b) { return _mm_or_si128(a, b); }
template <int kBits>
inline I shift_right(I v) {
  return _mm_srli_epi32(v, kBits);
}
inline I less(I a, I b) { return _mm_cmplt_epi32(a, b); }
inline bool any(I mask) { return _mm_testz_si128(mask, mask) == 0; }
inline I pack_bytes(I a, I b, I c, I d) {
  const I low = _mm_set1_epi32(0xff);
  const I ab = _mm_packus_epi32(bit_and(a, low), bit_and(b, low));
  const I cd = _mm_packus_epi32(bit_and(c, low), bit_and(d, low));
  return _mm_packus_epi16(ab, cd);
}
inline int32_t largest_lane(I v) {
  const I two = _mm_max_epi32(v, _mm_shuffle_epi32(v, 0x4e));
  return _mm_cvtsi128_si32(_mm_max_epi32(two, _mm_shuffle_epi32(two, 0xb1)));
}

// The inverse of split.
inline Pair interleave(Pair v) { return {_mm_unpacklo_ps(v.a, v.b), _mm_unpackhi_ps(v.a, v.b)}; }

inline void fence() { _mm_sfence(); }
[[gnu::always_inline]] inline void prefetch(const void* p) { _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T0); }
inline constexpr int kRegisterCount = 16;
inline constexpr int kVectorBytes = 16;

inline constexpr char kFamily[] = "sse4";
inline constexpr char kDescription[] = "SSE4.1";

inline bool supported() { return __builtin_cpu_supports("sse4.1"); }

}  // namespace rmsnorm::RMSNORM_TARGET
