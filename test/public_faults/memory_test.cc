// Public faults of group N about memory: what a call takes beside its operands. Replaces malloc.
#include <sys/resource.h>

#include <cstdlib>

#include "public_faults/rows.h"
#include "support/allocations.h"

namespace rmsnorm::test {
namespace {

using check::Case;
using check::Op;

std::int64_t peak_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss * 1024;
}

// Full-size f32 copies of 16-bit activations appeared around the norm.
TEST(PublicFaults, BL57_a_call_takes_no_memory_beside_its_operands) {
  const bool full = std::getenv("RMSNORM_TEST_LONG") != nullptr;
  const std::int64_t rows = full ? 8192 : 1024, cols = 8192;
  const std::int64_t matrix_bytes = rows * cols * 2;
  Case c = check::make_case(Op::kAddLayerNorm, RN_BF16, rows, cols);  // its operands serve every operation
  c.weight = c.bias = RN_F32;
  c.values = reference::Values::kWhole;  // quickly made
  c.threads = 0;
  const check::Operands operands(c);
  // Saved state is one f32 for each row, two for LayerNorm, and no copy of x.
  EXPECT_EQ(operands.inv.type(), RN_F32);
  EXPECT_EQ(operands.inv.rows() * operands.inv.cols(), rows);
  EXPECT_EQ(operands.mean.rows() * operands.mean.cols(), rows);
  bool first_call = true;
  for (const Op op : check::kAllOps) {
    c.op = op;
    const Allocations before = allocations();
    const std::int64_t peak_before = peak_bytes();
    const rn_status status = check::call(c, operands);
    const std::int64_t peak = peak_bytes() - peak_before;
    const Allocations after = allocations();
    ASSERT_EQ(status, RN_OK) << rn_last_error();
    EXPECT_LT(peak, matrix_bytes / 8) << check::name_of(op);
    if (first_call) {  // of the process: it makes the pool
      EXPECT_LT(after.bytes - before.bytes, cols * 8) << check::name_of(op);
    } else {
      EXPECT_EQ(after.count, before.count) << check::name_of(op);
    }
    first_call = false;
  }
}

}  // namespace
}  // namespace rmsnorm::test
