// Targets, and which operators mean the same under a newer operator set.
#ifndef RMSNORM_CONVERT_ONNX_OPSET_H_
#define RMSNORM_CONVERT_ONNX_OPSET_H_

#include "convert/convert.h"
#include "convert/onnx/graph.h"

namespace rmsnorm::convert::onnx {

inline constexpr int kRmsOpset = 23;        // the first with RMSNormalization
inline constexpr int kAxesInputOpset = 18;  // ReduceMean's axes are an input from it on
inline constexpr int kRmsIrVersion = 11;    // the file format that came with it

// kAuto becomes kOnnxRms23 where the graph's operator set has RMSNormalization, and kOnnxPlain elsewhere. kUsage for a
// target that is no graph's.
Target chosen_target(Target wanted, std::int64_t opset);

// R12 where the target needs an operator set under which one of the nodes would mean something else.
void check_target(const Graph& graph, Target target);

}  // namespace rmsnorm::convert::onnx

#endif  // RMSNORM_CONVERT_ONNX_OPSET_H_
