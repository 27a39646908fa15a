"""ONNX Runtime and OpenVINO, on graphs of one operation."""

from __future__ import annotations

import numpy as np

from contestant import Unavailable
from peer_cases import EPSILON, Operands

try:
    import onnx
    from onnx import TensorProto, helper
except ImportError as error:
    raise Unavailable("onnx is not installed") from error

ELEMENTS = {"f32": TensorProto.FLOAT, "bf16": TensorProto.BFLOAT16, "f16": TensorProto.FLOAT16}


def inputs_of(operands: Operands) -> dict[str, np.ndarray]:
    named = {"x": operands.x, "residual": operands.residual, "weight": operands.weight, "bias": operands.bias}
    return {name: array for name, array in named.items() if array is not None}


def model(operands: Operands, fused: bool) -> onnx.ModelProto:
    """fused: with the operators of ONNX Runtime that PyTorch's exporters and its own optimiser write."""
    case = operands.case
    element = ELEMENTS[case.type]
    values = [helper.make_tensor_value_info(n, element, a.shape) for n, a in inputs_of(operands).items()]
    outputs = [helper.make_tensor_value_info("out", element, case.shape)]
    if case.op == "layer_norm":
        nodes = [helper.make_node("LayerNormalization", ["x", "weight", "bias"], ["out"], axis=-1, epsilon=EPSILON)]
    elif case.op == "rms_norm" and fused:
        nodes = [helper.make_node("SimplifiedLayerNormalization", ["x", "weight"], ["out"], axis=-1, epsilon=EPSILON)]
    elif case.op == "rms_norm":
        nodes = [helper.make_node("RMSNormalization", ["x", "weight"], ["out"], axis=-1, epsilon=EPSILON)]
    elif case.op == "add_rms_norm" and fused:
        outputs.append(helper.make_tensor_value_info("total", element, case.shape))
        nodes = [
            helper.make_node(
                "SkipSimplifiedLayerNormalization",
                ["x", "residual", "weight"],
                ["out", "", "", "total"],
                domain="com.microsoft",
                epsilon=EPSILON,
            )
        ]
    elif case.op == "add_rms_norm":
        outputs.append(helper.make_tensor_value_info("total", element, case.shape))
        nodes = [
            helper.make_node("Add", ["x", "residual"], ["total"]),
            helper.make_node("RMSNormalization", ["total", "weight"], ["out"], axis=-1, epsilon=EPSILON),
        ]
    else:
        raise Unavailable("inference only")
    opsets = [helper.make_opsetid("", 23), helper.make_opsetid("com.microsoft", 1)]
    graph = helper.make_graph(nodes, case.op, values, outputs)
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)
