#include "cpu/qk_norm_rope.h"

#include "cpu/f64_norm.h"
#include "cpu/fp_environment.h"
#include "cpu/rows.h"
#include "cpu/target.h"

namespace rmsnorm {

namespace {

// One head of f64, out and x possibly in one place.
void f64_head(const QkNormRopeCall& call, const Heads& heads, char* out, char* x, char* weight, const float* cos_sin) {
  NormCall head = call;
  head.leading = 0;
  head.rows = 1;
  head.x = {x, RN_F64, {}};
  head.weight = {weight, heads.weight.type, {}};
  const F64Row row{head, 0};
  const F64Scale scale = row_scale(row);
  const auto y = [&](int64_t i) { return normalised(row, scale, row.element(i), i); };
  const int64_t half = call.rotary_dim / 2;
  for (int64_t i = 0; i < half; ++i) {
    const int64_t a = call.interleaved ? 2 * i : i, b = call.interleaved ? 2 * i + 1 : i + half;
    const double cosine = static_cast<double>(cos_sin[i]), sine = static_cast<double>(cos_sin[half + i]);
    const double ya = y(a), yb = y(b);
    write(out, heads.out.type, a, ya * cosine - yb * sine);
    write(out, heads.out.type, b, yb * cosine + ya * sine);
  }
  for (int64_t i = call.rotary_dim; i < call.cols; ++i) write(out, heads.out.type, i, y(i));
}

void f64_token(const QkNormRopeCall& call, int64_t token) {
  const float* cos_sin = nullptr;
  if (call.rotary_dim != 0) {
    const int64_t position = position_of(call, row_address(call, call.positions, token));
    cos_sin = reinterpret_cast<const float*>(call.cos_sin + position * call.cos_sin_step);
  }
  for (const Heads& heads : call.heads) {
    char* out = row_address(call, heads.out, token);
    char* x = row_address(call, heads.x, token);
    char* weight = row_address(call, heads.weight, token);
    for (int64_t h = 0; h < heads.count; ++h) {
      f64_head(call, heads, out + h * heads.out_step, x + h * heads.x_step,
               weight == nullptr ? nullptr : weight + h * heads.weight_step, cos_sin);
    }
  }
}

void f64_tokens(const QkNormRopeCall& call, int64_t begin, int64_t end) {
  for (int64_t token = begin; token < end; ++token) f64_token(call, token);
}

}  // namespace

rn_status run_qk_norm_rope(QkNormRopeCall call, const rn_execution& execution) {
  const Target* target = active_target();
  if (target == nullptr) return RN_UNAVAILABLE;
  const FloatingPointGuard guard;
  int64_t bytes_per_token = 0;
  bool in_place = false;
  for (const Heads& heads : call.heads) {
    bytes_per_token += heads.count * row_bytes({&heads.x, &heads.out}, call.cols);
    in_place = in_place || (heads.count > 0 && heads.x.base == heads.out.base);
  }
  const int64_t bytes = total_bytes(call.rows, bytes_per_token);
  call.stream = writes_around_caches(bytes) && !in_place;  // in place the lines are in the cache
  run_rows(execution, call, pieces_for(execution, bytes), call.x.type == RN_F64 ? f64_tokens : target->qk_norm_rope);
  return RN_OK;
}

}  // namespace rmsnorm
