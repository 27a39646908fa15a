// Runs a checked channel norm: tiles of pixels or groups of channels on threads.
#ifndef RMSNORM_CPU_CHANNELS_H_
#define RMSNORM_CPU_CHANNELS_H_

#include "core/channel_call.h"

namespace rmsnorm {

rn_status run_channels(ChannelCall call, const rn_execution& execution);

// f64 elements: one pixel over all channels, or one group of one image. sums: [2][channels], what dweight and dbias
// get, added to; may be null.
void f64_pixel(const ChannelCall& call, int64_t image, int64_t pixel, double* sums);
void f64_group(const ChannelCall& call, int64_t image, int64_t group, ChannelSums* sums);

}  // namespace rmsnorm

#endif  // RMSNORM_CPU_CHANNELS_H_
