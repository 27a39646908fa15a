/* The forward norms of whole rows: RMSNorm, LayerNorm, their residual-add forms, centring. */
#ifndef RMSNORM_NORMS_H_
#define RMSNORM_NORMS_H_

#include "rmsnorm/core.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- RMSNorm ----------------------------------------------------------------------------------------------------- */

typedef enum rn_epsilon_placement {
  RN_EPSILON_INSIDE = 0, /* 1 / sqrt(mean(x^2) + epsilon) */
  RN_EPSILON_OUTSIDE = 1 /* 1 / (sqrt(mean(x^2)) + epsilon), the form of the first PyTorch code of Zhang and Sennrich */
} rn_epsilon_placement;

typedef enum rn_rounding {
  RN_ROUND_ONCE = 0,          /* all in f32 or better, one rounding at the end: Gemma, OLMo 2, torch rms_norm */
  RN_ROUND_BEFORE_WEIGHT = 1, /* n = round(x * inv) to the type of x, then round(n * weight): Llama, Mistral, Qwen */
  RN_ROUND_EXACT = 2          /* as ONCE with the second pass in f64: f32 results, too, are correctly rounded */
} rn_rounding;

/* Zero or NULL fields are not defaults: start from rn_rms_norm_defaults(). */
typedef struct rn_rms_norm_options {
  double epsilon;                         /* finite, >= 0; default 1e-6 for every type (PyTorch has 1.19e-7 for f32) */
  double weight_offset;                   /* finite; added to each weight in f32 before use; 0, or 1 for Gemma */
  rn_epsilon_placement epsilon_placement; /* default RN_EPSILON_INSIDE */
  rn_rounding rounding;                   /* default RN_ROUND_ONCE */
  int64_t partial;                        /* mean square of the first k columns only, 0 < k <= d; 0 (default): all */
} rn_rms_norm_options;

/* {1e-6, 0, RN_EPSILON_INSIDE, RN_ROUND_ONCE, 0} */
RMSNORM_API rn_rms_norm_options rn_rms_norm_defaults(void);

/* The number of columns for `partial` that stands for a fraction p of d columns (pRMSNorm): floor(d * p), but at least
 * 1. Returns -1, which every operation refuses, if p is not in (0, 1] or cols is not positive. */
RMSNORM_API int64_t rn_partial_columns(int64_t cols, double fraction);

/* RMSNorm:  inv = 1 / sqrt(mean(x^2) + epsilon),  out = x * inv * (weight + weight_offset) + bias,  for each row.
 *   out      [.., d]  type of x, or f32, or f16 / bf16 where x is f32; may be x
 *   inv_rms  [..]     may be NULL; f32 (f64 where x is f64); inv of each row, rounded
 *   x        [.., d]  f32, f16, bf16 or f64
 *   weight   [d] or a view that broadcasts against x with stride 0; may be NULL: factor 1 whatever the offset;
 *                     f32, f16 or bf16 (with f64 x: f64 or f32)
 *   bias     as weight; may be NULL
 *   options  NULL: defaults
 * Zhang and Sennrich 2019, "Root Mean Square Layer Normalization". */
RMSNORM_API rn_status rn_rms_norm(const rn_view *out, const rn_view *inv_rms, const rn_view *x, const rn_view *weight,
                                  const rn_view *bias, const rn_rms_norm_options *options,
                                  const rn_execution *execution);

/* ---- LayerNorm --------------------------------------------------------------------------------------------------- */

typedef struct rn_layer_norm_options {
  double epsilon;       /* finite, >= 0; default 1e-5 for every type */
  double weight_offset; /* finite; added to each weight in f32 before use; default 0 */
} rn_layer_norm_options;

/* {1e-5, 0} */
RMSNORM_API rn_layer_norm_options rn_layer_norm_defaults(void);

/* LayerNorm:  m = mean(x),  v = mean((x - m)^2),  out = (x - m) / sqrt(v + epsilon) * (weight + weight_offset) + bias.
 *   mean     [..]     may be NULL; f32 (f64 where x is f64)
 *   inv_std  [..]     may be NULL; 1 / sqrt(v + epsilon), f32 (f64 where x is f64)
 *   the others as for rn_rms_norm
 * The variance is the biased one. A common offset of 10^4 standard deviations costs no accuracy.
 * Ba, Kiros and Hinton 2016, "Layer Normalization". */
RMSNORM_API rn_status rn_layer_norm(const rn_view *out, const rn_view *mean, const rn_view *inv_std, const rn_view *x,
                                    const rn_view *weight, const rn_view *bias, const rn_layer_norm_options *options,
                                    const rn_execution *execution);

/* ---- Residual add and norm --------------------------------------------------------------------------------------- */

/* Which sum the norm reads. */
typedef enum rn_norm_input {
  RN_NORM_ROUNDED_SUM = 0,  /* residual_out as stored: what separate add and norm compute, bit for bit */
  RN_NORM_UNROUNDED_SUM = 1 /* the f32 sum before it is rounded to the type of residual_out */
} rn_norm_input;

typedef struct rn_add_rms_norm_options {
  rn_rms_norm_options norm;
  rn_norm_input norm_input; /* default RN_NORM_ROUNDED_SUM */
} rn_add_rms_norm_options;

typedef struct rn_add_layer_norm_options {
  rn_layer_norm_options norm;
  rn_norm_input norm_input; /* default RN_NORM_ROUNDED_SUM */
} rn_add_layer_norm_options;

RMSNORM_API rn_add_rms_norm_options rn_add_rms_norm_defaults(void);
RMSNORM_API rn_add_layer_norm_options rn_add_layer_norm_defaults(void);

/* s = x + residual,  residual_out = round(s),  out = rms_norm(residual_out or s).
 *   residual      [.., d]  type of x, or f32 where x is f16 or bf16 (a residual stream kept in f32)
 *   residual_out  [.., d]  type of x, or f32 where x is f16 or bf16; may be residual; never NULL
 *   the others as for rn_rms_norm; out may be x
 * The sum is formed in f32 (f64 for f64). An f16 sum above 65504 is stored as infinity; with RN_NORM_ROUNDED_SUM the
 * row then follows the rule for infinities. */
RMSNORM_API rn_status rn_add_rms_norm(const rn_view *out, const rn_view *residual_out, const rn_view *inv_rms,
                                      const rn_view *x, const rn_view *residual, const rn_view *weight,
                                      const rn_view *bias, const rn_add_rms_norm_options *options,
                                      const rn_execution *execution);

/* s = x + residual,  residual_out = round(s),  out = layer_norm(residual_out or s). Operands as above. */
RMSNORM_API rn_status rn_add_layer_norm(const rn_view *out, const rn_view *residual_out, const rn_view *mean,
                                        const rn_view *inv_std, const rn_view *x, const rn_view *residual,
                                        const rn_view *weight, const rn_view *bias,
                                        const rn_add_layer_norm_options *options, const rn_execution *execution);

/* ---- Centring ---------------------------------------------------------------------------------------------------- */

/* out = x - mean(x) for each row, correctly rounded but next to ties: the step that makes a LayerNorm model's entry fit
 * RMSNorm. out as for rn_rms_norm; may be x. */
RMSNORM_API rn_status rn_center(const rn_view *out, const rn_view *x, const rn_execution *execution);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* RMSNORM_NORMS_H_ */
