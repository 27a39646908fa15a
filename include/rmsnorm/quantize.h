/* RMSNorm with a quantised output, alone and behind a residual add. */
#ifndef RMSNORM_QUANTIZE_H_
#define RMSNORM_QUANTIZE_H_

#include "rmsnorm/norms.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What shares a scale. */
typedef enum rn_scaling {
  RN_SCALE_STATIC = 0,   /* everything: the caller's own number */
  RN_SCALE_PER_ROW = 1,  /* a row: from the largest magnitude in it */
  RN_SCALE_PER_GROUP = 2 /* RN_SCALE_GROUP columns of a row (the last group may be shorter): likewise */
} rn_scaling;

enum { RN_SCALE_GROUP = 128 };

typedef struct rn_quantization {
  rn_scaling scaling;   /* default RN_SCALE_PER_ROW */
  float static_scale;   /* of RN_SCALE_STATIC: finite, above 0; default 1 */
  int32_t power_of_two; /* 1: scales per row and group are rounded up to a power of two; default 0 */
} rn_quantization;

typedef struct rn_rms_norm_quantize_options {
  rn_rms_norm_options norm; /* rounding: which y is quantised, see below */
  rn_quantization quantization;
} rn_rms_norm_quantize_options;

typedef struct rn_add_rms_norm_quantize_options {
  rn_add_rms_norm_options norm;
  rn_quantization quantization;
} rn_add_rms_norm_quantize_options;

/* The defaults of rn_rms_norm, {RN_SCALE_PER_ROW, 1, 0} */
RMSNORM_API rn_rms_norm_quantize_options rn_rms_norm_quantize_defaults(void);
RMSNORM_API rn_add_rms_norm_quantize_options rn_add_rms_norm_quantize_defaults(void);

/* y = rms_norm(x),  scale = f32(max|y| / qmax),  out = saturate(round(y / scale)),  a true f32 division, ties to even.
 *   out      [.., d]       i8 (qmax 127, down to -127), f8e4m3 (448) or f8e5m2 (57344)
 *   scale    [.., 1]       of each row, or [.., (d + 127) / 128] of each group; f32; any strides, on the last axis too;
 *                          NULL with RN_SCALE_STATIC
 *   x        [.., d]       f32, f16, bf16 or f64
 *   weight, bias           as for rn_rms_norm
 *   options  NULL: defaults
 * y is what rn_rms_norm writes: with RN_ROUND_ONCE and RN_ROUND_EXACT to an out of f32, with RN_ROUND_BEFORE_WEIGHT to
 * one of the type of x (f64 rows: f32 in any case).
 * A scale is not below 2^-126; it is 1 where all |y| are 0, and the largest finite f32 where one is infinite (2^127 if
 * a power of two is wanted). NaNs do not count in max|y|. In out, NaN becomes NaN (i8: 0), an infinity the largest
 * number. Multiplying out by its scale gives y back, but for the rounding. */
RMSNORM_API rn_status rn_rms_norm_quantize(const rn_view *out, const rn_view *scale, const rn_view *x,
                                           const rn_view *weight, const rn_view *bias,
                                           const rn_rms_norm_quantize_options *options, const rn_execution *execution);

/* s = x + residual,  residual_out = round(s),  out and scale from rms_norm(residual_out or s) as above.
 *   residual, residual_out  as for rn_add_rms_norm */
RMSNORM_API rn_status rn_add_rms_norm_quantize(const rn_view *out, const rn_view *residual_out, const rn_view *scale,
                                               const rn_view *x, const rn_view *residual, const rn_view *weight,
                                               const rn_view *bias, const rn_add_rms_norm_quantize_options *options,
                                               const rn_execution *execution);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* RMSNORM_QUANTIZE_H_ */
