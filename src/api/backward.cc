// The C interface of the backward norms: arguments are gathered, checked and handed on.
#include <cinttypes>

#include "api/backward_arguments.h"
#include "core/backward_call.h"
#include "core/overlap.h"
#include "core/rules.h"
#include "core/status.h"
#include "cpu/backward.h"
#include "rmsnorm/backward.h"

namespace rmsnorm {
namespace {

rn_status take_operands(const BackwardArguments& a, BackwardCall* call) {
  const char* x_name = a.add ? "sum" : "x";
  if (a.dx == nullptr && a.dresidual == nullptr) return require(a.function, "dx", nullptr);
  Taker taker(a.function, call);
  taker.x({x_name, Form::kX, false, kFloatTypes}, a.x, &call->x);
  if (!taker.ok()) return taker.status();
  const TypeRules types = rules_for(a.x->type);
  // The sum of an add form may be f32 beside 16-bit gradients; its own type says nothing about theirs.
  const uint32_t rows = a.add && a.x->type != RN_F64 ? kFloatTypes & ~bit(RN_F64) : types.out;
  taker.optional({"dx", Form::kSame, true, rows}, a.dx, &call->dx);
  taker.optional({"dresidual", Form::kSame, true, rows}, a.dresidual, &call->dresidual);
  taker.optional({"dweight", Form::kVector, true, types.weight}, a.dweight, &call->dweight);
  taker.optional({"dbias", Form::kVector, true, types.weight}, a.dbias, &call->dbias);
  taker.required({"dy", Form::kSame, false, rows}, a.dy, &call->dy);
  taker.optional({"d_residual_out", Form::kSame, false, rows}, a.d_residual_out, &call->d_residual_out);
  const auto total = [&](const char* name, const rn_view* view, Operand* operand, bool wanted) {
    const OperandRule rule = {name, Form::kStatistic, false, bit(RN_F64)};
    if (a.slice && wanted) taker.required(rule, view, operand);
  };
  const bool layer = a.norm == Norm::kLayer;
  total("sum", a.sum, &call->sum, layer);
  total("sum_squares", a.sum_squares, &call->sum_squares, true);
  total("sum_gradients", a.sum_gradients, &call->sum_gradients, layer);
  total("sum_products", a.sum_products, &call->sum_products, true);
  taker.optional({"weight", Form::kVector, false, types.weight}, a.weight, &call->weight);
  taker.optional({a.inv_name, Form::kStatistic, false, types.statistic}, a.inv, &call->inv);
  return taker.status();
}

rn_status check_overlaps(const BackwardArguments& a, const BackwardCall& call) {
  // The scratch as one more output: no other may lie in it, and no input be written through it.
  const Operand scratch = {reinterpret_cast<char*>(call.sums), RN_F64, {}};
  const int64_t words = call.sums == nullptr ? 0 : kSumsPerColumn * block_count(call.rows) * call.cols;
  const Claim outputs[] = {{"dx", &call.dx, call.cols, &call.dy},
                           {"dresidual", &call.dresidual, call.cols, &call.dy},
                           {"dweight", &call.dweight, call.cols, nullptr, true},
                           {"dbias", &call.dbias, call.cols, nullptr, true},
                           {"scratch", &scratch, words, nullptr, true}};
  const Claim inputs[] = {{"dy", &call.dy, call.cols},
                          {a.add ? "sum" : "x", &call.x, call.cols},
                          {"d_residual_out", &call.d_residual_out, call.cols},
                          {"weight", &call.weight, call.cols},
                          {a.inv_name, &call.inv, 1},
                          {"sum", &call.sum, 1},
                          {"sum_squares", &call.sum_squares, 1},
                          {"sum_gradients", &call.sum_gradients, 1},
                          {"sum_products", &call.sum_products, 1}};
  return check_overlap(a.function, call, outputs, inputs);
}

}  // namespace

rn_status run_backward(const BackwardArguments& a) {
  BackwardCall call = {};
  rn_execution execution;
  rn_status status = take_operands(a, &call);
  if (status == RN_OK) status = check_norm_options(a.function, a.options, call.cols);
  if (status == RN_OK && a.slice) status = check_slice(a.function, a.options.partial, a.total_cols);
  if (status == RN_OK) status = check_choice(a.function, "accumulate", a.accumulate, 1, "0 or 1");
  if (status == RN_OK) status = check_execution(a.function, a.execution, &execution);
  const bool sums = a.dweight != nullptr || a.dbias != nullptr;
  if (status == RN_OK) {
    status = check_scratch(a.function, a.scratch, sums ? rn_backward_scratch_bytes(call.rows, call.cols) : 0,
                           "rn_backward_scratch_bytes", "dweight or dbias is wanted", &call.sums);
  }
  if (status != RN_OK) return status;
  call.norm = a.norm;
  call.accumulate = a.accumulate != 0;
  call.epsilon_outside = a.options.epsilon_placement == RN_EPSILON_OUTSIDE;
  call.partial = a.options.partial == 0 ? call.cols : a.options.partial;
  call.slice = a.slice;
  call.total_cols = a.slice ? a.total_cols : call.partial;
  call.epsilon = a.options.epsilon;
  call.weight_offset = a.options.weight_offset;
  if (call.rows == 0) {
    call.leading = 0;  // the vectors remain
  } else {
    Operand* const operands[] = {
        &call.dy,  &call.dx,          &call.dresidual,     &call.x,           &call.d_residual_out, &call.inv,
        &call.sum, &call.sum_squares, &call.sum_gradients, &call.sum_products};
    collapse(&call, operands);
  }
  status = check_overlaps(a, call);
  return status != RN_OK ? status : run_backward(call, execution);
}

}  // namespace rmsnorm

using rmsnorm::BackwardArguments;
using rmsnorm::Norm;

extern "C" {

rn_rms_norm_backward_options rn_rms_norm_backward_defaults(void) { return {rn_rms_norm_defaults(), 0}; }

rn_layer_norm_backward_options rn_layer_norm_backward_defaults(void) { return {rn_layer_norm_defaults(), 0}; }

int64_t rn_backward_scratch_bytes(int64_t rows, int64_t cols) {
  if (rows < 0 || rows > rmsnorm::kMaxRows || cols < 1 || cols > rmsnorm::kMaxCols) return -1;
  return rmsnorm::block_count(rows) * rmsnorm::kSumsPerColumn * cols * static_cast<int64_t>(sizeof(double));
}

rn_status rn_rms_norm_backward(const rn_view* dx, const rn_view* dweight, const rn_view* dbias, const rn_view* dy,
                               const rn_view* x, const rn_view* weight, const rn_view* inv_rms,
                               const rn_scratch* scratch, const rn_rms_norm_backward_options* options,
                               const rn_execution* execution) {
  const BackwardArguments a = {.function = "rn_rms_norm_backward",
                               .norm = Norm::kRms,
                               .add = false,
                               .inv_name = "inv_rms",
                               .dx = dx,
                               .dweight = dweight,
                               .dbias = dbias,
                               .dy = dy,
                               .x = x,
                               .weight = weight,
                               .inv = inv_rms,
                               .scratch = scratch,
                               .execution = execution};
  return rmsnorm::run_backward(a, options != nullptr ? *options : rn_rms_norm_backward_defaults());
}

rn_status rn_layer_norm_backward(const rn_view* dx, const rn_view* dweight, const rn_view* dbias, const rn_view* dy,
                                 const rn_view* x, const rn_view* weight, const rn_view* inv_std,
                                 const rn_scratch* scratch, const rn_layer_norm_backward_options* options,
                                 const rn_execution* execution) {
  const BackwardArguments a = {.function = "rn_layer_norm_backward",
                               .norm = Norm::kLayer,
                               .add = false,
                               .inv_name = "inv_std",
                               .dx = dx,
                               .dweight = dweight,
                               .dbias = dbias,
                               .dy = dy,
                               .x = x,
                               .weight = weight,
                               .inv = inv_std,
                               .scratch = scratch,
                               .execution = execution};
  return rmsnorm::run_backward(a, options != nullptr ? *options : rn_layer_norm_backward_defaults());
}

rn_status rn_add_rms_norm_backward(const rn_view* dx, const rn_view* dresidual, const rn_view* dweight,
                                   const rn_view* dbias, const rn_view* dy, const rn_view* d_residual_out,
                                   const rn_view* sum, const rn_view* weight, const rn_view* inv_rms,
                                   const rn_scratch* scratch, const rn_rms_norm_backward_options* options,
                                   const rn_execution* execution) {
  const BackwardArguments a = {.function = "rn_add_rms_norm_backward",
                               .norm = Norm::kRms,
                               .add = true,
                               .inv_name = "inv_rms",
                               .dx = dx,
                               .dresidual = dresidual,
                               .dweight = dweight,
                               .dbias = dbias,
                               .dy = dy,
                               .x = sum,
                               .d_residual_out = d_residual_out,
                               .weight = weight,
                               .inv = inv_rms,
                               .scratch = scratch,
                               .execution = execution};
  return rmsnorm::run_backward(a, options != nullptr ? *options : rn_rms_norm_backward_defaults());
}

rn_status rn_add_layer_norm_backward(const rn_view* dx, const rn_view* dresidual, const rn_view* dweight,
                                     const rn_view* dbias, const rn_view* dy, const rn_view* d_residual_out,
                                     const rn_view* sum, const rn_view* weight, const rn_view* inv_std,
                                     const rn_scratch* scratch, const rn_layer_norm_backward_options* options,
                                     const rn_execution* execution) {
  const BackwardArguments a = {.function = "rn_add_layer_norm_backward",
                               .norm = Norm::kLayer,
                               .add = true,
                               .inv_name = "inv_std",
                               .dx = dx,
                               .dresidual = dresidual,
                               .dweight = dweight,
                               .dbias = dbias,
                               .dy = dy,
                               .x = sum,
                               .d_residual_out = d_residual_out,
                               .weight = weight,
                               .inv = inv_std,
                               .scratch = scratch,
                               .execution = execution};
  return rmsnorm::run_backward(a, options != nullptr ? *options : rn_layer_norm_backward_defaults());
}

}  // extern "C"
