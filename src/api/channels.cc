// The C interface of the channel norms.
#include "rmsnorm/channels.h"

#include <cinttypes>

#include "core/channel_call.h"
#include "core/overlap.h"
#include "core/rules.h"
#include "core/status.h"
#include "cpu/channels.h"

namespace rmsnorm {
namespace {

// What an entry point was given. Operands that the operation does not have stay null.
struct ChannelArguments {
  const char* function;
  const char* out_name;
  bool backward, grouped;
  const rn_view *out, *x;
  int64_t groups = 0;
  const rn_view *dweight = nullptr, *dbias = nullptr, *dy = nullptr, *weight, *bias = nullptr;
  const rn_scratch* scratch = nullptr;
  NormOptions options;
  int accumulate = 0;
  const rn_execution* execution;
};

// The operands as views: all axes but the last lead, the last one is "cols".
struct Taken : RowShape {
  Operand out, x, dy, weight, bias, dweight, dbias;
};

rn_status check_images(const ChannelArguments& a) {
  if (a.x->rank < 3) {
    return fail(RN_INVALID_VALUE, "%s: x.rank is %" PRId32 "; it must be from 3 to %d: batch, channels, pixels",
                a.function, a.x->rank, RN_MAX_RANK);
  }
  const int64_t channels = a.x->shape[1];
  if (channels < 1 || channels > kMaxCols) {
    return fail(RN_INVALID_VALUE, "%s: x.shape[1] is %" PRId64 "; it must be from 1 to 2^31 on the channel axis",
                a.function, channels);
  }
  if (a.grouped && (a.groups < 1 || channels % a.groups != 0)) {
    return fail(RN_INVALID_VALUE, "%s: groups is %" PRId64 "; it must be a divisor of %" PRId64 ", the channels of x",
                a.function, a.groups, channels);
  }
  return RN_OK;
}

rn_status take_operands(const ChannelArguments& a, Taken* taken) {
  Taker taker(a.function, taken);
  taker.also([&] { return require(a.function, a.out_name, a.out); });
  taker.x({"x", Form::kX, false, kFloatTypes, 0, "x", true}, a.x, &taken->x);
  taker.also([&] { return check_images(a); });
  if (!taker.ok()) return taker.status();
  const TypeRules types = rules_for(a.x->type);
  const auto rule = [&](const char* name, Form form, bool output) {
    return OperandRule{name, form, output, form == Form::kSame ? types.out : types.weight, 0, "x", true};
  };
  taker.required(rule(a.out_name, Form::kSame, true), a.out, &taken->out);
  taker.optional(rule("dweight", Form::kChannels, true), a.dweight, &taken->dweight);
  taker.optional(rule("dbias", Form::kChannels, true), a.dbias, &taken->dbias);
  if (a.backward) taker.required(rule("dy", Form::kSame, false), a.dy, &taken->dy);
  taker.optional(rule("weight", Form::kChannels, false), a.weight, &taken->weight);
  taker.optional(rule("bias", Form::kChannels, false), a.bias, &taken->bias);
  return taker.status();
}

rn_status check_options(const ChannelArguments& a) {
  rn_status status = check_norm_options(a.function, a.options, a.options.partial);
  if (status == RN_OK && a.options.partial != 0) {
    status = fail(RN_INVALID_VALUE, "%s: options.partial is %" PRId64 "; it must be 0", a.function, a.options.partial);
  }
  if (status == RN_OK) status = check_choice(a.function, "accumulate", a.accumulate, 1, "0 or 1");
  return status;
}

int64_t needed_scratch(const ChannelArguments& a, const ChannelCall& call) {
  if (!a.backward) return 0;
  if (a.grouped) return rn_group_rms_norm_scratch_bytes(call.images, call.channels);
  if (a.dweight == nullptr && a.dbias == nullptr) return 0;
  return rn_rms_norm_channels_scratch_bytes(call.images, call.channels, call.pixels);
}

rn_status check_overlaps(const ChannelArguments& a, const Taken& taken, double* memory, int64_t scratch_bytes) {
  // The scratch as one more output: nothing may lie in it.
  const Operand scratch = {reinterpret_cast<char*>(memory), RN_F64, {}};
  const int64_t channels = a.x->shape[1];
  const auto words = scratch_bytes / static_cast<int64_t>(sizeof(double));
  const Claim outputs[] = {{a.out_name, &taken.out, taken.cols, a.backward ? &taken.dy : &taken.x},
                           {"dweight", &taken.dweight, channels, nullptr, true},
                           {"dbias", &taken.dbias, channels, nullptr, true},
                           {"scratch", &scratch, words, nullptr, true}};
  const Claim inputs[] = {{"x", &taken.x, taken.cols},
                          {"dy", &taken.dy, taken.cols},
                          {"weight", &taken.weight, channels, nullptr, true},
                          {"bias", &taken.bias, channels, nullptr, true}};
  return check_overlap(a.function, taken, outputs, inputs);
}

ChannelOperand operand_of(const Operand& from, int leading) {
  ChannelOperand to = {from.base, from.type, from.strides[0], from.strides[1], {}};
  for (int axis = 2; axis < leading; ++axis) to.lines[axis - 2] = from.strides[axis];
  return to;
}

// Axes of pixels that all operands hold densely become part of the line; those of size 1 go.
void merge_lines(ChannelCall* call) {
  ChannelOperand* const operands[] = {&call->out, &call->x, &call->dy};
  int kept = 0;
  for (int axis = 0; axis < call->axes; ++axis) {
    if (call->shape[axis] == 1) continue;
    for (ChannelOperand* operand : operands) operand->lines[kept] = operand->lines[axis];
    call->shape[kept++] = call->shape[axis];
  }
  call->axes = kept;
  while (call->axes > 0) {
    const int last = call->axes - 1;
    for (const ChannelOperand* operand : operands) {
      const int64_t dense = call->line * static_cast<int64_t>(rn_type_size(operand->type));
      if (operand->base != nullptr && operand->lines[last] != dense) return;
    }
    call->line *= call->shape[last];
    --call->axes;
  }
}

rn_status run(const ChannelArguments& a) {
  Taken taken = {};
  rn_execution execution;
  rn_status status = take_operands(a, &taken);
  if (status == RN_OK) status = check_options(a);
  if (status == RN_OK) status = check_execution(a.function, a.execution, &execution);
  if (status != RN_OK) return status;
  ChannelCall call = {};
  call.images = taken.shape[0];
  call.channels = taken.shape[1];
  call.groups = a.grouped ? a.groups : 0;
  call.line = taken.cols;
  call.pixels = taken.cols;
  call.axes = taken.leading - 2;
  for (int axis = 0; axis < call.axes; ++axis) {
    call.shape[axis] = taken.shape[axis + 2];
    if (taken.rows != 0) call.pixels *= call.shape[axis];
  }
  if (taken.rows == 0) call.images = 0;  // or no pixels
  const int64_t needed = call.images == 0 ? 0 : needed_scratch(a, call);
  const char* sizes = a.grouped ? "rn_group_rms_norm_scratch_bytes" : "rn_rms_norm_channels_scratch_bytes";
  status = check_scratch(a.function, a.scratch, needed, sizes, nullptr, &call.scratch);
  if (status != RN_OK) return status;
  call.backward = a.backward;
  call.epsilon_outside = a.options.epsilon_placement == RN_EPSILON_OUTSIDE;
  call.before_weight =
      !a.backward && a.options.rounding == RN_ROUND_BEFORE_WEIGHT && (bit(a.x->type) & k16BitTypes) != 0;
  call.accumulate = a.accumulate != 0;
  call.epsilon = a.options.epsilon;
  call.weight_offset = a.options.weight_offset;
  call.out = operand_of(taken.out, taken.leading);
  call.x = operand_of(taken.x, taken.leading);
  call.dy = operand_of(taken.dy, taken.leading);
  call.weight = taken.weight;
  call.bias = taken.bias;
  call.dweight = taken.dweight;
  call.dbias = taken.dbias;
  if (call.images == 0) taken.leading = 0;  // the vectors remain
  status = check_overlaps(a, taken, call.scratch, needed);
  if (status != RN_OK) return status;
  if (call.images != 0) merge_lines(&call);
  return run_channels(call, execution);
}

bool valid_sizes(int64_t batch, int64_t channels) {
  return batch >= 0 && batch <= kMaxRows && channels >= 1 && channels <= kMaxCols;
}

rn_status run_forward(const char* function, bool grouped, const rn_view* out, const rn_view* x, int64_t groups,
                      const rn_view* weight, const rn_view* bias, const rn_rms_norm_options* options,
                      const rn_execution* execution) {
  return run({.function = function,
              .out_name = "out",
              .backward = false,
              .grouped = grouped,
              .out = out,
              .x = x,
              .groups = groups,
              .weight = weight,
              .bias = bias,
              .options = norm_options(options != nullptr ? *options : rn_rms_norm_defaults()),
              .execution = execution});
}

rn_status run_backward(const char* function, bool grouped, const rn_view* dx, const rn_view* dweight,
                       const rn_view* dbias, const rn_view* dy, const rn_view* x, int64_t groups, const rn_view* weight,
                       const rn_scratch* scratch, const rn_rms_norm_backward_options* options,
                       const rn_execution* execution) {
  const rn_rms_norm_backward_options o = options != nullptr ? *options : rn_rms_norm_backward_defaults();
  return run({.function = function,
              .out_name = "dx",
              .backward = true,
              .grouped = grouped,
              .out = dx,
              .x = x,
              .groups = groups,
              .dweight = dweight,
              .dbias = dbias,
              .dy = dy,
              .weight = weight,
              .scratch = scratch,
              .options = norm_options(o.norm),
              .accumulate = o.accumulate,
              .execution = execution});
}

}  // namespace
}  // namespace rmsnorm

extern "C" {

int64_t rn_rms_norm_channels_scratch_bytes(int64_t batch, int64_t channels, int64_t pixels) {
  if (!rmsnorm::valid_sizes(batch, channels) || pixels < 0 || pixels > rmsnorm::kMaxRows) return -1;
  int64_t tiles = 0;
  if (__builtin_mul_overflow(batch, rmsnorm::tiles_per_image(channels, pixels), &tiles)) return -1;
  return rmsnorm::tile_blocks(tiles) * 2 * channels * static_cast<int64_t>(sizeof(double));
}

int64_t rn_group_rms_norm_scratch_bytes(int64_t batch, int64_t channels) {
  int64_t bytes = 0;
  const auto each = static_cast<int64_t>(sizeof(rmsnorm::ChannelSums));
  if (!rmsnorm::valid_sizes(batch, channels) || __builtin_mul_overflow(batch * each, channels, &bytes)) return -1;
  return bytes;
}

rn_status rn_rms_norm_channels(const rn_view* out, const rn_view* x, const rn_view* weight, const rn_view* bias,
                               const rn_rms_norm_options* options, const rn_execution* execution) {
  return rmsnorm::run_forward("rn_rms_norm_channels", false, out, x, 0, weight, bias, options, execution);
}

rn_status rn_group_rms_norm(const rn_view* out, const rn_view* x, int64_t groups, const rn_view* weight,
                            const rn_view* bias, const rn_rms_norm_options* options, const rn_execution* execution) {
  return rmsnorm::run_forward("rn_group_rms_norm", true, out, x, groups, weight, bias, options, execution);
}

rn_status rn_rms_norm_channels_backward(const rn_view* dx, const rn_view* dweight, const rn_view* dbias,
                                        const rn_view* dy, const rn_view* x, const rn_view* weight,
                                        const rn_scratch* scratch, const rn_rms_norm_backward_options* options,
                                        const rn_execution* execution) {
  return rmsnorm::run_backward("rn_rms_norm_channels_backward", false, dx, dweight, dbias, dy, x, 0, weight, scratch,
                               options, execution);
}

rn_status rn_group_rms_norm_backward(const rn_view* dx, const rn_view* dweight, const rn_view* dbias, const rn_view* dy,
                                     const rn_view* x, int64_t groups, const rn_view* weight, const rn_scratch* scratch,
                                     const rn_rms_norm_backward_options* options, const rn_execution* execution) {
  return rmsnorm::run_backward("rn_group_rms_norm_backward", true, dx, dweight, dbias, dy, x, groups, weight, scratch,
                               options, execution);
}

}  // extern "C"
