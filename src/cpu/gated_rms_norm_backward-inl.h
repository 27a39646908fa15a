// Backward of gated RMSNorm, all arithmetic in f64, every result rounded once. With s = silu(gate), g = dy w and sums
// over a group of k columns:
//   gate last   h = g s;  dx = inv h - c x,  c = inv^3 sum(h x) / k;  dgate = g x inv s';        dweight += dy s x inv
//   gate first  u = x s;  du = inv g - c u,  c = inv^3 sum(g u) / k;  dx = du s, dgate = du x s';  dweight += dy u inv
#ifndef RMSNORM_CPU_GATED_RMS_NORM_BACKWARD_INL_H_
#define RMSNORM_CPU_GATED_RMS_NORM_BACKWARD_INL_H_

#include "core/backward_call.h"
#include "core/gated_rms_norm_call.h"
#include "cpu/silu-inl.h"
#include "cpu/stage-inl.h"

namespace rmsnorm::RMSNORM_TARGET {

// At most kStage columns: what was read, silu(gate) and its derivative; and where the results go.
struct GatedGradientStretch {
  const float *x, *dy, *weight;
  const double *activated, *slope;
  float *dx, *dgate;
  double* dweight;  // sums of this block
};

struct GatedGradientSums {
  double square = 0;   // of what is normalised
  double product = 0;  // of that and the gradient that arrives at the norm
};

template <bool kGateFirst>
[[gnu::noinline]] void add_gated_sums(GatedGradientSums* total, const GatedGradientStretch& s, int64_t n) {
  constexpr int kHalf = kLanes / 2;
  constexpr int kRegisters = kWideLanes / kHalf;
  const GatedGradientStretch at = s;
  D squares[kRegisters], products[kRegisters];
  for (int r = 0; r < kRegisters; ++r) squares[r] = products[r] = splat(0.0);
  const int64_t end = whole_blocks(n);
  for (int64_t i = 0; i < end; i += kWideLanes) {
#pragma GCC unroll 16
    for (int r = 0; r < kRegisters; ++r) {
      const int64_t k = i + r * kHalf;
      const D x = load_wide(at.x + k), activated = load(at.activated + k);
      const D g = mul(load_wide(at.dy + k), load_wide(at.weight + k));
      if constexpr (kGateFirst) {
        const D u = mul(x, activated);
        squares[r] = add(squares[r], mul(u, u));
        products[r] = add(products[r], mul(g, u));
      } else {
        squares[r] = add_exact_product(x, x, squares[r]);
        products[r] = add(products[r], mul(mul(g, activated), x));
      }
    }
  }
  total->square += fold(squares);
  total->product += fold(products);
}

// Columns 0 .. n-1, to a whole register. kSums: dweight, too.
template <bool kGateFirst, bool kSums>
[[gnu::noinline]] void apply_gated_gradient(const GatedGradientStretch& s, double inv, double c, int64_t n) {
  constexpr int kHalf = kLanes / 2;
  const GatedGradientStretch at = s;
  const D scale = splat(inv), slope = splat(c);
  struct Result {
    D dx, dgate;
  };
  const auto add_term = [&](int64_t i, D term) __attribute__((always_inline)) {
    if constexpr (kSums) store(at.dweight + i, add(load(at.dweight + i), term));
  };
  const auto half = [&](int64_t i) __attribute__((always_inline)) {
    const D x = load_wide(at.x + i), dy = load_wide(at.dy + i), activated = load(at.activated + i);
    const D g = mul(dy, load_wide(at.weight + i));
    if constexpr (kGateFirst) {
      const D u = mul(x, activated);
      const D du = sub(mul(scale, g), mul(slope, u));
      add_term(i, mul(dy, mul(u, scale)));
      return Result{mul(du, activated), mul(mul(du, x), load(at.slope + i))};
    } else {
      const D normalised = mul(x, scale);
      add_term(i, mul(mul(dy, activated), normalised));
      return Result{sub(mul(scale, mul(g, activated)), mul(slope, x)), mul(mul(g, normalised), load(at.slope + i))};
    }
  };
  for (int64_t i = 0; i < n; i += kLanes) {
    const Result low = half(i), high = half(i + kHalf);
    store(at.dx + i, narrow(low.dx, high.dx));
    store(at.dgate + i, narrow(low.dgate, high.dgate));
  }
}

// Rows of one block.
template <bool kGateFirst>
class GatedGradientBlock {
 public:
  GatedGradientBlock(const GatedBackwardCall& call, int64_t block) : call_(call), weight_(call.weight.type, 0) {
    if (call.dweight.base != nullptr) dweight_ = call.sums + block * call.cols;
    for (int64_t i = 0; dweight_ != nullptr && i < call.cols; ++i) dweight_[i] = 0;
  }

  void run(int64_t begin, int64_t end) {
    const Operand* const operands[] = {&call_.dx, &call_.dgate, &call_.dy, &call_.x, &call_.gate, &call_.inv};
    Walk<6> walk(call_, operands, begin);
    for (int64_t r = begin; r < end; ++r) {
      const Row row = {walk[0], walk[1], walk[2], walk[3], walk[4], walk[5]};
      for (int64_t group = 0; group < call_.groups; ++group) one(row, group);
      if (r + 1 < end) walk.advance();
    }
    if (call_.stream) fence();
  }

 private:
  // Columns of a group whose silu and slope are kept between the passes.
  static constexpr int64_t kKept = 2 * kStage;

  struct Row {
    char *dx, *dgate, *dy, *x, *gate, *inv;
  };

  static int64_t bytes(rn_type type) { return type == RN_F32 ? 4 : 2; }
  int64_t stop(int64_t i) const { return call_.width - i < kStage ? call_.width - i : kStage; }

  const float* read(Stage& buffer, const char* row, const Operand& operand, int64_t at, int64_t n) {
    return stage(buffer, row + at * bytes(operand.type), operand.type, n);
  }

  // Columns i .. i+n-1 of the group that begins with column `first` of the row.
  GatedGradientStretch stretch(const Row& row, int64_t first, int64_t i, int64_t n, bool again) {
    const int64_t at = first + i;
    const bool kept = call_.width <= kKept;
    double* const activated = activated_ + (kept ? i : 0);
    double* const slope = slope_ + (kept ? i : 0);
    if (!again || !kept) activate(activated, slope, read(gate_, row.gate, call_.gate, at, n), n);
    return {read(x_, row.x, call_.x, at, n),
            read(dy_, row.dy, call_.dy, at, n),
            weight_at(at, n),
            activated,
            slope,
            dx_.at,
            dgate_.at,
            dweight_ == nullptr ? nullptr : dweight_ + at};
  }

  [[gnu::noinline]] static void activate(double* activated, double* slope, const float* gate, int64_t n) {
    constexpr int kHalf = kLanes / 2;
    static_assert(kBlock % (kSideBySide * kHalf) == 0);
    for (int64_t i = 0; i < whole_blocks(n); i += kSideBySide * kHalf) {
      Several<Wide, kSideBySide> gates;
#pragma GCC unroll 4
      for (int k = 0; k < kSideBySide; ++k) gates.v[k] = load_wide(gate + i + k * kHalf);
      const auto value = silu_and_slope(gates);
#pragma GCC unroll 4
      for (int k = 0; k < kSideBySide; ++k) {
        store(activated + i + k * kHalf, value.silu.v[k]);
        store(slope + i + k * kHalf, value.slope.v[k]);
      }
    }
  }

  // Groups need not begin with a stretch of the whole row, which StagedParameter wants: each is a row of its own there.
  const float* weight_at(int64_t at, int64_t n) {
    const char* p = call_.weight.base;
    if (p != nullptr) p += at * bytes(call_.weight.type);
    return weight_.at(p, n, 0, n);
  }

  void one(const Row& row, int64_t group) {
    const int64_t first = group * call_.width;
    GatedGradientSums sums;
    GatedGradientStretch s;
    for (int64_t i = 0; i < call_.width; i += kStage) {
      s = stretch(row, first, i, stop(i), false);
      add_gated_sums<kGateFirst>(&sums, s, stop(i));
    }
    const double k = static_cast<double>(call_.width);
    double inv = 1 / __builtin_sqrt(sums.square / k + call_.epsilon);
    if (row.inv != nullptr) {
      inv = static_cast<double>(*reinterpret_cast<const float*>(row.inv + group * call_.inv_step));
    }
    const double c = inv * inv * (sums.product / k) * inv;
    for (int64_t i = 0; i < call_.width; i += kStage) {
      const int64_t n = stop(i), at = first + i;
      if (call_.width > kStage) s = stretch(row, first, i, n, true);
      apply(s, inv, c, n);
      if (row.dx != nullptr) unstage(row.dx + at * bytes(call_.dx.type), call_.dx.type, dx_.at, n, call_.stream);
      if (row.dgate != nullptr) {
        unstage(row.dgate + at * bytes(call_.dgate.type), call_.dgate.type, dgate_.at, n, call_.stream);
      }
    }
  }

  // Sums have no room behind the row: what does not fill registers goes through a buffer.
  void apply(GatedGradientStretch s, double inv, double c, int64_t n) {
    if (dweight_ == nullptr) return apply_gated_gradient<kGateFirst, false>(s, inv, c, n);
    if (n % kLanes == 0) return apply_gated_gradient<kGateFirst, true>(s, inv, c, n);
    double* const sums = s.dweight;
    const auto bytes = static_cast<size_t>(n) * sizeof(double);
    memcpy(sums_, sums, bytes);
    for (int64_t i = n; i < n + kLanes; ++i) sums_[i] = 0;
    s.dweight = sums_;
    apply_gated_gradient<kGateFirst, true>(s, inv, c, n);
    memcpy(sums, sums_, bytes);
  }

  const GatedBackwardCall& call_;
  StagedParameter weight_;
  double* dweight_ = nullptr;
  Stage x_, dy_, gate_, dx_, dgate_;
  alignas(64) double activated_[kKept + kBlock], slope_[kKept + kBlock], sums_[kStage + kBlock];
};

}  // namespace rmsnorm::RMSNORM_TARGET

#endif  // RMSNORM_CPU_GATED_RMS_NORM_BACKWARD_INL_H_
