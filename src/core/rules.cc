#include "core/rules.h"

#include <cinttypes>
#include <cmath>

#include "core/status.h"

namespace rmsnorm {

TypeRules rules_for(rn_type x) {
  constexpr uint32_t kWeights = bit(RN_F32) | bit(RN_F16) | bit(RN_BF16);
  switch (x) {
    case RN_F16:
    case RN_BF16:
      return {bit(x) | bit(RN_F32), bit(x) | bit(RN_F32), kWeights, bit(RN_F32)};
    case RN_F64:
      return {bit(RN_F64) | bit(RN_F32), bit(RN_F64), bit(RN_F64) | bit(RN_F32), bit(RN_F64)};
    default:
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

NormOptions norm_options(const rn_rms_norm_options& o) {
  return {o.epsilon, o.weight_offset, as_int(o.epsilon_placement), as_int(o.rounding), o.partial};
}

NormOptions norm_options(const rn_layer_norm_options& o) {
  NormOptions options;
  options.epsilon = o.epsilon;
  options.weight_offset = o.weight_offset;
  return options;
}

rn_status check_norm_options(const char* function, const NormOptions& o, int64_t cols) {
  rn_status status = check_number(function, "epsilon", o.epsilon, false);
  if (status == RN_OK) status = check_number(function, "weight_offset", o.weight_offset, true);
  if (status == RN_OK) {
    status = check_choice(function, "epsilon_placement", o.epsilon_placement, RN_EPSILON_OUTSIDE,
                          "RN_EPSILON_INSIDE (0) or RN_EPSILON_OUTSIDE (1)");
  }
  if (status == RN_OK) {
    status = check_choice(function, "rounding", o.rounding, RN_ROUND_EXACT,
                          "RN_ROUND_ONCE (0), RN_ROUND_BEFORE_WEIGHT (1) or RN_ROUND_EXACT (2)");
  }
  if (status == RN_OK && (o.partial < 0 || o.partial > cols)) {
    status = fail(RN_INVALID_VALUE,
                  "%s: options.partial is %" PRId64 "; it must be from 0 (all) to %" PRId64 ", the columns of x",
                  function, o.partial, cols);
  }
  return status;
}

rn_status check_norm_input(const char* function, int norm_input) {
  return check_choice(function, "norm_input", norm_input, RN_NORM_UNROUNDED_SUM,
                      "RN_NORM_ROUNDED_SUM (0) or RN_NORM_UNROUNDED_SUM (1)");
}

rn_status check_slice(const char* function, int64_t partial, int64_t total_cols) {
  if (partial != 0) {
    return fail(RN_INVALID_VALUE, "%s: options.partial is %" PRId64 "; it must be 0 where x is a slice of its row",
                function, partial);
  }
  if (total_cols >= 1 && total_cols <= kMaxTotalCols) return RN_OK;
  return fail(RN_INVALID_VALUE, "%s: total_cols is %" PRId64 "; it must be from 1 to 2^40", function, total_cols);
}

rn_status check_execution(const char* function, const rn_execution* given, rn_execution* execution) {
  *execution = given != nullptr ? *given : rn_execution{};
  if (execution->threads >= 0) return RN_OK;
  return fail(RN_INVALID_VALUE, "%s: execution.threads is %" PRId32 "; it must be 0 (all CPUs) or more", function,
              execution->threads);
}

rn_status check_scratch(const char* function, const rn_scratch* scratch, int64_t needed, const char* sizes,
                        const char* wanted, double** memory) {
  *memory = nullptr;
  if (needed == 0) return RN_OK;
  if (scratch == nullptr) {
    return fail(RN_INVALID_TYPE, "%s: scratch is NULL; it must be given%s%s", function,
                wanted != nullptr ? " where " : ", see ", wanted != nullptr ? wanted : sizes);
  }
  if (scratch->bytes < needed) {
    return fail(RN_INVALID_VALUE, "%s: scratch.bytes is %" PRId64 "; it must be at least %" PRId64 ", see %s", function,
                scratch->bytes, needed, sizes);
  }
  if (scratch->data == nullptr || reinterpret_cast<uintptr_t>(scratch->data) % sizeof(double) != 0) {
    return fail(RN_INVALID_VALUE, "%s: scratch.data is %p; it must be a multiple of 8 and not NULL", function,
                scratch->data);
  }
  *memory = static_cast<double*>(scratch->data);
  return RN_OK;
}

void Taker::x(const OperandRule& rule, const rn_view* view, Operand* operand) {
  x_ = view;
  also([&] { return require(function_, rule.name, view); });
  also([&] { return take_x(function_, rule, *view, shape_, operand); });
}

void Taker::required(const OperandRule& rule, const rn_view* view, Operand* operand) {
  also([&] { return require(function_, rule.name, view); });
  optional(rule, view, operand);
}

void Taker::optional(const OperandRule& rule, const rn_view* view, Operand* operand) {
  if (view != nullptr) also([&] { return take_operand(function_, rule, *view, *x_, *shape_, operand); });
}

}  // namespace rmsnorm
