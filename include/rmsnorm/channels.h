/* Norms of images, [N, C, pixels..] (NCHW): over the channels of each pixel, and over groups of whole channels. */
#ifndef RMSNORM_CHANNELS_H_
#define RMSNORM_CHANNELS_H_

#include "rmsnorm/backward.h"
#include "rmsnorm/norms.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Operands that all of these functions share:
 *   x, out, ..   [N, C, .., W]  rank 3 to 8: batch, channels, then the axes of the pixels. The last axis has stride 1;
 *                               the others may have any strides. Types as for rn_rms_norm
 *   weight, bias [C]            may be NULL; types as for rn_rms_norm, shared by all pixels
 *   options      partial must be 0; NULL: defaults
 * All arithmetic is f64 and every result is rounded once (RN_ROUND_BEFORE_WEIGHT: as in rn_rms_norm). */

/* RMSNorm over the channels of each pixel:  inv = 1 / sqrt(mean over c of x[n, c, p]^2 + epsilon),
 * out[n, c, p] = x[n, c, p] * inv[n, p] * (weight[c] + weight_offset) + bias[c].  out may be x. */
RMSNORM_API rn_status rn_rms_norm_channels(const rn_view *out, const rn_view *x, const rn_view *weight,
                                           const rn_view *bias, const rn_rms_norm_options *options,
                                           const rn_execution *execution);

/* RMSNorm over groups of channels and all pixels: channel c belongs to group c / (C / groups), and
 * inv[n, g] = 1 / sqrt(mean over the group's channels and the pixels of x^2 + epsilon). groups = C is the per-channel
 * form of filter response normalisation (Singh and Krishnan 2020, without its threshold unit).
 *   groups  from 1 to C, a divisor of C */
RMSNORM_API rn_status rn_group_rms_norm(const rn_view *out, const rn_view *x, int64_t groups, const rn_view *weight,
                                        const rn_view *bias, const rn_rms_norm_options *options,
                                        const rn_execution *execution);

/* The bytes of scratch that rn_rms_norm_channels_backward needs where dweight or dbias is wanted, and those that
 * rn_group_rms_norm_backward always needs; pixels: of one channel. -1 for sizes that no call accepts. */
RMSNORM_API int64_t rn_rms_norm_channels_scratch_bytes(int64_t batch, int64_t channels, int64_t pixels);
RMSNORM_API int64_t rn_group_rms_norm_scratch_bytes(int64_t batch, int64_t channels);

/* Gradients of the two, as in rn_rms_norm_backward with the mean over the same elements.
 *   dx       as x; type of x, or f32, or f16 / bf16 where x is f32; may be dy
 *   dweight  [C]  may be NULL; sum over images and pixels of dy * x * inv
 *   dbias    [C]  may be NULL; sum over images and pixels of dy
 *   dy       as dx
 * dweight and dbias are summed in blocks that depend on the shape alone. */
RMSNORM_API rn_status rn_rms_norm_channels_backward(const rn_view *dx, const rn_view *dweight, const rn_view *dbias,
                                                    const rn_view *dy, const rn_view *x, const rn_view *weight,
                                                    const rn_scratch *scratch,
                                                    const rn_rms_norm_backward_options *options,
                                                    const rn_execution *execution);
RMSNORM_API rn_status rn_group_rms_norm_backward(const rn_view *dx, const rn_view *dweight, const rn_view *dbias,
                                                 const rn_view *dy, const rn_view *x, int64_t groups,
                                                 const rn_view *weight, const rn_scratch *scratch,
                                                 const rn_rms_norm_backward_options *options,
                                                 const rn_execution *execution);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* RMSNORM_CHANNELS_H_ */
