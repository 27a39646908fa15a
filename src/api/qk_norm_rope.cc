// The C interface of the norm of Q and K with rotary embedding: arguments are gathered, checked and handed on.
#include "cpu/qk_norm_rope.h"

#include <cinttypes>

#include "core/overlap.h"
#include "core/rules.h"
#include "core/status.h"
#include "rmsnorm/rope.h"

namespace rmsnorm {
namespace {

constexpr char kFunction[] = "rn_qk_norm_rope";

// Q or K as given, with names for messages.
struct HeadArguments {
  const char *out_name, *name, *weight_name;
  const rn_view *out, *x, *weight;
};

int64_t step_of(const rn_view* view) {
  if (view == nullptr || view->rank < 2 || view->shape[view->rank - 2] <= 1) return 0;
  return view->strides[view->rank - 2] * type_size(view->type);
}

// Leaves the strides of the token axes in the operands and those of the heads in the steps.
rn_status take_heads(const HeadArguments& a, RowShape* shape, Heads* heads) {
  Taker taker(kFunction, shape);
  taker.x({a.name, Form::kX, false, kFloatTypes}, a.x, &heads->x);
  if (!taker.ok()) return taker.status();
  if (a.x->rank < 2) {
    return fail(RN_INVALID_VALUE, "%s: %s.rank is %" PRId32 "; it must be from 2, for heads and columns, to %d",
                kFunction, a.name, a.x->rank, RN_MAX_RANK);
  }
  const TypeRules types = rules_for(a.x->type);
  taker.required({.name = a.out_name, .form = Form::kSame, .output = true, .types = types.out, .of = a.name}, a.out,
                 &heads->out);
  taker.optional(
      {.name = a.weight_name, .form = Form::kBroadcast, .output = false, .types = types.weight, .of = a.name}, a.weight,
      &heads->weight);
  heads->count = a.x->shape[a.x->rank - 2];
  heads->out_step = step_of(a.out);
  heads->x_step = step_of(a.x);
  heads->weight_step = step_of(a.weight);
  return taker.status();
}

rn_status check_same_tokens(const rn_view& q, const rn_view& k) {
  if (k.type != q.type) {
    return fail(RN_INVALID_TYPE, "%s: k.type is %s; it must be %s, the type of q", kFunction, rn_type_name(k.type),
                rn_type_name(q.type));
  }
  if (k.rank != q.rank) {
    return fail(RN_INVALID_VALUE, "%s: k.rank is %" PRId32 "; it must be %" PRId32 ", the rank of q", kFunction, k.rank,
                q.rank);
  }
  for (int axis = 0; axis < q.rank; ++axis) {
    if (axis == q.rank - 2 || k.shape[axis] == q.shape[axis]) continue;
    return fail(RN_INVALID_VALUE, "%s: k.shape[%d] is %" PRId64 "; it must be %" PRId64 ", the size of q.shape[%d]",
                kFunction, axis, k.shape[axis], q.shape[axis], axis);
  }
  return RN_OK;
}

rn_status take_table(const rn_view* table, const RowShape& tokens, QkNormRopeCall* call) {
  if (table == nullptr) return RN_OK;
  // As if it were an x: any number of rows, of any stride.
  RowShape shape;
  Operand operand = {};
  const rn_status status = take_x(kFunction, {"cos_sin", Form::kX, false, bit(RN_F32)}, *table, &shape, &operand);
  if (status != RN_OK) return status;
  if (table->rank != 2) {
    return fail(RN_INVALID_VALUE, "%s: cos_sin.rank is %" PRId32 "; it must be 2, for positions and columns", kFunction,
                table->rank);
  }
  if (shape.cols % 2 != 0 || shape.cols > tokens.cols) {
    return fail(RN_INVALID_VALUE,
                "%s: cos_sin.shape[1] is %" PRId64 "; it must be even and at most %" PRId64 ", the columns of q",
                kFunction, shape.cols, tokens.cols);
  }
  call->rotary_dim = shape.cols;
  call->cos_sin = operand.base;
  call->cos_sin_step = table->shape[0] > 1 ? table->strides[0] * static_cast<int64_t>(sizeof(float)) : 0;
  return RN_OK;
}

// Every position before anything is written.
rn_status check_positions(const QkNormRopeCall& call, int64_t limit) {
  if (call.rotary_dim == 0 || call.rows == 0) return RN_OK;
  int64_t index[kMaxLeading] = {};
  for (int64_t token = 0; token < call.rows; ++token) {
    const char* at = call.positions.base;
    for (int axis = 0; axis < call.leading; ++axis) at += index[axis] * call.positions.strides[axis];
    const int64_t position = position_of(call, at);
    if (position < 0 || position >= limit) {
      return fail(RN_INVALID_VALUE,
                  "%s: the position of token %" PRId64 " is %" PRId64 "; it must be from 0 to %" PRId64
                  ", a row of cos_sin",
                  kFunction, token, position, limit - 1);
    }
    for (int axis = call.leading - 1; axis >= 0 && ++index[axis] == call.shape[axis]; --axis) index[axis] = 0;
  }
  return RN_OK;
}

rn_status take_positions(const rn_view* positions, const rn_view& q, const RowShape& tokens, QkNormRopeCall* call) {
  call->has_positions = positions != nullptr;
  if (positions == nullptr) {
    call->positions.base = reinterpret_cast<char*>(kIndexBase);
    if (tokens.leading > 0) call->positions.strides[tokens.leading - 1] = 1;
    return RN_OK;
  }
  rn_view of_token = q;  // without heads
  of_token.rank = q.rank - 1;
  of_token.shape[q.rank - 2] = q.shape[q.rank - 1];
  const OperandRule rule = {
      .name = "positions", .form = Form::kStatistic, .output = false, .types = bit(RN_I32) | bit(RN_I64), .of = "q"};
  return take_operand(kFunction, rule, *positions, of_token, tokens, &call->positions);
}

rn_status check_overlaps(const QkNormRopeCall& call, int64_t table_rows) {
  const Heads &q = call.heads[0], &k = call.heads[1];
  Operand table = {};
  table.base = const_cast<char*>(call.cos_sin);
  table.type = RN_F32;
  const auto claim = [&](const char* name, const Heads& heads, const Operand& operand, int64_t step,
                         const Operand* alias) {
    return Claim{
        .name = name, .operand = &operand, .columns = call.cols, .alias = alias, .count = heads.count, .apart = step};
  };
  Operand none = {};
  const Claim outputs[] = {claim("q_out", q, q.out, q.out_step, &q.x), claim("k_out", k, k.out, k.out_step, &k.x)};
  const Claim inputs[] = {
      claim("q", q, q.x, q.x_step, nullptr),
      claim("k", k, k.x, k.x_step, nullptr),
      claim("q_weight", q, q.weight, q.weight_step, nullptr),
      claim("k_weight", k, k.weight, k.weight_step, nullptr),
      {.name = "cos_sin",
       .operand = &table,
       .columns = call.rotary_dim,
       .shared = true,
       .count = table_rows,
       .apart = call.cos_sin_step},
      {.name = "positions", .operand = call.has_positions ? &call.positions : &none, .columns = 1},
  };
  return check_overlap(kFunction, call, outputs, inputs);
}

struct QkNormRopeArguments {
  HeadArguments q, k;
  const rn_view *cos_sin, *positions;
  const rn_qk_norm_rope_options& options;
  const rn_execution* execution;
};

rn_status run(const QkNormRopeArguments& a) {
  QkNormRopeCall call = {};
  rn_execution execution;
  const rn_rms_norm_options& norm = a.options.norm;
  const NormOptions options = {norm.epsilon, norm.weight_offset, as_int(norm.epsilon_placement), as_int(norm.rounding),
                               norm.partial};
  rn_status status = require(kFunction, "q_out", a.q.out);
  if (status == RN_OK) status = require(kFunction, "q", a.q.x);
  if (status == RN_OK && (a.k.x != nullptr || a.k.out != nullptr)) {
    status = require(kFunction, "k_out", a.k.out);
    if (status == RN_OK) status = require(kFunction, "k", a.k.x);
  }
  if (status == RN_OK) status = take_heads(a.q, &call, &call.heads[0]);
  RowShape of_k;
  if (status == RN_OK && a.k.x != nullptr) status = take_heads(a.k, &of_k, &call.heads[1]);
  if (status == RN_OK && a.k.x != nullptr) status = check_same_tokens(*a.q.x, *a.k.x);
  if (status != RN_OK) return status;
  // From here on the rows are tokens.
  --call.leading;
  call.rows = call.heads[0].count + call.heads[1].count == 0 ? 0 : 1;
  for (int axis = 0; axis < call.leading; ++axis) {
    // Below 2^40 where there are heads, and 0 else.
    call.rows *= call.rows == 0 ? 0 : call.shape[axis];
  }
  status = take_table(a.cos_sin, call, &call);
  if (status == RN_OK) status = take_positions(a.positions, *a.q.x, call, &call);
  if (status == RN_OK) status = check_norm_options(kFunction, options, call.cols);
  if (status == RN_OK) {
    status = check_choice(kFunction, "rope_layout", as_int(a.options.rope_layout), RN_ROPE_INTERLEAVED,
                          "RN_ROPE_HALF_SPLIT (0) or RN_ROPE_INTERLEAVED (1)");
  }
  if (status == RN_OK) status = check_execution(kFunction, a.execution, &execution);
  const int64_t table_rows = a.cos_sin == nullptr ? 0 : a.cos_sin->shape[0];
  if (status == RN_OK) status = check_positions(call, table_rows);
  if (status != RN_OK || call.rows == 0) return status;
  call.norm = Norm::kRms;
  call.interleaved = as_int(a.options.rope_layout) == RN_ROPE_INTERLEAVED;
  call.epsilon_outside = options.epsilon_placement == RN_EPSILON_OUTSIDE;
  call.rounding = static_cast<rn_rounding>(options.rounding);
  call.partial = options.partial == 0 ? call.cols : options.partial;
  call.epsilon = options.epsilon;
  call.weight_offset = options.weight_offset;
  call.x.type = a.q.x->type;
  Heads &q = call.heads[0], &k = call.heads[1];
  Operand* const operands[] = {&q.out, &q.x, &q.weight, &k.out, &k.x, &k.weight, &call.positions};
  collapse(&call, operands);
  status = check_overlaps(call, table_rows);
  return status != RN_OK ? status : run_qk_norm_rope(call, execution);
}

}  // namespace
}  // namespace rmsnorm

extern "C" {

rn_qk_norm_rope_options rn_qk_norm_rope_defaults(void) { return {rn_rms_norm_defaults(), RN_ROPE_HALF_SPLIT}; }

rn_view rn_heads(const rn_view* packed, int64_t first, int64_t count) {
  rn_view heads = {};
  if (packed != nullptr) heads = *packed;
  const int axis = heads.rank - 2;
  if (heads.rank < 2 || heads.rank > RN_MAX_RANK || first < 0 || count < 0 || first > heads.shape[axis] ||
      count > heads.shape[axis] - first) {
    heads.rank = -1;
    return heads;
  }
  heads.data = static_cast<char*>(heads.data) + first * heads.strides[axis] * rmsnorm::type_size(heads.type);
  heads.shape[axis] = count;
  return heads;
}

rn_status rn_qk_norm_rope(const rn_view* q_out, const rn_view* k_out, const rn_view* q, const rn_view* k,
                          const rn_view* q_weight, const rn_view* k_weight, const rn_view* cos_sin,
                          const rn_view* positions, const rn_qk_norm_rope_options* options,
                          const rn_execution* execution) {
  const rn_qk_norm_rope_options o = options != nullptr ? *options : rn_qk_norm_rope_defaults();
  return rmsnorm::run({.q = {"q_out", "q", "q_weight", q_out, q, q_weight},
                       .k = {"k_out", "k", "k_weight", k_out, k, k_weight},
                       .cos_sin = cos_sin,
                       .positions = positions,
                       .options = o,
                       .execution = execution});
}

}  // extern "C"
