// The backward kernels of one target, compiled as kernels.cc is.
#include "cpu/backward-inl.h"
#include "cpu/target.h"

namespace rmsnorm::RMSNORM_TARGET {

void backward_block(const BackwardCall& call, int64_t block) {
  const int64_t height = rows_per_block(call.rows);
  const int64_t begin = block * height;
  const int64_t end = call.rows - begin < height ? call.rows : begin + height;
  if (call.norm == Norm::kLayer) {
    GradientBlock<true>(call, block).run(begin, end);
  } else {
    GradientBlock<false>(call, block).run(begin, end);
  }
}

}  // namespace rmsnorm::RMSNORM_TARGET
