// The kernels of gated RMSNorm and its backward for one target, compiled as kernels.cc is.
#include "cpu/gated_rms_norm-inl.h"
#include "cpu/gated_rms_norm_backward-inl.h"
#include "cpu/target.h"

namespace rmsnorm::RMSNORM_TARGET {

namespace {

template <class T>
void rows_of(const GatedCall& call, int64_t begin, int64_t end) {
  if (call.round_norm) {
    GatedRows<T, T>(call).run(begin, end);
  } else {
    GatedRows<T, F32>(call).run(begin, end);
  }
}

}  // namespace

void gated_rows(const GatedCall& call, int64_t begin, int64_t end) {
  const rn_type type = call.x.type;
  if (call.gate.type == type && call.out.type == type) {
    if (type == RN_F16) return rows_of<F16>(call, begin, end);
    if (type == RN_BF16) return rows_of<BF16>(call, begin, end);
  }
  if (!call.round_norm) return GatedRows<F32, F32>(call).run(begin, end);
  if (type == RN_F16) return GatedRows<F32, F16>(call).run(begin, end);
  GatedRows<F32, BF16>(call).run(begin, end);
}

void gated_backward_block(const GatedBackwardCall& call, int64_t block) {
  const int64_t height = rows_per_block(call.rows);
  const int64_t begin = block * height;
  const int64_t end = call.rows - begin < height ? call.rows : begin + height;
  if (call.gate_first) {
    GatedGradientBlock<true>(call, block).run(begin, end);
  } else {
    GatedGradientBlock<false>(call, block).run(begin, end);
  }
}

void silu(float* out, const float* gate, int64_t n) {
  int64_t i = 0;
  for (; i + kPair <= n; i += kPair) {
    Pair v[] = {F32::load<false>(gate + i)};
    silu_of(v);
    F32::store<false>(out + i, v[0], false);
  }
  if (i < n) {
    const int rest = static_cast<int>(n - i);
    Pair v[] = {load_part<F32, false>(gate + i, rest)};
    silu_of(v);
    store_part<F32, false>(out + i, v[0], rest);
  }
}

}  // namespace rmsnorm::RMSNORM_TARGET
