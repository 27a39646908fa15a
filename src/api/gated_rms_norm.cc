// The C interface of gated RMSNorm and its backward: arguments are gathered, checked and handed on.
#include "rmsnorm/gated_rms_norm.h"

#include <cinttypes>

#include "core/backward_call.h"
#include "core/overlap.h"
#include "core/rules.h"
#include "core/status.h"
#include "cpu/gated_rms_norm.h"

namespace rmsnorm {
namespace {

constexpr char kForward[] = "rn_gated_rms_norm";
constexpr char kBackward[] = "rn_gated_rms_norm_backward";

rn_status check_options(const char* function, const rn_gated_rms_norm_options& o, int64_t cols) {
  rn_status status = check_number(function, "epsilon", o.epsilon, false);
  if (status == RN_OK) {
    status = check_choice(function, "gate_order", as_int(o.gate_order), RN_GATE_FIRST,
                          "RN_GATE_LAST (0) or RN_GATE_FIRST (1)");
  }
  if (status == RN_OK) {
    status = check_choice(function, "rounding", as_int(o.rounding), RN_ROUND_BEFORE_WEIGHT,
                          "RN_ROUND_ONCE (0) or RN_ROUND_BEFORE_WEIGHT (1)");
  }
  if (status == RN_OK && (o.groups < 1 || cols % o.groups != 0)) {
    status = fail(RN_INVALID_VALUE, "%s: options.groups is %" PRId64 "; it must divide %" PRId64 ", the columns of x",
                  function, o.groups, cols);
  }
  return status;
}

void set_groups(const rn_gated_rms_norm_options& o, const rn_view* inv, GatedShape* call) {
  call->gate_first = o.gate_order == RN_GATE_FIRST;
  call->groups = o.groups;
  call->width = call->cols / o.groups;
  call->epsilon = o.epsilon;
  if (inv != nullptr && o.groups > 1) call->inv_step = inv->strides[inv->rank - 1] * type_size(inv->type);
}

// The rows with their groups as one more axis, for the search for overlaps: inv_rms may have any stride there. Where no
// axis is left, rows are looked at whole, and an inv_rms that is not dense counts as undecided.
class WithGroups : public RowShape {
 public:
  explicit WithGroups(const GatedShape& call)
      : RowShape(call), call_(call), adds_axis_(call.groups > 1 && call.leading < kMaxLeading) {
    if (adds_axis_) shape[leading++] = call.groups;
  }

  Operand elements(const Operand& operand) const { return step(operand, call_.width * type_size(operand.type)); }
  Operand statistic(const Operand& operand) const {
    Operand result = step(operand, call_.inv_step);
    if (statistic_columns() > 1 && call_.inv_step != type_size(operand.type)) result.base = nullptr;
    return result;
  }
  int64_t columns() const { return adds_axis_ ? call_.width : call_.cols; }
  int64_t statistic_columns() const { return adds_axis_ ? 1 : call_.groups; }

 private:
  Operand step(Operand operand, int64_t bytes) const {
    if (adds_axis_) operand.strides[leading - 1] = bytes;
    return operand;
  }

  const GatedShape& call_;
  bool adds_axis_;
};

rn_status check_overlaps(const GatedCall& call) {
  const WithGroups rows(call);
  const Operand out = rows.elements(call.out), x = rows.elements(call.x), gate = rows.elements(call.gate);
  const Operand weight = rows.elements(call.weight), inv = rows.statistic(call.inv);
  const Claim outputs[] = {{"out", &out, rows.columns(), &x}, {"inv_rms", &inv, rows.statistic_columns()}};
  const Claim inputs[] = {
      {"x", &x, rows.columns()}, {"gate", &gate, rows.columns()}, {"weight", &weight, rows.columns()}};
  return check_overlap(kForward, rows, outputs, inputs);
}

rn_status check_overlaps(const GatedBackwardCall& call) {
  const WithGroups rows(call);
  const Operand dx = rows.elements(call.dx), dgate = rows.elements(call.dgate), dy = rows.elements(call.dy);
  const Operand x = rows.elements(call.x), gate = rows.elements(call.gate), inv = rows.statistic(call.inv);
  // The scratch as one more output: no other may lie in it, and no input be written through it.
  const Operand scratch = {reinterpret_cast<char*>(call.sums), RN_F64, {}};
  const int64_t words = call.sums == nullptr ? 0 : block_count(call.rows) * call.cols;
  const Claim outputs[] = {{"dx", &dx, rows.columns(), &dy},
                           {"dgate", &dgate, rows.columns()},
                           {"dweight", &call.dweight, call.cols, nullptr, true},
                           {"scratch", &scratch, words, nullptr, true}};
  const Claim inputs[] = {{"dy", &dy, rows.columns()},
                          {"x", &x, rows.columns()},
                          {"gate", &gate, rows.columns()},
                          {"weight", &call.weight, call.cols, nullptr, true},
                          {"inv_rms", &inv, rows.statistic_columns()}};
  return check_overlap(kBackward, rows, outputs, inputs);
}

}  // namespace
}  // namespace rmsnorm

using rmsnorm::Form;

extern "C" {

rn_gated_rms_norm_options rn_gated_rms_norm_defaults(void) { return {1e-6, RN_GATE_LAST, RN_ROUND_ONCE, 1}; }

rn_gated_rms_norm_backward_options rn_gated_rms_norm_backward_defaults(void) {
  return {rn_gated_rms_norm_defaults(), 0};
}

rn_status rn_gated_rms_norm(const rn_view* out, const rn_view* inv_rms, const rn_view* x, const rn_view* gate,
                            const rn_view* weight, const rn_gated_rms_norm_options* options,
                            const rn_execution* execution) {
  using namespace rmsnorm;
  const rn_gated_rms_norm_options o = options != nullptr ? *options : rn_gated_rms_norm_defaults();
  GatedCall call = {};
  rn_execution where;
  Taker taker(kForward, &call);
  taker.x({"x", Form::kX, false, kFloatTypes}, x, &call.x);
  taker.also([&] { return check_options(kForward, o, call.cols); });
  if (!taker.ok()) return taker.status();
  const TypeRules types = rules_for(x->type);
  taker.required({"out", Form::kSame, true, types.out}, out, &call.out);
  taker.optional({"inv_rms", Form::kOwnCols, true, types.statistic, o.groups}, inv_rms, &call.inv);
  taker.required({"gate", Form::kSame, false, types.out}, gate, &call.gate);
  taker.optional({"weight", Form::kBroadcast, false, types.weight}, weight, &call.weight);
  taker.also([&] { return check_execution(kForward, execution, &where); });
  if (!taker.ok() || call.rows == 0) return taker.status();

  set_groups(o, inv_rms, &call);
  // f32 and f64 are rounded like that by their own arithmetic.
  call.round_norm = o.rounding == RN_ROUND_BEFORE_WEIGHT && (bit(x->type) & k16BitTypes) != 0;
  call.round_product = call.round_norm && weight != nullptr && weight->type == x->type;
  Operand* const operands[] = {&call.out, &call.x, &call.gate, &call.weight, &call.inv};
  collapse(&call, operands);
  const rn_status status = check_overlaps(call);
  return status != RN_OK ? status : run_gated(call, where);
}

rn_status rn_gated_rms_norm_backward(const rn_view* dx, const rn_view* dgate, const rn_view* dweight, const rn_view* dy,
                                     const rn_view* x, const rn_view* gate, const rn_view* weight,
                                     const rn_view* inv_rms, const rn_scratch* scratch,
                                     const rn_gated_rms_norm_backward_options* options, const rn_execution* execution) {
  using namespace rmsnorm;
  const rn_gated_rms_norm_backward_options o = options != nullptr ? *options : rn_gated_rms_norm_backward_defaults();
  if (dx == nullptr && dgate == nullptr && dweight == nullptr) {
    return fail(RN_INVALID_TYPE, "%s: dx, dgate and dweight are NULL; one of them must be a view", kBackward);
  }
  GatedBackwardCall call = {};
  rn_execution where;
  Taker taker(kBackward, &call);
  taker.x({"x", Form::kX, false, kFloatTypes}, x, &call.x);
  taker.also([&] { return check_options(kBackward, o.norm, call.cols); });
  if (!taker.ok()) return taker.status();
  const TypeRules types = rules_for(x->type);
  taker.optional({"dx", Form::kSame, true, types.out}, dx, &call.dx);
  taker.optional({"dgate", Form::kSame, true, types.out}, dgate, &call.dgate);
  taker.optional({"dweight", Form::kVector, true, types.weight}, dweight, &call.dweight);
  taker.required({"dy", Form::kSame, false, types.out}, dy, &call.dy);
  taker.required({"gate", Form::kSame, false, types.out}, gate, &call.gate);
  taker.optional({"weight", Form::kVector, false, types.weight}, weight, &call.weight);
  taker.optional({"inv_rms", Form::kOwnCols, false, types.statistic, o.norm.groups}, inv_rms, &call.inv);
  taker.also([&] { return check_choice(kBackward, "accumulate", o.accumulate, 1, "0 or 1"); });
  taker.also([&] { return check_execution(kBackward, execution, &where); });
  taker.also([&] {
    return check_scratch(kBackward, scratch, dweight != nullptr ? rn_backward_scratch_bytes(call.rows, call.cols) : 0,
                         "rn_backward_scratch_bytes", "dweight is wanted", &call.sums);
  });
  if (!taker.ok()) return taker.status();

  set_groups(o.norm, inv_rms, &call);
  call.accumulate = o.accumulate != 0;
  if (call.rows == 0) {
    call.leading = 0;  // dweight remains
  } else {
    Operand* const operands[] = {&call.dy, &call.dx, &call.dgate, &call.x, &call.gate, &call.inv};
    collapse(&call, operands);
  }
  const rn_status status = check_overlaps(call);
  return status != RN_OK ? status : run_gated_backward(call, where);
}

}  // extern "C"
