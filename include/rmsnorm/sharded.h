/* Norms whose hidden axis is split over devices: each holds a slice of every row. The statistics of the slices are f64
 * numbers, one a row, which the caller gathers and adds in the order of the ranks (rn_add_rank_sums); every rank then
 * normalises its slice with the same totals. How the numbers travel is the caller's choice: examples/mpi shows MPI.
 *
 *   forward      RMSNorm    rn_rms_sum_squares; gather, add; rn_rms_norm_apply
 *                LayerNorm  rn_layer_sum; gather, add; rn_layer_sum_squares; gather, add; rn_layer_norm_apply
 *   backward     RMSNorm    rn_rms_backward_sum; gather, add; rn_rms_norm_backward_apply
 *                LayerNorm  rn_layer_backward_sums; gather, add (two numbers a row); rn_layer_norm_backward_apply
 *
 * The backward needs the totals of the forward: keep them, they are 8 or 16 bytes a row. Gradients of the parameters
 * need nothing from other ranks.
 *
 * Operands that all of these functions share:
 *   x, out, ..   [.., d]  this rank's slice, d columns; types as for the whole row (norms.h, backward.h)
 *   sums         [..]     f64, one a row, any strides
 *   total_cols   the columns of all slices together, from 1 to 2^40
 * RMSNorm of one slice that is the whole row has the bits of rn_rms_norm where x is f32. (16-bit rows are summed in f64
 * here; rn_rms_norm sums them in f32 lanes where that is enough. Gradients are formed in f64 here;
 * rn_rms_norm_backward forms them in f32 where that is enough.)
 * f64 rows: a sum beyond f64's range is infinite, and a large common offset costs LayerNorm the digits that the f64 sum
 * does not hold; the whole-row functions have neither limit. */
#ifndef RMSNORM_SHARDED_H_
#define RMSNORM_SHARDED_H_

#include "rmsnorm/backward.h"
#include "rmsnorm/norms.h"

#ifdef __cplusplus
extern "C" {
#endif

/* total[i] = parts[i] + parts[count + i] + .. + parts[(ranks - 1) * count + i], added in this order: what a gather of
 * `count` numbers of each rank leaves in memory. A sum whose order the network chooses (MPI_Allreduce) may differ from
 * rank to rank and from run to run. total may be parts.
 *   ranks  1 or more
 *   count  0 or more */
RMSNORM_API rn_status rn_add_rank_sums(double *total, const double *parts, int64_t ranks, int64_t count);

/* ---- RMSNorm ----------------------------------------------------------------------------------------------------- */

/* sum_squares = sum of x^2 over the slice. For pRMSNorm hand in a view of the columns that count. */
RMSNORM_API rn_status rn_rms_sum_squares(const rn_view *sum_squares, const rn_view *x, const rn_execution *execution);

/* rn_rms_norm of the slice, with mean(x^2) = sum_squares / total_cols.
 *   options  partial must be 0: the totals say how many columns count */
RMSNORM_API rn_status rn_rms_norm_apply(const rn_view *out, const rn_view *inv_rms, const rn_view *x,
                                        const rn_view *sum_squares, int64_t total_cols, const rn_view *weight,
                                        const rn_view *bias, const rn_rms_norm_options *options,
                                        const rn_execution *execution);

/* sum_products = sum of dy * (weight + weight_offset) * x over the slice. */
RMSNORM_API rn_status rn_rms_backward_sum(const rn_view *sum_products, const rn_view *dy, const rn_view *x,
                                          const rn_view *weight, double weight_offset, const rn_execution *execution);

/* rn_rms_norm_backward of the slice; dweight and dbias are those of the slice's columns, and complete.
 *   scratch  as for rn_rms_norm_backward, by the slice's columns
 *   options  partial must be 0 */
RMSNORM_API rn_status rn_rms_norm_backward_apply(const rn_view *dx, const rn_view *dweight, const rn_view *dbias,
                                                 const rn_view *dy, const rn_view *x, const rn_view *sum_squares,
                                                 const rn_view *sum_products, int64_t total_cols, const rn_view *weight,
                                                 const rn_scratch *scratch, const rn_rms_norm_backward_options *options,
                                                 const rn_execution *execution);

/* ---- LayerNorm --------------------------------------------------------------------------------------------------- */

/* sum = sum of x over the slice: the first round. */
RMSNORM_API rn_status rn_layer_sum(const rn_view *sum, const rn_view *x, const rn_execution *execution);

/* sum_squares = sum of (x - mean)^2 over the slice, mean = sum / total_cols: the second round.
 *   sum  the total of all ranks */
RMSNORM_API rn_status rn_layer_sum_squares(const rn_view *sum_squares, const rn_view *x, const rn_view *sum,
                                           int64_t total_cols, const rn_execution *execution);

/* rn_layer_norm of the slice, with mean = sum / total_cols and the variance sum_squares / total_cols. */
RMSNORM_API rn_status rn_layer_norm_apply(const rn_view *out, const rn_view *mean, const rn_view *inv_std,
                                          const rn_view *x, const rn_view *sum, const rn_view *sum_squares,
                                          int64_t total_cols, const rn_view *weight, const rn_view *bias,
                                          const rn_layer_norm_options *options, const rn_execution *execution);

/* Over the slice, with g = dy * (weight + weight_offset):  sum_gradients = sum of g,
 * sum_products = sum of g * (x - mean). */
RMSNORM_API rn_status rn_layer_backward_sums(const rn_view *sum_gradients, const rn_view *sum_products,
                                             const rn_view *dy, const rn_view *x, const rn_view *sum,
                                             int64_t total_cols, const rn_view *weight, double weight_offset,
                                             const rn_execution *execution);

/* rn_layer_norm_backward of the slice. */
RMSNORM_API rn_status rn_layer_norm_backward_apply(const rn_view *dx, const rn_view *dweight, const rn_view *dbias,
                                                   const rn_view *dy, const rn_view *x, const rn_view *sum,
                                                   const rn_view *sum_squares, const rn_view *sum_gradients,
                                                   const rn_view *sum_products, int64_t total_cols,
                                                   const rn_view *weight, const rn_scratch *scratch,
                                                   const rn_layer_norm_backward_options *options,
                                                   const rn_execution *execution);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* RMSNORM_SHARDED_H_ */
