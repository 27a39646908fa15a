#include "cpu/quantize.h"

#include <bit>

#include "core/float8.h"
#include "cpu/f64_norm.h"
#include "cpu/fp_environment.h"
#include "cpu/rows.h"
#include "cpu/target.h"

namespace rmsnorm {

namespace {

uint8_t encode(rn_type type, float value) {
  switch (type) {
    case RN_F8E4M3:
      return f32_to_f8e4m3(value);
    case RN_F8E5M2:
      return f32_to_f8e5m2(value);
    default:
      return static_cast<uint8_t>(f32_to_i8(value));
  }
}

float scale_for_peak(const QuantizeCall& call, float peak) {
  if (peak == 0) return 1;
  if (peak > kLargestScale) return call.power_of_two ? kLargestPowerOfTwoScale : kLargestScale;
  const float scale = std::max(peak / call.largest, kSmallestScale);
  if (!call.power_of_two) return scale;
  return std::bit_cast<float>((std::bit_cast<uint32_t>(scale) + 0x7fffff) & 0x7f800000);
}

// A row of f64, whose y is rounded to f32.
void f64_row(const QuantizeCall& call, int64_t index) {
  const F64Row row{call, index};
  const F64Scale s = row_scale(row);
  char* scales = row.at(call.scale);
  char* residual_out = row.at(call.residual_out);
  auto* out = reinterpret_cast<uint8_t*>(row.at(call.out));
  const auto y = [&](int64_t i) { return static_cast<float>(normalised(row, s, row.element(i), i)); };
  for (int64_t begin = 0; begin < call.cols; begin += call.group) {
    const int64_t end = std::min(begin + call.group, call.cols);
    float scale = call.static_scale;
    if (scales != nullptr) {
      float peak = 0;
      for (int64_t i = begin; i < end; ++i) peak = std::max(peak, std::fabs(y(i)));  // passes NaN over
      scale = scale_for_peak(call, peak);
      *reinterpret_cast<float*>(scales + begin / call.group * call.scale_stride) = scale;
    }
    for (int64_t i = begin; i < end; ++i) out[i] = encode(call.out.type, y(i) / scale);
  }
  for (int64_t i = 0; residual_out != nullptr && i < call.cols; ++i) write(residual_out, RN_F64, i, row.element(i));
}

void f64_rows(const QuantizeCall& call, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row) f64_row(call, row);
}

}  // namespace

rn_status run_quantize(QuantizeCall call, const rn_execution& execution) {
  const Target* target = active_target();
  if (target == nullptr) return RN_UNAVAILABLE;
  const FloatingPointGuard guard;
  const int64_t bytes =
      total_bytes(call.rows, row_bytes({&call.x, &call.residual, &call.out, &call.residual_out}, call.cols));
  call.stream = writes_around_caches(bytes);
  run_rows(execution, call, pieces_for(execution, bytes), call.x.type == RN_F64 ? f64_rows : target->quantize_rows);
  return RN_OK;
}

}  // namespace rmsnorm
