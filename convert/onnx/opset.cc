#include "convert/onnx/opset.h"

#include "convert/refusal.h"

namespace rmsnorm::convert::onnx {

namespace {

struct Since {
  std::string_view op;
  int version;
};

// The first operator set whose nodes read the same, and mean the same, under kRmsOpset. Operators that changed in a way
// that a node can show (axes became an input, a default changed) start behind that change; what is not listed is not
// trusted.
constexpr Since kSince[] = {
    {"Abs", 6},
    {"Add", 7},
    {"And", 7},
    {"ArgMax", 11},
    {"ArgMin", 11},
    {"AveragePool", 7},
    {"BatchNormalization", 9},
    {"Cast", 6},
    {"Ceil", 6},
    {"Clip", 11},
    {"Concat", 4},
    {"Constant", 1},
    {"ConstantOfShape", 9},
    {"Conv", 1},
    {"ConvTranspose", 11},
    {"Cos", 7},
    {"CumSum", 11},
    {"Div", 7},
    {"Dropout", 12},
    {"Einsum", 12},
    {"Elu", 6},
    {"Equal", 7},
    {"Erf", 9},
    {"Exp", 6},
    {"Expand", 8},
    {"Flatten", 1},
    {"Floor", 6},
    {"Gather", 1},
    {"GatherElements", 11},
    {"GatherND", 12},
    {"Gelu", 20},
    {"Gemm", 7},
    {"GlobalAveragePool", 1},
    {"GlobalMaxPool", 1},
    {"Greater", 7},
    {"GreaterOrEqual", 12},
    {"HardSigmoid", 6},
    {"HardSwish", 14},
    {"Identity", 1},
    {"InstanceNormalization", 6},
    {"IsInf", 10},
    {"IsNaN", 9},
    {"LayerNormalization", 17},
    {"LeakyRelu", 6},
    {"Less", 7},
    {"LessOrEqual", 12},
    {"Log", 6},
    {"LogSoftmax", 13},
    {"MatMul", 1},
    {"Max", 8},
    {"MaxPool", 1},
    {"Mean", 8},
    {"Min", 8},
    {"Mod", 10},
    {"Mul", 7},
    {"Neg", 6},
    {"NonZero", 9},
    {"Not", 1},
    {"OneHot", 9},
    {"Or", 7},
    {"PRelu", 7},
    {"Pad", 11},
    {"Pow", 7},
    {"RMSNormalization", 23},
    {"Range", 11},
    {"Reciprocal", 6},
    {"ReduceMax", 18},
    {"ReduceMean", 18},
    {"ReduceMin", 18},
    {"ReduceProd", 18},
    {"ReduceSum", 13},
    {"Relu", 6},
    {"Reshape", 5},
    {"Round", 11},
    {"ScatterElements", 11},
    {"ScatterND", 11},
    {"Selu", 6},
    {"Shape", 1},
    {"Sigmoid", 6},
    {"Sign", 9},
    {"Sin", 7},
    {"Size", 1},
    {"Slice", 10},
    {"Softmax", 13},
    {"Softplus", 1},
    {"Sqrt", 6},
    {"Squeeze", 13},
    {"Sub", 7},
    {"Sum", 8},
    {"Tanh", 6},
    {"Tile", 6},
    {"TopK", 11},
    {"Transpose", 1},
    {"Trilu", 14},
    {"Unsqueeze", 13},
    {"Where", 9},
    {"Xor", 7},
};

bool keeps_meaning(const Graph& graph, int n) {
  const pb::NodeProto& node = graph.node(n);
  const std::string_view op = graph.op(n);
  if (!node.domain().empty() && node.domain() != "ai.onnx") return true;  // has an operator set of its own
  if (op.empty()) return true;                                            // a function of the model
  if (has_subgraph(node)) return false;
  // Split names its parts by an input since 13 and, without them, by a count since 18.
  if (op == "Split") return graph.opset() >= (graph.input(n, 1).empty() ? 18 : 13);
  for (const Since& since : kSince) {
    if (since.op == op) return graph.opset() >= since.version;
  }
  return false;
}

}  // namespace

Target chosen_target(Target wanted, std::int64_t opset) {
  switch (wanted) {
    case Target::kAuto:
      return opset >= kRmsOpset ? Target::kOnnxRms23 : Target::kOnnxPlain;
    case Target::kOnnxRms23:
    case Target::kOnnxSimplified:
    case Target::kOnnxPlain:
      return wanted;
    default:
      tools::fail(tools::ExitCode::kUsage,
                  "--target is for a directory; for an ONNX file it must be auto, onnx-rms23, onnx-simplified or "
                  "onnx-plain");
  }
}

void check_target(const Graph& graph, Target target) {
  if (target != Target::kOnnxRms23 || graph.opset() >= kRmsOpset) return;
  for (int n = 0; n < graph.size(); ++n) {
    if (keeps_meaning(graph, n)) continue;
    refuse(
        RefusalCode::kUnsupportedOption, label(graph.node(n)),
        "RMSNormalization needs operator set {}, the graph has {}, and {} may mean something else there; use --target "
        "onnx-plain, or raise the graph first (onnx.version_converter)",
        kRmsOpset, graph.opset(), graph.node(n).op_type());
  }
}

}  // namespace rmsnorm::convert::onnx
