// The C interface of the forward norms: arguments are gathered, checked and handed on; nothing is computed here.
#include <algorithm>
#include <cmath>

#include "api/norm_arguments.h"
#include "core/views.h"
#include "cpu/norm.h"
#include "rmsnorm/rmsnorm.h"

namespace rmsnorm {
namespace {

// The options of the add forms: those of the norm, and which sum it reads.
template <class Options>
void set_add_options(const Options& options, NormArguments* arguments) {
  arguments->options = norm_options(options.norm);
  arguments->norm_input = as_int(options.norm_input);
}

}  // namespace

rn_status run_norm(const NormArguments& arguments) {
  NormCall call;
  rn_execution execution;
  const rn_status status = make_call(arguments, &call, &execution);
  return status != RN_OK || call.rows == 0 ? status : run_norm(call, execution);
}

}  // namespace rmsnorm

using rmsnorm::Norm;
using rmsnorm::NormArguments;

extern "C" {

rn_rms_norm_options rn_rms_norm_defaults(void) { return {1e-6, 0, RN_EPSILON_INSIDE, RN_ROUND_ONCE, 0}; }

rn_layer_norm_options rn_layer_norm_defaults(void) { return {1e-5, 0}; }

rn_add_rms_norm_options rn_add_rms_norm_defaults(void) { return {rn_rms_norm_defaults(), RN_NORM_ROUNDED_SUM}; }

rn_add_layer_norm_options rn_add_layer_norm_defaults(void) { return {rn_layer_norm_defaults(), RN_NORM_ROUNDED_SUM}; }

int64_t rn_partial_columns(int64_t cols, double fraction) {
  if (cols < 1 || !(fraction > 0 && fraction <= 1)) return -1;
  if (fraction == 1) return cols;
  return std::max<int64_t>(1, static_cast<int64_t>(std::floor(static_cast<double>(cols) * fraction)));
}

rn_status rn_rms_norm(const rn_view* out, const rn_view* inv_rms, const rn_view* x, const rn_view* weight,
                      const rn_view* bias, const rn_rms_norm_options* options, const rn_execution* execution) {
  NormArguments a = {.function = "rn_rms_norm", .norm = Norm::kRms, .add = false, .execution = execution};
  a.out = out;
  a.inv = inv_rms;
  a.x = x;
  a.weight = weight;
  a.bias = bias;
  a.options = rmsnorm::norm_options(options != nullptr ? *options : rn_rms_norm_defaults());
  return rmsnorm::run_norm(a);
}

rn_status rn_layer_norm(const rn_view* out, const rn_view* mean, const rn_view* inv_std, const rn_view* x,
                        const rn_view* weight, const rn_view* bias, const rn_layer_norm_options* options,
                        const rn_execution* execution) {
  NormArguments a = {.function = "rn_layer_norm", .norm = Norm::kLayer, .add = false, .execution = execution};
  a.inv_name = "inv_std";
  a.out = out;
  a.mean = mean;
  a.inv = inv_std;
  a.x = x;
  a.weight = weight;
  a.bias = bias;
  a.options = rmsnorm::norm_options(options != nullptr ? *options : rn_layer_norm_defaults());
  return rmsnorm::run_norm(a);
}

rn_status rn_add_rms_norm(const rn_view* out, const rn_view* residual_out, const rn_view* inv_rms, const rn_view* x,
                          const rn_view* residual, const rn_view* weight, const rn_view* bias,
                          const rn_add_rms_norm_options* options, const rn_execution* execution) {
  NormArguments a = {.function = "rn_add_rms_norm", .norm = Norm::kRms, .add = true, .execution = execution};
  a.out = out;
  a.residual_out = residual_out;
  a.inv = inv_rms;
  a.x = x;
  a.residual = residual;
  a.weight = weight;
  a.bias = bias;
  rmsnorm::set_add_options(options != nullptr ? *options : rn_add_rms_norm_defaults(), &a);
  return rmsnorm::run_norm(a);
}

rn_status rn_add_layer_norm(const rn_view* out, const rn_view* residual_out, const rn_view* mean,
                            const rn_view* inv_std, const rn_view* x, const rn_view* residual, const rn_view* weight,
                            const rn_view* bias, const rn_add_layer_norm_options* options,
                            const rn_execution* execution) {
  NormArguments a = {.function = "rn_add_layer_norm", .norm = Norm::kLayer, .add = true, .execution = execution};
  a.inv_name = "inv_std";
  a.out = out;
  a.residual_out = residual_out;
  a.mean = mean;
  a.inv = inv_std;
  a.x = x;
  a.residual = residual;
  a.weight = weight;
  a.bias = bias;
  rmsnorm::set_add_options(options != nullptr ? *options : rn_add_layer_norm_defaults(), &a);
  return rmsnorm::run_norm(a);
}

rn_status rn_center(const rn_view* out, const rn_view* x, const rn_execution* execution) {
  NormArguments a = {.function = "rn_center", .norm = Norm::kCenter, .add = false, .execution = execution};
  a.out = out;
  a.x = x;
  return rmsnorm::run_norm(a);
}

}  // extern "C"
