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

#include <stddef.h>
#include <stdint.h>

#define RMSNORM_VERSION_MAJOR 0
#define RMSNORM_VERSION_MINOR 1
#define RMSNORM_VERSION_PATCH 0
#define RMSNORM_VERSION "0.1.0"

#if defined(_WIN32) && defined(RMSNORM_SHARED)
#ifdef RMSNORM_BUILDING
#define RMSNORM_API __declspec(dllexport)
#else
#define RMSNORM_API __declspec(dllimport)
#endif
#elif defined(__GNUC__)
#define RMSNORM_API __attribute__((visibility("default")))
#else
#define RMSNORM_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Status ------------------------------------------------------------------------------------------------------ */

typedef enum rn_status {
  RN_OK = 0,
  RN_INVALID_VALUE = 1, /* a number, shape, stride or overlap that a rule forbids */
  RN_INVALID_TYPE = 2,  /* an element type that this operand cannot have, or a missing operand */
  RN_UNAVAILABLE = 3    /* the machine cannot: a target this CPU lacks, no memory for the thread pool */
} rn_status;

/* The message of the last call on this thread that did not return RN_OK; "" before the first. The text stays valid
 * until the next failing call on the same thread. */
RMSNORM_API const char *rn_last_error(void);

/* "0.1.0": the version of the library that was linked, which may differ from RMSNORM_VERSION of the header. */
RMSNORM_API const char *rn_version(void);

/* ---- Types and views --------------------------------------------------------------------------------------------- */

typedef enum rn_type {
  RN_F32 = 0,
  RN_F16 = 1,  /* IEEE 754 binary16 */
  RN_BF16 = 2, /* the upper half of an f32 */
  RN_F64 = 3
} rn_type;

/* "f32", "f16", "bf16", "f64"; NULL for a number that is no type. */
RMSNORM_API const char *rn_type_name(rn_type type);

/* Bytes of one element; 0 for a number that is no type. */
RMSNORM_API size_t rn_type_size(rn_type type);

enum { RN_MAX_RANK = 8 };

/* A tensor: element [i0]..[ir] lies at data + sizeof(type) * (i0 * strides[0] + .. + ir * strides[r]).
 *   data     aligned for its element; may be NULL where the tensor has no element
 *   rank     1 to RN_MAX_RANK; fold axes that lie densely in memory into one before calling if there are more
 *   shape    each >= 0, the last from 1 to 2^31; the product of the others at most 2^40
 *   strides  in elements; the last must be 1; ignored on axes of size 1; 0 repeats a row and is for inputs only */
typedef struct rn_view {
  void *data;
  rn_type type;
  int32_t rank;
  int64_t shape[RN_MAX_RANK];
  int64_t strides[RN_MAX_RANK];
} rn_view;

/* The view of a dense row-major matrix [rows, cols]. */
RMSNORM_API rn_view rn_matrix(void *data, rn_type type, int64_t rows, int64_t cols);

/* The view of a dense vector [cols], the usual form of weight and bias. */
RMSNORM_API rn_view rn_vector(void *data, rn_type type, int64_t cols);

/* The view of a dense row-major tensor of any rank up to RN_MAX_RANK (a larger rank gives a view that every operation
 * refuses with a message). */
RMSNORM_API rn_view rn_tensor(void *data, rn_type type, int32_t rank, const int64_t *shape);

/* ---- Execution --------------------------------------------------------------------------------------------------- */

/* One of `count` independent pieces of work; `task_data` is opaque. */
typedef void (*rn_task)(void *task_data, int64_t index);

/* Runs task(task_data, i) for i = 0 .. count-1, in any order, on any threads, and returns when all have ended. */
typedef void (*rn_parallel_for)(void *context, int64_t count, rn_task task, void *task_data);

/* Where the work runs. NULL in a call, or all zero, means the built-in pool with all CPUs this process may use.
 * Results do not depend on any of it. Small work runs on the calling thread whatever stands here, and so does a call
 * that finds the pool busy with another. The environment variable RMSNORM_THREADS, read once, caps the threads of all.
 * The pool starts with the first call that needs it, again in a forked child, and ends when the library is unloaded. */
typedef struct rn_execution {
  int32_t threads;              /* at most this many pieces at once; 0: one per available CPU; 1: the calling thread */
  rn_parallel_for parallel_for; /* NULL: the built-in pool; else the caller's own */
  void *parallel_context;       /* handed to parallel_for */
} rn_execution;

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

/* ---- Targets ----------------------------------------------------------------------------------------------------- */

/* The kernels are compiled once for each of several instruction sets ("targets"). The first call chooses the best one
 * that the CPU and the operating system support, or the one that the environment variable RMSNORM_TARGET names. All
 * targets give the same bits. RMSNORM_VERBOSE=1 writes one line to standard error that says what was chosen and why. */

/* How many targets this build holds, best first. */
RMSNORM_API int32_t rn_target_count(void);

/* The name of target i, for instance "avx2"; NULL outside 0 .. count-1. */
RMSNORM_API const char *rn_target_name(int32_t index);

/* One line that says what target i needs; NULL outside 0 .. count-1. */
RMSNORM_API const char *rn_target_description(int32_t index);

/* 1 if this machine can run target i, else 0. */
RMSNORM_API int32_t rn_target_supported(int32_t index);

/* The name of the target in use. */
RMSNORM_API const char *rn_target(void);

/* Why it is in use, one line: "best supported", "RMSNORM_TARGET", "rn_use_target". */
RMSNORM_API const char *rn_target_reason(void);

/* Uses the named target from now on, in all threads. Calls already running finish on the old one. */
RMSNORM_API rn_status rn_use_target(const char *name);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* RMSNORM_RMSNORM_H_ */
