#include "core/checks.h"

#include "core/overlap.h"
#include "core/status.h"
#include "core/views.h"

namespace rmsnorm {
namespace {

rn_status take_operands(const NormArguments& a, NormCall* call) {
  // What is missing is said first, then what is wrong with x, then with the others.
  rn_status status = require(a.function, "out", a.out);
  if (status == RN_OK && a.add) status = require(a.function, "residual_out", a.residual_out);
  if (status == RN_OK) status = require(a.function, "x", a.x);
  if (status == RN_OK && a.add) status = require(a.function, "residual", a.residual);
  if (status == RN_OK && a.slice && a.norm == Norm::kLayer) status = require(a.function, "sum", a.sum);
  if (status == RN_OK && a.slice) status = require(a.function, "sum_squares", a.sum_squares);
  if (status != RN_OK) return status;

  Taker taker(a.function, call);
  taker.x({"x", Form::kX, false, kFloatTypes}, a.x, &call->x);
  if (!taker.ok()) return taker.status();
  const TypeRules types = rules_for(a.x->type);
  taker.optional({"out", Form::kSame, true, types.out}, a.out, &call->out);
  taker.optional({"residual_out", Form::kSame, true, types.residual}, a.residual_out, &call->residual_out);
  taker.optional({"mean", Form::kStatistic, true, types.statistic}, a.mean, &call->mean);
  taker.optional({a.inv_name, Form::kStatistic, true, types.statistic}, a.inv, &call->inv);
  taker.optional({"residual", Form::kSame, false, types.residual}, a.residual, &call->residual);
  taker.optional({"sum", Form::kStatistic, false, bit(RN_F64)}, a.sum, &call->sum);
  taker.optional({"sum_squares", Form::kStatistic, false, bit(RN_F64)}, a.sum_squares, &call->sum_squares);
  taker.optional({"weight", Form::kBroadcast, false, types.weight}, a.weight, &call->weight);
  taker.optional({"bias", Form::kBroadcast, false, types.weight}, a.bias, &call->bias);
  return taker.status();
}

rn_status check_options(const NormArguments& a, int64_t cols) {
  const rn_status status = check_norm_options(a.function, a.options, cols);
  if (status != RN_OK) return status;
  if (a.slice) return check_slice(a.function, a.options.partial, a.total_cols);
  return check_norm_input(a.function, a.norm_input);
}

}  // namespace

rn_status make_call(const NormArguments& a, NormCall* call, rn_execution* execution) {
  *call = NormCall{};
  rn_status status = take_operands(a, call);
  if (status == RN_OK) status = check_options(a, call->cols);
  if (status == RN_OK) status = check_execution(a.function, a.execution, execution);
  if (status != RN_OK || call->rows == 0) return status;

  call->norm = a.norm;
  call->add = a.add;
  call->unrounded_sum = a.norm_input == RN_NORM_UNROUNDED_SUM;
  call->epsilon_outside = a.options.epsilon_placement == RN_EPSILON_OUTSIDE;
  call->rounding = static_cast<rn_rounding>(a.options.rounding);
  call->partial = a.options.partial == 0 ? call->cols : a.options.partial;
  call->epsilon = a.options.epsilon;
  call->weight_offset = a.options.weight_offset;
  call->total_cols = a.slice ? a.total_cols : 0;
  Operand* const operands[] = {&call->out,      &call->residual_out, &call->mean, &call->inv, &call->x,
                               &call->residual, &call->weight,       &call->bias, &call->sum, &call->sum_squares};
  collapse(call, operands);
  const Claim outputs[] = {{"out", &call->out, call->cols, &call->x},
                           {"residual_out", &call->residual_out, call->cols, &call->residual},
                           {"mean", &call->mean, 1},
                           {a.inv_name, &call->inv, 1}};
  const Claim inputs[] = {{"x", &call->x, call->cols},
                          {"residual", &call->residual, call->cols},
                          {"weight", &call->weight, call->cols},
                          {"bias", &call->bias, call->cols},
                          {"sum", &call->sum, 1},
                          {"sum_squares", &call->sum_squares, 1}};
  return check_overlap(a.function, *call, outputs, inputs);
}

}  // namespace rmsnorm
