// Whether two strided regions of memory share a byte.
#ifndef RMSNORM_CORE_OVERLAP_H_
#define RMSNORM_CORE_OVERLAP_H_

#include <cstdint>
#include <span>

#include "core/call.h"

namespace rmsnorm {

// Leading axes, and one of what a row has several of.
inline constexpr int kMaxAxes = kMaxLeading + 1;

// `bytes` contiguous bytes at base + sum of i_k * strides[k], for each index 0 <= i_k < shape[k] (sizes >= 1).
// Spans from first to last byte are below 2^60.
struct Region {
  uintptr_t base;
  int64_t bytes;
  int axes;  // at most kMaxAxes
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

// An operand and the memory it lays claim to: `columns` elements in each row.
struct Claim {
  const char* name;
  const Operand* operand;  // one without a base claims nothing
  int64_t columns;
  const Operand* alias = nullptr;  // of an output: the input whose place it may take, with equal type and strides
  bool shared = false;             // one row of elements, whatever the rows of x
  int64_t count = 1;               // so many times in each row,
  int64_t apart = 0;               // so many bytes apart
};

inline constexpr int kMaxClaims = 16;

// Refuses a call, collapsed and with rows, in which an output provably meets itself or another operand.
rn_status check_overlap(const char* function, const RowShape& shape, std::span<const Claim> outputs,
                        std::span<const Claim> inputs);

}  // namespace rmsnorm

#endif  // RMSNORM_CORE_OVERLAP_H_
