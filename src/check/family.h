// The operations, one function per file. A new one gets a line here and a line in family.cc.
#ifndef RMSNORM_CHECK_FAMILY_H_
#define RMSNORM_CHECK_FAMILY_H_

#include <vector>

#include "check/operation.h"

namespace rmsnorm::check {

std::vector<const Operation*> family();

const Operation& rms_norm_backward_operation();
const Operation& layer_norm_backward_operation();
const Operation& add_rms_norm_backward_operation();
const Operation& add_layer_norm_backward_operation();
const Operation& rms_norm_quantize_operation();
const Operation& add_rms_norm_quantize_operation();
const Operation& qk_norm_rope_operation();
const Operation& gated_rms_norm_operation();
const Operation& gated_rms_norm_backward_operation();
const Operation& rms_sum_squares_operation();
const Operation& rms_norm_apply_operation();
const Operation& rms_backward_sum_operation();
const Operation& rms_norm_backward_apply_operation();
const Operation& layer_sum_operation();
const Operation& layer_sum_squares_operation();
const Operation& layer_norm_apply_operation();
const Operation& layer_backward_sums_operation();
const Operation& layer_norm_backward_apply_operation();
const Operation& rms_norm_channels_operation();
const Operation& rms_norm_channels_backward_operation();
const Operation& group_rms_norm_operation();
const Operation& group_rms_norm_backward_operation();

}  // namespace rmsnorm::check

#endif  // RMSNORM_CHECK_FAMILY_H_
