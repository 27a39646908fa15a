/* Backward of RMSNorm, LayerNorm and their residual-add forms. */
#ifndef RMSNORM_BACKWARD_H_
#define RMSNORM_BACKWARD_H_

#include "rmsnorm/norms.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct rn_rms_norm_backward_options {
  rn_rms_norm_options norm; /* those of the forward call; `rounding` changes no gradient and is ignored */
  int32_t accumulate;       /* 0 (default): dweight and dbias are overwritten; 1: added to, with one rounding */
} rn_rms_norm_backward_options;

typedef struct rn_layer_norm_backward_options {
  rn_layer_norm_options norm;
  int32_t accumulate;
} rn_layer_norm_backward_options;

/* {rn_rms_norm_defaults(), 0} and {rn_layer_norm_defaults(), 0} */
RMSNORM_API rn_rms_norm_backward_options rn_rms_norm_backward_defaults(void);
RMSNORM_API rn_layer_norm_backward_options rn_layer_norm_backward_defaults(void);

/* The bytes of scratch that a backward norm of so many rows and columns needs where dweight or dbias is wanted: at most
 * 64 * 3 * cols * 8. -1 for sizes that no call accepts. */
RMSNORM_API int64_t rn_backward_scratch_bytes(int64_t rows, int64_t cols);

/* Backward of rn_rms_norm. With g = dy * (weight + weight_offset) and xhat = x * inv:
 *   dx      = inv * (g - xhat * mean(g * xhat))
 *   dweight = sum over rows of dy * xhat,  dbias = sum over rows of dy
 * RN_EPSILON_OUTSIDE, r = sqrt(mean(x^2)):  dx = inv * g - inv^2 * x * mean(g * x) / r, the second term 0 where r = 0.
 * partial = k:  dx_i = inv * g_i - [i < k] * inv^3 * x_i * sum(g * x) / k, the sum over all columns.
 *   dx       [.., d]  type of x, or f32, or f16 / bf16 where x is f32; may be dy
 *   dweight  [d]      may be NULL; f32, f16 or bf16 (with f64 x: f64 or f32)
 *   dbias    [d]      may be NULL; as dweight
 *   dy       [.., d]  as dx
 *   x        [.., d]  what the forward call read
 *   weight   [d]      may be NULL: factor 1; types as forward, but shared by all rows
 *   inv_rms  [..]     may be NULL: computed again; else used as given; f32 (f64 where x is f64)
 *   scratch           may be NULL where neither dweight nor dbias is wanted
 *   options  NULL: defaults
 * dx is within 4 ulp (16-bit types: 1) of the largest of |inv * g|, |inv * xhat * mean(g * xhat)| and |dx| in its row;
 * dweight and dbias, before their last rounding, within 1e-6 of the sum of their absolute terms. dweight and dbias are summed in blocks of rows that depend on
 * the number of rows alone: their bits do not depend on threads. Without rows they become 0, or stay as they are with
 * accumulate. Nothing is divided by the weight. */
RMSNORM_API rn_status rn_rms_norm_backward(const rn_view *dx, const rn_view *dweight, const rn_view *dbias,
                                           const rn_view *dy, const rn_view *x, const rn_view *weight,
                                           const rn_view *inv_rms, const rn_scratch *scratch,
                                           const rn_rms_norm_backward_options *options, const rn_execution *execution);

/* Backward of rn_layer_norm. With h = (x - mean(x)) * inv_std:
 *   dx      = inv_std * (g - mean(g) - h * mean(g * h))
 *   dweight = sum over rows of dy * h,  dbias = sum over rows of dy
 * The mean is taken from x again: a saved f32 mean would cost a large common offset all its digits. */
RMSNORM_API rn_status rn_layer_norm_backward(const rn_view *dx, const rn_view *dweight, const rn_view *dbias,
                                             const rn_view *dy, const rn_view *x, const rn_view *weight,
                                             const rn_view *inv_std, const rn_scratch *scratch,
                                             const rn_layer_norm_backward_options *options,
                                             const rn_execution *execution);

/* Backward of rn_add_rms_norm:  dx = dresidual = d_residual_out + rms_norm_backward(dy).
 *   dx              [.., d]  may be NULL if dresidual is not; f32, f16 or bf16 (f64 where sum is f64); may be dy
 *   dresidual       [.., d]  the same numbers; may be NULL; as dx, with a type of its own
 *   dy              [.., d]  as dx
 *   d_residual_out  [.., d]  the gradient that arrives through residual_out; may be NULL; as dx
 *   sum             [.., d]  what the norm read: residual_out; in f32 also the sum before its rounding
 *   the others as for rn_rms_norm_backward */
RMSNORM_API rn_status rn_add_rms_norm_backward(const rn_view *dx, const rn_view *dresidual, const rn_view *dweight,
                                               const rn_view *dbias, const rn_view *dy, const rn_view *d_residual_out,
                                               const rn_view *sum, const rn_view *weight, const rn_view *inv_rms,
                                               const rn_scratch *scratch, const rn_rms_norm_backward_options *options,
                                               const rn_execution *execution);

/* Backward of rn_add_layer_norm:  dx = dresidual = d_residual_out + layer_norm_backward(dy). Operands as above. */
RMSNORM_API rn_status rn_add_layer_norm_backward(const rn_view *dx, const rn_view *dresidual, const rn_view *dweight,
                                                 const rn_view *dbias, const rn_view *dy, const rn_view *d_residual_out,
                                                 const rn_view *sum, const rn_view *weight, const rn_view *inv_std,
                                                 const rn_scratch *scratch,
                                                 const rn_layer_norm_backward_options *options,
                                                 const rn_execution *execution);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* RMSNORM_BACKWARD_H_ */
