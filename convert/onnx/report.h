// What inspect, convert and verify say, for people and for programs.
#ifndef RMSNORM_CONVERT_ONNX_REPORT_H_
#define RMSNORM_CONVERT_ONNX_REPORT_H_

#include "convert/convert.h"
#include "convert/onnx/rewrite.h"
#include "convert/onnx/verify.h"

namespace rmsnorm::convert::onnx {

void report_plan(const Graph& graph, int nodes, const Norms& norms, const Plan& plan, Target target, Report& report);
void report_changes(const Changes& changes, const Norms& norms, Target target, const std::string& output,
                    Report& report);
void report_identical(const Model& original, const Model& converted, Report& report);
void report_proof(const Proof& proof, Report& report);

}  // namespace rmsnorm::convert::onnx

#endif  // RMSNORM_CONVERT_ONNX_REPORT_H_
