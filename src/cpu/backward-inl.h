// Backward of RMSNorm and LayerNorm, all arithmetic in f64: squares of f32 cannot overflow, every result is rounded
// once, and from memory f64 costs nothing.
//   RMSNorm    dx = inv g - c x,  c = inv^3 sum(g x) / k  (epsilon outside the root: inv^2 sum(g x) / (k r))
//   LayerNorm  dx = inv (g - mean(g) - h mean(g h)),  h = (x - mean) inv
// with g = dy (weight + offset);  dweight += dy xhat,  dbias += dy.
#ifndef RMSNORM_CPU_BACKWARD_INL_H_
#define RMSNORM_CPU_BACKWARD_INL_H_

#include "core/backward_call.h"
#include "cpu/backward_fast-inl.h"
#include "cpu/layer_norm-inl.h"
#include "cpu/moments-inl.h"
#include "cpu/stage-inl.h"

namespace rmsnorm::RMSNORM_TARGET {

template <bool kLayer, bool kSquares>
[[gnu::noinline]] void add_gradient_sums(GradientSums* total, const float* x, const float* dy, const float* w,
                                         int64_t n) {
  constexpr int kHalf = kLanes / 2;
  constexpr int kRegisters = kWideLanes / kHalf;
  D sx[kRegisters], sxx[kRegisters], sg[kRegisters], sgx[kRegisters];
  for (int r = 0; r < kRegisters; ++r) sx[r] = sxx[r] = sg[r] = sgx[r] = splat(0.0);
  const int64_t end = whole_blocks(n);
  F largest = splat(0.0f);
  for (int64_t i = 0; i < end; i += kWideLanes) {
#pragma GCC unroll 8
    for (int r = 0; r < kWideLanes; r += kLanes) {
      largest = larger_magnitude(largest, mul(load(dy + i + r), load(w + i + r)));
    }
#pragma GCC unroll 16
    for (int r = 0; r < kRegisters; ++r) {
      const int64_t at = i + r * kHalf;
      const D v = load_wide(x + at);
      const D g = mul(load_wide(dy + at), load_wide(w + at));
      if constexpr (kSquares) sxx[r] = add_exact_product(v, v, sxx[r]);
      sgx[r] = add(sgx[r], mul(g, v));
      if constexpr (kLayer) {
        sx[r] = add(sx[r], v);
        sg[r] = add(sg[r], g);
      }
    }
  }
  if constexpr (kSquares) total->xx += fold(sxx);
  total->gx += fold(sgx);
  const float here = largest_magnitude(largest);
  if (here > total->largest || here != here) total->largest = here;
  if constexpr (kLayer) {
    total->x += fold(sx);
    total->g += fold(sg);
  }
}

// Where a stretch of the second pass reads and writes. `x2` is x, or zeros where the mean square does not count it.
struct GradientStretch {
  const float *x, *x2, *dy, *w, *added;  // added: d_residual_out, or null
  float* dx;
  double *dweight, *dbias;       // sums of this block
  const char *next_x, *next_dy;  // what to fetch meanwhile
};

template <bool kLayer, bool kWeight, bool kBias>
[[gnu::noinline]] void apply_gradient(const GradientStretch& s, const GradientScale& scale, int x_bytes, int dy_bytes,
                                      int64_t n) {
  constexpr int kHalf = kLanes / 2;
  const GradientStretch at = s;  // in registers: stores of floats could change what s points to
  const D inv = splat(scale.inv), c = splat(scale.c);
  const D mean = splat(scale.mean), correction = splat(scale.correction), mean_g = splat(scale.mean_g);
  const auto gradient = [&](int64_t i) __attribute__((always_inline)) {
    const D dy = load_wide(at.dy + i);
    const D g = mul(dy, load_wide(at.w + i));
    const D x = load_wide(at.x + i);
    D result, xhat;
    if constexpr (kLayer) {
      xhat = mul(sub(sub(x, mean), correction), inv);
      result = sub(mul(inv, sub(g, mean_g)), mul(xhat, c));
    } else {
      xhat = mul(x, inv);
      result = sub(mul(inv, g), mul(load_wide(at.x2 + i), c));
    }
    if constexpr (kWeight) store(at.dweight + i, add(load(at.dweight + i), mul(dy, xhat)));
    if constexpr (kBias) store(at.dbias + i, add(load(at.dbias + i), dy));
    return at.added != nullptr ? add(load_wide(at.added + i), result) : result;
  };
  for (int64_t i = 0; i < n; i += kLanes) {
    prefetch(at.next_x + i * x_bytes);
    prefetch(at.next_dy + i * dy_bytes);
    const D low = gradient(i);
    store(at.dx + i, narrow(low, gradient(i + kHalf)));
  }
}

template <bool kLayer>
inline GradientScale gradient_scale(const BackwardCall& call, const GradientSums& sums, const char* saved,
                                    const MeanAndVariance& moments) {
  const double k = static_cast<double>(call.total_cols);
  GradientScale scale = {0, 0, 0, 0, 0, kLayer ? moments.variance : sums.xx / k};
  if constexpr (kLayer) {
    scale.inv = 1 / __builtin_sqrt(moments.variance + call.epsilon);
    // An infinity in the row makes it NaN, as in the forward pass.
    scale.mean = moments.mean - moments.mean == 0 ? moments.mean : moments.mean - moments.mean;
    scale.correction = moments.correction;
    scale.mean_g = sums.g / k;
  } else {
    const double mean_square = sums.xx / k;
    const double root = __builtin_sqrt(mean_square);
    scale.inv = call.epsilon_outside ? 1 / (root + call.epsilon) : 1 / __builtin_sqrt(mean_square + call.epsilon);
    if (saved != nullptr) scale.inv = static_cast<double>(*reinterpret_cast<const float*>(saved));
    scale.c = scale.inv * scale.inv * (sums.gx / k);
    if (!call.epsilon_outside) {
      scale.c *= scale.inv;
    } else {
      scale.c = root == 0 ? 0 : scale.c / root;
    }
    return scale;
  }
  if (saved != nullptr) scale.inv = static_cast<double>(*reinterpret_cast<const float*>(saved));
  scale.c = scale.inv * (scale.inv * ((sums.gx - moments.mean * sums.g) - moments.correction * sums.g) / k);
  return scale;
}

// Of a slice: from the totals of its row.
template <bool kLayer>
inline GradientScale slice_gradient_scale(const BackwardCall& call, const Walk<4>& totals) {
  const auto total = [&](int k) { return *reinterpret_cast<const double*>(totals[k]); };
  const double d = static_cast<double>(call.total_cols);
  GradientSums sums;
  sums.xx = total(1);
  sums.gx = total(3);
  if constexpr (!kLayer) return gradient_scale<false>(call, sums, nullptr, {0, 0, 0});
  sums.g = total(2);
  // The products are centred already: the mean has no part in them.
  GradientScale scale = gradient_scale<kLayer>(call, sums, nullptr, {0, sums.xx / d, 0});
  const ExactMean mean = mean_of(total(0), call.total_cols);
  scale.mean = mean.mean;
  scale.correction = mean.rest;
  return scale;
}

// Rows of one block.
template <bool kLayer>
class GradientBlock {
 public:
  GradientBlock(const BackwardCall& call, int64_t block)
      : call_(call),
        partial_(call.partial < call.cols),
        weight_(call.weight.type, static_cast<float>(call.weight_offset)) {
    double* const sums = call.sums == nullptr ? nullptr : call.sums + kSumsPerColumn * block * call.cols;
    if (call.dweight.base != nullptr) dweight_ = sums;
    if (call.dbias.base != nullptr) dbias_ = sums + call.cols;
    clear(dweight_);
    clear(dbias_);
    find_fast();
    if (fast_ != nullptr && dweight_ != nullptr) {
      fast_sums_ = reinterpret_cast<float*>(sums + 2 * call.cols);
      for (int64_t i = 0; i < 2 * call.cols; ++i) fast_sums_[i] = 0;
    }
    if (partial_) {
      for (float& zero : zeros_.at) zero = 0;
    }
  }

  void run(int64_t begin, int64_t end) {
    const Operand* const operands[] = {&call_.dx, &call_.dresidual,      &call_.dy,
                                       &call_.x,  &call_.d_residual_out, &call_.inv};
    const Operand* const statistics[] = {&call_.sum, &call_.sum_squares, &call_.sum_gradients, &call_.sum_products};
    Walk<6> walk(call_, operands, begin);
    Walk<4> totals(call_, statistics, begin);
    for (int64_t r = begin; r < end; ++r) {
      const Row row = {walk[0], walk[1], walk[2], walk[3], walk[4], walk[5]};
      if (r + 1 < end) walk.advance();
      const Row next = {walk[0], walk[1], walk[2], walk[3], walk[4], walk[5]};
      if (call_.slice) {
        write(row, next, slice_gradient_scale<kLayer>(call_, totals), nullptr, nullptr);
        totals.advance();
      } else if (fast_ == nullptr) {
        one(row, next);
      } else {
        (this->*fast_)(row, next);
      }
    }
    flush();
    if (call_.stream) fence();
  }

 private:
  struct Row {
    char *dx, *dresidual, *dy, *x, *d_residual_out, *inv;
  };

  void clear(double* sums) const {
    for (int64_t i = 0; sums != nullptr && i < call_.cols; ++i) sums[i] = 0;
  }
  static int64_t bytes(rn_type type) { return type == RN_F32 ? 4 : 2; }
  int64_t stop(int64_t i) const { return call_.cols - i < kStage ? call_.cols - i : kStage; }
  const float* x_at(const Row& row, int64_t i, int64_t n) {
    return stage(x_, row.x + i * bytes(call_.x.type), call_.x.type, n, partial_);
  }
  const float* dy_at(const Row& row, int64_t i, int64_t n) {
    return stage(dy_, row.dy + i * bytes(call_.dy.type), call_.dy.type, n, partial_);
  }
  const float* w_at(int64_t i, int64_t n) { return weight_.at(call_.weight.base, call_.cols, i, n); }

  // The fast pass takes calls whose rows have one type, with the gradients that are usual: none of the parameters, or
  // all that the norm has.
  void find_fast() {
    const bool types = call_.dx.base != nullptr && call_.dresidual.base == nullptr && call_.dx.type == call_.x.type &&
                       call_.dy.type == call_.x.type &&
                       (call_.d_residual_out.base == nullptr || call_.d_residual_out.type == call_.x.type);
    const bool all = dweight_ != nullptr && (dbias_ != nullptr) == kLayer;
    const bool none = dweight_ == nullptr && dbias_ == nullptr;
    if (!types || partial_ || !(all || none)) return;
    switch (call_.x.type) {
      case RN_F16:
        fast_ = fast_for<F16>(all);
        break;
      case RN_BF16:
        fast_ = fast_for<BF16>(all);
        break;
      default:
        fast_ = fast_for<F32>(all);
    }
  }

  using RowFunction = void (GradientBlock::*)(const Row& row, const Row& next);

  template <class T>
  RowFunction fast_for(bool sums) const {
    const bool added = call_.d_residual_out.base != nullptr;
    if (sums) return added ? &GradientBlock::fast<T, true, true> : &GradientBlock::fast<T, true, false>;
    return added ? &GradientBlock::fast<T, false, true> : &GradientBlock::fast<T, false, false>;
  }

  template <class T, bool kSums, bool kAdded>
  void fast(const Row& row, const Row& next) {
    using Storage = typename T::Storage;
    const auto* x = reinterpret_cast<const Storage*>(row.x);
    const auto* dy = reinterpret_cast<const Storage*>(row.dy);
    GradientSums sums;
    for (int64_t i = 0; i < call_.cols; i += kStage) {
      const int64_t n = stop(i);
      if constexpr (kLayer) {
        add_layer_gradient_sums<T>(&sums, x + i, dy + i, w_at(i, n), n);
      } else if constexpr (T::kNarrow) {
        add_narrow_gradient_sums<T>(&sums, x + i, dy + i, w_at(i, n), n);
      } else {
        add_gradient_sums<false, true>(&sums, x_at(row, i, n), dy_at(row, i, n), w_at(i, n), n);
      }
    }
    if constexpr (T::kNarrow && !kLayer) {
      const int64_t chunks = (call_.cols + kChunk - 1) / kChunk;
      if (!(sums.xx >= kFastSumFloor * static_cast<double>(chunks) && sums.xx <= kLargestSum)) return one(row, next);
    }
    const GradientScale scale = gradient_scale<kLayer>(call_, sums, row.inv, layer_moments(row, sums));
    if (!fits_f32(scale, sums)) return one(row, next);
    for (int64_t i = 0; i < call_.cols; i += kStage) {
      const int64_t n = stop(i);
      FastStretch<T> s;
      s.x = x + i;
      s.dy = dy + i;
      s.added = kAdded ? reinterpret_cast<const Storage*>(row.d_residual_out) + i : nullptr;
      s.w = w_at(i, n);
      s.dx = reinterpret_cast<Storage*>(row.dx) + i;
      s.dweight = kSums ? fast_sums_ + i : nullptr;
      s.dbias = kSums ? fast_sums_ + call_.cols + i : nullptr;
      s.next_x = reinterpret_cast<const Storage*>(next.x) + i;
      s.next_dy = reinterpret_cast<const Storage*>(next.dy) + i;
      apply_fast_stretch<T, kLayer, kSums, kAdded>(s, scale, n, call_.stream);
    }
    if (kSums && ++fast_rows_ == kFastRows) flush();
  }

  // Adds the f32 sums of the last rows to those in f64.
  void flush() {
    if (fast_rows_ == 0 || fast_sums_ == nullptr) return;
    fast_rows_ = 0;
    flush(dweight_, fast_sums_);
    if constexpr (kLayer) flush(dbias_, fast_sums_ + call_.cols);
  }
  void flush(double* sums, float* fast) const {
    constexpr int kHalf = kLanes / 2;
    int64_t i = 0;
    for (; i + kLanes <= call_.cols; i += kLanes) {
      store(sums + i, add(load(sums + i), load_wide(fast + i)));
      store(sums + i + kHalf, add(load(sums + i + kHalf), load_wide(fast + i + kHalf)));
      store(fast + i, splat(0.0f));
    }
    for (; i < call_.cols; ++i) {
      sums[i] += static_cast<double>(fast[i]);
      fast[i] = 0;
    }
  }

  void one(const Row& row, const Row& next) {
    const bool squares = kLayer || row.inv == nullptr || call_.epsilon_outside;
    GradientSums sums;
    const float *x = nullptr, *dy = nullptr;
    for (int64_t i = 0; i < call_.cols; i += kStage) {
      const int64_t n = stop(i);
      x = x_at(row, i, n);
      dy = dy_at(row, i, n);
      if (squares && !partial_) {
        add_gradient_sums<kLayer, true>(&sums, x, dy, w_at(i, n), n);
      } else {
        add_gradient_sums<kLayer, false>(&sums, x, dy, w_at(i, n), n);
      }
      if (squares && partial_ && i < call_.partial) {
        const int64_t counted = call_.partial - i < n ? call_.partial - i : n;
        sums.xx += chunk_moments<WideLanes<false, StagedSource>>(StagedSource{x}, 0, counted).square;
      }
    }
    const bool staged = call_.cols <= kStage;
    write(row, next, gradient_scale<kLayer>(call_, sums, row.inv, layer_moments(row, sums)), staged ? x : nullptr,
          staged ? dy : nullptr);
  }

  // x and dy: the whole row, staged, or null.
  void write(const Row& row, const Row& next, const GradientScale& scale, const float* x, const float* dy) {
    const bool staged = x != nullptr;
    for (int64_t i = 0; i < call_.cols; i += kStage) {
      const int64_t n = stop(i);
      if (!staged) {
        x = x_at(row, i, n);
        dy = dy_at(row, i, n);
      }
      GradientStretch s;
      s.x = x;
      s.x2 = x;
      s.dy = dy;
      s.w = w_at(i, n);
      s.added = row.d_residual_out == nullptr ? nullptr
                                              : stage(added_, row.d_residual_out + i * bytes(call_.d_residual_out.type),
                                                      call_.d_residual_out.type, n, partial_);
      s.dx = dx_.at;
      s.dweight = dweight_ == nullptr ? nullptr : dweight_ + i;
      s.dbias = dbias_ == nullptr ? nullptr : dbias_ + i;
      s.next_x = next.x + i * bytes(call_.x.type);
      s.next_dy = next.dy + i * bytes(call_.dy.type);
      if (partial_) {
        apply_partial(s, scale, i, n);
      } else {
        apply(s, scale, n);
      }
      if (row.dx != nullptr) unstage(row.dx + i * bytes(call_.dx.type), call_.dx.type, dx_.at, n, call_.stream);
      if (row.dresidual != nullptr) {
        unstage(row.dresidual + i * bytes(call_.dresidual.type), call_.dresidual.type, dx_.at, n, call_.stream);
      }
    }
  }

  MeanAndVariance layer_moments(const Row& row, const GradientSums& sums) {
    if constexpr (!kLayer) {
      return {0, 0, 0};
    } else {
      const auto for_each = [&](const auto& take) {
        for (int64_t i = 0; i < call_.cols; i += kStage) take(x_at(row, i, stop(i)), stop(i));
      };
      return mean_and_variance(call_, {sums.x, sums.xx}, [&](SumMode mode, double centre) {
        if (mode == SumMode::kExact) return exact_mean(call_.cols, centre, for_each);
        Moments total = {0, 0};
        for_each([&](const float* x, int64_t n) {
          const Moments part = centred_chunk(StagedSource{x}, 0, n, centre);
          total.sum += part.sum;
          total.square += part.square;
        });
        return total;
      });
    }
  }

  // Columns that the mean square does not count have no second term, whatever they and c are.
  void apply_partial(GradientStretch s, GradientScale scale, int64_t i, int64_t n) {
    const int64_t counted = call_.partial <= i ? 0 : call_.partial - i < n ? call_.partial - i : n;
    apply(s, scale, counted);
    s = shifted(s, counted);
    s.x2 = zeros_.at;
    scale.c = 0;
    apply(s, scale, n - counted);
  }

  static GradientStretch shifted(GradientStretch s, int64_t by) {
    s.x += by;
    s.x2 += by;
    s.dy += by;
    s.w += by;
    if (s.added != nullptr) s.added += by;
    s.dx += by;
    if (s.dweight != nullptr) s.dweight += by;
    if (s.dbias != nullptr) s.dbias += by;
    return s;
  }

  // Sums have no room behind the row: the last columns, less than a block, go through buffers.
  void apply(const GradientStretch& s, const GradientScale& scale, int64_t n) {
    const int64_t whole = n / kLanes * kLanes;
    apply_whole(s, scale, whole);
    if (whole == n) return;
    alignas(64) double dweight[kLanes] = {}, dbias[kLanes] = {};
    const size_t rest = static_cast<size_t>(n - whole) * sizeof(double);
    if (s.dweight != nullptr) memcpy(dweight, s.dweight + whole, rest);
    if (s.dbias != nullptr) memcpy(dbias, s.dbias + whole, rest);
    GradientStretch tail = shifted(s, whole);
    if (s.dweight != nullptr) tail.dweight = dweight;
    if (s.dbias != nullptr) tail.dbias = dbias;
    apply_whole(tail, scale, kLanes);
    if (s.dweight != nullptr) memcpy(s.dweight + whole, dweight, rest);
    if (s.dbias != nullptr) memcpy(s.dbias + whole, dbias, rest);
  }

  void apply_whole(const GradientStretch& s, const GradientScale& scale, int64_t n) {
    const int x_bytes = static_cast<int>(bytes(call_.x.type)), dy_bytes = static_cast<int>(bytes(call_.dy.type));
    if (s.dweight != nullptr && s.dbias != nullptr) {
      apply_gradient<kLayer, true, true>(s, scale, x_bytes, dy_bytes, n);
    } else if (s.dweight != nullptr) {
      apply_gradient<kLayer, true, false>(s, scale, x_bytes, dy_bytes, n);
    } else if (s.dbias != nullptr) {
      apply_gradient<kLayer, false, true>(s, scale, x_bytes, dy_bytes, n);
    } else {
      apply_gradient<kLayer, false, false>(s, scale, x_bytes, dy_bytes, n);
    }
  }

  const BackwardCall& call_;
  bool partial_;
  StagedParameter weight_;
  double *dweight_ = nullptr, *dbias_ = nullptr;
  RowFunction fast_ = nullptr;
  float* fast_sums_ = nullptr;  // dweight's, then dbias's, of the last fast_rows_ rows
  int fast_rows_ = 0;
  Stage x_, dy_, added_, zeros_, dx_;
};

}  // namespace rmsnorm::RMSNORM_TARGET

#endif  // RMSNORM_CPU_BACKWARD_INL_H_
