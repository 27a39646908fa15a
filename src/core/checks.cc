#include "core/checks.h"

#include <cinttypes>
#include <cmath>

#include "core/overlap.h"
#include "core/status.h"
#include "core/views.h"

namespace rmsnorm {
namespace {

constexpr uint32_t bit(rn_type type) { return 1u << type; }
constexpr uint32_t kAnyType = bit(RN_F32) | bit(RN_F16) | bit(RN_BF16) | bit(RN_F64);

// The types that operands may have beside an x of a given type.
struct TypeRules {
  uint32_t out, residual, weight, statistic;
};

TypeRules rules_for(rn_type x) {
  constexpr uint32_t kWeights = bit(RN_F32) | bit(RN_F16) | bit(RN_BF16);
  switch (x) {
    case RN_F16:
    case RN_BF16:
      return {bit(x) | bit(RN_F32), bit(x) | bit(RN_F32), kWeights, bit(RN_F32)};
    case RN_F64:
      return {bit(RN_F64) | bit(RN_F32), bit(RN_F64), bit(RN_F64) | bit(RN_F32), bit(RN_F64)};
    case RN_F32:
      break;
  }
  return {bit(RN_F32) | bit(RN_F16) | bit(RN_BF16), bit(RN_F32), kWeights, bit(RN_F32)};
}

rn_status require(const char* function, const char* name, const void* view) {
  if (view != nullptr) return RN_OK;
  return fail(RN_INVALID_TYPE, "%s: %s is NULL; it must be a view", function, name);
}

rn_status check_number(const char* function, const char* name, double value, bool may_be_negative) {
  if (std::isfinite(value) && (may_be_negative || value >= 0)) return RN_OK;
  return fail(RN_INVALID_VALUE, "%s: options.%s is %g; it must be %s", function, name, value,
              may_be_negative ? "finite" : "finite and 0 or more");
}

// Enumerations count from 0.
rn_status check_choice(const char* function, const char* name, int value, int last, const char* rule) {
  if (value >= 0 && value <= last) return RN_OK;
  return fail(RN_INVALID_VALUE, "%s: options.%s is %d; it must be %s", function, name, value, rule);
}

rn_status check_options(const NormArguments& a, int64_t cols) {
  rn_status status = check_number(a.function, "epsilon", a.epsilon, false);
  if (status == RN_OK) status = check_number(a.function, "weight_offset", a.weight_offset, true);
  if (status == RN_OK) {
    status = check_choice(a.function, "epsilon_placement", a.epsilon_placement, RN_EPSILON_OUTSIDE,
                          "RN_EPSILON_INSIDE (0) or RN_EPSILON_OUTSIDE (1)");
  }
  if (status == RN_OK) {
    status = check_choice(a.function, "rounding", a.rounding, RN_ROUND_EXACT,
                          "RN_ROUND_ONCE (0), RN_ROUND_BEFORE_WEIGHT (1) or RN_ROUND_EXACT (2)");
  }
  if (status == RN_OK) {
    status = check_choice(a.function, "norm_input", a.norm_input, RN_NORM_UNROUNDED_SUM,
                          "RN_NORM_ROUNDED_SUM (0) or RN_NORM_UNROUNDED_SUM (1)");
  }
  if (status == RN_OK && (a.partial < 0 || a.partial > cols)) {
    status = fail(RN_INVALID_VALUE,
                  "%s: options.partial is %" PRId64 "; it must be from 0 (all) to %" PRId64 ", the columns of x",
                  a.function, a.partial, cols);
  }
  return status;
}

rn_status check_execution(const NormArguments& a, rn_execution* execution) {
  *execution = a.execution != nullptr ? *a.execution : rn_execution{};
  if (execution->threads >= 0) return RN_OK;
  return fail(RN_INVALID_VALUE, "%s: execution.threads is %" PRId32 "; it must be 0 (all CPUs) or more", a.function,
              execution->threads);
}

rn_status take_operands(const NormArguments& a, NormCall* call) {
  rn_status status = require(a.function, "out", a.out);
  if (status == RN_OK && a.add) status = require(a.function, "residual_out", a.residual_out);
  if (status == RN_OK) status = require(a.function, "x", a.x);
  if (status == RN_OK && a.add) status = require(a.function, "residual", a.residual);
  if (status == RN_OK) status = take_x(a.function, {"x", Form::kX, false, kAnyType}, *a.x, call);
  if (status != RN_OK) return status;

  const TypeRules types = rules_for(a.x->type);
  const auto take = [&](OperandRule rule, const rn_view* view, Operand* operand) {
    if (status == RN_OK && view != nullptr) status = take_operand(a.function, rule, *view, *a.x, *call, operand);
  };
  take({"out", Form::kSame, true, types.out}, a.out, &call->out);
  take({"residual_out", Form::kSame, true, types.residual}, a.residual_out, &call->residual_out);
  take({"mean", Form::kStatistic, true, types.statistic}, a.mean, &call->mean);
  take({a.inv_name, Form::kStatistic, true, types.statistic}, a.inv, &call->inv);
  take({"residual", Form::kSame, false, types.residual}, a.residual, &call->residual);
  take({"weight", Form::kBroadcast, false, types.weight}, a.weight, &call->weight);
  take({"bias", Form::kBroadcast, false, types.weight}, a.bias, &call->bias);
  return status;
}

}  // namespace

rn_status make_call(const NormArguments& a, NormCall* call, rn_execution* execution) {
  *call = NormCall{};
  rn_status status = take_operands(a, call);
  if (status == RN_OK) status = check_options(a, call->cols);
  if (status == RN_OK) status = check_execution(a, execution);
  if (status != RN_OK || call->rows == 0) return status;

  call->norm = a.norm;
  call->add = a.add;
  call->unrounded_sum = a.norm_input == RN_NORM_UNROUNDED_SUM;
  call->epsilon_outside = a.epsilon_placement == RN_EPSILON_OUTSIDE;
  call->rounding = static_cast<rn_rounding>(a.rounding);
  call->partial = a.partial == 0 ? call->cols : a.partial;
  call->epsilon = a.epsilon;
  call->weight_offset = a.weight_offset;
  collapse(call);
  return check_overlap(a.function, a.inv_name, *call);
}

}  // namespace rmsnorm
