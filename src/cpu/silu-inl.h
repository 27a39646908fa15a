// silu(g) = g / (1 + e^-g) and its derivative, in registers. See silu.h for the formulas.
#ifndef RMSNORM_CPU_SILU_INL_H_
#define RMSNORM_CPU_SILU_INL_H_

#include "cpu/silu.h"
#include "cpu/simd.h"

namespace rmsnorm::RMSNORM_TARGET {

// Registers that go through a chain of operations side by side. A chain alone is a hundred cycles of waiting, and a CPU
// looks ahead about as many operations as one chain has. Each lane sees what it would see alone. T: Narrow or Wide.
struct Narrow {
  using Register = F;
};
struct Wide {
  using Register = D;
};
template <class T, int N>
struct Several {
  typename T::Register v[N];
};
// How many: four to six registers for each chain.
inline constexpr int kSideBySide = kRegisterCount / 8;

template <class Operation, class T, int N, class... Rest>
[[gnu::always_inline]] inline Several<T, N> each(const Operation& operation, const Several<T, N>& first,
                                                 const Rest&... rest) {
  Several<T, N> result;
#pragma GCC unroll 8
  for (int k = 0; k < N; ++k) result.v[k] = operation(first.v[k], rest.v[k]...);
  return result;
}

// The vocabulary for these; beside them stands one register for all.
template <class T, int N>
[[gnu::always_inline]] inline Several<T, N> add(const Several<T, N>& a, const Several<T, N>& b) {
  return each(
      [](auto x, auto y) __attribute__((always_inline)) { return add(x, y); }, a, b);
}
template <class T, int N>
[[gnu::always_inline]] inline Several<T, N> add(const Several<T, N>& a, typename T::Register b) {
  return each(
      [b](auto x) __attribute__((always_inline)) { return add(x, b); }, a);
}
template <class T, int N>
[[gnu::always_inline]] inline Several<T, N> sub(const Several<T, N>& a, const Several<T, N>& b) {
  return each(
      [](auto x, auto y) __attribute__((always_inline)) { return sub(x, y); }, a, b);
}
template <class T, int N>
[[gnu::always_inline]] inline Several<T, N> sub(const Several<T, N>& a, typename T::Register b) {
  return each(
      [b](auto x) __attribute__((always_inline)) { return sub(x, b); }, a);
}
template <class T, int N>
[[gnu::always_inline]] inline Several<T, N> sub(typename T::Register a, const Several<T, N>& b) {
  return each(
      [a](auto x) __attribute__((always_inline)) { return sub(a, x); }, b);
}
template <class T, int N>
[[gnu::always_inline]] inline Several<T, N> mul(const Several<T, N>& a, const Several<T, N>& b) {
  return each(
      [](auto x, auto y) __attribute__((always_inline)) { return mul(x, y); }, a, b);
}
template <class T, int N>
[[gnu::always_inline]] inline Several<T, N> mul(const Several<T, N>& a, typename T::Register b) {
  return each(
      [b](auto x) __attribute__((always_inline)) { return mul(x, b); }, a);
}
template <class T, int N>
[[gnu::always_inline]] inline Several<T, N> div(const Several<T, N>& a, const Several<T, N>& b) {
  return each(
      [](auto x, auto y) __attribute__((always_inline)) { return div(x, y); }, a, b);
}
template <class T, int N>
[[gnu::always_inline]] inline Several<T, N> div(typename T::Register a, const Several<T, N>& b) {
  return each(
      [a](auto x) __attribute__((always_inline)) { return div(a, x); }, b);
}
template <class T, int N>
[[gnu::always_inline]] inline Several<T, N> larger(typename T::Register a, const Several<T, N>& b) {
  return each(
      [a](auto x) __attribute__((always_inline)) { return larger(a, x); }, b);
}
template <class T, int N>
[[gnu::always_inline]] inline Several<T, N> larger(const Several<T, N>& a, typename T::Register b) {
  return each(
      [b](auto x) __attribute__((always_inline)) { return larger(x, b); }, a);
}
template <class T, int N>
[[gnu::always_inline]] inline Several<T, N> smaller(typename T::Register a, const Several<T, N>& b) {
  return each(
      [a](auto x) __attribute__((always_inline)) { return smaller(a, x); }, b);
}
template <class T, int N>
[[gnu::always_inline]] inline Several<T, N> smaller(const Several<T, N>& a, typename T::Register b) {
  return each(
      [b](auto x) __attribute__((always_inline)) { return smaller(x, b); }, a);
}
template <class T, int N>
[[gnu::always_inline]] inline Several<T, N> add_exact_product(const Several<T, N>& a, const Several<T, N>& b,
                                                              const Several<T, N>& c) {
  return each(
      [](auto x, auto y, auto z) __attribute__((always_inline)) { return add_exact_product(x, y, z); }, a, b, c);
}
template <class T, int N>
[[gnu::always_inline]] inline Several<T, N> add_exact_product(const Several<T, N>& a, typename T::Register b,
                                                              const Several<T, N>& c) {
  return each(
      [b](auto x, auto z) __attribute__((always_inline)) { return add_exact_product(x, b, z); }, a, c);
}
template <class T, int N>
[[gnu::always_inline]] inline Several<T, N> add_exact_product(const Several<T, N>& a, const Several<T, N>& b,
                                                              typename T::Register c) {
  return each(
      [c](auto x, auto y) __attribute__((always_inline)) { return add_exact_product(x, y, c); }, a, b);
}
template <class T, int N>
[[gnu::always_inline]] inline Several<T, N> into_exponent(const Several<T, N>& a) {
  return each(
      [](auto x) __attribute__((always_inline)) { return into_exponent(x); }, a);
}

// p = expm1(-r) and 2^(k + bias): what 1 + e^-g is made of. g is within what f32 can hold.
template <int N>
struct ExpParts {
  Several<Narrow, N> p, power;
};
template <int N>
[[gnu::always_inline]] inline ExpParts<N> exp_parts(const Several<Narrow, N>& g, float shift) {
  using C = SiluF32;
  const Several<Narrow, N> shifted = add(mul(g, splat(-C::kLog2E)), splat(shift));
  const Several<Narrow, N> k = sub(shifted, splat(shift));
  // Fused products are exact.
  const Several<Narrow, N> r = add(add_exact_product(k, splat(C::kLn2High), g), mul(k, splat(C::kLn2Low)));
  const Several<Narrow, N> square = mul(r, r);
  const Several<Narrow, N> low = add(mul(r, splat(C::kTerms[1])), splat(C::kTerms[0]));
  const Several<Narrow, N> high =
      add(add(mul(r, splat(C::kTerms[3])), splat(C::kTerms[2])), mul(square, splat(C::kTerms[4])));
  return {sub(mul(square, add(low, mul(high, square))), r), into_exponent(shifted)};
}

// one + power (1 + p), the larger of one and power last: of all orders the one that loses least.
template <int N>
[[gnu::always_inline]] inline Several<Narrow, N> one_plus(const ExpParts<N>& e, F one) {
  return add(larger(e.power, one), add_exact_product(e.power, e.p, smaller(e.power, one)));
}

// The same times 1 + off. off is wanted late: what it comes from takes as long as all before.
template <int N>
[[gnu::always_inline]] inline Several<Narrow, N> one_plus(const ExpParts<N>& e, F one, F off) {
  return add(larger(e.power, one), add(add_exact_product(e.power, add(e.p, off), off), smaller(e.power, one)));
}

// silu(g), at most 2 ulp off for g >= -80: 1.998, found by trying all of them. kOff: silu(g) / (1 + off), |off| <= 2^-23,
// which costs no rounding of its own.
template <bool kOff = false, int N>
[[gnu::always_inline]] inline Several<Narrow, N> silu(const Several<Narrow, N>& g, F off = splat(0.0f)) {
  using C = SiluF32;
  const Several<Narrow, N> numerator = larger(splat(C::kLeast), g);
  const ExpParts<N> e = exp_parts(smaller(splat(C::kMost), numerator), C::kShift);
  Several<Narrow, N> denominator;
  if constexpr (kOff) {
    denominator = one_plus(e, splat(1.0f), off);
  } else {
    denominator = one_plus(e, splat(1.0f));
  }
  // Below kLeast the denominator grows on, to infinity at the latest for -infinity.
  return div(numerator, mul(denominator, larger(splat(1.0f), sub(splat(C::kFade), g))));
}

// 2^32 silu(g), so that its product with an element underflows only where silu(g) times that is far below f32.
// Infinite for gates from 2^96 on.
template <int N>
[[gnu::always_inline]] inline Several<Narrow, N> scaled_silu(const Several<Narrow, N>& g) {
  using C = SiluF32;
  const Several<Narrow, N> numerator = larger(splat(C::kScaledLeast), g);
  const ExpParts<N> e = exp_parts(smaller(splat(C::kMost), numerator), C::kScaledShift);
  return div(numerator, one_plus(e, splat(1 / C::kScale)));
}

// Of pairs.
template <int N>
[[gnu::always_inline]] inline Several<Narrow, 2 * N> registers_of(const Pair (&pairs)[N]) {
  Several<Narrow, 2 * N> all;
#pragma GCC unroll 4
  for (int k = 0; k < N; ++k) {
    all.v[2 * k] = pairs[k].a;
    all.v[2 * k + 1] = pairs[k].b;
  }
  return all;
}
template <int N>
[[gnu::always_inline]] inline void to_pairs(const Several<Narrow, 2 * N>& all, Pair (&pairs)[N]) {
#pragma GCC unroll 4
  for (int k = 0; k < N; ++k) pairs[k] = {all.v[2 * k], all.v[2 * k + 1]};
}
template <bool kOff = false, int N>
[[gnu::always_inline]] inline void silu_of(Pair (&pairs)[N], F off = splat(0.0f)) {
  to_pairs(silu<kOff>(registers_of(pairs), off), pairs);
}
template <int N>
[[gnu::always_inline]] inline void scaled_silu_of(Pair (&pairs)[N]) {
  to_pairs(scaled_silu(registers_of(pairs)), pairs);
}

// The same in f64, for rows that f32 cannot hold and for gradients.
template <int N>
struct SiluAndSlope {
  Several<Wide, N> silu, slope;
};

template <int N>
[[gnu::always_inline]] inline SiluAndSlope<N> silu_and_slope(const Several<Wide, N>& g) {
  using C = SiluF64;
  const Several<Wide, N> numerator = larger(splat(-C::kBound), g);
  const Several<Wide, N> bounded = smaller(splat(C::kBound), numerator);
  const Several<Wide, N> shifted = add(mul(bounded, splat(-C::kLog2E)), splat(C::kShift));
  const Several<Wide, N> power = into_exponent(shifted);
  const Several<Wide, N> k = sub(shifted, splat(C::kShift));
  const Several<Wide, N> r = add(add_exact_product(k, splat(C::kLn2High), bounded), mul(k, splat(C::kLn2Low)));
  Several<Wide, N> sum = add(mul(r, splat(C::kTerms[C::kTermCount - 1])), splat(C::kTerms[C::kTermCount - 2]));
#pragma GCC unroll 10
  for (int i = C::kTermCount - 3; i >= 0; --i) sum = add(mul(sum, r), splat(C::kTerms[i]));
  const Several<Wide, N> p = sub(mul(mul(r, r), sum), r);
  const Several<Wide, N> rest = add_exact_product(power, p, power);  // e^-g
  const Several<Wide, N> denominator = add(add(power, splat(1.0)), mul(power, p));
  const Several<Wide, N> sigmoid = div(splat(1.0), denominator);
  // Both are 0 for -infinity, so that an infinity meets a zero in what they are multiplied by.
  const auto or_zero = [](const Several<Wide, N>& v) __attribute__((always_inline)) {
    return mul(mul(v, splat(C::kDown)), splat(C::kUp));
  };
  return {or_zero(mul(numerator, sigmoid)), or_zero(mul(sigmoid, add(mul(bounded, mul(rest, sigmoid)), splat(1.0))))};
}

inline D silu(D g) {
  const Several<Wide, 1> alone = {{g}};
  return silu_and_slope(alone).silu.v[0];
}

}  // namespace rmsnorm::RMSNORM_TARGET

#endif  // RMSNORM_CPU_SILU_INL_H_
