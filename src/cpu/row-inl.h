// Rows: where they lie, and what a pass reads as the row's elements.
#ifndef RMSNORM_CPU_ROW_INL_H_
#define RMSNORM_CPU_ROW_INL_H_

#include "core/call.h"
#include "cpu/simd.h"
#include "cpu/thresholds.h"

namespace rmsnorm::RMSNORM_TARGET {

// The addresses of one row in every operand; null where absent.
struct Row {
  char *out, *residual_out, *mean, *inv, *x, *residual, *weight, *bias;
};

// The eight addresses of a Row as one vector: a step is one addition, and reading a Row right after it finds whole
// stores.
using Addresses = uint64_t __attribute__((vector_size(64)));
static_assert(sizeof(Row) == sizeof(Addresses));

// Walks over rows in order, without a multiplication or division per row.
class Cursor {
 public:
  Cursor(const NormCall& call, int64_t row)
      : Cursor(
            call,
            {&call.out, &call.residual_out, &call.mean, &call.inv, &call.x, &call.residual, &call.weight, &call.bias},
            row) {}

  // Of any eight operands.
  Cursor(const RowShape& shape, const Operand* const (&operands)[8], int64_t row) : shape_(shape) {
    for (int k = 0; k < 8; ++k) at_[k] = reinterpret_cast<uint64_t>(operands[k]->base);
    for (int axis = shape.leading - 1; axis >= 0; --axis) {
      index_[axis] = row % shape.shape[axis];
      row /= shape.shape[axis];
      for (int k = 0; k < 8; ++k) {
        const bool moves = operands[k]->base != nullptr;
        steps_[axis][k] = moves ? static_cast<uint64_t>(operands[k]->strides[axis]) : 0;
      }
      at_ += steps_[axis] * static_cast<uint64_t>(index_[axis]);
    }
  }

  Row row() const {
    Row row;
    memcpy(&row, &at_, sizeof row);
    return row;
  }

  // The next `count` rows, as any eight addresses.
  template <class Eight>
  [[gnu::noinline]] void take(Eight* rows, int count) {
    static_assert(sizeof(Eight) == sizeof(Addresses));
    const int axis = shape_.leading - 1;
    if (axis < 0 || shape_.shape[axis] - index_[axis] <= count) {
      for (int k = 0; k < count; ++k, advance()) memcpy(&rows[k], &at_, sizeof at_);
      return;
    }
    // A register at a time: a step through memory takes as long as a short row.
    using Part = uint64_t __attribute__((vector_size(sizeof(F))));
    for (size_t byte = 0; byte < sizeof(Eight); byte += sizeof(Part)) {
      Part at, step;
      memcpy(&at, reinterpret_cast<const char*>(&at_) + byte, sizeof at);
      memcpy(&step, reinterpret_cast<const char*>(&steps_[axis]) + byte, sizeof step);
      for (int k = 0; k < count; ++k, at += step) memcpy(reinterpret_cast<char*>(&rows[k]) + byte, &at, sizeof at);
      memcpy(reinterpret_cast<char*>(&at_) + byte, &at, sizeof at);
    }
    index_[axis] += count;
  }

  void advance() {
    for (int axis = shape_.leading - 1; axis >= 0; --axis) {
      at_ += steps_[axis];
      if (++index_[axis] < shape_.shape[axis]) return;
      at_ -= steps_[axis] * static_cast<uint64_t>(index_[axis]);
      index_[axis] = 0;
    }
  }

 private:
  const RowShape& shape_;
  Addresses at_;  // unsigned, because strides may be negative
  Addresses steps_[kMaxLeading];
  int64_t index_[kMaxLeading];
};

// Asks for the lines that hold the `columns` elements kFetchAhead bytes behind p. They may lie behind the row: in the
// next one, as a rule, or nowhere, which a prefetch does not mind. Always inline: GCC takes a function that only
// prefetches for one without effect, and drops calls of it.
template <int columns, int element_bytes>
[[gnu::always_inline]] inline void fetch_ahead(const void* p) {
#pragma GCC unroll 4
  for (int byte = 0; byte < columns * element_bytes; byte += 64) {
    prefetch(reinterpret_cast<const void*>(reinterpret_cast<uintptr_t>(p) + kFetchAhead + byte));
  }
}

// The row as it stands in x.
template <class X>
struct PlainSource {
  static constexpr bool kAdds = false;
  static constexpr bool kFastSum = X::kNarrow;
  static constexpr bool kSplitSum = X::kType == RN_BF16;
  const typename X::Storage* x;

  PlainSource(const NormCall&, const Row& row) : x(reinterpret_cast<const typename X::Storage*>(row.x)) {}

  template <bool Split>
  Pair load(int64_t i) const {
    return X::template load<Split>(x + i);
  }
  template <bool Split>
  Pair load_part(int64_t i, int n) const {
    return RMSNORM_TARGET::load_part<X, Split>(x + i, n);
  }
  Quad load_wide(int64_t i) const { return X::load_wide(x + i); }
  // Asks for what lies kFetchAhead bytes behind columns i .. i + kColumns - 1.
  template <int kColumns>
  [[gnu::always_inline]] void fetch(int64_t i) const {
    fetch_ahead<kColumns, sizeof *x>(x + i);
  }
  bool residual_aligned(int64_t) const { return false; }
  template <bool Split>
  void store_residual(int64_t, Pair, bool) const {}
  template <bool Split>
  void store_residual_part(int64_t, Pair, int) const {}
};

// x + residual. `load` gives what the norm reads; store_residual writes what the caller keeps. The sum is formed again
// in each pass, so that residual_out can be residual.
template <class X>
struct SumSource {
  static constexpr bool kAdds = true;
  static constexpr bool kFastSum = X::kNarrow;
  static constexpr bool kSplitSum = X::kType == RN_BF16;
  const typename X::Storage* x;
  Any residual;
  char* residual_out;
  bool residual_out_is_f32;
  bool round;  // the norm reads the sum rounded to residual_out's type, which is X

  SumSource(const NormCall& call, const Row& row)
      : x(reinterpret_cast<const typename X::Storage*>(row.x)),
        residual{row.residual, call.residual.type},
        residual_out(row.residual_out),
        residual_out_is_f32(call.residual_out.type == RN_F32),
        round(!call.unrounded_sum && call.residual_out.type == X::kType) {}

  template <bool Split>
  Pair load(int64_t i) const {
    return rounded(sum<Split>(i));
  }
  template <bool Split>
  Pair load_part(int64_t i, int n) const {
    return rounded(add(RMSNORM_TARGET::load_part<X, Split>(x + i, n), load_any_part<Split>(residual, i, n)));
  }
  Quad load_wide(int64_t i) const { return widen(load<false>(i)); }

  template <int kColumns>
  [[gnu::always_inline]] void fetch(int64_t i) const {
    fetch_ahead<kColumns, sizeof *x>(x + i);
    if (residual.type == RN_F32) {
      fetch_ahead<kColumns, 4>(residual.p + i * 4);
    } else {
      fetch_ahead<kColumns, 2>(residual.p + i * 2);
    }
  }

  // Whether residual_out may be streamed from column i on.
  bool residual_aligned(int64_t i) const {
    const int64_t bytes = i * (residual_out_is_f32 ? 4 : 2);
    return reinterpret_cast<uintptr_t>(residual_out + bytes) % kVectorBytes == 0;
  }

  // v is what load(i) gave. An unrounded sum is rounded here.
  template <bool Split>
  void store_residual(int64_t i, Pair v, bool streamed) const {
    if (residual_out_is_f32) {
      store_f32<Split>(reinterpret_cast<float*>(residual_out) + i, v, streamed);
    } else if constexpr (X::kNarrow) {
      X::template store<Split>(reinterpret_cast<typename X::Storage*>(residual_out) + i, v, streamed);
    }
  }
  template <bool Split>
  void store_residual_part(int64_t i, Pair v, int n) const {
    if (residual_out_is_f32) {
      if constexpr (!Split) RMSNORM_TARGET::store_part<F32, Split>(reinterpret_cast<float*>(residual_out) + i, v, n);
    } else if constexpr (X::kNarrow) {
      RMSNORM_TARGET::store_part<X, Split>(reinterpret_cast<typename X::Storage*>(residual_out) + i, v, n);
    }
  }

 private:
  template <bool Split>
  Pair sum(int64_t i) const {
    return add(X::template load<Split>(x + i), load_any<Split>(residual, i));
  }
  Pair rounded(Pair v) const { return X::kNarrow && round ? X::round(v) : v; }

  // Split order is chosen only where every operand is bf16, so f32 is never stored in it.
  template <bool Split>
  static void store_f32(float* p, Pair v, bool streamed) {
    if constexpr (!Split) F32::store<false>(p, v, streamed);
  }
};

}  // namespace rmsnorm::RMSNORM_TARGET

#endif  // RMSNORM_CPU_ROW_INL_H_
