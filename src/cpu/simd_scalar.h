// The vector vocabulary in plain C++, for any CPU, and the plainest statement of what each operation means. See simd.h.
#include "core/float16.h"

namespace rmsnorm::RMSNORM_TARGET {

inline constexpr int kLanes = 4;
struct F {
  float v[kLanes];
};
struct D {
  double v[kLanes / 2];
};
struct Pair {
  F a, b;
};

inline F splat(float v) { return {{v, v, v, v}}; }
inline D splat(double v) { return {{v, v}}; }
inline F load(const float* p) { return {{p[0], p[1], p[2], p[3]}}; }
inline void store(float* p, F v) {
  for (int i = 0; i < kLanes; ++i) p[i] = v.v[i];
}
inline void stream(float* p, F v) { store(p, v); }
inline D load(const double* p) { return {{p[0], p[1]}}; }
inline void store(double* p, D v) {
  for (int i = 0; i < kLanes / 2; ++i) p[i] = v.v[i];
}
inline D load_wide(const float* p) { return {{p[0], p[1]}}; }

// f(a, b) lane by lane.
template <class Function>
inline F map(F a, F b, Function f) {
  return {{f(a.v[0], b.v[0]), f(a.v[1], b.v[1]), f(a.v[2], b.v[2]), f(a.v[3], b.v[3])}};
}
template <class Function>
inline D map(D a, D b, Function f) {
  return {{f(a.v[0], b.v[0]), f(a.v[1], b.v[1])}};
}

inline F add(F a, F b) {
  return map(a, b, [](float x, float y) { return x + y; });
}
inline F sub(F a, F b) {
  return map(a, b, [](float x, float y) { return x - y; });
}
inline F mul(F a, F b) {
  return map(a, b, [](float x, float y) { return x * y; });
}
inline D add(D a, D b) {
  return map(a, b, [](double x, double y) { return x + y; });
}
inline D sub(D a, D b) {
  return map(a, b, [](double x, double y) { return x - y; });
}
inline D mul(D a, D b) {
  return map(a, b, [](double x, double y) { return x * y; });
}
inline D div(D a, D b) {
  return map(a, b, [](double x, double y) { return x / y; });
}
inline D sqrt(D v) { return {{__builtin_sqrt(v.v[0]), __builtin_sqrt(v.v[1])}}; }
inline bool all_within(D v, D low, D high) {
  return v.v[0] >= low.v[0] && v.v[0] <= high.v[0] && v.v[1] >= low.v[1] && v.v[1] <= high.v[1];
}
inline F div(F a, F b) {
  return map(a, b, [](float x, float y) { return x / y; });
}
inline F larger(F a, F b) {
  return map(a, b, [](float x, float y) { return x > y ? x : y; });
}
inline D larger(D a, D b) {
  return map(a, b, [](double x, double y) { return x > y ? x : y; });
}
inline F smaller(F a, F b) {
  return map(a, b, [](float x, float y) { return x < y ? x : y; });
}
inline D smaller(D a, D b) {
  return map(a, b, [](double x, double y) { return x < y ? x : y; });
}
inline F into_exponent(F v) {
  return map(v, v, [](float x, float) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    bits <<= 23;
    memcpy(&x, &bits, sizeof bits);
    return x;
  });
}
inline D into_exponent(D v) {
  return map(v, v, [](double x, double) {
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    bits <<= 52;
    memcpy(&x, &bits, sizeof bits);
    return x;
  });
}
inline F add_exact_product(F a, F b, F c) { return add(mul(a, b), c); }
inline D add_exact_product(D a, D b, D c) { return add(mul(a, b), c); }

inline F larger_magnitude(F largest, F v) {
  return map(largest, v, [](float x, float y) {
    const uint32_t bits = std::bit_cast<uint32_t>(y) & 0x7fffffffu;
    return bits > std::bit_cast<uint32_t>(x) ? std::bit_cast<float>(bits) : x;
  });
}

inline D lower(F v) { return {{v.v[0], v.v[1]}}; }
inline D upper(F v) { return {{v.v[2], v.v[3]}}; }
inline F narrow(D lo, D hi) {
  return {{static_cast<float>(lo.v[0]), static_cast<float>(lo.v[1]), static_cast<float>(hi.v[0]),
           static_cast<float>(hi.v[1])}};
}

inline double sum_lanes(D v) { return v.v[0] + v.v[1]; }
inline D fold_rows(const D* v) { return {{sum_lanes(v[0]), sum_lanes(v[1])}}; }

inline F round_bf16(F v) {
  return map(v, v, [](float x, float) { return bf16_to_f32(f32_to_bf16(x)); });
}
inline F round_f16(F v) {
  return map(v, v, [](float x, float) { return f16_to_f32(f32_to_f16(x)); });
}

inline Pair load_bf16(const uint16_t* p) {
  Pair r;
  for (int i = 0; i < kLanes; ++i) r.a.v[i] = bf16_to_f32(p[i]);
  for (int i = 0; i < kLanes; ++i) r.b.v[i] = bf16_to_f32(p[kLanes + i]);
  return r;
}
inline Pair load_bf16_split(const uint16_t* p) {
  Pair r;
  for (int i = 0; i < kLanes; ++i) r.a.v[i] = bf16_to_f32(p[2 * i]);
  for (int i = 0; i < kLanes; ++i) r.b.v[i] = bf16_to_f32(p[2 * i + 1]);
  return r;
}
inline Pair load_f16(const uint16_t* p) {
  Pair r;
  for (int i = 0; i < kLanes; ++i) r.a.v[i] = f16_to_f32(p[i]);
  for (int i = 0; i < kLanes; ++i) r.b.v[i] = f16_to_f32(p[kLanes + i]);
  return r;
}

inline void store_f16(uint16_t* p, Pair v, bool) {
  for (int i = 0; i < kLanes; ++i) p[i] = f32_to_f16(v.a.v[i]);
  for (int i = 0; i < kLanes; ++i) p[kLanes + i] = f32_to_f16(v.b.v[i]);
}
inline void store_bf16(uint16_t* p, Pair v, bool) {
  for (int i = 0; i < kLanes; ++i) p[i] = f32_to_bf16(v.a.v[i]);
  for (int i = 0; i < kLanes; ++i) p[kLanes + i] = f32_to_bf16(v.b.v[i]);
}
inline void store_bf16_split(uint16_t* p, Pair v, bool) {
  for (int i = 0; i < kLanes; ++i) p[2 * i] = f32_to_bf16(v.a.v[i]);
  for (int i = 0; i < kLanes; ++i) p[2 * i + 1] = f32_to_bf16(v.b.v[i]);
}

// 2 * kLanes values in memory order -> those at even places, those at odd places.
inline Pair split(Pair v) {
  return {{{v.a.v[0], v.a.v[2], v.b.v[0], v.b.v[2]}}, {{v.a.v[1], v.a.v[3], v.b.v[1], v.b.v[3]}}};
}

struct I {
  uint32_t v[kLanes];
};
inline I splat(int32_t v) {
  const auto word = static_cast<uint32_t>(v);
  return {{word, word, word, word}};
}
inline I as_int(F v) {
  I r;
  memcpy(&r, &v, sizeof r);
  return r;
}
inline F as_float(I v) {
  F r;
  memcpy(&r, &v, sizeof r);
  return r;
}
template <class Function>
inline I map(I a, I b, Function f) {
  return {{f(a.v[0], b.v[0]), f(a.v[1], b.v[1]), f(a.v[2], b.v[2]), f(a.v[3], b.v[3])}};
}
inline I add(I a, I b) {
  return map(a, b, [](uint32_t x, uint32_t y) { return x + y; });
}
inline I sub(I a, I b) {
  return map(a, b, [](uint32_t x, uint32_t y) { return x - y; });
}
inline I bit_and(I a, I b) {
  return map(a, b, [](uint32_t x, uint32_t y) { return x & y; });
}
inline I bit_or(I a, I b) {
  return map(a, b, [](uint32_t x, uint32_t y) { return x | y; });
}
template <int kBits>
inline I shift_right(I v) {
  return map(v, v, [](uint32_t x, uint32_t) { return x >> kBits; });
}
inline I less(I a, I b) {
  return map(a, b, [](uint32_t x, uint32_t y) { return static_cast<int32_t>(x) < static_cast<int32_t>(y) ? ~0u : 0u; });
}
inline bool any(I mask) { return (mask.v[0] | mask.v[1] | mask.v[2] | mask.v[3]) != 0; }
inline I pack_bytes(I a, I b, I c, I d) {
  const I words[] = {a, b, c, d};
  uint8_t bytes[4 * kLanes];
  for (int i = 0; i < 4 * kLanes; ++i) bytes[i] = static_cast<uint8_t>(words[i / kLanes].v[i % kLanes]);
  I packed;
  static_assert(sizeof packed == sizeof bytes);
  memcpy(&packed, bytes, sizeof packed);
  return packed;
}
inline int32_t largest_lane(I v) {
  int32_t largest = static_cast<int32_t>(v.v[0]);
  for (const uint32_t lane : v.v) {
    if (static_cast<int32_t>(lane) > largest) largest = static_cast<int32_t>(lane);
  }
  return largest;
}

// The inverse of split.
inline Pair interleave(Pair v) {
  return {{{v.a.v[0], v.b.v[0], v.a.v[1], v.b.v[1]}}, {{v.a.v[2], v.b.v[2], v.a.v[3], v.b.v[3]}}};
}

inline void fence() {}
[[gnu::always_inline]] inline void prefetch(const void* p) { __builtin_prefetch(p); }
inline constexpr int kRegisterCount = 16;
inline constexpr int kVectorBytes = 16;

inline constexpr char kFamily[] = "scalar";
inline constexpr char kDescription[] = "plain C++, any CPU";

inline bool supported() { return true; }

}  // namespace rmsnorm::RMSNORM_TARGET
