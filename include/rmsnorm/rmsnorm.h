/* rmsnorm: normalisation kernels for the CPU. The C interface, all of it, and its manual.
 *
 * Conventions
 *   Arguments stand in the order outputs, inputs, parameters, options, execution.
 *   Every tensor is described by an rn_view: pointer, element type, shape and strides. The last axis is the
 *   normalised one and has stride 1; the axes before it may have any strides, in elements, also negative ones.
 *   "Row" means one setting of the leading axes; d is the length of the last axis.
 *   A view pointer that may be NULL says so; NULL means "absent": a factor 1, a term 0, an output not wanted.
 *
 * Numbers
 *   Sums are f64 or are folded into f64; a result is rounded once unless an option says otherwise, to nearest even.
 *   Nothing overflows or underflows on the way: rows of 3e38 or 1e-42 give what exact arithmetic gives.
 *   A row's result depends on the row, the parameters and the options only: not on the CPU, the compiler, the number of
 *   threads, the position in the batch, the alignment or the strides. Budgets in ulp: docs/numbers.md.
 *   NaN and infinity follow IEEE 754: a NaN in x makes its row NaN; one in weight its column.
 *
 * Aliasing
 *   out may be x, and residual_out may be residual, with equal pointer, shape, strides and type: same bits as separate
 *   buffers. Any other overlap between an output and another operand, or of an output with itself, is an error where it
 *   can be proved, and undefined where it cannot (more than a few thousand search steps).
 *
 * Errors
 *   Functions return RN_OK or a code; rn_last_error() then holds "<function>: <what> is <value>; it must be <rule>" for
 *   the calling thread. After an error the outputs are untouched. Nothing aborts, prints or throws.
 *
 * Threads
 *   Every function may be called from any number of threads at once. No call allocates after the first on a thread.
 */
#ifndef RMSNORM_RMSNORM_H_
#define RMSNORM_RMSNORM_H_

#include "rmsnorm/backward.h"
#include "rmsnorm/channels.h"
#include "rmsnorm/core.h"
#include "rmsnorm/gated_rms_norm.h"
#include "rmsnorm/norms.h"
#include "rmsnorm/quantize.h"
#include "rmsnorm/rope.h"
#include "rmsnorm/sharded.h"
#include "rmsnorm/targets.h"

#endif /* RMSNORM_RMSNORM_H_ */
