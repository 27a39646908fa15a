/* Instruction sets: which there are, which is in use. */
#ifndef RMSNORM_TARGETS_H_
#define RMSNORM_TARGETS_H_

#include "rmsnorm/core.h"

#ifdef __cplusplus
extern "C" {
#endif

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

#endif /* RMSNORM_TARGETS_H_ */
