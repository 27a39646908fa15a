// The C interface of norms whose hidden axis is split over devices.
#include <cinttypes>
#include <cmath>

#include "api/backward_arguments.h"
#include "api/norm_arguments.h"
#include "core/overlap.h"
#include "core/status.h"
#include "cpu/slice_sums.h"
#include "rmsnorm/sharded.h"

namespace rmsnorm {
namespace {

// What an entry point for sums was given. Operands that the operation does not have stay null.
struct SumArguments {
  const char* function;
  SliceSum what;
  const char* result_name;
  const rn_view *result, *gradients = nullptr, *x, *dy = nullptr, *weight = nullptr;
  bool centred = false;
  const rn_view* sum = nullptr;
  int64_t total_cols = 1;
  double weight_offset = 0;
  const rn_execution* execution;
};

rn_status take_operands(const SumArguments& a, SliceSumCall* call) {
  Taker taker(a.function, call);
  taker.also([&] { return require(a.function, a.result_name, a.result); });
  taker.x({"x", Form::kX, false, kFloatTypes}, a.x, &call->x);
  if (!taker.ok()) return taker.status();
  const TypeRules types = rules_for(a.x->type);
  const auto sums = [](const char* name, bool output) {
    return OperandRule{name, Form::kStatistic, output, bit(RN_F64)};
  };
  taker.required(sums(a.result_name, true), a.result, &call->result);
  if (a.what == SliceSum::kProducts) {
    if (a.centred) taker.required(sums("sum_gradients", true), a.gradients, &call->gradients);
    taker.required({"dy", Form::kSame, false, types.out}, a.dy, &call->dy);
    taker.optional({"weight", Form::kVector, false, types.weight}, a.weight, &call->weight);
  }
  if (a.centred) taker.required(sums("sum", false), a.sum, &call->sum);
  return taker.status();
}

rn_status run_sums(const SumArguments& a) {
  SliceSumCall call = {};
  rn_execution execution;
  rn_status status = take_operands(a, &call);
  if (status == RN_OK) status = check_slice(a.function, 0, a.total_cols);
  if (status == RN_OK && !std::isfinite(a.weight_offset)) {
    status = fail(RN_INVALID_VALUE, "%s: weight_offset is %g; it must be finite", a.function, a.weight_offset);
  }
  if (status == RN_OK) status = check_execution(a.function, a.execution, &execution);
  if (status != RN_OK || call.rows == 0) return status;
  call.what = a.what;
  call.weight_offset = a.weight_offset;
  call.total_cols = a.total_cols;
  Operand* const operands[] = {&call.x, &call.dy, &call.result, &call.gradients, &call.sum};
  collapse(&call, operands);
  const Claim outputs[] = {{a.result_name, &call.result, 1}, {"sum_gradients", &call.gradients, 1}};
  const Claim inputs[] = {{"x", &call.x, call.cols},
                          {"dy", &call.dy, call.cols},
                          {"weight", &call.weight, call.cols},
                          {"sum", &call.sum, 1}};
  status = check_overlap(a.function, call, outputs, inputs);
  return status != RN_OK ? status : run_slice_sums(call, execution);
}

}  // namespace
}  // namespace rmsnorm

using rmsnorm::BackwardArguments;
using rmsnorm::Norm;
using rmsnorm::NormArguments;
using rmsnorm::SliceSum;

extern "C" {

rn_status rn_add_rank_sums(double* total, const double* parts, int64_t ranks, int64_t count) {
  constexpr const char* kFunction = "rn_add_rank_sums";
  if (ranks < 1) {
    return rmsnorm::fail(RN_INVALID_VALUE, "%s: ranks is %" PRId64 "; it must be 1 or more", kFunction, ranks);
  }
  if (count < 0) {
    return rmsnorm::fail(RN_INVALID_VALUE, "%s: count is %" PRId64 "; it must be 0 or more", kFunction, count);
  }
  if (count == 0) return RN_OK;
  if (total == nullptr || parts == nullptr) {
    return rmsnorm::fail(RN_INVALID_TYPE, "%s: %s is NULL; it must point to the sums", kFunction,
                         total == nullptr ? "total" : "parts");
  }
  for (int64_t i = 0; i < count; ++i) {
    double sum = parts[i];
    for (int64_t rank = 1; rank < ranks; ++rank) sum += parts[rank * count + i];
    total[i] = sum;
  }
  return RN_OK;
}

rn_status rn_rms_sum_squares(const rn_view* sum_squares, const rn_view* x, const rn_execution* execution) {
  return rmsnorm::run_sums({.function = "rn_rms_sum_squares",
                            .what = SliceSum::kSquares,
                            .result_name = "sum_squares",
                            .result = sum_squares,
                            .x = x,
                            .execution = execution});
}

rn_status rn_layer_sum(const rn_view* sum, const rn_view* x, const rn_execution* execution) {
  return rmsnorm::run_sums({.function = "rn_layer_sum",
                            .what = SliceSum::kSum,
                            .result_name = "sum",
                            .result = sum,
                            .x = x,
                            .execution = execution});
}

rn_status rn_layer_sum_squares(const rn_view* sum_squares, const rn_view* x, const rn_view* sum, int64_t total_cols,
                               const rn_execution* execution) {
  return rmsnorm::run_sums({.function = "rn_layer_sum_squares",
                            .what = SliceSum::kSquares,
                            .result_name = "sum_squares",
                            .result = sum_squares,
                            .x = x,
                            .centred = true,
                            .sum = sum,
                            .total_cols = total_cols,
                            .execution = execution});
}

rn_status rn_rms_backward_sum(const rn_view* sum_products, const rn_view* dy, const rn_view* x, const rn_view* weight,
                              double weight_offset, const rn_execution* execution) {
  return rmsnorm::run_sums({.function = "rn_rms_backward_sum",
                            .what = SliceSum::kProducts,
                            .result_name = "sum_products",
                            .result = sum_products,
                            .x = x,
                            .dy = dy,
                            .weight = weight,
                            .weight_offset = weight_offset,
                            .execution = execution});
}

rn_status rn_layer_backward_sums(const rn_view* sum_gradients, const rn_view* sum_products, const rn_view* dy,
                                 const rn_view* x, const rn_view* sum, int64_t total_cols, const rn_view* weight,
                                 double weight_offset, const rn_execution* execution) {
  return rmsnorm::run_sums({.function = "rn_layer_backward_sums",
                            .what = SliceSum::kProducts,
                            .result_name = "sum_products",
                            .result = sum_products,
                            .gradients = sum_gradients,
                            .x = x,
                            .dy = dy,
                            .weight = weight,
                            .centred = true,
                            .sum = sum,
                            .total_cols = total_cols,
                            .weight_offset = weight_offset,
                            .execution = execution});
}

rn_status rn_rms_norm_apply(const rn_view* out, const rn_view* inv_rms, const rn_view* x, const rn_view* sum_squares,
                            int64_t total_cols, const rn_view* weight, const rn_view* bias,
                            const rn_rms_norm_options* options, const rn_execution* execution) {
  NormArguments a = {.function = "rn_rms_norm_apply", .norm = Norm::kRms, .add = false, .execution = execution};
  a.out = out;
  a.inv = inv_rms;
  a.x = x;
  a.slice = true;
  a.sum_squares = sum_squares;
  a.total_cols = total_cols;
  a.weight = weight;
  a.bias = bias;
  a.options = rmsnorm::norm_options(options != nullptr ? *options : rn_rms_norm_defaults());
  return rmsnorm::run_norm(a);
}

rn_status rn_layer_norm_apply(const rn_view* out, const rn_view* mean, const rn_view* inv_std, const rn_view* x,
                              const rn_view* sum, const rn_view* sum_squares, int64_t total_cols, const rn_view* weight,
                              const rn_view* bias, const rn_layer_norm_options* options,
                              const rn_execution* execution) {
  NormArguments a = {.function = "rn_layer_norm_apply", .norm = Norm::kLayer, .add = false, .execution = execution};
  a.inv_name = "inv_std";
  a.out = out;
  a.mean = mean;
  a.inv = inv_std;
  a.x = x;
  a.slice = true;
  a.sum = sum;
  a.sum_squares = sum_squares;
  a.total_cols = total_cols;
  a.weight = weight;
  a.bias = bias;
  a.options = rmsnorm::norm_options(options != nullptr ? *options : rn_layer_norm_defaults());
  return rmsnorm::run_norm(a);
}

rn_status rn_rms_norm_backward_apply(const rn_view* dx, const rn_view* dweight, const rn_view* dbias, const rn_view* dy,
                                     const rn_view* x, const rn_view* sum_squares, const rn_view* sum_products,
                                     int64_t total_cols, const rn_view* weight, const rn_scratch* scratch,
                                     const rn_rms_norm_backward_options* options, const rn_execution* execution) {
  const BackwardArguments a = {.function = "rn_rms_norm_backward_apply",
                               .norm = Norm::kRms,
                               .add = false,
                               .inv_name = "inv_rms",
                               .dx = dx,
                               .dweight = dweight,
                               .dbias = dbias,
                               .dy = dy,
                               .x = x,
                               .weight = weight,
                               .slice = true,
                               .sum_squares = sum_squares,
                               .sum_products = sum_products,
                               .total_cols = total_cols,
                               .scratch = scratch,
                               .execution = execution};
  return rmsnorm::run_backward(a, options != nullptr ? *options : rn_rms_norm_backward_defaults());
}

rn_status rn_layer_norm_backward_apply(const rn_view* dx, const rn_view* dweight, const rn_view* dbias,
                                       const rn_view* dy, const rn_view* x, const rn_view* sum,
                                       const rn_view* sum_squares, const rn_view* sum_gradients,
                                       const rn_view* sum_products, int64_t total_cols, const rn_view* weight,
                                       const rn_scratch* scratch, const rn_layer_norm_backward_options* options,
                                       const rn_execution* execution) {
  const BackwardArguments a = {.function = "rn_layer_norm_backward_apply",
                               .norm = Norm::kLayer,
                               .add = false,
                               .inv_name = "inv_std",
                               .dx = dx,
                               .dweight = dweight,
                               .dbias = dbias,
                               .dy = dy,
                               .x = x,
                               .weight = weight,
                               .slice = true,
                               .sum = sum,
                               .sum_squares = sum_squares,
                               .sum_gradients = sum_gradients,
                               .sum_products = sum_products,
                               .total_cols = total_cols,
                               .scratch = scratch,
                               .execution = execution};
  return rmsnorm::run_backward(a, options != nullptr ? *options : rn_layer_norm_backward_defaults());
}

}  // extern "C"
