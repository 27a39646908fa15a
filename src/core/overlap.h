// Whether two strided regions of memory share a byte.
#ifndef RMSNORM_CORE_OVERLAP_H_
#define RMSNORM_CORE_OVERLAP_H_

#include <cstdint>

#include "core/call.h"

namespace rmsnorm {

// `bytes` contiguous bytes at base + sum of i_k * strides[k], for each index 0 <= i_k < shape[k] (sizes >= 1).
// Spans from first to last byte are below 2^60.
struct Region {
  uintptr_t base;
  int64_t bytes;
  int axes;  // at most kMaxLeading
  const int64_t* shape;
  const int64_t* strides;  // bytes
};

enum class Overlap : uint8_t {
  kNone,
  kSome,
  kUndecided,  // the search met its limit
};

// A bounded search over differences of indices; no step allocates. To decide for any strides is as hard as integer
// programming; layouts that occur, packed, padded, permuted, reversed or interleaved, are decided in a few steps.
Overlap overlap(const Region& a, const Region& b);

// Whether two different indices of `a` share a byte.
Overlap overlap_with_itself(const Region& a);

// Refuses a call, collapsed and with rows, in which an output provably meets itself or another operand, unless out is x
// itself or residual_out is residual itself.
rn_status check_overlap(const char* function, const char* inv_name, const NormCall& call);

}  // namespace rmsnorm

#endif  // RMSNORM_CORE_OVERLAP_H_
