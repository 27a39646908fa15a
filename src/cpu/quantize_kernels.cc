// The quantising kernels of one target, compiled as kernels.cc is.
#include "cpu/quantize-inl.h"
#include "cpu/target.h"

namespace rmsnorm::RMSNORM_TARGET {

void quantize_rows(const QuantizeCall& call, int64_t begin, int64_t end) { QuantizeRows(call).run(begin, end); }

void quantize_array(uint8_t* out, const float* in, rn_type type, float scale, int64_t n) {
  for (int64_t i = 0; i < n; i += kBlock) {
    alignas(64) float from[kBlock] = {};
    uint8_t to[kBlock];
    const size_t count = static_cast<size_t>(n - i < kBlock ? n - i : kBlock);
    memcpy(from, in + i, count * sizeof(float));
    quantize_stretch(to, type, from, scale, kBlock, false);
    memcpy(out + i, to, count);
  }
}

}  // namespace rmsnorm::RMSNORM_TARGET
