/* Gated RMSNorm and its backward. */
#ifndef RMSNORM_GATED_RMS_NORM_H_
#define RMSNORM_GATED_RMS_NORM_H_

#include "rmsnorm/norms.h"

#ifdef __cplusplus
extern "C" {
#endif

/* silu(g) = g / (1 + e^-g). Which comes first, it or the norm. */
typedef enum rn_gate_order {
  RN_GATE_LAST = 0, /* rms_norm(x) * silu(gate): Qwen3-Next */
  RN_GATE_FIRST = 1 /* rms_norm(x * silu(gate)): Mamba 2 */
} rn_gate_order;

typedef struct rn_gated_rms_norm_options {
  double epsilon;           /* finite, >= 0; default 1e-6 for every type; 1e-5 for Mamba 2 */
  rn_gate_order gate_order; /* default RN_GATE_LAST */
  rn_rounding rounding;     /* RN_ROUND_ONCE (default) or RN_ROUND_BEFORE_WEIGHT */
  int64_t groups;           /* each row is so many groups of equal width, each normalised for itself; default 1 */
} rn_gated_rms_norm_options;

/* {1e-6, RN_GATE_LAST, RN_ROUND_ONCE, 1} */
RMSNORM_API rn_gated_rms_norm_options rn_gated_rms_norm_defaults(void);

/* Gated RMSNorm, with inv = 1 / sqrt(mean(.^2) + epsilon) over each group of d / groups columns:
 *   RN_GATE_LAST   out = x * inv * weight * silu(gate)
 *   RN_GATE_FIRST  u = x * silu(gate),  out = u * inv * weight
 * RN_ROUND_BEFORE_WEIGHT, for 16-bit x of type T, what Hugging Face's models do:
 *   RN_GATE_LAST   out = round(round_T(weight * round_T(x * inv)) * silu(gate)), where weight is not T (f32) without
 *                  the rounding in the middle
 *   RN_GATE_FIRST  out = round(weight * round_T(u * inv)),  u not rounded
 * Everything else is f32 or better.
 *   out      [.., d]       type of x, or f32, or f16 / bf16 where x is f32; may be x
 *   inv_rms  [.., groups]  may be NULL; f32 (f64 where x is f64); inv of each group, rounded
 *   x        [.., d]       f32, f16, bf16 or f64
 *   gate     [.., d]       as out
 *   weight   [d] or a view that broadcasts against x with stride 0; may be NULL: factor 1; f32, f16 or bf16 (with f64
 *                          x: f64 or f32)
 *   options  NULL: defaults
 * silu of -infinity is -0, of infinity infinity. */
RMSNORM_API rn_status rn_gated_rms_norm(const rn_view *out, const rn_view *inv_rms, const rn_view *x,
                                        const rn_view *gate, const rn_view *weight,
                                        const rn_gated_rms_norm_options *options, const rn_execution *execution);

typedef struct rn_gated_rms_norm_backward_options {
  rn_gated_rms_norm_options norm; /* those of the forward call; `rounding` changes no gradient and is ignored */
  int32_t accumulate;             /* 0 (default): dweight is overwritten; 1: added to, with one rounding */
} rn_gated_rms_norm_backward_options;

/* {rn_gated_rms_norm_defaults(), 0} */
RMSNORM_API rn_gated_rms_norm_backward_options rn_gated_rms_norm_backward_defaults(void);

/* Backward of rn_gated_rms_norm. With g = dy * weight, s = silu(gate), s' its derivative, means over each group:
 *   RN_GATE_LAST   xhat = x * inv,  h = g * s
 *                  dx      = inv * (h - xhat * mean(h * xhat))
 *                  dgate   = g * xhat * s'
 *                  dweight = sum over rows of dy * s * xhat
 *   RN_GATE_FIRST  uhat = x * s * inv,  du = inv * (g - uhat * mean(g * uhat))
 *                  dx      = du * s
 *                  dgate   = du * x * s'
 *                  dweight = sum over rows of dy * uhat
 *   dx       [.., d]       may be NULL, like the next two, but not all of them; type of x, or f32, or f16 / bf16 where
 *                          x is f32; may be dy
 *   dgate    [.., d]       as dx, but never dy
 *   dweight  [d]           f32, f16 or bf16 (with f64 x: f64 or f32)
 *   dy, x, gate            as dx; what the forward call read
 *   weight   [d]           may be NULL: factor 1; types as forward, but shared by all rows
 *   inv_rms  [.., groups]  may be NULL: computed again; else used as given; f32 (f64 where x is f64)
 *   scratch  rn_backward_scratch_bytes(rows, cols) bytes; may be NULL where dweight is not wanted
 *   options  NULL: defaults
 * Sums, roundings and accumulating are those of rn_rms_norm_backward. */
RMSNORM_API rn_status rn_gated_rms_norm_backward(const rn_view *dx, const rn_view *dgate, const rn_view *dweight,
                                                 const rn_view *dy, const rn_view *x, const rn_view *gate,
                                                 const rn_view *weight, const rn_view *inv_rms,
                                                 const rn_scratch *scratch,
                                                 const rn_gated_rms_norm_backward_options *options,
                                                 const rn_execution *execution);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* RMSNORM_GATED_RMS_NORM_H_ */
