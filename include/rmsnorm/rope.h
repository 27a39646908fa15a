/* RMSNorm of each head of Q and K, then rotary position embedding, in one pass. */
#ifndef RMSNORM_ROPE_H_
#define RMSNORM_ROPE_H_

#include "rmsnorm/norms.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Which columns of a head are turned together. */
typedef enum rn_rope_layout {
  RN_ROPE_HALF_SPLIT = 0, /* i and i + rotary_dim / 2: Llama and most others on Hugging Face (GPT-NeoX style) */
  RN_ROPE_INTERLEAVED = 1 /* 2i and 2i + 1: GPT-J, Llama's own checkpoints */
} rn_rope_layout;

typedef struct rn_qk_norm_rope_options {
  rn_rms_norm_options norm;   /* of Q and of K */
  rn_rope_layout rope_layout; /* default RN_ROPE_HALF_SPLIT */
} rn_qk_norm_rope_options;

/* The defaults of rn_rms_norm, RN_ROPE_HALF_SPLIT */
RMSNORM_API rn_qk_norm_rope_options rn_qk_norm_rope_defaults(void);

/* Heads first .. first+count-1 of a view [.., heads, head_dim]: Q, K or V of a packed buffer. A range that the view does
 * not have gives a view that every operation refuses with a message. */
RMSNORM_API rn_view rn_heads(const rn_view *packed, int64_t first, int64_t count);

/* For each token and head, y = rms_norm(head, weight), then columns a and b of a pair, turned by the token's position:
 *   a' = a * cos - b * sin,  b' = b * cos + a * sin
 *   q_out, k_out       as q and k; type of q, or f32, or f16 / bf16 where q is f32; may be q and k
 *   q                  [.., heads, head_dim]  f32, f16, bf16 or f64; the axes before the heads are tokens
 *   k                  [.., k_heads, head_dim]  type of q, the same tokens; may be NULL, and k_out with it
 *   q_weight, k_weight [head_dim], or broadcast against q and k: a weight for each head; may be NULL; as for rn_rms_norm
 *   cos_sin            [positions, rotary_dim]  f32: rotary_dim / 2 cosines, then as many sines, for each position; any
 *                      row stride; rotary_dim is even and at most head_dim: columns behind it are not turned;
 *                      NULL: no rotary embedding
 *   positions          [..] of each token, i32 or i64, a row of cos_sin; NULL: the index on the axis before the heads
 *   options            NULL: defaults
 * RN_ROUND_ONCE: y is f32 and the result is rounded once; RN_ROUND_BEFORE_WEIGHT: y is rounded to the type of q, as
 * separate layers do. The turning is f32 (f64 rows: f64). V is no operand. A position that cos_sin does not have is
 * found before anything is written. */
RMSNORM_API rn_status rn_qk_norm_rope(const rn_view *q_out, const rn_view *k_out, const rn_view *q, const rn_view *k,
                                      const rn_view *q_weight, const rn_view *k_weight, const rn_view *cos_sin,
                                      const rn_view *positions, const rn_qk_norm_rope_options *options,
                                      const rn_execution *execution);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* RMSNORM_ROPE_H_ */
