// The vector vocabulary: the only thing the kernels know of an instruction set.
//
// A target's header defines, in the namespace RMSNORM_TARGET:
//   F, D          a register of kLanes f32, and one of kLanes / 2 f64
//   Pair          two F: 2 * kLanes consecutive elements, the unit in which rows are read and written
//   splat, load, store, stream, load_wide, add, sub, mul, lower, upper, narrow (all IEEE, to nearest even)
//   add_exact_product(a, b, c) = a * b + c, only where a * b is exact, so that FMA or not gives the same bits
//   larger_magnitude(a, v) is the larger of a (not negative) and |v| in each lane; a NaN is larger than any number
//   div, larger, smaller (a > b ? a : b, a < b ? a : b: the second where one is NaN)
//   I             a register of kLanes 32-bit integers: splat, as_int and as_float (the same bits), add, sub, bit_and,
//                 bit_or, shift_right (zeros come in), less (signed; all bits of a lane where true), any (of a mask)
//   pack_bytes    the low bytes of four I, in order
//   largest_lane  of an I
//   interleave    the inverse of split
//   into_exponent(v)  the low bits of v moved to where the exponent begins: with 1.5 * 2^23 + 127 + k (f64: 1.5 * 2^52 +
//                 1023 + k), 2^k
//   sum_lanes(D)  folds the upper half onto the lower one until one lane is left
//   fold_rows     the same for kLanes / 2 registers at once: lane k of the result is sum_lanes(v[k])
//   div, sqrt     as IEEE 754 has them; sqrt of D only
//   all_within(D v, low, high)  whether low <= v <= high in every lane
//   load_wide_f16, load_wide_bf16  kLanes / 2 elements in f64, where that is faster than the halves of a pair
//   round_bf16, round_f16, load_*, store_*, split: 16-bit elements. "Split" order holds the elements at even places in
//                 a and those at odd places in b; with bf16 it costs a shift and a mask where memory order needs
//                 shuffles
//   fence         orders streamed stores before whatever other threads are told next
//   prefetch      asks for the line at p, which need not be a valid address
//   join(before, after, joint_behind(n))  the last n bytes of `before` and the first of `after`, for n a multiple of
//                 kJoinBytes and below kVectorBytes: for none where the two are equal
//   kRegisterCount  vector registers
//   kVectorBytes  alignment that `stream` needs
// This file adds what follows from these: element types, pairs of any type, partial pairs, folding.
//
// Files compiled for different instruction sets must not share inline functions, or the linker may keep the AVX-512
// copy for everybody: nothing here or in the kernels uses the standard library's templates.
#ifndef RMSNORM_CPU_SIMD_H_
#define RMSNORM_CPU_SIMD_H_

#include <stdint.h>
#include <string.h>

#include "rmsnorm/rmsnorm.h"

#if defined(RMSNORM_TARGET_IS_AVX512) || defined(RMSNORM_TARGET_IS_AVX512_BASE)
#include "cpu/simd_avx512.h"
#elif defined(RMSNORM_TARGET_IS_AVX2)
#include "cpu/simd_avx2.h"
#elif defined(RMSNORM_TARGET_IS_SSE4)
#include "cpu/simd_sse4.h"
#elif defined(RMSNORM_TARGET_IS_NEON)
#include "cpu/simd_neon.h"
#else
#include "cpu/simd_scalar.h"
#endif

namespace rmsnorm::RMSNORM_TARGET {

inline constexpr int kPair = 2 * kLanes;

inline Pair splat_pair(float v) { return {splat(v), splat(v)}; }
inline Pair add(Pair a, Pair b) { return {add(a.a, b.a), add(a.b, b.b)}; }
inline Pair sub(Pair a, Pair b) { return {sub(a.a, b.a), sub(a.b, b.b)}; }
inline Pair mul(Pair a, Pair b) { return {mul(a.a, b.a), mul(a.b, b.b)}; }

inline I magnitude_bits(F v) { return bit_and(as_int(v), splat(0x7fffffff)); }
inline F magnitude(F v) { return as_float(magnitude_bits(v)); }

// The largest of lanes that are not negative; a NaN is larger than any number, as in larger_magnitude.
inline float largest_magnitude(F v) {
  const int32_t bits = largest_lane(as_int(v));
  float largest;
  memcpy(&largest, &bits, sizeof largest);
  return largest;
}

// A pair in f64, and back.
struct Quad {
  D d[4];
};
inline Quad widen(Pair v) { return {{lower(v.a), upper(v.a), lower(v.b), upper(v.b)}}; }
inline Pair narrow(const Quad& v) { return {narrow(v.d[0], v.d[1]), narrow(v.d[2], v.d[3])}; }

// kPair elements in f64, each register by `load` from its own place.
template <class Storage, class Load>
[[gnu::always_inline]] inline Quad load_quad(const Storage* p, const Load& load) {
  constexpr int kHalf = kLanes / 2;
  return {{load(p), load(p + kHalf), load(p + 2 * kHalf), load(p + 3 * kHalf)}};
}

// Zero in the lanes from n on; n may be negative.
inline D keep_first(D v, int n) {
  double lanes[kLanes / 2];
  memcpy(lanes, &v, sizeof v);
  for (int i = n > 0 ? n : 0; i < kLanes / 2; ++i) lanes[i] = 0;
  memcpy(&v, lanes, sizeof v);
  return v;
}

#if !defined(RMSNORM_HAS_JOIN)
inline constexpr int kJoinBytes = kVectorBytes;
struct Joint {};
inline Joint joint_behind(int) { return {}; }
inline F join(F, F after, Joint) { return after; }
#endif
inline constexpr bool kJoins = kJoinBytes < kVectorBytes;

#if !defined(RMSNORM_HAS_ROUND_PAIR)
inline Pair round_bf16(Pair v) { return {round_bf16(v.a), round_bf16(v.b)}; }
#endif

// Element types. `load` and `store` move kPair elements; Split chooses the order of the two registers.
struct F32 {
  using Storage = float;
  static constexpr rn_type kType = RN_F32;
  static constexpr bool kNarrow = false;
  template <bool Split>
  static Pair load(const float* p) {
    const Pair v = {RMSNORM_TARGET::load(p), RMSNORM_TARGET::load(p + kLanes)};
    if constexpr (Split) return split(v);
    return v;
  }
  template <bool Split>
  static void store(float* p, Pair v, bool streamed) {
    static_assert(!Split);
    if (streamed) {
      stream(p, v.a);
      stream(p + kLanes, v.b);
    } else {
      RMSNORM_TARGET::store(p, v.a);
      RMSNORM_TARGET::store(p + kLanes, v.b);
    }
  }
  static Quad load_wide(const float* p) {
    return load_quad(p, [](const float* q) { return RMSNORM_TARGET::load_wide(q); });
  }
  static Pair round(Pair v) { return v; }
};

struct F16 {
  using Storage = uint16_t;
  static constexpr rn_type kType = RN_F16;
  static constexpr bool kNarrow = true;
  template <bool Split>
  static Pair load(const uint16_t* p) {
    const Pair v = load_f16(p);
    if constexpr (Split) return split(v);
    return v;
  }
  template <bool Split>
  static void store(uint16_t* p, Pair v, bool streamed) {
    static_assert(!Split);
    store_f16(p, v, streamed);
  }
  static Quad load_wide(const uint16_t* p) {
#if defined(RMSNORM_HAS_LOAD_WIDE_16)
    return load_quad(p, [](const uint16_t* q) { return load_wide_f16(q); });
#else
    return widen(load<false>(p));
#endif
  }
  static Pair round(Pair v) { return {round_f16(v.a), round_f16(v.b)}; }
};

struct BF16 {
  using Storage = uint16_t;
  static constexpr rn_type kType = RN_BF16;
  static constexpr bool kNarrow = true;
  template <bool Split>
  static Pair load(const uint16_t* p) {
    if constexpr (Split) return load_bf16_split(p);
    return load_bf16(p);
  }
  template <bool Split>
  static void store(uint16_t* p, Pair v, bool streamed) {
    if constexpr (Split) {
      store_bf16_split(p, v, streamed);
    } else {
      store_bf16(p, v, streamed);
    }
  }
  static Quad load_wide(const uint16_t* p) {
#if defined(RMSNORM_HAS_LOAD_WIDE_16)
    return load_quad(p, [](const uint16_t* q) { return load_wide_bf16(q); });
#else
    return widen(load<false>(p));
#endif
  }
  static Pair round(Pair v) { return round_bf16(v); }
};

#if !defined(RMSNORM_HAS_PARTIAL_LOADS)
// The first n < kPair elements at p to kPair at `to`; zeros behind them. Reads n elements and not a byte more. With
// masks, `to` is written by whole registers, so that the load that follows need not wait for small stores.
template <class Storage>
inline void load_first(Storage* to, const Storage* p, int n) {
  memset(to, 0, kPair * sizeof *to);
  memcpy(to, p, static_cast<size_t>(n) * sizeof *p);
}
#endif

#if !defined(RMSNORM_HAS_PARTIAL_STORES)
// The first n < kPair elements at `from` to p, by halves: sizes that the compiler knows.
template <int Half, class Storage>
[[gnu::always_inline]] inline void store_halves(Storage* p, const Storage* from, int n) {
  if ((n & Half) != 0) {
    memcpy(p, from, Half * sizeof *p);
    p += Half;
    from += Half;
  }
  if constexpr (Half > 1) store_halves<Half / 2>(p, from, n);
}
template <class Storage>
inline void store_first(Storage* p, const Storage* from, int n) {
  store_halves<kPair / 2>(p, from, n);
}
#endif

// The first n < kPair elements at p; zeros behind them.
template <class T, bool Split>
inline Pair load_part(const typename T::Storage* p, int n) {
  alignas(64) typename T::Storage buffer[kPair];
  load_first(buffer, p, n);
  return T::template load<Split>(buffer);
}

// Writes the first n < kPair elements.
template <class T, bool Split>
inline void store_part(typename T::Storage* p, Pair v, int n) {
  alignas(64) typename T::Storage buffer[kPair];
  T::template store<Split>(buffer, v, false);
  store_first(p, buffer, n);
}

// The same for an operand whose type is known at run time: parameters and residuals. p may be null ("absent").
struct Any {
  const char* p;
  rn_type type;
};

template <bool Split>
inline Pair load_any(Any from, int64_t i) {
  switch (from.type) {
    case RN_BF16:
      return BF16::load<Split>(reinterpret_cast<const uint16_t*>(from.p) + i);
    case RN_F16:
      return F16::load<Split>(reinterpret_cast<const uint16_t*>(from.p) + i);
    default:
      return F32::load<Split>(reinterpret_cast<const float*>(from.p) + i);
  }
}

// Out of line, for it is large and rare.
template <bool Split>
[[gnu::noinline]] Pair load_any_part(Any from, int64_t i, int n) {
  switch (from.type) {
    case RN_BF16:
      return load_part<BF16, Split>(reinterpret_cast<const uint16_t*>(from.p) + i, n);
    case RN_F16:
      return load_part<F16, Split>(reinterpret_cast<const uint16_t*>(from.p) + i, n);
    default:
      return load_part<F32, Split>(reinterpret_cast<const float*>(from.p) + i, n);
  }
}

// Lanes in Count = 2^k registers -> one register: the upper half is added to the lower half until one is left.
template <int Count>
inline D fold_registers(D (&lanes)[Count]) {
#pragma GCC unroll 8
  for (int width = Count / 2; width > 0; width /= 2) {
#pragma GCC unroll 8
    for (int i = 0; i < width; ++i) lanes[i] = add(lanes[i], lanes[i + width]);
  }
  return lanes[0];
}

// On to their sum, in the same way.
template <int Count>
inline double fold(D (&lanes)[Count]) {
  return sum_lanes(fold_registers(lanes));
}

}  // namespace rmsnorm::RMSNORM_TARGET

#endif  // RMSNORM_CPU_SIMD_H_
