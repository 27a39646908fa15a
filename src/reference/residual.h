// The residual add in front of a norm:  s = x + residual in f32 (f64 for f64),  residual_out = round(s).
#ifndef RMSNORM_REFERENCE_RESIDUAL_H_
#define RMSNORM_REFERENCE_RESIDUAL_H_

#include "reference/format.h"

namespace rmsnorm::reference {

// Writes residual_out, and into `norm_reads` what the norm is taken of: residual_out or s, as norm_input says.
inline void add_residual(double* residual_out, double* norm_reads, const double* x, const double* residual,
                         std::int64_t cols, rn_type x_type, rn_type residual_out_type, rn_norm_input norm_input) {
  const rn_type sum_type = x_type == RN_F64 ? RN_F64 : RN_F32;
  for (std::int64_t i = 0; i < cols; ++i) {
    const double s = round_to(sum_type, static_cast<Quad>(x[i]) + static_cast<Quad>(residual[i]));
    residual_out[i] = round_to(residual_out_type, s);
    norm_reads[i] = norm_input == RN_NORM_ROUNDED_SUM ? residual_out[i] : s;
  }
}

}  // namespace rmsnorm::reference

#endif  // RMSNORM_REFERENCE_RESIDUAL_H_
