// The norm of Q and K with rotary embedding on one target, compiled as kernels.cc is.
#include "cpu/qk_norm_rope-inl.h"
#include "cpu/target.h"

namespace rmsnorm::RMSNORM_TARGET {

void qk_norm_rope(const QkNormRopeCall& call, int64_t begin, int64_t end) { QkNormRopeTokens(call).run(begin, end); }

}  // namespace rmsnorm::RMSNORM_TARGET
