// Second pass: from a row's scale to its outputs.
#ifndef RMSNORM_CPU_APPLY_INL_H_
#define RMSNORM_CPU_APPLY_INL_H_

#include "core/call.h"
#include "cpu/moments-inl.h"
#include "cpu/row-inl.h"
#include "cpu/simd.h"
#include "cpu/target.h"

namespace rmsnorm::RMSNORM_TARGET {

// What happens between the row's element and the output.
enum class Style : uint8_t {
  kScale,         // x * inv, weight, bias
  kRoundedScale,  // x * inv rounded to the type of x, weight, bias
  kCentredScale,  // (x - mean) * inv, weight, bias
  kWide,          // any of these in f64
};

// What the loop knows of weight and bias when it is compiled. kAny asks for each pair.
enum class Given : uint8_t {
  kWeight,         // weight of the type of x; no bias
  kWideWeight,     // weight in f32 with 16-bit x; no bias
  kWeightAndBias,  // both of the type of x
  kAny,
};

// weight and bias of one row.
struct Parameters {
  Any weight, bias;
  float offset;
  double wide_offset;

  Parameters(const NormCall& call, const Row& row)
      : weight{row.weight, call.weight.type},
        bias{row.bias, call.bias.type},
        offset(static_cast<float>(call.weight_offset)),
        wide_offset(call.weight_offset) {}
};

template <class X>
inline Given given(const NormCall& call) {
  if (call.weight.base == nullptr) return Given::kAny;
  const bool own_type = call.weight.type == X::kType;
  if (call.bias.base != nullptr) {
    return own_type && call.bias.type == X::kType ? Given::kWeightAndBias : Given::kAny;
  }
  if (own_type) return Given::kWeight;
  return call.weight.type == RN_F32 ? Given::kWideWeight : Given::kAny;
}

// From the row's elements to outputs in f32, a pair at a time.
template <class X, Style kStyle, Given kGiven, bool kSplit>
class Finish {
 public:
  Finish(const NormCall& call, const Row& row, const RowScale& scale)
      : parameters_(call, row),
        scale_(scale),
        round_first_(call.rounding == RN_ROUND_BEFORE_WEIGHT),
        has_offset_(static_cast<int>(call.weight_offset != 0)) {
    // A value that the compiler cannot derive anew: it would compare doubles for each pair.
    asm("" : "+r"(has_offset_));
    const float mean = static_cast<float>(scale.mean);
    inv_ = splat(static_cast<float>(scale.inv));
    mean_ = splat(mean);
    correction_ = splat(static_cast<float>((scale.mean - static_cast<double>(mean)) + scale.correction));
    offset_ = splat(parameters_.offset);
  }

  // v: columns i .. i + kPair - 1, or the first n of these.
  Pair operator()(Pair v, int64_t i) const {
    return finish(
        v, [&](Any from) __attribute__((always_inline)) { return load_any<kSplit>(from, i); },
        [&](auto type, Any from) __attribute__((always_inline)) {
          using T = decltype(type);
          return T::template load<kSplit>(reinterpret_cast<const typename T::Storage*>(from.p) + i);
        });
  }
  Pair part(Pair v, int64_t i, int n) const {
    return finish(
        v, [&](Any from) { return load_any_part<kSplit>(from, i, n); },
        [&](auto type, Any from) {
          using T = decltype(type);
          return load_part<T, kSplit>(reinterpret_cast<const typename T::Storage*>(from.p) + i, n);
        });
  }

 private:
  template <class LoadAny, class Load>
  Pair finish(Pair v, const LoadAny& any, const Load& load) const {
    if constexpr (kStyle == Style::kWide) return wide(v, any);
    if constexpr (kStyle == Style::kCentredScale) {
      v = {sub(sub(v.a, mean_), correction_), sub(sub(v.b, mean_), correction_)};
    }
    v = {mul(v.a, inv_), mul(v.b, inv_)};
    if constexpr (kStyle == Style::kRoundedScale) v = X::round(v);
    if constexpr (kGiven == Given::kWeight) return mul(v, offset(load(X(), parameters_.weight)));
    if constexpr (kGiven == Given::kWideWeight) return mul(v, offset(load(F32(), parameters_.weight)));
    if constexpr (kGiven == Given::kWeightAndBias) {
      return add(mul(v, offset(load(X(), parameters_.weight))), load(X(), parameters_.bias));
    }
    return with_parameters(v, any);
  }

  Pair offset(Pair weight) const {
    return has_offset_ != 0 ? Pair{add(weight.a, offset_), add(weight.b, offset_)} : weight;
  }

  template <class LoadAny>
  Pair with_parameters(Pair v, const LoadAny& any) const {
    if (parameters_.weight.p != nullptr) v = mul(v, offset(any(parameters_.weight)));
    return parameters_.bias.p != nullptr ? add(v, any(parameters_.bias)) : v;
  }

  template <class LoadAny>
  Pair wide(Pair v, const LoadAny& any) const {
    Quad q = widen(v);
    for (int k = 0; k < 4; ++k) {
      q.d[k] = mul(sub(sub(q.d[k], splat(scale_.mean)), splat(scale_.correction)), splat(scale_.inv));
    }
    if (round_first_) return with_parameters(X::round(narrow(q)), any);
    if (parameters_.weight.p != nullptr) {
      const Quad weight = widen(any(parameters_.weight));
      for (int k = 0; k < 4; ++k) {
        q.d[k] = mul(q.d[k], has_offset_ != 0 ? add(weight.d[k], splat(parameters_.wide_offset)) : weight.d[k]);
      }
    }
    if (parameters_.bias.p != nullptr) {
      const Quad bias = widen(any(parameters_.bias));
      for (int k = 0; k < 4; ++k) q.d[k] = add(q.d[k], bias.d[k]);
    }
    return narrow(q);
  }

  Parameters parameters_;
  RowScale scale_;
  bool round_first_;
  int has_offset_;
  F inv_, mean_, correction_, offset_;
};

// What apply_row sums beside its own work: nothing, or lanes of one kind (moments-inl.h).
struct NoLanes {
  static constexpr bool kNone = true;
};
template <class T>
struct SumLanes {
  static constexpr bool kNone = false;
  using Type = T;
};

// Columns i .. i+n-1, fewer than a pair. Out of line and with arguments by value, so that the loop below keeps its own
// copies in registers.
template <class X, class O, bool kSplit, Style kStyle, class Source>
[[gnu::noinline]] void apply_part(const NormCall& call, const Row& row, Source source, const RowScale& scale, int64_t i,
                                  int n) {
  const Finish<X, kStyle, Given::kAny, kSplit> finish(call, row, scale);
  const Pair v = source.template load_part<kSplit>(i, n);
  source.template store_residual_part<kSplit>(i, v, n);
  store_part<O, kSplit>(reinterpret_cast<typename O::Storage*>(row.out) + i, finish.part(v, i, n), n);
}

// Columns begin .. end-1 of one row. With call.stream, stores go around the caches; the first columns are then written
// apart so that the rest is aligned.
// With Lanes other than NoLanes the row `ahead` is summed meanwhile, all of its call.cols columns in one segment:
// reading the next row while this one is written is what a copy does, and is worth up to a third from memory.
template <class X, class O, bool kSplit, Style kStyle, Given kGiven, class Lanes, class Source>
[[gnu::noinline]] Moments apply_row(const NormCall& call, const Row& row, Source source, Source ahead,
                                    const RowScale& scale, int64_t begin, int64_t end) {
  constexpr bool kSums = !Lanes::kNone;
  auto* const out = reinterpret_cast<typename O::Storage*>(row.out);
  const bool streamed = call.stream;
  const auto misaligned = [](const void* p) { return reinterpret_cast<uintptr_t>(p) % kVectorBytes; };
  int64_t i = begin;
  if (streamed && misaligned(out + i) != 0) {
    const int64_t head = static_cast<int64_t>((kVectorBytes - misaligned(out + i)) / sizeof *out);
    const int n = static_cast<int>(head < end - i ? head : end - i);
    apply_part<X, O, kSplit, kStyle>(call, row, source, scale, i, n);
    i += n;
  }
  const Finish<X, kStyle, kGiven, kSplit> finish(call, row, scale);
  const bool residual_streamed = streamed && source.residual_aligned(i);
  const auto write_pair = [&](int64_t at) __attribute__((always_inline)) {
    const Pair v = source.template load<kSplit>(at);
    source.template store_residual<kSplit>(at, v, residual_streamed);
    O::template store<kSplit>(out + at, finish(v, at), streamed);
  };

  Moments total = {0, 0};
  if constexpr (kSums) {
    for (int64_t chunk = 0; chunk < call.cols; chunk += kChunk) {
      const int64_t stop = call.cols - chunk < kChunk ? call.cols : chunk + kChunk;
      typename Lanes::Type lanes;
      int64_t j = chunk;
      for (; j + kBlock <= stop && i + kBlock <= end; j += kBlock, i += kBlock) {
        ahead.template fetch<kBlock>(j);
        lanes.take(ahead, j);
#pragma GCC unroll 8
        for (int pair = 0; pair < kBlock / kPair; ++pair) write_pair(i + pair * kPair);
      }
      for (; j + kBlock <= stop; j += kBlock) lanes.take(ahead, j);
      const Moments sums = j < stop ? lanes.fold_with_part(ahead, j, stop - j) : lanes.fold();
      total.sum += sums.sum;
      total.square += sums.square;
    }
  }
  for (; i + kPair <= end; i += kPair) write_pair(i);
  if (i < end) apply_part<X, O, kSplit, kStyle>(call, row, source, scale, i, static_cast<int>(end - i));
  return total;
}

}  // namespace rmsnorm::RMSNORM_TARGET

#endif  // RMSNORM_CPU_APPLY_INL_H_
