// Second pass: from a row's scale to its outputs.
#ifndef RMSNORM_CPU_APPLY_INL_H_
#define RMSNORM_CPU_APPLY_INL_H_

#include "core/call.h"
#include "cpu/row-inl.h"
#include "cpu/simd.h"
#include "cpu/target.h"

namespace rmsnorm::RMSNORM_TARGET {

// What happens between the row's element and the output.
enum class Style : uint8_t {
  kScale,          // x * inv, weight, bias
  kRoundedScale,   // x * inv rounded to the type of x, weight, bias
  kCentredScale,   // (x - mean) * inv, weight, bias
  kWide,           // any of these in f64
};

// weight and bias of one row.
struct Parameters {
  Any weight, bias;
  bool has_offset;
  float offset;
  double wide_offset;

  Parameters(const NormCall& call, const Row& row)
      : weight{row.weight, call.weight.type},
        bias{row.bias, call.bias.type},
        has_offset(call.weight_offset != 0),
        offset(static_cast<float>(call.weight_offset)),
        wide_offset(call.weight_offset) {}
};

// One pair, given its weights and biases (ignored where the parameter is absent).
template <class X, Style kStyle>
class Finish {
 public:
  Finish(const NormCall& call, const RowScale& scale, const Parameters& parameters)
      : parameters_(parameters), scale_(scale), round_first_(call.rounding == RN_ROUND_BEFORE_WEIGHT) {
    const float mean = static_cast<float>(scale.mean);
    inv_ = splat(static_cast<float>(scale.inv));
    mean_ = splat(mean);
    correction_ = splat(static_cast<float>(scale.mean - static_cast<double>(mean)));
    offset_ = splat(parameters.offset);
  }

  Pair operator()(Pair v, Pair weight, Pair bias) const {
    if constexpr (kStyle == Style::kWide) return wide(v, weight, bias);
    if constexpr (kStyle == Style::kCentredScale) {
      v = {sub(sub(v.a, mean_), correction_), sub(sub(v.b, mean_), correction_)};
    }
    v = {mul(v.a, inv_), mul(v.b, inv_)};
    if constexpr (kStyle == Style::kRoundedScale) v = X::round(v);
    return narrow_parameters(v, weight, bias);
  }

 private:
  Pair narrow_parameters(Pair v, Pair weight, Pair bias) const {
    if (parameters_.weight.p != nullptr) {
      if (parameters_.has_offset) weight = {add(weight.a, offset_), add(weight.b, offset_)};
      v = mul(v, weight);
    }
    return parameters_.bias.p != nullptr ? add(v, bias) : v;
  }

  Pair wide(Pair v, Pair weight, Pair bias) const {
    Quad q = widen(v);
    for (int k = 0; k < 4; ++k) q.d[k] = mul(sub(q.d[k], splat(scale_.mean)), splat(scale_.inv));
    if (round_first_) return narrow_parameters(X::round(narrow(q)), weight, bias);
    const Quad w = widen(weight);
    const Quad b = widen(bias);
    for (int k = 0; k < 4; ++k) {
      if (parameters_.weight.p != nullptr) {
        const D factor = parameters_.has_offset ? add(w.d[k], splat(parameters_.wide_offset)) : w.d[k];
        q.d[k] = mul(q.d[k], factor);
      }
      if (parameters_.bias.p != nullptr) q.d[k] = add(q.d[k], b.d[k]);
    }
    return narrow(q);
  }

  Parameters parameters_;
  RowScale scale_;
  bool round_first_;
  F inv_, mean_, correction_, offset_;
};

// Columns i .. i+n-1, fewer than a pair. Out of line and with arguments by value, so that the loop below keeps its own
// copies in registers.
template <class X, class O, bool kSplit, Style kStyle, class Source>
[[gnu::noinline]] void apply_part(const NormCall& call, const Row& row, Source source, const RowScale& scale, int64_t i,
                                  int n) {
  const Parameters parameters(call, row);
  const Finish<X, kStyle> finish(call, scale, parameters);
  const Pair v = source.template load_part<kSplit>(i, n);
  const Pair w = parameters.weight.p != nullptr ? load_any_part<kSplit>(parameters.weight, i, n) : splat_pair(0);
  const Pair b = parameters.bias.p != nullptr ? load_any_part<kSplit>(parameters.bias, i, n) : splat_pair(0);
  source.template store_residual_part<kSplit>(i, v, n);
  store_part<O, kSplit>(reinterpret_cast<typename O::Storage*>(row.out) + i, finish(v, w, b), n);
}

// Columns begin .. end-1 of one row. `streamed` allows stores around the caches; the first columns are written apart so
// that the rest is aligned for them.
template <class X, class O, bool kSplit, Style kStyle, class Source>
inline void apply_row(const NormCall& call, const Row& row, Source source, const RowScale& scale, int64_t begin,
                      int64_t end, bool streamed) {
  auto* const out = reinterpret_cast<typename O::Storage*>(row.out);
  const auto misaligned = [](const void* p) { return reinterpret_cast<uintptr_t>(p) % kVectorBytes; };
  int64_t i = begin;
  if (streamed && misaligned(out + i) != 0) {
    const int64_t head = static_cast<int64_t>((kVectorBytes - misaligned(out + i)) / sizeof *out);
    const int n = static_cast<int>(head < end - i ? head : end - i);
    apply_part<X, O, kSplit, kStyle>(call, row, source, scale, i, n);
    i += n;
  }
  const Parameters parameters(call, row);
  const Finish<X, kStyle> finish(call, scale, parameters);
  const bool residual_streamed = streamed && source.residual_aligned(i);
  for (; i + kPair <= end; i += kPair) {
    const Pair v = source.template load<kSplit>(i);
    const Pair w = parameters.weight.p != nullptr ? load_any<kSplit>(parameters.weight, i) : splat_pair(0);
    const Pair b = parameters.bias.p != nullptr ? load_any<kSplit>(parameters.bias, i) : splat_pair(0);
    source.template store_residual<kSplit>(i, v, residual_streamed);
    O::template store<kSplit>(out + i, finish(v, w, b), streamed);
  }
  if (i < end) apply_part<X, O, kSplit, kStyle>(call, row, source, scale, i, static_cast<int>(end - i));
}

}  // namespace rmsnorm::RMSNORM_TARGET

#endif  // RMSNORM_CPU_APPLY_INL_H_
