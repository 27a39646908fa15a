// Every size at which the library changes its way of working. Those under "bits" fix the order of summation: changing
// one changes results in the last place. The others change speed only; the measurement that set each is in
// lab/kernels/notes.md.
#ifndef RMSNORM_CPU_THRESHOLDS_H_
#define RMSNORM_CPU_THRESHOLDS_H_

#include <stdint.h>

namespace rmsnorm {

// ---- bits ----

// Virtual lanes of a sum: element i of a chunk belongs to lane i mod this (16-bit rows: in the order that Split gives).
inline constexpr int kFastLanes = 64;  // f32 lanes, for squares of 16-bit elements
inline constexpr int kWideLanes = 32;  // f64 lanes

// Columns after which the lanes are folded into one f64. An f32 lane takes kChunk / kFastLanes = 32 additions, below
// the 64 that would cost a 16-bit result its last hundredth of an ulp.
inline constexpr int64_t kChunk = 2048;

// Rows up to this width are one segment; wider ones are cut into at most kMaxSegments, whose sums are added in order,
// so that threads can share the row.
inline constexpr int64_t kOneSegment = 65536;
inline constexpr int kMaxSegments = 64;

// Where f32 lanes start. A product of bf16 elements below 2^-134 is not exact in f32; beside this floor it vanishes,
// with fused multiply-add or without.
inline constexpr float kLaneFloor = 0x1p-106f;
// A 16-bit row is summed again in f64 if its f32 sum is below this for each chunk (then the floor might show), or not
// finite.
inline constexpr double kFastSumFloor = 0x1p-79;

// ... or above this, which only an infinity can reach.
inline constexpr double kLargestSum = 0x1p500;

// With inv outside [2^-100, 2^100] the second pass runs in f64, where nothing can overflow.
inline constexpr double kInvFloor = 0x1p-100;
inline constexpr double kInvCeiling = 0x1p100;
// So it does for rows below 2^-90, whose mean and products f32 could hold only as subnormals.
inline constexpr double kSmallestMeanSquare = 0x1p-180;

// LayerNorm sums again around the mean where mean^2 exceeds this multiple of the variance.
inline constexpr double kOffsetLimit = 0x1p10;

// LayerNorm and centring take the mean from an exact sum where an f64 sum may have lost what counts: where a mean is so
// near an element that little is left of their difference. The sums do not tell whether one is; but elements that large
// ones add up to have few bits. So it is where the mean, less itself rounded to 8 bits (0 is such a number), is below
// 2^-31 of the root mean square. Of bf16 rows of 128 normal numbers one in 170 is, of others fewer.
inline constexpr double kEightBits = 0x1p45 + 1;  // times f64, less the difference from it (Veltkamp 1968)
inline constexpr double kMeanReach = 0x1p-62;     // of the mean square

// Gated RMSNorm of f32 rows, gate first: a square that is a larger part of its sum is formed in f64. There is one at
// most.
inline constexpr double kLargeShare = 0.5;

// A backward row's second pass runs in f32 where the largest |g|, inv and c lie between these (c down to the square of
// the lower one). Its dweight and dbias are f32 sums for so many rows, then added to those in f64: an f32 sum of 16
// rows is off by at most 5e-7 of its terms.
inline constexpr double kGradientFloor = 0x1p-50;
inline constexpr double kGradientCeiling = 0x1p50;
inline constexpr int kFastRows = 16;

inline constexpr int64_t segment_columns(int64_t cols) {
  if (cols <= kOneSegment) return cols;
  const int64_t even = (cols + kMaxSegments - 1) / kMaxSegments;
  return (even + kChunk - 1) / kChunk * kChunk;
}

// ---- speed ----

// Bytes read and written per piece of work below which another thread is not worth waking.
inline constexpr int64_t kBytesPerThread = 1 << 20;

// Calls that move more than this many bytes write around the caches. Behind a large shared cache (Intel servers)
// writing around pays as soon as a call leaves the two L2 of 2 MiB. On AMD Zen the call alone gains from 8 MiB on; but
// what it writes is read next, and from an L3 that a few cores share that is four times faster: with one reading counted,
// both ways take as long at 12 to 16 MiB (lab/kernels/notes.md).
inline constexpr int64_t kStreamBytes = 4 << 20;
inline constexpr int64_t kStreamBytesZen = 12 << 20;

// Rows that are taken together: as many as make kGroupColumns columns, at most kMaxGroup.
inline constexpr int kMaxGroup = 8;
inline constexpr int64_t kGroupColumns = 2048;
inline constexpr int rows_per_group(int64_t cols) {
  return cols * kMaxGroup <= kGroupColumns ? kMaxGroup
         : cols >= kGroupColumns           ? 1
                                           : static_cast<int>(kGroupColumns / cols);
}

// The widest rows that go through group-inl.h: one chunk. Fewer rows than kFewestGrouped do not repay what is prepared.
inline constexpr int64_t kMaxGroupColumns = kChunk;
inline constexpr int64_t kFewestGrouped = 4;

// 16-bit rows of LayerNorm that do not start on a vector's boundary go around the caches from here on: shorter ones
// wait for arithmetic, and joining their lines is more of it.
inline constexpr int64_t kJoinedColumns = 512;

// Rows of the backward that do not start on a vector's boundary go around the caches from here on: their first and last
// columns are written apart.
inline constexpr int64_t kApartColumns = 2048;

// The widest rows whose sum with the residual is kept in the cache between the two passes.
inline constexpr int64_t kMaxKeptColumns = 8192;

// How far ahead of its reading a pass asks for memory.
inline constexpr int kFetchAhead = 2048;

// Rows at least this wide may be shared by several threads.
inline constexpr int64_t kSharedRowColumns = 131072;

}  // namespace rmsnorm

#endif  // RMSNORM_CPU_THRESHOLDS_H_
