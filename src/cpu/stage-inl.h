// Stretches of rows as f32, in a buffer that stays in the L1 cache. Operations that move more than they compute work on
// these, and are compiled once instead of for every combination of types: from memory it costs nothing.
#ifndef RMSNORM_CPU_STAGE_INL_H_
#define RMSNORM_CPU_STAGE_INL_H_

#include "core/call.h"
#include "cpu/moments-inl.h"
#include "cpu/simd.h"
#include "cpu/thresholds.h"

namespace rmsnorm::RMSNORM_TARGET {

// Columns of a stretch: a chunk of the sums.
inline constexpr int64_t kStage = kChunk;

// A stretch, rounded up to whole blocks, so that loops over it know no remainder; and a block more, for loops that do
// not begin with it.
struct alignas(64) Stage {
  float at[kStage + kBlock];
};

inline int64_t whole_blocks(int64_t n) { return (n + kBlock - 1) / kBlock * kBlock; }

template <class T>
[[gnu::noinline]] void widen_into(float* to, const char* from, int64_t n) {
  const auto* in = reinterpret_cast<const typename T::Storage*>(from);
  int64_t i = 0;
  for (; i + kPair <= n; i += kPair) F32::store<false>(to + i, T::template load<false>(in + i), false);
  if (i < n) F32::store<false>(to + i, load_part<T, false>(in + i, static_cast<int>(n - i)), false);
  for (i = (n + kPair - 1) / kPair * kPair; i < whole_blocks(n); i += kPair) {
    F32::store<false>(to + i, splat_pair(0.0f), false);
  }
}

// n <= kStage elements at p, exactly, as f32: in the buffer, with zeros up to a whole block, or where they are unless
// `copied`.
inline const float* stage(Stage& buffer, const char* p, rn_type type, int64_t n, bool copied = false) {
  switch (type) {
    case RN_F16:
      widen_into<F16>(buffer.at, p, n);
      break;
    case RN_BF16:
      widen_into<BF16>(buffer.at, p, n);
      break;
    default:
      if (n % kBlock == 0 && !copied) return reinterpret_cast<const float*>(p);
      widen_into<F32>(buffer.at, p, n);
  }
  return buffer.at;
}

template <class T>
[[gnu::noinline]] void narrow_into(char* to, const float* from, int64_t n, bool streamed) {
  auto* out = reinterpret_cast<typename T::Storage*>(to);
  int64_t i = 0;
  const uintptr_t misaligned = reinterpret_cast<uintptr_t>(to) % kVectorBytes;
  if (streamed && misaligned != 0) {
    const auto head = static_cast<int64_t>((kVectorBytes - misaligned) / sizeof *out);
    i = head < n ? head : n;
    store_part<T, false>(out, load_part<F32, false>(from, static_cast<int>(i)), static_cast<int>(i));
  }
  for (; i + kPair <= n; i += kPair) T::template store<false>(out + i, F32::load<false>(from + i), streamed);
  if (i < n) {
    const int rest = static_cast<int>(n - i);
    store_part<T, false>(out + i, load_part<F32, false>(from + i, rest), rest);
  }
}

// Rounds n elements to `type` and writes them to p; n <= kStage.
inline void unstage(char* p, rn_type type, const float* from, int64_t n, bool streamed) {
  switch (type) {
    case RN_F16:
      return narrow_into<F16>(p, from, n, streamed);
    case RN_BF16:
      return narrow_into<BF16>(p, from, n, streamed);
    default:
      return narrow_into<F32>(p, from, n, streamed);
  }
}

// A staged stretch as a Source of sums (moments-inl.h).
struct StagedSource {
  static constexpr bool kFastSum = false;
  static constexpr bool kSplitSum = false;
  const float* x;

  template <bool Split>
  Pair load(int64_t i) const {
    return F32::load<Split>(x + i);
  }
  template <bool Split>
  Pair load_part(int64_t i, int n) const {
    return RMSNORM_TARGET::load_part<F32, Split>(x + i, n);
  }
  template <int kColumns>
  void fetch(int64_t) const {}
  Quad load_wide(int64_t i) const {
    constexpr int kHalf = kLanes / 2;
    return {{RMSNORM_TARGET::load_wide(x + i), RMSNORM_TARGET::load_wide(x + i + kHalf),
             RMSNORM_TARGET::load_wide(x + i + 2 * kHalf), RMSNORM_TARGET::load_wide(x + i + 3 * kHalf)}};
  }
};

// A parameter plus its offset, as f32: kept from row to row where it fits and is the same memory. Absent: ones.
class StagedParameter {
 public:
  StagedParameter(rn_type type, float offset) : type_(type), offset_(offset) {}

  // Columns i .. i+n-1 (n <= kStage, i a multiple of kStage) of the parameter at p, which has `cols` columns.
  const float* at(const char* p, int64_t cols, int64_t i, int64_t n) {
    if (cols > kHeld) {
      fill(held_, p, i, n);
      return held_;
    }
    if (p != current_ || !filled_) {
      for (int64_t k = 0; k < cols; k += kStage) fill(held_ + k, p, k, cols - k < kStage ? cols - k : kStage);
      current_ = p;
      filled_ = true;
    }
    return held_ + i;
  }

 private:
  static constexpr int64_t kHeld = 2 * kStage;

  void fill(float* to, const char* p, int64_t i, int64_t n) const {
    if (p == nullptr) {
      for (int64_t k = 0; k < whole_blocks(n); k += kLanes) store(to + k, splat(1.0f));
      return;
    }
    const char* from = p + i * (type_ == RN_F32 ? 4 : 2);
    switch (type_) {
      case RN_F16:
        widen_into<F16>(to, from, n);
        break;
      case RN_BF16:
        widen_into<BF16>(to, from, n);
        break;
      default:
        widen_into<F32>(to, from, n);
    }
    if (offset_ == 0) return;
    const F offset = splat(offset_);
    for (int64_t k = 0; k < whole_blocks(n); k += kLanes) store(to + k, add(load(to + k), offset));
  }

  rn_type type_;
  float offset_;
  bool filled_ = false;
  const char* current_ = nullptr;
  alignas(64) float held_[kHeld + kBlock];
};

// The addresses of one row in each of N operands; null where absent. Rows follow each other without a multiplication.
template <int N>
class Walk {
 public:
  Walk(const RowShape& shape, const Operand* const (&operands)[N], int64_t row) : shape_(shape) {
    for (int k = 0; k < N; ++k) at_[k] = reinterpret_cast<uint64_t>(operands[k]->base);
    for (int axis = shape.leading - 1; axis >= 0; --axis) {
      index_[axis] = row % shape.shape[axis];
      row /= shape.shape[axis];
      for (int k = 0; k < N; ++k) {
        const bool moves = operands[k]->base != nullptr;
        steps_[axis][k] = moves ? static_cast<uint64_t>(operands[k]->strides[axis]) : 0;
        at_[k] += steps_[axis][k] * static_cast<uint64_t>(index_[axis]);
      }
    }
  }

  char* operator[](int k) const { return reinterpret_cast<char*>(at_[k]); }

  void advance() {
    for (int axis = shape_.leading - 1; axis >= 0; --axis) {
      for (int k = 0; k < N; ++k) at_[k] += steps_[axis][k];
      if (++index_[axis] < shape_.shape[axis]) return;
      for (int k = 0; k < N; ++k) at_[k] -= steps_[axis][k] * static_cast<uint64_t>(index_[axis]);
      index_[axis] = 0;
    }
  }

 private:
  const RowShape& shape_;
  uint64_t at_[N];  // unsigned, because strides may be negative
  uint64_t steps_[kMaxLeading][N];
  int64_t index_[kMaxLeading];
};

}  // namespace rmsnorm::RMSNORM_TARGET

#endif  // RMSNORM_CPU_STAGE_INL_H_
