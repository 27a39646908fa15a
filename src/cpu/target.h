// One instruction set's kernels, as the rest of the library sees them.
#ifndef RMSNORM_CPU_TARGET_H_
#define RMSNORM_CPU_TARGET_H_

#include <stddef.h>
#include <stdint.h>

#include "core/backward_call.h"
#include "core/call.h"
#include "core/channel_call.h"
#include "core/gated_rms_norm_call.h"
#include "core/qk_norm_rope_call.h"
#include "core/quantize_call.h"
#include "core/slice_sum_call.h"

namespace rmsnorm {

// Sums of one segment or row. `square` is of x, or of x - centre in a centred pass.
struct Moments {
  double sum;
  double square;
};

// How a pass over a row sums.
enum class SumMode : uint8_t {
  kFast,    // squares of 16-bit values in f32 lanes; `sum` is not formed
  kWide,    // everything in f64 lanes
  kCentre,  // f64 lanes of x - centre and its square
  kExact,   // not sums, but the mean from an exact sum, and what f64 leaves over of it; `centre` is the sum in f64
};

// What the second pass needs to know about its row.
struct RowScale {
  double mean;  // 0 for RMSNorm
  double inv;
  bool wide;              // the second pass runs in f64
  double correction = 0;  // what an f64 mean leaves over; the second pass takes it away, too
};

// Sums a row in the given mode, by whatever threads.
using SegmentSum = Moments (*)(void* data, SumMode mode, double centre);

struct Target {
  const char* name;
  const char* family;  // the name that also chooses this one when no exact match is supported
  const char* description;
  bool (*supported)();

  // Normalises rows begin .. end-1.
  void (*rows)(const NormCall& call, int64_t begin, int64_t end);

  // Normalises slices of rows, whose statistics are given.
  void (*slices)(const NormCall& call, int64_t begin, int64_t end);

  // The pieces of one long row, for threads that share it: the sums of one segment; the row's scale, given something
  // that sums the whole row; and the second pass over columns begin .. end-1 (begin a multiple of kChunk).
  Moments (*segment_sums)(const NormCall& call, int64_t row, int64_t segment, SumMode mode, double centre);
  RowScale (*scale)(const NormCall& call, SegmentSum sum, void* data);
  void (*apply)(const NormCall& call, int64_t row, int64_t begin, int64_t end, const RowScale& scale);

  // One block of rows of a backward norm: gradients of x, and the block's sums for those of the parameters.
  void (*backward_block)(const BackwardCall& call, int64_t block);

  // Rows begin .. end-1 of RMSNorm with a quantised output.
  void (*quantize_rows)(const QuantizeCall& call, int64_t begin, int64_t end);

  // Tokens begin .. end-1 of the norm of Q and K with rotary embedding.
  void (*qk_norm_rope)(const QkNormRopeCall& call, int64_t begin, int64_t end);

  // Rows begin .. end-1 of gated RMSNorm, and one block of rows of its backward.
  void (*gated_rows)(const GatedCall& call, int64_t begin, int64_t end);
  void (*gated_backward_block)(const GatedBackwardCall& call, int64_t block);

  // The sums of slices, rows begin .. end-1.
  void (*slice_sums)(const SliceSumCall& call, int64_t begin, int64_t end);

  // Images (channel_kernels.cc): tiles begin .. end-1, all channels, whose gradients' sums are added to `sums`; the sums
  // of one channel of one image; the factor of one channel; channels begin .. end-1 of one image with a known scale.
  void (*channel_tiles)(const ChannelCall& call, int64_t begin, int64_t end, double* sums);
  ChannelSums (*channel_sums)(const ChannelCall& call, int64_t image, int64_t channel);
  double (*channel_factor)(const ChannelCall& call, int64_t channel);
  void (*apply_group)(const ChannelCall& call, int64_t image, int64_t begin, int64_t end, const GroupScale& scale);
  void (*end_stream)();  // after apply_group with call.stream: orders its stores before what is told to other threads

  // Conversions of n elements, for tests and tools: f16 or bf16 to f32 and back, round to nearest even.
  void (*widen)(float* out, const uint16_t* in, rn_type type, int64_t n);
  void (*narrow)(uint16_t* out, const float* in, rn_type type, int64_t n);

  // in / scale as i8, f8e4m3 or f8e5m2, for tests.
  void (*quantize)(uint8_t* out, const float* in, rn_type type, float scale, int64_t n);

  // silu of n elements, for tests.
  void (*silu)(float* out, const float* gate, int64_t n);

  // Copies with stores that bypass the caches: the yardstick of the benchmarks.
  void (*stream_copy)(void* out, const void* in, size_t bytes);
};

// All targets of this build, best first.
struct TargetList {
  const Target* const* targets;
  int count;
};
TargetList all_targets();

// The target in use; null if RMSNORM_TARGET names one that cannot run (then the message is set).
const Target* active_target();

}  // namespace rmsnorm

#endif  // RMSNORM_CPU_TARGET_H_
