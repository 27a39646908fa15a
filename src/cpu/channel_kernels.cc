// Norms of images on one target, compiled as kernels.cc is. All arithmetic is f64, vectorised over pixels: from memory
// it costs nothing, and no row needs a second way. Pixels are staged as f32 (stage-inl.h).
#include "core/channel_call.h"
#include "cpu/moments-inl.h"
#include "cpu/stage-inl.h"

namespace rmsnorm::RMSNORM_TARGET {

namespace {

constexpr int kHalf = kLanes / 2;
constexpr int kTogether = 4;           // channels that share one load of a pixel's sum
constexpr int64_t kStreamedRun = 512;  // bytes; shorter runs are written through the caches
static_assert(kMostTilePixels <= kStage);

// Where the elements lie that are read next: fetched while this stretch is written.
struct Ahead {
  const char* p;
  int bytes;
};

int64_t bytes(rn_type type) { return type == RN_F32 ? 4 : 2; }

// The address of pixel `pixel` of a channel, and how many lie behind it in its line.
struct Place {
  char* at;
  int64_t left;
};
inline Place place(const ChannelCall& call, const ChannelOperand& operand, char* channel, int64_t pixel) {
  const int64_t column = pixel % call.line;
  int64_t row = pixel / call.line;
  char* at = channel + column * bytes(operand.type);
  for (int axis = call.axes - 1; axis >= 0; --axis) {
    at += row % call.shape[axis] * operand.lines[axis];
    row /= call.shape[axis];
  }
  return {at, call.line - column};
}

inline char* channel_at(const ChannelOperand& operand, int64_t image, int64_t channel) {
  return operand.base + image * operand.image + channel * operand.channel;
}

// Pixels pixel .. pixel+n-1 of one channel as f32, with zeros up to a whole block.
inline const float* gather(const ChannelCall& call, const ChannelOperand& operand, Stage& buffer, int64_t image,
                           int64_t channel, int64_t pixel, int64_t n) {
  char* const base = channel_at(operand, image, channel);
  if (call.axes == 0) return stage(buffer, base + pixel * bytes(operand.type), operand.type, n);
  Stage piece;
  for (int64_t i = 0; i < n;) {
    const Place from = place(call, operand, base, pixel + i);
    const int64_t count = from.left < n - i ? from.left : n - i;
    const float* values = stage(piece, from.at, operand.type, count);
    memcpy(buffer.at + i, values, static_cast<size_t>(count) * sizeof(float));
    i += count;
  }
  for (int64_t i = n; i < whole_blocks(n); ++i) buffer.at[i] = 0;
  return buffer.at;
}

// Whole lines of the cache go around it; the ends of a run, whose lines other runs share, do not: half a line written
// around the caches costs as much as several lines.
inline void write_run(const ChannelCall& call, char* to, rn_type type, const float* from, int64_t n) {
  constexpr int64_t kLine = 64;
  const int64_t size = bytes(type);
  if (!call.stream || n * size < kStreamedRun) return unstage(to, type, from, n, false);
  const int64_t head = (kLine - static_cast<int64_t>(reinterpret_cast<uintptr_t>(to) % kLine)) % kLine / size;
  const int64_t body = (n - head) * size / kLine * kLine / size;
  if (head > 0) unstage(to, type, from, head, false);
  unstage(to + head * size, type, from + head, body, true);
  if (head + body < n) unstage(to + (head + body) * size, type, from + head + body, n - head - body, false);
}

inline void scatter(const ChannelCall& call, const ChannelOperand& operand, const float* from, int64_t image,
                    int64_t channel, int64_t pixel, int64_t n) {
  char* const base = channel_at(operand, image, channel);
  if (call.axes == 0) return write_run(call, base + pixel * bytes(operand.type), operand.type, from, n);
  for (int64_t i = 0; i < n;) {
    const Place to = place(call, operand, base, pixel + i);
    const int64_t count = to.left < n - i ? to.left : n - i;
    unstage(to.at, operand.type, from + i, count, false);
    i += count;
  }
}

// One number of a parameter; `absent` where there is none.
inline double parameter(const Operand& operand, int64_t i, double absent) {
  if (operand.base == nullptr) return absent;
  float value[kPair];
  switch (operand.type) {
    case RN_F16:
      F32::store<false>(value, load_part<F16, false>(reinterpret_cast<const uint16_t*>(operand.base) + i, 1), false);
      return static_cast<double>(value[0]);
    case RN_BF16:
      F32::store<false>(value, load_part<BF16, false>(reinterpret_cast<const uint16_t*>(operand.base) + i, 1), false);
      return static_cast<double>(value[0]);
    default:
      return static_cast<double>(reinterpret_cast<const float*>(operand.base)[i]);
  }
}

// weight[c] + weight_offset: as f64, or in f32 where roundings are those of before_weight.
inline double factor_of(const ChannelCall& call, int64_t channel) {
  if (call.weight.base == nullptr) return 1;
  const double w = parameter(call.weight, channel, 1);
  if (call.weight_offset == 0) return w;
  if (!call.before_weight) return w + call.weight_offset;
  return static_cast<double>(static_cast<float>(w) + static_cast<float>(call.weight_offset));
}

// ---- Loops over a stretch of pixels, n a multiple of kBlock ----

[[gnu::noinline]] void add_squares(double* sums, const float* const (&x)[kTogether], int64_t n) {
  for (int64_t i = 0; i < n; i += kHalf) {
    D sum = load(sums + i);
#pragma GCC unroll 4
    for (int k = 0; k < kTogether; ++k) {
      const D v = load_wide(x[k] + i);
      sum = add_exact_product(v, v, sum);
    }
    store(sums + i, sum);
  }
}

// sums += x^2, products += dy w x.
[[gnu::noinline]] void add_gradients(double* sums, double* products, const float* x, const float* dy, double factor,
                                     int64_t n) {
  const D w = splat(factor);
  for (int64_t i = 0; i < n; i += kHalf) {
    const D v = load_wide(x + i);
    store(sums + i, add_exact_product(v, v, load(sums + i)));
    store(products + i, add(load(products + i), mul(mul(load_wide(dy + i), w), v)));
  }
}

// What follows the normalised number: weight and bias of one channel.
struct Affine {
  bool weight, bias;
  double factor, term;
};

// inv: one for each pixel, or one for all.
template <bool kEach>
[[gnu::noinline]] void normalise(float* out, const float* x, const double* inv, const Affine& a, Ahead ahead,
                                 int64_t n) {
  const D w = splat(a.factor), b = splat(a.term), same = splat(inv[0]);
  const bool weighted = a.weight, biased = a.bias;
  const auto half = [&](int64_t i) __attribute__((always_inline)) {
    D y = mul(load_wide(x + i), kEach ? load(inv + i) : same);
    if (weighted) y = mul(y, w);
    return biased ? add(y, b) : y;
  };
  for (int64_t i = 0; i < n; i += kLanes) {
    prefetch(ahead.p + i * ahead.bytes);
    const D low = half(i);
    store(out + i, narrow(low, half(i + kHalf)));
  }
}

// The same where the normalised number is rounded to T first; factor, product and sum are f32.
template <class T, bool kEach>
[[gnu::noinline]] void normalise_rounded(float* out, const float* x, const double* inv, const Affine& a, Ahead ahead,
                                         int64_t n) {
  const F w = splat(static_cast<float>(a.factor)), b = splat(static_cast<float>(a.term));
  const D same = splat(inv[0]);
  for (int64_t i = 0; i < n; i += kPair) {
    prefetch(ahead.p + i * ahead.bytes);
    Quad q;
    for (int k = 0; k < 4; ++k) {
      q.d[k] = mul(load_wide(x + i + k * kHalf), kEach ? load(inv + i + k * kHalf) : same);
    }
    Pair y = T::round(narrow(q));
    if (a.weight) y = mul(y, Pair{w, w});
    if (a.bias) y = add(y, Pair{b, b});
    F32::store<false>(out + i, y, false);
  }
}

template <bool kEach>
void normalise_channel(const ChannelCall& call, float* out, const float* x, const double* inv, int64_t channel,
                       Ahead ahead, int64_t n) {
  const Affine a = {call.weight.base != nullptr, call.bias.base != nullptr, factor_of(call, channel),
                    parameter(call.bias, channel, 0)};
  if (!call.before_weight) return normalise<kEach>(out, x, inv, a, ahead, n);
  if (call.x.type == RN_F16) return normalise_rounded<F16, kEach>(out, x, inv, a, ahead, n);
  normalise_rounded<BF16, kEach>(out, x, inv, a, ahead, n);
}

// dx = inv g - slope x; returns what the stretch adds to dweight and dbias.
[[gnu::noinline]] ChannelSums gradient_of_pixels(float* dx, const float* x, const float* dy, const double* inv,
                                                 const double* slope, double factor, Ahead next_x, Ahead next_dy,
                                                 int64_t n) {
  constexpr int kRegisters = kWideLanes / kHalf;
  D products[kRegisters], gradients[kRegisters];
  for (int r = 0; r < kRegisters; ++r) products[r] = gradients[r] = splat(0.0);
  const D w = splat(factor);
  for (int64_t i = 0; i < n; i += kWideLanes) {
#pragma GCC unroll 16
    for (int r = 0; r < kRegisters; r += 2) {
      prefetch(next_x.p + (i + r * kHalf) * next_x.bytes);
      prefetch(next_dy.p + (i + r * kHalf) * next_dy.bytes);
      D result[2];
      for (int k = 0; k < 2; ++k) {
        const int64_t at = i + (r + k) * kHalf;
        const D v = load_wide(x + at), d = load_wide(dy + at), s = load(inv + at);
        result[k] = sub(mul(s, mul(d, w)), mul(v, load(slope + at)));
        products[r + k] = add(products[r + k], mul(d, mul(v, s)));
        gradients[r + k] = add(gradients[r + k], d);
      }
      store(dx + i + r * kHalf, narrow(result[0], result[1]));
    }
  }
  return {0, fold(products), fold(gradients)};
}

[[gnu::noinline]] void gradient_of_group(float* dx, const float* x, const float* dy, const GroupScale& scale,
                                         double factor, Ahead next_x, Ahead next_dy, int64_t n) {
  const D w = splat(factor), inv = splat(scale.inv), slope = splat(scale.slope);
  const auto half = [&](int64_t i) __attribute__((always_inline)) {
    return sub(mul(inv, mul(load_wide(dy + i), w)), mul(load_wide(x + i), slope));
  };
  for (int64_t i = 0; i < n; i += kLanes) {
    prefetch(next_x.p + i * next_x.bytes);
    prefetch(next_dy.p + i * next_dy.bytes);
    const D low = half(i);
    store(dx + i, narrow(low, half(i + kHalf)));
  }
}

[[gnu::noinline]] ChannelSums sums_of(const float* x, const float* dy, int64_t n) {
  constexpr int kRegisters = kWideLanes / kHalf;
  D squares[kRegisters], products[kRegisters], gradients[kRegisters];
  for (int r = 0; r < kRegisters; ++r) squares[r] = products[r] = gradients[r] = splat(0.0);
  for (int64_t i = 0; i < n; i += kWideLanes) {
#pragma GCC unroll 16
    for (int r = 0; r < kRegisters; ++r) {
      const D v = load_wide(x + i + r * kHalf);
      squares[r] = add_exact_product(v, v, squares[r]);
      if (dy == nullptr) continue;
      const D d = load_wide(dy + i + r * kHalf);
      products[r] = add(products[r], mul(d, v));
      gradients[r] = add(gradients[r], d);
    }
  }
  return {fold(squares), fold(products), fold(gradients)};
}

// A tile: some pixels of one image, all channels.
class Tile {
 public:
  Tile(const ChannelCall& call, double* sums) : call_(call), sums_(sums) {}

  void run(int64_t tile) {
    const int64_t tiles = tiles_per_image(call_.channels, call_.pixels);
    image_ = tile / tiles;
    pixel_ = tile % tiles * tile_pixels(call_.channels);
    const int64_t left = call_.pixels - pixel_;
    n_ = left < tile_pixels(call_.channels) ? left : tile_pixels(call_.channels);
    end_ = whole_blocks(n_);
    for (int64_t i = 0; i < end_; ++i) squares_[i] = products_[i] = 0;
    call_.backward ? backward() : forward();
  }

 private:
  const float* x_at(int64_t channel, Stage& buffer) {
    return gather(call_, call_.x, buffer, image_, channel, pixel_, n_);
  }
  const float* dy_at(int64_t channel) { return gather(call_, call_.dy, dy_, image_, channel, pixel_, n_); }

  void forward() {
    for (int64_t c = 0; c < call_.channels; c += kTogether) {
      const float* x[kTogether];
      for (int k = 0; k < kTogether; ++k) x[k] = c + k < call_.channels ? x_at(c + k, x_[k]) : zeros();
      add_squares(squares_, x, end_);
    }
    find_scales();
    for (int64_t c = 0; c < call_.channels; ++c) {
      normalise_channel<true>(call_, out_.at, x_at(c, x_[0]), squares_, c, next_tile(call_.x, c), end_);
      scatter(call_, call_.out, out_.at, image_, c, pixel_, n_);
    }
  }

  void backward() {
    for (int64_t c = 0; c < call_.channels; ++c) {
      add_gradients(squares_, products_, x_at(c, x_[0]), dy_at(c), factor_of(call_, c), end_);
    }
    find_scales();
    for (int64_t c = 0; c < call_.channels; ++c) {
      const ChannelSums sums =
          gradient_of_pixels(out_.at, x_at(c, x_[0]), dy_at(c), squares_, products_, factor_of(call_, c),
                             next_tile(call_.x, c), next_tile(call_.dy, c), end_);
      scatter(call_, call_.out, out_.at, image_, c, pixel_, n_);
      if (sums_ == nullptr) continue;
      sums_[c] += sums.products;
      sums_[call_.channels + c] += sums.gradients;
    }
  }

  // The same channel in the tile that comes next, as a rule.
  Ahead next_tile(const ChannelOperand& operand, int64_t channel) const {
    const bool last = pixel_ + n_ >= call_.pixels || call_.axes != 0;
    const char* p = channel_at(operand, image_ + (last ? 1 : 0), channel);
    const int size = static_cast<int>(bytes(operand.type));
    return {last ? p : p + (pixel_ + n_) * size, size};
  }

  // From sums to inv and slope, in their place; both 0 behind the tile, where x is.
  void find_scales() {
    const double d = static_cast<double>(call_.channels);
    for (int64_t i = 0; i < end_; ++i) {
      const double mean = squares_[i] / d;
      const double root = __builtin_sqrt(mean);
      const double inv = call_.epsilon_outside ? 1 / (root + call_.epsilon) : 1 / __builtin_sqrt(mean + call_.epsilon);
      squares_[i] = i < n_ ? inv : 0;
      if (!call_.backward) continue;
      const double share = inv * inv * (products_[i] / d);
      const double slope = !call_.epsilon_outside ? share * inv : root == 0 ? 0 : share / root;
      products_[i] = i < n_ ? slope : 0;
    }
  }

  // A channel that is not there.
  const float* zeros() {
    for (int64_t i = 0; i < end_; ++i) out_.at[i] = 0;
    return out_.at;
  }

  const ChannelCall& call_;
  double* sums_;
  int64_t image_ = 0, pixel_ = 0, n_ = 0, end_ = 0;
  alignas(64) double squares_[kMostTilePixels + kBlock], products_[kMostTilePixels + kBlock];
  Stage x_[kTogether], dy_, out_;
};

}  // namespace

void channel_tiles(const ChannelCall& call, int64_t begin, int64_t end, double* sums) {
  Tile tile(call, sums);
  for (int64_t t = begin; t < end; ++t) tile.run(t);
  if (call.stream) fence();
}

ChannelSums channel_sums(const ChannelCall& call, int64_t image, int64_t channel) {
  Stage x_stage, dy_stage;
  ChannelSums total = {0, 0, 0};
  for (int64_t pixel = 0; pixel < call.pixels; pixel += kStage) {
    const int64_t n = call.pixels - pixel < kStage ? call.pixels - pixel : kStage;
    const float* x = gather(call, call.x, x_stage, image, channel, pixel, n);
    const float* dy = call.backward ? gather(call, call.dy, dy_stage, image, channel, pixel, n) : nullptr;
    const ChannelSums sums = sums_of(x, dy, whole_blocks(n));
    total.squares += sums.squares;
    total.products += sums.products;
    total.gradients += sums.gradients;
  }
  return total;
}

double channel_factor(const ChannelCall& call, int64_t channel) { return factor_of(call, channel); }

void apply_group(const ChannelCall& call, int64_t image, int64_t begin, int64_t end, const GroupScale& scale) {
  Stage x_stage, dy_stage, out;
  const int64_t width = call.channels / call.groups;
  // The same place in the group that comes next, where images follow each other densely.
  const auto next = [&](const ChannelOperand& operand, int64_t channel, int64_t pixel) {
    const int size = static_cast<int>(bytes(operand.type));
    return Ahead{channel_at(operand, image, channel + width) + pixel * size, size};
  };
  for (int64_t channel = begin; channel < end; ++channel) {
    for (int64_t pixel = 0; pixel < call.pixels; pixel += kStage) {
      const int64_t n = call.pixels - pixel < kStage ? call.pixels - pixel : kStage;
      const float* x = gather(call, call.x, x_stage, image, channel, pixel, n);
      if (call.backward) {
        const float* dy = gather(call, call.dy, dy_stage, image, channel, pixel, n);
        gradient_of_group(out.at, x, dy, scale, factor_of(call, channel), next(call.x, channel, pixel),
                          next(call.dy, channel, pixel), whole_blocks(n));
      } else {
        normalise_channel<false>(call, out.at, x, &scale.inv, channel, next(call.x, channel, pixel), whole_blocks(n));
      }
      scatter(call, call.out, out.at, image, channel, pixel, n);
    }
  }
}

}  // namespace rmsnorm::RMSNORM_TARGET
