/* What every operation shares: status, types, views, execution. Read rmsnorm.h first. */
#ifndef RMSNORM_CORE_H_
#define RMSNORM_CORE_H_

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
  RN_F64 = 3,
  RN_I8 = 4,     /* quantised outputs only, like the next two */
  RN_F8E4M3 = 5, /* OCP e4m3fn: largest number 448, no infinity */
  RN_F8E5M2 = 6, /* OCP e5m2: largest number 57344 */
  RN_I32 = 7,    /* positions only, like the next */
  RN_I64 = 8
} rn_type;

/* "f32", "f16", "bf16", "f64", "i8", "f8e4m3", "f8e5m2", "i32", "i64"; NULL for a number that is no type. */
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

/* Memory that some operations need while they run: `bytes` bytes at `data`, whose address is a multiple of 8, with any
 * contents. The operation's own function says how many. */
typedef struct rn_scratch {
  void *data;
  int64_t bytes;
} rn_scratch;

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* RMSNORM_CORE_H_ */
