// A drawing of the streams of a graph.
#ifndef RMSNORM_CONVERT_ONNX_DRAW_H_
#define RMSNORM_CONVERT_ONNX_DRAW_H_

#include <string>

#include "convert/onnx/stream.h"

namespace rmsnorm::convert::onnx {

// SVG: a column for each stream, from its entry down: what writes into it at the left, what reads it at the right.
std::string draw_streams(const Graph& graph, const Norms& norms, const Plan& plan);

}  // namespace rmsnorm::convert::onnx

#endif  // RMSNORM_CONVERT_ONNX_DRAW_H_
