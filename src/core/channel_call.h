// A checked call of a channel norm. Plain data, like call.h.
#ifndef RMSNORM_CORE_CHANNEL_CALL_H_
#define RMSNORM_CORE_CHANNEL_CALL_H_

#include "core/call.h"

namespace rmsnorm {

// Element (n, c, i0 .., column) starts at base + n * image + c * channel + sum of i_k * lines[k] + column * size.
struct ChannelOperand {
  char* base;  // null where absent
  rn_type type;
  int64_t image, channel;      // bytes
  int64_t lines[kMaxLeading];  // bytes
};

struct ChannelCall {
  int64_t images, channels, pixels;
  int64_t groups;  // 0: over the channels of each pixel
  // The pixels lie in lines of `line` consecutive ones; the axes before have sizes `shape`. Dense: one line.
  int axes;
  int64_t shape[kMaxLeading];
  int64_t line;

  bool backward;
  bool epsilon_outside;
  bool before_weight;
  bool accumulate;
  bool stream;
  double epsilon, weight_offset;
  ChannelOperand out, x, dy;  // out: dx of a backward
  Operand weight, bias, dweight, dbias;
  // Channels of pixels: [blocks][2][channels], what the blocks add to dweight and dbias; null where neither is wanted.
  // Groups: [images][channels], the sums of each channel.
  double* scratch;
};

// What the pixels of one channel of one image add up to.
struct ChannelSums {
  double squares, products, gradients;  // x^2, dy x, dy
};

// The numbers that a group's elements are multiplied by: out = inv x .., dx = inv g - slope x.
struct GroupScale {
  double inv, slope;
};

// Pixels that are taken together over all channels, so that the second pass finds them in the cache: as many as make
// kTileElements. They fix how dweight is summed, and follow from the shape alone.
inline constexpr int64_t kTileElements = 131072;
inline constexpr int64_t kMostTilePixels = 1024;
inline constexpr int64_t kLeastTilePixels = 64;

inline constexpr int64_t tile_pixels(int64_t channels) {
  const int64_t even = kTileElements / channels / kLeastTilePixels * kLeastTilePixels;
  return even < kLeastTilePixels ? kLeastTilePixels : even > kMostTilePixels ? kMostTilePixels : even;
}
inline constexpr int64_t tiles_per_image(int64_t channels, int64_t pixels) {
  return (pixels + tile_pixels(channels) - 1) / tile_pixels(channels);
}

// dweight and dbias are summed over blocks of tiles, then over the blocks in order.
inline constexpr int64_t kMostTileBlocks = 64;
inline constexpr int64_t tile_blocks(int64_t tiles) { return tiles < kMostTileBlocks ? tiles : kMostTileBlocks; }

// Channels of a group are summed in at most so many parts, then the parts in order, so that threads can share a group.
inline constexpr int64_t kMostGroupParts = 64;
inline constexpr int64_t channels_per_part(int64_t channels) {
  return (channels + kMostGroupParts - 1) / kMostGroupParts;
}

}  // namespace rmsnorm

#endif  // RMSNORM_CORE_CHANNEL_CALL_H_
