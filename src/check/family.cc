#include "check/family.h"

namespace rmsnorm::check {

std::vector<const Operation*> family() {
  return {
      &rms_norm_backward_operation(),
      &layer_norm_backward_operation(),
      &add_rms_norm_backward_operation(),
      &add_layer_norm_backward_operation(),
      &gated_rms_norm_operation(),
      &gated_rms_norm_backward_operation(),
      &rms_norm_quantize_operation(),
      &add_rms_norm_quantize_operation(),
      &qk_norm_rope_operation(),
      &rms_sum_squares_operation(),
      &rms_norm_apply_operation(),
      &rms_backward_sum_operation(),
      &rms_norm_backward_apply_operation(),
      &layer_sum_operation(),
      &layer_sum_squares_operation(),
      &layer_norm_apply_operation(),
      &layer_backward_sums_operation(),
      &layer_norm_backward_apply_operation(),
      &rms_norm_channels_operation(),
      &rms_norm_channels_backward_operation(),
      &group_rms_norm_operation(),
      &group_rms_norm_backward_operation(),
  };
}

}  // namespace rmsnorm::check
