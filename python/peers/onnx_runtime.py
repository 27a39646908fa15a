"""ONNX Runtime: its fused operators, through run() and through bound memory."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from contestant import Contestant, Holder, Unavailable
from peer_cases import EPSILON, Operands

try:
    import onnx
    import onnxruntime as ort
    from onnx import TensorProto, helper
except ImportError as error:
    raise Unavailable("onnx or ONNX Runtime is not installed") from error

ELEMENTS = {"f32": TensorProto.FLOAT, "bf16": TensorProto.BFLOAT16, "f16": TensorProto.FLOAT16}


def version() -> str:
    return ort.__version__


def inputs_of(operands: Operands) -> dict[str, np.ndarray]:
    named = {"x": operands.x, "residual": operands.residual, "weight": operands.weight, "bias": operands.bias}
    return {name: array for name, array in named.items() if array is not None}


def model(operands: Operands) -> onnx.ModelProto:
    """One node: ONNX's own, or the fused one of ONNX Runtime that its optimiser writes."""
    case = operands.case
    element = ELEMENTS[case.type]
    values = [helper.make_tensor_value_info(n, element, a.shape) for n, a in inputs_of(operands).items()]
    outputs = [helper.make_tensor_value_info("out", element, case.shape)]
    if case.op == "layer_norm":
        nodes = [helper.make_node("LayerNormalization", ["x", "weight", "bias"], ["out"], axis=-1, epsilon=EPSILON)]
    elif case.op == "rms_norm":
        nodes = [helper.make_node("SimplifiedLayerNormalization", ["x", "weight"], ["out"], axis=-1, epsilon=EPSILON)]
    elif case.op == "add_rms_norm":
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
    else:
        raise Unavailable("inference only")
    opsets = [helper.make_opsetid("", 23), helper.make_opsetid("com.microsoft", 1)]
    graph = helper.make_graph(nodes, case.op, values, outputs)
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def contestants(operands: Operands, threads: int) -> Iterator[Contestant]:
    case = operands.case
    element = ELEMENTS[case.type]
    graph = model(operands).SerializeToString()
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 4
    try:
        session = ort.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # its own exception types are not public
        raise Unavailable(f"no kernel for {case.type}") from error
    inputs = inputs_of(operands)
    if case.type != "bf16":
        run = Holder(lambda: session.run(None, inputs))
        yield Contestant("ONNX Runtime", "default", run, lambda: run.value[0])
    binding = session.io_binding()
    results = {}
    for name, array in inputs.items():
        binding.bind_input(name, "cpu", 0, element, array.shape, array.ctypes.data)
    for output in session.get_outputs():
        results[output.name] = np.empty(case.shape, case.dtype)
        pointer = results[output.name].ctypes.data
        binding.bind_output(output.name, "cpu", 0, element, case.shape, pointer)
    yield Contestant(
        "ONNX Runtime", "memory bound", lambda: session.run_with_iobinding(binding), lambda: results["out"]
    )
