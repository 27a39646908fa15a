// RMSNorm of each head of Q and K, then rotary embedding. Heads are short: several of a token are staged and summed
// first, so that their square roots and divisions overlap; then each is normalised and turned in its buffer, and written
// once. Heads longer than a stage go in stretches, each read again just before it is written.
#ifndef RMSNORM_CPU_QK_NORM_ROPE_INL_H_
#define RMSNORM_CPU_QK_NORM_ROPE_INL_H_

#include "core/qk_norm_rope_call.h"
#include "cpu/moments-inl.h"
#include "cpu/normalise-inl.h"
#include "cpu/rms_norm-inl.h"
#include "cpu/stage-inl.h"

namespace rmsnorm::RMSNORM_TARGET {

// n pairs: a' = a c - b s, b' = b c + a s.
[[gnu::noinline]] inline void turn_halves(float* a, float* b, const float* cosine, const float* sine, int64_t n) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const F va = load(a + i), vb = load(b + i), c = load(cosine + i), s = load(sine + i);
    store(a + i, sub(mul(va, c), mul(vb, s)));
    store(b + i, add(mul(vb, c), mul(va, s)));
  }
  for (; i < n; ++i) {
    const float va = a[i], vb = b[i];
    a[i] = va * cosine[i] - vb * sine[i];
    b[i] = vb * cosine[i] + va * sine[i];
  }
}

// The same with a and b at even and odd places.
[[gnu::noinline]] inline void turn_pairs(float* y, const float* cosine, const float* sine, int64_t n) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const Pair v = F32::load<true>(y + 2 * i);
    const F c = load(cosine + i), s = load(sine + i);
    const Pair turned = {sub(mul(v.a, c), mul(v.b, s)), add(mul(v.b, c), mul(v.a, s))};
    F32::store<false>(y + 2 * i, interleave(turned), false);
  }
  for (; i < n; ++i) {
    const float va = y[2 * i], vb = y[2 * i + 1];
    y[2 * i] = va * cosine[i] - vb * sine[i];
    y[2 * i + 1] = vb * cosine[i] + va * sine[i];
  }
}

// A head on its way from the stage to its output. half and what follows the turned columns are whole pairs. Aligned: it
// is written by vectors and read by words, and a vector across two cache lines cannot be handed on before it is stored.
struct alignas(64) TurnedHead {
  const float *x, *weight, *cosine, *sine;
  char* out;
  const char* ahead;  // the head of the next token
  int64_t half, cols;
  int element;  // bytes of one of ahead
  bool streamed;
};

// x inv weight, turned by halves, in registers from the stage to the output. R: what is rounded to on the way, or F32.
template <class R, class O>
[[gnu::noinline]] void normalise_and_turn(const TurnedHead& head, double inv) {
  const TurnedHead at = head;
  const F scale = splat(static_cast<float>(inv));
  auto* const out = reinterpret_cast<typename O::Storage*>(at.out);
  const auto normalised = [&](int64_t i) __attribute__((always_inline)) {
    fetch(at.ahead, i, at.element, kPair);
    F p[2];
    round_products<R, false>(p, at.x + i, inv, scale);
    return R::round(mul(Pair{p[0], p[1]}, F32::load<false>(at.weight + i)));
  };
  for (int64_t i = 0; i < at.half; i += kPair) {
    const Pair a = normalised(i), b = normalised(at.half + i);
    const Pair c = F32::load<false>(at.cosine + i), s = F32::load<false>(at.sine + i);
    O::template store<false>(out + i, sub(mul(a, c), mul(b, s)), at.streamed);
    O::template store<false>(out + at.half + i, add(mul(b, c), mul(a, s)), at.streamed);
  }
  for (int64_t i = 2 * at.half; i < at.cols; i += kPair) O::template store<false>(out + i, normalised(i), at.streamed);
}

class QkNormRopeTokens {
 public:
  explicit QkNormRopeTokens(const QkNormRopeCall& call)
      : call_(call),
        rounds_(call.rounding == RN_ROUND_BEFORE_WEIGHT && call.x.type != RN_F32),
        element_(call.x.type == RN_F32 ? 4 : 2),
        half_(call.rotary_dim / 2),
        in_registers_(!call.interleaved && half_ % kPair == 0 && call.cols % kPair == 0),
        weights_{{call.heads[0].weight.type, static_cast<float>(call.weight_offset)},
                 {call.heads[1].weight.type, static_cast<float>(call.weight_offset)}} {}

  void run(int64_t begin, int64_t end) {
    const Heads &q = call_.heads[0], &k = call_.heads[1];
    const Operand* const operands[] = {&q.out, &q.x, &q.weight, &k.out, &k.x, &k.weight, &call_.positions};
    Walk<7> walk(call_, operands, begin);
    for (int64_t token = begin; token < end; ++token) {
      if (half_ != 0) {
        const int64_t position = position_at(walk[6]);
        cosine_ = reinterpret_cast<const float*>(call_.cos_sin + position * call_.cos_sin_step);
        sine_ = cosine_ + half_;
      }
      const Place at[] = {{walk[0], walk[1], walk[2]}, {walk[3], walk[4], walk[5]}};
      if (token + 1 < end) walk.advance();
      const char* const next[] = {walk[1], walk[4]};
      for (int which = 0; which < 2; ++which) {
        if (call_.heads[which].count > 0) heads(call_.heads[which], &weights_[which], at[which], next[which]);
      }
    }
    if (call_.stream) fence();
  }

 private:
  static constexpr int kMostTogether = 8;

  // A head in its operands.
  struct Place {
    char *out, *x, *weight;
  };

  int64_t position_at(const char* at) const {
    if (!call_.has_positions) return static_cast<int64_t>(reinterpret_cast<uintptr_t>(at) - kIndexBase);
    if (call_.positions.type == RN_I64) return *reinterpret_cast<const int64_t*>(at);
    return *reinterpret_cast<const int32_t*>(at);
  }

  static Place head(const Heads& heads, const Place& first, int64_t h) {
    return {first.out + h * heads.out_step, first.x + h * heads.x_step,
            first.weight == nullptr ? nullptr : first.weight + h * heads.weight_step};
  }

  void heads(const Heads& heads, StagedParameter* weight, const Place& first, const char* next_x) {
    const int64_t d = call_.cols, room = whole_blocks(d);
    if (d > kStage) {
      for (int64_t h = 0; h < heads.count; ++h) long_head(heads, weight, head(heads, first, h));
      return;
    }
    // As in the norm alone; but no rounding before the weight or the rotation, where another side of a tie would grow.
    const bool fast =
        !rounds_ && call_.x.type != RN_F32 && heads.out.type != RN_F32 && call_.rounding != RN_ROUND_EXACT;
    const int64_t together = kStage / room < kMostTogether ? kStage / room : kMostTogether;
    for (int64_t h = 0; h < heads.count; h += together) {
      const int64_t count = heads.count - h < together ? heads.count - h : together;
      Place at[kMostTogether];
      const float* x[kMostTogether];
      Moments sums[kMostTogether];
      RowScale scales[kMostTogether];
      for (int64_t k = 0; k < count; ++k) {
        at[k] = head(heads, first, h + k);
        x[k] = stage(*reinterpret_cast<Stage*>(x_.at + k * room), at[k].x, call_.x.type, d);
        sums[k] = fast ? fast_sum(x[k]) : wide_sum(x[k]);
      }
      const SumMode mode = fast ? SumMode::kFast : SumMode::kWide;
      for (int64_t k = 0; k < count; ++k) {
        scales[k] = rms_scale(call_, mode, sums[k], [&](SumMode, double) { return wide_sum(x[k]); });
      }
      for (int64_t k = 0; k < count; ++k) {
        const char* ahead = next_x + (h + k) * heads.x_step;
        if (in_registers_ && !scales[k].wide && writable(at[k].out)) {
          const TurnedHead turned = {
              x[k], weight->at(at[k].weight, d, 0, d), cosine_,     sine_, at[k].out, ahead, half_,
              d,    static_cast<int>(element_),        call_.stream};
          write_turned(turned, heads.out.type, scales[k].inv);
          continue;
        }
        normalise_into(y_.at, x[k], weight->at(at[k].weight, d, 0, d), scales[k], d, ahead);
        if (call_.interleaved) {
          turn_pairs(y_.at, cosine_, sine_, half_);
        } else {
          turn_halves(y_.at, y_.at + half_, cosine_, sine_, half_);
        }
        unstage(at[k].out, heads.out.type, y_.at, d, call_.stream);
      }
    }
  }

  Moments fast_sum(const float* x) const {
    return chunk_moments<FastLanes<StagedSource>>(StagedSource{x}, 0, call_.partial);
  }
  Moments wide_sum(const float* x) const {
    return chunk_moments<WideLanes<false, StagedSource>>(StagedSource{x}, 0, call_.partial);
  }

  // Whether whole pairs from p on may be written as the call asks for.
  bool writable(const char* p) const { return !call_.stream || reinterpret_cast<uintptr_t>(p) % kVectorBytes == 0; }

  void write_turned(const TurnedHead& head, rn_type type, double inv) const {
    if (!rounds_) return write_turned_as<F32>(head, type, inv);
    call_.x.type == RN_F16 ? write_turned_as<F16>(head, type, inv) : write_turned_as<BF16>(head, type, inv);
  }
  template <class R>
  static void write_turned_as(const TurnedHead& head, rn_type type, double inv) {
    switch (type) {
      case RN_F16:
        return normalise_and_turn<R, F16>(head, inv);
      case RN_BF16:
        return normalise_and_turn<R, BF16>(head, inv);
      default:
        return normalise_and_turn<R, F32>(head, inv);
    }
  }

  void normalise_into(float* y, const float* x, const float* weight, const RowScale& scale, int64_t n,
                      const char* ahead) const {
    const NormStretch s = {x, weight, nullptr, y, 0, {ahead, nullptr, static_cast<int>(element_), 0}};
    if (!rounds_) {
      scale.wide ? normalise<F32, true>(s, scale.inv, n) : normalise<F32, false>(s, scale.inv, n);
    } else if (call_.x.type == RN_F16) {
      scale.wide ? normalise<F16, true>(s, scale.inv, n) : normalise<F16, false>(s, scale.inv, n);
    } else {
      scale.wide ? normalise<BF16, true>(s, scale.inv, n) : normalise<BF16, false>(s, scale.inv, n);
    }
  }

  void long_head(const Heads& heads, StagedParameter* weight, const Place& at) {
    const int64_t d = call_.cols;
    Moments total = {0, 0};
    for (int64_t i = 0; i < call_.partial; i += kStage) {
      const int64_t n = least(call_.partial - i, kStage);
      const float* x = stage(x_, at.x + i * element_, call_.x.type, n);
      total.square += chunk_moments<WideLanes<false, StagedSource>>(StagedSource{x}, 0, n).square;
    }
    const RowScale scale = rms_scale(call_, SumMode::kWide, total, [&](SumMode, double) { return total; });
    const auto read = [&](float* y, int64_t i, int64_t n) {
      const char* from = at.x + i * element_;
      const float* x = stage(x_, from, call_.x.type, n);
      normalise_into(y, x, weight->at(at.weight, d, i, n), scale, n, from);
    };
    const auto write = [&](const float* y, int64_t i, int64_t n) {
      const int64_t bytes = heads.out.type == RN_F32 ? 4 : 2;
      unstage(at.out + i * bytes, heads.out.type, y, n, call_.stream);
    };
    if (call_.interleaved) {
      for (int64_t i = 0; i < call_.rotary_dim; i += kStage) {
        const int64_t n = least(call_.rotary_dim - i, kStage);
        read(y_.at, i, n);
        turn_pairs(y_.at, cosine_ + i / 2, sine_ + i / 2, n / 2);
        write(y_.at, i, n);
      }
    } else {
      for (int64_t i = 0; i < half_; i += kStage) {
        const int64_t n = least(half_ - i, kStage);
        read(y_.at, i, n);
        read(second_.at, half_ + i, n);
        turn_halves(y_.at, second_.at, cosine_ + i, sine_ + i, n);
        write(y_.at, i, n);
        write(second_.at, half_ + i, n);
      }
    }
    for (int64_t i = call_.rotary_dim; i < d; i += kStage) {
      const int64_t n = least(d - i, kStage);
      read(y_.at, i, n);
      write(y_.at, i, n);
    }
  }

  static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

  const QkNormRopeCall& call_;
  bool rounds_;      // y has the type of x, which is a 16-bit one
  int64_t element_;  // bytes of one of x
  int64_t half_;
  bool in_registers_;
  StagedParameter weights_[2];
  const float *cosine_ = nullptr, *sine_ = nullptr;
  Stage x_, y_, second_;
};

}  // namespace rmsnorm::RMSNORM_TARGET

#endif  // RMSNORM_CPU_QK_NORM_ROPE_INL_H_
