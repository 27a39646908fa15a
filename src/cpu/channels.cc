#include "cpu/channels.h"

#include <algorithm>
#include <cmath>

#include "cpu/fp_environment.h"
#include "cpu/parameters.h"
#include "cpu/rows.h"
#include "cpu/target.h"
#include "cpu/threads.h"

namespace rmsnorm {

namespace {

void store_gradient(const ChannelCall& call, const Operand& gradient, int64_t channel, double sum) {
  if (gradient.base == nullptr) return;
  store_element(gradient, channel, call.accumulate ? load_element(gradient, channel) + sum : sum);
}

// ---- Over the channels of each pixel ----

struct Tiles {
  const ChannelCall& call;
  const Target& target;

  int64_t count() const { return call.images * tiles_per_image(call.channels, call.pixels); }

  void run(int64_t begin, int64_t end, double* sums) const {
    if (call.x.type != RN_F64) return target.channel_tiles(call, begin, end, sums);
    const int64_t tiles = tiles_per_image(call.channels, call.pixels), width = tile_pixels(call.channels);
    for (int64_t tile = begin; tile < end; ++tile) {
      const int64_t first = tile % tiles * width, last = std::min(first + width, call.pixels);
      for (int64_t pixel = first; pixel < last; ++pixel) f64_pixel(call, tile / tiles, pixel, sums);
    }
  }

  static void range(const void* data, int64_t begin, int64_t end) {
    static_cast<const Tiles*>(data)->run(begin, end, nullptr);
  }

  static void block(void* data, int64_t block) {
    const auto& self = *static_cast<const Tiles*>(data);
    double* sums = self.call.scratch == nullptr ? nullptr : self.call.scratch + 2 * block * self.call.channels;
    if (sums != nullptr) std::fill_n(sums, 2 * self.call.channels, 0.0);
    const Range tiles = part_of(self.count(), tile_blocks(self.count()), block);
    self.run(tiles.begin, tiles.end, sums);
  }

  void add_blocks() const {
    const int64_t blocks = tile_blocks(count());
    for (int64_t c = 0; c < call.channels; ++c) {
      double weight = 0, bias = 0;
      for (int64_t block = 0; block < blocks; ++block) {
        weight += call.scratch[2 * block * call.channels + c];
        bias += call.scratch[(2 * block + 1) * call.channels + c];
      }
      store_gradient(call, call.dweight, c, weight);
      store_gradient(call, call.dbias, c, bias);
    }
  }
};

// ---- Over groups of channels ----

GroupScale group_scale(const ChannelCall& call, const ChannelSums& total) {
  const double count = static_cast<double>(call.channels / call.groups) * static_cast<double>(call.pixels);
  const double mean = total.squares / count, root = std::sqrt(mean);
  const double inv = call.epsilon_outside ? 1 / (root + call.epsilon) : 1 / std::sqrt(mean + call.epsilon);
  const double share = inv * inv * (total.products / count);
  const double slope = !call.epsilon_outside ? share * inv : root == 0 ? 0 : share / root;
  return {inv, slope};
}

// One group of one image. Its channels are summed in parts, the parts added in order, whoever sums them.
class Group {
 public:
  Group(const ChannelCall& call, const Target& target, int64_t row)
      : call_(call),
        target_(target),
        image_(row / call.groups),
        group_(row % call.groups),
        width_(call.channels / call.groups) {}

  void run() {
    if (call_.x.type == RN_F64) return f64_group(call_, image_, group_, sums_at(group_ * width_));
    for (int64_t part = 0; part < parts(); ++part) sum(this, part);
    find_scale();
    apply_range(0, width_);
  }

  void run_shared(const rn_execution& execution, int64_t pieces) {
    if (call_.x.type == RN_F64) return run();
    run_tasks(execution, parts(), sum, this);
    find_scale();
    pieces_ = std::min(pieces, width_);
    run_tasks(execution, pieces_, apply, this);
  }

 private:
  int64_t parts() const {
    const int64_t each = channels_per_part(width_);
    return (width_ + each - 1) / each;
  }

  ChannelSums* sums_at(int64_t channel) const {
    return call_.scratch == nullptr ? nullptr
                                    : reinterpret_cast<ChannelSums*>(call_.scratch) + image_ * call_.channels + channel;
  }

  static void sum(void* data, int64_t part) {
    auto& self = *static_cast<Group*>(data);
    const int64_t each = channels_per_part(self.width_);
    ChannelSums total = {0, 0, 0};
    for (int64_t k = part * each; k < std::min((part + 1) * each, self.width_); ++k) {
      const int64_t channel = self.group_ * self.width_ + k;
      const ChannelSums sums = self.target_.channel_sums(self.call_, self.image_, channel);
      total.squares += sums.squares;
      total.products += self.call_.backward ? self.target_.channel_factor(self.call_, channel) * sums.products : 0;
      if (ChannelSums* kept = self.sums_at(channel)) *kept = sums;
    }
    self.parts_[part] = total;
  }

  void find_scale() {
    ChannelSums total = {0, 0, 0};
    for (int64_t part = 0; part < parts(); ++part) {
      total.squares += parts_[part].squares;
      total.products += parts_[part].products;
    }
    scale_ = group_scale(call_, total);
  }

  static void apply(void* data, int64_t piece) {
    auto& self = *static_cast<Group*>(data);
    const Range range = part_of(self.width_, self.pieces_, piece);
    self.apply_range(range.begin, range.end);
    if (self.call_.stream) self.target_.end_stream();
  }

  void apply_range(int64_t begin, int64_t end) {
    const int64_t first = group_ * width_;
    target_.apply_group(call_, image_, first + begin, first + end, scale_);
    for (int64_t k = begin; k < end; ++k) {
      if (ChannelSums* sums = sums_at(first + k)) sums->products *= scale_.inv;  // dy xhat
    }
  }

  const ChannelCall& call_;
  const Target& target_;
  int64_t image_, group_, width_, pieces_ = 1;
  GroupScale scale_ = {0, 0};
  ChannelSums parts_[kMostGroupParts];
};

struct Groups {
  const ChannelCall& call;
  const Target& target;

  static void range(const void* data, int64_t begin, int64_t end) {
    const auto& self = *static_cast<const Groups*>(data);
    for (int64_t row = begin; row < end; ++row) Group(self.call, self.target, row).run();
    if (self.call.stream) self.target.end_stream();
  }

  void add_images() const {
    const auto* sums = reinterpret_cast<const ChannelSums*>(call.scratch);
    for (int64_t c = 0; c < call.channels; ++c) {
      double weight = 0, bias = 0;
      for (int64_t image = 0; image < call.images; ++image) {
        weight += sums[image * call.channels + c].products;
        bias += sums[image * call.channels + c].gradients;
      }
      store_gradient(call, call.dweight, c, weight);
      store_gradient(call, call.dbias, c, bias);
    }
  }
};

int64_t element_bytes(const ChannelCall& call) {
  int64_t bytes = 0;
  for (const ChannelOperand* operand : {&call.out, &call.x, &call.dy}) {
    if (operand->base != nullptr) bytes += static_cast<int64_t>(rn_type_size(operand->type));
  }
  return bytes;
}

}  // namespace

rn_status run_channels(ChannelCall call, const rn_execution& execution) {
  const bool gradients = call.dweight.base != nullptr || call.dbias.base != nullptr;
  if (call.images == 0 || call.pixels == 0) {
    for (int64_t c = 0; c < call.channels && gradients && !call.accumulate; ++c) {
      store_gradient(call, call.dweight, c, 0);
      store_gradient(call, call.dbias, c, 0);
    }
    return RN_OK;
  }
  const Target* target = active_target();
  if (target == nullptr) return RN_UNAVAILABLE;
  const FloatingPointGuard guard;
  const int64_t bytes = total_bytes(call.images * call.channels, element_bytes(call) * call.pixels);
  call.stream = writes_around_caches(bytes);
  const int64_t pieces = pieces_for(execution, bytes);
  if (call.groups == 0) {
    Tiles tiles = {call, *target};
    if (!call.backward) {
      run_row_ranges(execution, tiles.count(), pieces, Tiles::range, &tiles);
      return RN_OK;
    }
    run_pieces(execution, pieces, tile_blocks(tiles.count()), Tiles::block, &tiles);
    if (gradients) tiles.add_blocks();
    return RN_OK;
  }
  const Groups groups = {call, *target};
  const int64_t rows = call.images * call.groups;
  if (pieces > rows && call.channels > call.groups) {
    for (int64_t row = 0; row < rows; ++row) Group(call, *target, row).run_shared(execution, pieces);
  } else {
    run_row_ranges(execution, rows, pieces, Groups::range, &groups);
  }
  if (gradients) groups.add_images();
  return RN_OK;
}

}  // namespace rmsnorm
