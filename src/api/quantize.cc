// The C interface of RMSNorm with a quantised output: arguments are gathered, checked and handed on.
#include "cpu/quantize.h"

#include <cmath>

#include "core/float8.h"
#include "core/overlap.h"
#include "core/rules.h"
#include "core/status.h"
#include "rmsnorm/quantize.h"

namespace rmsnorm {
namespace {

// What an entry point was given. Operands that the operation does not have stay null.
struct QuantizeArguments {
  const char* function;
  bool add;
  const rn_view *out = nullptr, *residual_out = nullptr, *scale = nullptr;
  const rn_view *x = nullptr, *residual = nullptr, *weight = nullptr, *bias = nullptr;
  const rn_rms_norm_options& norm;
  int norm_input = RN_NORM_ROUNDED_SUM;
  const rn_quantization& quantization;
  const rn_execution* execution = nullptr;
};

constexpr int64_t groups_of(int64_t cols) { return (cols + RN_SCALE_GROUP - 1) / RN_SCALE_GROUP; }

float largest_of(rn_type type) {
  return type == RN_F8E4M3 ? kLargestF8E4M3 : type == RN_F8E5M2 ? kLargestF8E5M2 : kLargestI8;
}

rn_status check_quantization(const QuantizeArguments& a) {
  const rn_quantization& q = a.quantization;
  rn_status status = check_choice(a.function, "scaling", as_int(q.scaling), RN_SCALE_PER_GROUP,
                                  "RN_SCALE_STATIC (0), RN_SCALE_PER_ROW (1) or RN_SCALE_PER_GROUP (2)");
  if (status == RN_OK) status = check_choice(a.function, "power_of_two", q.power_of_two, 1, "0 or 1");
  if (status != RN_OK) return status;
  if (as_int(q.scaling) != RN_SCALE_STATIC) return require(a.function, "scale", a.scale);
  if (!(std::isfinite(q.static_scale) && q.static_scale > 0)) {
    return fail(RN_INVALID_VALUE, "%s: options.static_scale is %g; it must be finite and above 0", a.function,
                static_cast<double>(q.static_scale));
  }
  if (a.scale == nullptr) return RN_OK;
  return fail(RN_INVALID_VALUE, "%s: scale is a view; it must be NULL with RN_SCALE_STATIC", a.function);
}

rn_status take_operands(const QuantizeArguments& a, QuantizeCall* call) {
  rn_status status = require(a.function, "out", a.out);
  if (status == RN_OK && a.add) status = require(a.function, "residual_out", a.residual_out);
  if (status == RN_OK) status = require(a.function, "x", a.x);
  if (status == RN_OK && a.add) status = require(a.function, "residual", a.residual);
  if (status == RN_OK) status = check_quantization(a);
  if (status != RN_OK) return status;

  Taker taker(a.function, call);
  taker.x({"x", Form::kX, false, kFloatTypes}, a.x, &call->x);
  if (!taker.ok()) return taker.status();
  const TypeRules types = rules_for(a.x->type);
  const bool grouped = as_int(a.quantization.scaling) == RN_SCALE_PER_GROUP;
  const int64_t scales = grouped ? groups_of(call->cols) : 1;
  constexpr uint32_t kQuantised = bit(RN_I8) | bit(RN_F8E4M3) | bit(RN_F8E5M2);
  taker.optional({"out", Form::kSame, true, kQuantised}, a.out, &call->out);
  taker.optional({"residual_out", Form::kSame, true, types.residual}, a.residual_out, &call->residual_out);
  taker.optional({"scale", Form::kOwnCols, true, bit(RN_F32), scales}, a.scale, &call->scale);
  taker.optional({"residual", Form::kSame, false, types.residual}, a.residual, &call->residual);
  taker.optional({"weight", Form::kBroadcast, false, types.weight}, a.weight, &call->weight);
  taker.optional({"bias", Form::kBroadcast, false, types.weight}, a.bias, &call->bias);
  if (!taker.ok()) return taker.status();
  call->group = grouped ? int64_t{RN_SCALE_GROUP} : call->cols;
  call->scale_stride = scales == 1 ? 0 : a.scale->strides[a.scale->rank - 1] * static_cast<int64_t>(sizeof(float));
  return RN_OK;
}

rn_status run(const QuantizeArguments& a) {
  QuantizeCall call = {};
  rn_execution execution;
  const NormOptions options = {a.norm.epsilon, a.norm.weight_offset, as_int(a.norm.epsilon_placement),
                               as_int(a.norm.rounding), a.norm.partial};
  rn_status status = take_operands(a, &call);
  if (status == RN_OK) status = check_norm_options(a.function, options, call.cols);
  if (status == RN_OK) status = check_norm_input(a.function, a.norm_input);
  if (status == RN_OK) status = check_execution(a.function, a.execution, &execution);
  if (status != RN_OK || call.rows == 0) return status;
  call.norm = Norm::kRms;
  call.add = a.add;
  call.unrounded_sum = a.norm_input == RN_NORM_UNROUNDED_SUM;
  call.epsilon_outside = options.epsilon_placement == RN_EPSILON_OUTSIDE;
  call.rounding = static_cast<rn_rounding>(options.rounding);
  call.partial = options.partial == 0 ? call.cols : options.partial;
  call.epsilon = options.epsilon;
  call.weight_offset = options.weight_offset;
  call.static_scale = a.quantization.static_scale;
  call.power_of_two = a.quantization.power_of_two != 0;
  call.largest = largest_of(a.out->type);
  Operand* const operands[] = {&call.out,      &call.residual_out, &call.scale, &call.x,
                               &call.residual, &call.weight,       &call.bias};
  collapse(&call, operands);
  const int64_t scales = (call.cols + call.group - 1) / call.group;
  const Claim outputs[] = {
      {"out", &call.out, call.cols},
      {"residual_out", &call.residual_out, call.cols, &call.residual},
      {.name = "scale", .operand = &call.scale, .columns = 1, .count = scales, .apart = call.scale_stride},
  };
  const Claim inputs[] = {{"x", &call.x, call.cols},
                          {"residual", &call.residual, call.cols},
                          {"weight", &call.weight, call.cols},
                          {"bias", &call.bias, call.cols}};
  status = check_overlap(a.function, call, outputs, inputs);
  return status != RN_OK ? status : run_quantize(call, execution);
}

}  // namespace
}  // namespace rmsnorm

extern "C" {

rn_rms_norm_quantize_options rn_rms_norm_quantize_defaults(void) {
  return {rn_rms_norm_defaults(), {RN_SCALE_PER_ROW, 1, 0}};
}

rn_add_rms_norm_quantize_options rn_add_rms_norm_quantize_defaults(void) {
  return {rn_add_rms_norm_defaults(), rn_rms_norm_quantize_defaults().quantization};
}

rn_status rn_rms_norm_quantize(const rn_view* out, const rn_view* scale, const rn_view* x, const rn_view* weight,
                               const rn_view* bias, const rn_rms_norm_quantize_options* options,
                               const rn_execution* execution) {
  const rn_rms_norm_quantize_options o = options != nullptr ? *options : rn_rms_norm_quantize_defaults();
  return rmsnorm::run({.function = "rn_rms_norm_quantize",
                       .add = false,
                       .out = out,
                       .scale = scale,
                       .x = x,
                       .weight = weight,
                       .bias = bias,
                       .norm = o.norm,
                       .quantization = o.quantization,
                       .execution = execution});
}

rn_status rn_add_rms_norm_quantize(const rn_view* out, const rn_view* residual_out, const rn_view* scale,
                                   const rn_view* x, const rn_view* residual, const rn_view* weight,
                                   const rn_view* bias, const rn_add_rms_norm_quantize_options* options,
                                   const rn_execution* execution) {
  const rn_add_rms_norm_quantize_options o = options != nullptr ? *options : rn_add_rms_norm_quantize_defaults();
  return rmsnorm::run({.function = "rn_add_rms_norm_quantize",
                       .add = true,
                       .out = out,
                       .residual_out = residual_out,
                       .scale = scale,
                       .x = x,
                       .residual = residual,
                       .weight = weight,
                       .bias = bias,
                       .norm = o.norm.norm,
                       .norm_input = rmsnorm::as_int(o.norm.norm_input),
                       .quantization = o.quantization,
                       .execution = execution});
}

}  // extern "C"
