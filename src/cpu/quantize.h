// Runs a checked call of RMSNorm with a quantised output.
#ifndef RMSNORM_CPU_QUANTIZE_H_
#define RMSNORM_CPU_QUANTIZE_H_

#include "core/quantize_call.h"

namespace rmsnorm {

rn_status run_quantize(QuantizeCall call, const rn_execution& execution);

}  // namespace rmsnorm

#endif  // RMSNORM_CPU_QUANTIZE_H_
