// Gated RMSNorm, forward. The passes over a group of columns:
//   gate last   squares of x;  then  out = x inv w silu(gate)
//   gate first  u = x silu(gate), kept in the L1 cache, and its squares;  then  out = u inv w
// in f32, with sums in f64. A group that f32 cannot hold is done again in f64, which depends on the group alone.
// Buffers of u and of the weight hold registers in the order in which T loads them: kSplit (simd.h) where T is bf16.
#ifndef RMSNORM_CPU_GATED_RMS_NORM_INL_H_
#define RMSNORM_CPU_GATED_RMS_NORM_INL_H_

#include "core/gated_rms_norm_call.h"
#include "cpu/moments-inl.h"
#include "cpu/silu-inl.h"
#include "cpu/stage-inl.h"

namespace rmsnorm::RMSNORM_TARGET {

// Columns of u that are kept between the passes; wider groups compute them twice.
inline constexpr int64_t kKeptColumns = 4 * kStage;
// Gate first: stretches from here on ask for the next row. Of shorter ones the hardware has it, and asking costs.
inline constexpr int64_t kFetchedColumns = 512;
// Columns of weight that are kept from row to row.
inline constexpr int64_t kKeptWeight = 2 * kStage;

template <class T>
inline constexpr bool kSplitOrder = T::kType == RN_BF16;

// Results whose budget leaves no room for inv rounded to f32 beside the other factors' roundings: f32 that is rounded
// nowhere else. (16-bit results hide it.)
template <class T, class R>
inline constexpr bool kWholeInverse = !T::kNarrow && !R::kNarrow;

// 32 lanes of f64, filled in the same order on every target: 32 elements at a turn, in memory order or first those at
// even places, then those at odd places.
template <bool kSplit>
class SquareLanes {
 public:
  SquareLanes() {
#pragma GCC unroll 16
    for (int r = 0; r < kRegisters; ++r) lanes_[r] = splat(0.0);
  }
  static constexpr int kPairs = kWideLanes / kPair;  // pairs at a turn

  [[gnu::always_inline]] void take(Pair v, int pair) {
    const int a = kSplit ? 2 * pair : 4 * pair, b = kSplit ? kRegisters / 2 + 2 * pair : 4 * pair + 2;
    square(lanes_[a], lower(v.a));
    square(lanes_[a + 1], upper(v.a));
    square(lanes_[b], lower(v.b));
    square(lanes_[b + 1], upper(v.b));
  }
  double total() { return fold(lanes_); }
  double largest() const {
    D largest = lanes_[0];
    for (int r = 1; r < kRegisters; ++r) largest = larger(lanes_[r], largest);
    double lanes[kLanes / 2];
    store(lanes, largest);
    double result = lanes[0];
    for (int k = 1; k < kLanes / 2; ++k) result = lanes[k] > result ? lanes[k] : result;
    return result;
  }

 private:
  static constexpr int kRegisters = kWideLanes / (kLanes / 2);
  static void square(D& lane, D v) { lane = add_exact_product(v, v, lane); }

  D lanes_[kRegisters];
};

// x as a Source of sums (moments-inl.h).
template <class T>
struct GatedSource {
  static constexpr bool kFastSum = T::kNarrow;
  static constexpr bool kSplitSum = kSplitOrder<T>;
  const typename T::Storage* x;

  template <bool Split>
  Pair load(int64_t i) const {
    return T::template load<Split>(x + i);
  }
  template <bool Split>
  Pair load_part(int64_t i, int n) const {
    return RMSNORM_TARGET::load_part<T, Split>(x + i, n);
  }
  Quad load_wide(int64_t i) const { return T::load_wide(x + i); }
};

// What a pass over at most kStage columns reads, and where the next row will be read.
template <class T>
struct GatedStretch {
  using Storage = typename T::Storage;
  const Storage *x, *gate;
  const float* weight;
  const char *next_x, *next_gate;
};

// Asks for the lines of the next row's columns i .. i + kPair - 1. Always inline: see fetch_ahead (row-inl.h).
template <class T>
[[gnu::always_inline]] inline void fetch_pair(const GatedStretch<T>& s, int64_t i) {
  constexpr int kBytes = sizeof(typename T::Storage);
#pragma GCC unroll 2
  for (int byte = 0; byte < kPair * kBytes; byte += 64) {
    prefetch(s.next_x + i * kBytes + byte);
    prefetch(s.next_gate + i * kBytes + byte);
  }
}

// Of u: the sum of squares, and the largest that was in one lane, which no single square exceeds.
struct GatedSum {
  double square = 0, lane = 0;
};

// u = 2^32 x silu(gate), and its sum.
template <class T>
[[gnu::noinline]] GatedSum gate_and_sum(float* u, const GatedStretch<T>& stretch, int64_t n) {
  constexpr bool kSplit = kSplitOrder<T>;
  using Lanes = SquareLanes<kSplit>;
  const GatedStretch<T> s = stretch;
  const bool wide = n >= kFetchedColumns;
  Lanes lanes;
  const auto gated = [u](int64_t i, Pair x, Pair activated) __attribute__((always_inline)) {
    const Pair v = mul(x, activated);
    store(u + i, v.a);
    store(u + i + kLanes, v.b);
    return v;
  };
  // Pairs side by side: within kWideLanes columns, or as many such stretches.
  constexpr int kTogether = kSideBySide / 2;
  constexpr int64_t kTurn = kTogether * kPair > kWideLanes ? kTogether * kPair : kWideLanes;
  int64_t i = 0;
  for (; i + kTurn <= n; i += kTurn) {
#pragma GCC unroll 4
    for (int first = 0; first < kTurn / kPair; first += kTogether) {
      Pair gates[kTogether];
#pragma GCC unroll 4
      for (int k = 0; k < kTogether; ++k) {
        if (wide) fetch_pair(s, i + (first + k) * kPair);
        gates[k] = T::template load<kSplit>(s.gate + i + (first + k) * kPair);
      }
      scaled_silu_of(gates);
#pragma GCC unroll 4
      for (int k = 0; k < kTogether; ++k) {
        const int64_t at = i + (first + k) * kPair;
        lanes.take(gated(at, T::template load<kSplit>(s.x + at), gates[k]), (first + k) % Lanes::kPairs);
      }
    }
  }
  for (int pair = 0; i < n; i += kPair, pair = (pair + 1) % Lanes::kPairs) {
    const int left = n - i < kPair ? static_cast<int>(n - i) : kPair;
    Pair x, gate;
    if (left == kPair) {
      x = T::template load<kSplit>(s.x + i);
      gate = T::template load<kSplit>(s.gate + i);
    } else {
      x = load_part<T, kSplit>(s.x + i, left);
      gate = load_part<T, kSplit>(s.gate + i, left);
    }
    Pair activated[] = {gate};
    scaled_silu_of(activated);
    const Pair v = gated(i, x, activated[0]);
    // A pair's place among the lanes must be known when this is compiled.
#pragma GCC unroll 4
    for (int k = 0; k < Lanes::kPairs; ++k) {
      if (k == pair) lanes.take(v, k);
    }
  }
  const double largest = lanes.largest();  // before they are folded
  return {lanes.total(), largest};
}

// v times inv, rounded once, as if inv were not rounded to f32: the first 12 bits of both have an exact product. -0 stays
// -0: low is not negative, and high is given the other sign for what it is multiplied by with the other sign.
class TimesInverse {
 public:
  explicit TimesInverse(double inv) {
    uint64_t bits;
    memcpy(&bits, &inv, sizeof bits);
    bits &= ~((uint64_t{1} << (52 - 11)) - 1);
    double first;
    memcpy(&first, &bits, sizeof first);
    high_ = splat(static_cast<float>(first));
    minus_high_ = splat(static_cast<float>(-first));
    low_ = splat(static_cast<float>(inv - first));
  }
  F operator()(F v) const {
    const F head = as_float(bit_and(as_int(v), splat(~0xfff)));
    const F rest = add(mul(sub(head, v), minus_high_), mul(v, low_));
    return add(mul(head, high_), rest);
  }

 private:
  F high_, minus_high_, low_;
};

// out = R(u inv) w.
template <class T, class R>
[[gnu::noinline]] void apply_scale(typename T::Storage* out, const float* u, const float* weight, double inv, int64_t n,
                                   bool streamed) {
  constexpr bool kSplit = kSplitOrder<T>;
  const F scale = splat(static_cast<float>(inv));
  const TimesInverse whole(inv);
  const auto result = [=](int64_t i) __attribute__((always_inline)) {
    const Pair u_at = {load(u + i), load(u + i + kLanes)};
    Pair v;
    if constexpr (kWholeInverse<T, R>) {
      v = {whole(u_at.a), whole(u_at.b)};
    } else {
      v = R::round(Pair{mul(u_at.a, scale), mul(u_at.b, scale)});
    }
    return mul(v, Pair{load(weight + i), load(weight + i + kLanes)});
  };
  int64_t i = 0;
  for (; i + kPair <= n; i += kPair) T::template store<kSplit>(out + i, result(i), streamed);
  if (i < n) store_part<T, kSplit>(out + i, result(i), static_cast<int>(n - i));
}

// A number of pairs as a type.
template <int N>
struct Pairs {
  static constexpr int kCount = N;
};

// out = R(R(x inv) w) silu(gate), the outer R only with kProduct. rms: 1 / inv. With kWholeInverse what f32 lacks of inv
// is made up for in silu(gate).
template <class T, class R, bool kProduct>
[[gnu::noinline]] void apply_gate(typename T::Storage* out, const GatedStretch<T>& stretch, double inv, double rms,
                                  int64_t n, bool streamed) {
  constexpr bool kSplit = kSplitOrder<T>, kWhole = kWholeInverse<T, R>;
  const GatedStretch<T> s = stretch;
  const float rounded = static_cast<float>(inv);
  const F scale = splat(rounded), off = splat(static_cast<float>((static_cast<double>(rounded) - inv) * rms));
  const auto result = [&](int64_t i, Pair x, Pair activated) __attribute__((always_inline)) {
    Pair v = R::round(Pair{mul(x.a, scale), mul(x.b, scale)});
    v = mul(v, Pair{load(s.weight + i), load(s.weight + i + kLanes)});
    if constexpr (kProduct) v = R::round(v);
    return mul(v, activated);
  };
  const auto pairs = [&](auto count, int64_t i) __attribute__((always_inline)) {
    constexpr int kCount = decltype(count)::kCount;
    Pair gates[kCount];
#pragma GCC unroll 4
    for (int k = 0; k < kCount; ++k) {
      fetch_pair(s, i + k * kPair);
      gates[k] = T::template load<kSplit>(s.gate + i + k * kPair);
    }
    silu_of<kWhole>(gates, off);
#pragma GCC unroll 4
    for (int k = 0; k < kCount; ++k) {
      const int64_t at = i + k * kPair;
      T::template store<kSplit>(out + at, result(at, T::template load<kSplit>(s.x + at), gates[k]), streamed);
    }
  };
  constexpr int kTogether = kSideBySide / 2;
  int64_t i = 0;
  for (; i + kTogether * kPair <= n; i += kTogether * kPair) pairs(Pairs<kTogether>(), i);
  for (; i + kPair <= n; i += kPair) pairs(Pairs<1>(), i);
  if (i < n) {
    const int left = static_cast<int>(n - i);
    Pair gates[] = {load_part<T, kSplit>(s.gate + i, left)};
    silu_of<kWhole>(gates, off);
    store_part<T, kSplit>(out + i, result(i, load_part<T, kSplit>(s.x + i, left), gates[0]), left);
  }
}

// The weight as f32 in T's order, kept from row to row where it fits and is the same memory. Absent: ones.
template <class T>
class GatedWeight {
 public:
  GatedWeight(const GatedCall& call)
      : type_(call.weight.type), width_(call.width), step_(whole_blocks(call.width)), groups_(call.groups) {
    fits_ = step_ <= kKeptWeight && step_ * groups_ <= kKeptWeight;
  }

  // Columns i .. i+n-1 of a group (n <= kStage, i a multiple of kStage).
  const float* at(const char* p, int64_t group, int64_t i, int64_t n) {
    if (!fits_) {
      fill(held_, p, group * width_ + i, n);
      return held_;
    }
    if (p != current_ || !filled_) {
      for (int64_t g = 0; g < groups_; ++g) {
        for (int64_t k = 0; k < width_; k += kStage) {
          fill(held_ + g * step_ + k, p, g * width_ + k, width_ - k < kStage ? width_ - k : kStage);
        }
      }
      current_ = p;
      filled_ = true;
    }
    return held_ + group * step_ + i;
  }

 private:
  void fill(float* to, const char* p, int64_t from, int64_t n) const {
    constexpr bool kSplit = kSplitOrder<T>;
    for (int64_t i = 0; i < n; i += kPair) {
      Pair v = splat_pair(1.0f);
      if (p != nullptr) {
        const Any weight = {p, type_};
        v = n - i >= kPair ? load_any<kSplit>(weight, from + i)
                           : load_any_part<kSplit>(weight, from + i, static_cast<int>(n - i));
      }
      store(to + i, v.a);
      store(to + i + kLanes, v.b);
    }
  }

  rn_type type_;
  int64_t width_, step_, groups_;
  bool fits_, filled_ = false;
  const char* current_ = nullptr;
  alignas(64) float held_[kKeptWeight + kBlock];
};

// Copies n bytes with streaming stores.
inline void stream_bytes(char* to, const char* from, int64_t n) {
  const uintptr_t misaligned = reinterpret_cast<uintptr_t>(to) % kVectorBytes;
  int64_t i = misaligned == 0 ? 0 : static_cast<int64_t>(kVectorBytes - misaligned);
  if (i > n) i = n;
  memcpy(to, from, static_cast<size_t>(i));
  constexpr int64_t kBytes = kLanes * sizeof(float);
  for (; i + kBytes <= n; i += kBytes) {
    F v;
    memcpy(&v, from + i, sizeof v);
    stream(reinterpret_cast<float*>(to + i), v);
  }
  memcpy(to + i, from + i, static_cast<size_t>(n - i));
}

struct GatedRow {
  char *out, *x, *gate, *weight, *inv;
};

// Rows of one call. T: the type that the passes read and write; operands of other types are staged as F32. R: what the
// norm is rounded to, F32 for not at all.
template <class T, class R>
class GatedRows {
  using Storage = typename T::Storage;
  static constexpr bool kWhole = kWholeInverse<T, R>;

 public:
  explicit GatedRows(const GatedCall& call) : call_(call), weight_(call) {}

  void run(int64_t begin, int64_t end) {
    const Operand* const operands[] = {&call_.out, &call_.x, &call_.gate, &call_.weight, &call_.inv};
    Walk<5> walk(call_, operands, begin);
    for (int64_t r = begin; r < end; ++r) {
      const GatedRow row = {walk[0], walk[1], walk[2], walk[3], walk[4]};
      if (r + 1 < end) walk.advance();
      const GatedRow next = {walk[0], walk[1], walk[2], walk[3], walk[4]};
      for (int64_t group = 0; group < call_.groups; ++group) {
        const double inv = call_.gate_first ? gate_first(row, next, group) : gate_last(row, next, group);
        if (row.inv != nullptr) {
          *reinterpret_cast<float*>(row.inv + group * call_.inv_step) = static_cast<float>(inv);
        }
      }
    }
    if (call_.stream) fence();
  }

 private:
  static int64_t bytes(rn_type type) { return type == RN_F32 ? 4 : 2; }
  int64_t stop(int64_t i) const { return call_.width - i < kStage ? call_.width - i : kStage; }
  static const char* column(const char* row, const Operand& operand, int64_t at) {
    return row + at * bytes(operand.type);
  }

  // n elements from column `at` on, as T.
  static const Storage* read(Stage& buffer, const char* row, const Operand& operand, int64_t at, int64_t n) {
    const char* p = column(row, operand, at);
    if constexpr (T::kType == RN_F32) {
      if (operand.type != RN_F32) return stage(buffer, p, operand.type, n);
    }
    return reinterpret_cast<const Storage*>(p);
  }

  GatedStretch<T> stretch(const GatedRow& row, const GatedRow& next, int64_t group, int64_t i, int64_t n) {
    const int64_t at = group * call_.width + i;
    return {read(x_, row.x, call_.x, at, n), read(gate_, row.gate, call_.gate, at, n),
            weight_.at(row.weight, group, i, n), column(next.x, call_.x, at), column(next.gate, call_.gate, at)};
  }

  // Runs write(where, streamed), which writes n elements as T, and sees to it that they get to column `at` of out.
  template <class Write>
  void write(const GatedRow& row, int64_t at, int64_t n, const Write& write) {
    char* p = row.out + at * bytes(call_.out.type);
    if (call_.out.type != T::kType) {
      write(reinterpret_cast<Storage*>(out_.at), false);
      unstage(p, call_.out.type, out_.at, n, call_.stream);
    } else if (call_.stream && reinterpret_cast<uintptr_t>(p) % kVectorBytes != 0) {
      write(reinterpret_cast<Storage*>(out_.at), false);
      stream_bytes(p, reinterpret_cast<const char*>(out_.at), n * static_cast<int64_t>(sizeof(Storage)));
    } else {
      write(reinterpret_cast<Storage*>(p), call_.stream);
    }
  }

  // ---- the gate behind the norm ----

  double gate_last(const GatedRow& row, const GatedRow& next, int64_t group) {
    double square = squares<T::kNarrow>(row, group);
    if constexpr (T::kNarrow) {
      const double chunks = static_cast<double>((call_.width + kChunk - 1) / kChunk);
      if (__builtin_expect(!(square >= kFastSumFloor * chunks && square <= kLargestSum), 0)) {
        square = squares<false>(row, group);
      }
    }
    const double mean = square / static_cast<double>(call_.width);
    const double rms = __builtin_sqrt(mean + call_.epsilon), inv = 1 / rms;
    if (__builtin_expect(!(inv >= kInvFloor && inv <= kInvCeiling && mean >= kSmallestMeanSquare), 0)) {
      apply_wide<false>(row, group, inv);
      return inv;
    }
    for (int64_t i = 0; i < call_.width; i += kStage) {
      const int64_t n = stop(i);
      const GatedStretch<T> s = stretch(row, next, group, i, n);
      write(row, group * call_.width + i, n, [&](Storage* out, bool streamed) {
        if (R::kNarrow && call_.round_product) {
          apply_gate<T, R, true>(out, s, inv, rms, n, streamed);
        } else {
          apply_gate<T, R, false>(out, s, inv, rms, n, streamed);
        }
      });
    }
    return inv;
  }

  template <bool kFast>
  double squares(const GatedRow& row, int64_t group) {
    double square = 0;
    for (int64_t i = 0; i < call_.width; i += kStage) {
      const int64_t n = stop(i);
      const GatedSource<T> source = {read(x_, row.x, call_.x, group * call_.width + i, n)};
      if constexpr (kFast) {
        square += chunk_moments<FastLanes<GatedSource<T>>>(source, 0, n).square;
      } else {
        square += chunk_moments<WideLanes<false, GatedSource<T>>>(source, 0, n).square;
      }
    }
    return square;
  }

  // ---- the gate before the norm ----

  double gate_first(const GatedRow& row, const GatedRow& next, int64_t group) {
    constexpr double kScale = static_cast<double>(SiluF32::kScale);
    const bool kept = call_.width <= kKeptColumns;
    GatedSum sum;  // of 2^32 u
    for (int64_t i = 0; i < call_.width; i += kStage) {
      const int64_t n = stop(i);
      const GatedSum part = gate_and_sum<T>(u_ + (kept ? i : 0), stretch(row, next, group, i, n), n);
      sum.square += part.square;
      sum.lane = part.lane > sum.lane ? part.lane : sum.lane;
    }
    double scaled_mean = sum.square / static_cast<double>(call_.width);
    const auto inverse = [&] { return 1 / __builtin_sqrt(scaled_mean * (1 / (kScale * kScale)) + call_.epsilon); };
    double inv = inverse();
    // From here on no u is subnormal but where the result is, and none infinite.
    if (__builtin_expect(!(scaled_mean >= 1 && scaled_mean <= kScale * kScale * kScale && inv >= 1 / kScale), 0)) {
      return gate_first_wide(row, group);
    }
    if constexpr (kWhole) {
      if (__builtin_expect(sum.lane > kLargeShare * sum.square, 0)) {
        scaled_mean = with_large_square(row, next, group, sum.square) / static_cast<double>(call_.width);
        inv = inverse();
      }
    }
    for (int64_t i = 0; i < call_.width; i += kStage) {
      const int64_t n = stop(i);
      const float* u = u_ + (kept ? i : 0);
      const float* weight;
      if (kept) {
        weight = weight_.at(row.weight, group, i, n);
      } else {
        const GatedStretch<T> s = stretch(row, next, group, i, n);
        gate_and_sum<T>(u_, s, n);
        weight = s.weight;
      }
      write(row, group * call_.width + i, n,
            [&](Storage* out, bool streamed) { apply_scale<T, R>(out, u, weight, inv / kScale, n, streamed); });
    }
    return inv;
  }

  // The sum of squares with a large one formed in f64: from that inv, and with it the whole group, would have the error
  // that silu has in f32.
  [[gnu::noinline]] double with_large_square(const GatedRow& row, const GatedRow& next, int64_t group, double square) {
    const bool kept = call_.width <= kKeptColumns;
    const double least = kLargeShare * square;
    for (int64_t i = 0; i < call_.width; i += kStage) {
      const int64_t n = stop(i);
      const GatedStretch<T> s = stretch(row, next, group, i, n);
      const float* u = u_ + (kept ? i : 0);
      if (!kept) gate_and_sum<T>(u_, s, n);
      for (int64_t k = 0; k < n; ++k) {
        const double f32 = static_cast<double>(u[k]);
        if (!(f32 * f32 > least)) continue;
        double activated[kLanes / 2];
        store(activated, silu(splat(static_cast<double>(s.gate[k]))));
        const double f64 = static_cast<double>(s.x[k]) * activated[0] * static_cast<double>(SiluF32::kScale);
        return square + (f64 * f64 - f32 * f32);
      }
    }
    return square;
  }

  double gate_first_wide(const GatedRow& row, int64_t group) {
    constexpr int kHalf = kLanes / 2;
    constexpr int kRegisters = kWideLanes / kHalf;
    double square = 0;
    for (int64_t i = 0; i < call_.width; i += kStage) {
      const int64_t n = stop(i);
      const WideStretch s = wide_stretch(row, group, i, n);
      D lanes[kRegisters];
      for (D& lane : lanes) lane = splat(0.0);
      for (int64_t k = 0; k < whole_blocks(n); k += kHalf) {
        const D u = mul(load_wide(s.x + k), silu(load_wide(s.gate + k)));
        D& lane = lanes[k % kWideLanes / kHalf];
        lane = add(lane, mul(u, u));
      }
      square += fold(lanes);
    }
    const double inv = 1 / __builtin_sqrt(square / static_cast<double>(call_.width) + call_.epsilon);
    apply_wide<true>(row, group, inv);
    return inv;
  }

  // ---- groups that f32 cannot hold ----

  struct WideStretch {
    const float *x, *gate, *weight;
  };
  WideStretch wide_stretch(const GatedRow& row, int64_t group, int64_t i, int64_t n) {
    const int64_t at = group * call_.width + i;
    const auto wide = [&](Stage& buffer, const char* p, const Operand& operand) {
      return stage(buffer, column(p, operand, at), operand.type, n, true);
    };
    return {wide(x_, row.x, call_.x), wide(gate_, row.gate, call_.gate),
            row.weight == nullptr ? nullptr : wide(wide_weight_, row.weight, call_.weight)};
  }

  template <bool kGateFirst>
  [[gnu::noinline]] void apply_wide(const GatedRow& row, int64_t group, double inv) {
    for (int64_t i = 0; i < call_.width; i += kStage) {
      const int64_t n = stop(i);
      const WideStretch s = wide_stretch(row, group, i, n);
      for (int64_t k = 0; k < whole_blocks(n); k += kPair) {
        const Quad x = widen(F32::load<false>(s.x + k)), gate = widen(F32::load<false>(s.gate + k));
        const Quad weight = widen(s.weight == nullptr ? splat_pair(1.0f) : F32::load<false>(s.weight + k));
        F32::store<false>(out_.at + k, wide_result<kGateFirst>(x, gate, weight, inv), false);
      }
      unstage(row.out + (group * call_.width + i) * bytes(call_.out.type), call_.out.type, out_.at, n, call_.stream);
    }
  }

  template <bool kGateFirst>
  Pair wide_result(const Quad& x, const Quad& gate, const Quad& weight, double inv) const {
    Quad v, activated;
    for (int k = 0; k < 4; ++k) {
      activated.d[k] = silu(gate.d[k]);
      v.d[k] = mul(kGateFirst ? mul(x.d[k], activated.d[k]) : x.d[k], splat(inv));
    }
    if (R::kNarrow) v = widen(R::round(narrow(v)));
    for (int k = 0; k < 4; ++k) v.d[k] = mul(v.d[k], weight.d[k]);
    if constexpr (kGateFirst) return narrow(v);
    if (R::kNarrow && call_.round_product) v = widen(R::round(narrow(v)));
    for (int k = 0; k < 4; ++k) v.d[k] = mul(v.d[k], activated.d[k]);
    return narrow(v);
  }

  const GatedCall& call_;
  GatedWeight<T> weight_;
  Stage x_, gate_, out_, wide_weight_;
  alignas(64) float u_[kKeptColumns + kBlock];
};

}  // namespace rmsnorm::RMSNORM_TARGET

#endif  // RMSNORM_CPU_GATED_RMS_NORM_INL_H_
