"""OpenVINO on the CPU: called as a function, and with an inference request whose tensors are set."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from contestant import Contestant, Holder, Unavailable
from peer_cases import EPSILON, Operands

try:
    import openvino as ov
    from openvino import opset13 as ops
except ImportError as error:
    raise Unavailable("OpenVINO is not installed") from error

TYPES = {"f32": ov.Type.f32, "f16": ov.Type.f16, "bf16": ov.Type.bf16}


def version() -> str:
    return ov.__version__.split("-")[0]


def graph(operands: Operands) -> ov.Model:
    case = operands.case
    element = TYPES[case.type]

    def constant(array: np.ndarray) -> ov.Node:
        return ops.convert(ops.constant(array.astype(np.float32)), "f32")

    x = ops.parameter(case.shape, element, name="x")
    parameters = [x]
    value = x
    if operands.residual is not None:
        residual = ops.parameter(case.shape, element, name="residual")
        parameters.append(residual)
        value = ops.add(x, residual)
    total = value
    wide = ops.convert(value, "f32")
    axis = ops.constant(np.array([-1], np.int64))
    if case.op == "layer_norm":
        y = ops.mvn(wide, axis, True, EPSILON, "inside_sqrt")
        y = ops.add(ops.multiply(y, constant(operands.weight)), constant(operands.bias))
    else:  # the pattern that its RMS fusion looks for
        mean = ops.reduce_mean(ops.power(wide, ops.constant(np.float32(2))), axis, True)
        inverse = ops.divide(ops.constant(np.float32(1)), ops.sqrt(ops.add(mean, ops.constant(np.float32(EPSILON)))))
        y = ops.multiply(ops.multiply(wide, inverse), constant(operands.weight))
    out = ops.convert(y, element)
    results = [out, total] if operands.residual is not None else [out]
    return ov.Model(results, parameters, case.op)


def contestants(operands: Operands, threads: int) -> Iterator[Contestant]:
    case = operands.case
    if operands.dy is not None:
        raise Unavailable("inference only")
    config = {
        "INFERENCE_NUM_THREADS": threads,
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_PRECISION_HINT": "f32",
        "ENABLE_CPU_PINNING": False,
    }
    compiled = ov.Core().compile_model(graph(operands), "CPU", config)
    inputs = [a for a in (operands.x, operands.residual) if a is not None]

    def tensor(array: np.ndarray) -> ov.Tensor:
        if case.type == "bf16":
            return ov.Tensor(array.view(np.int16), array.shape, ov.Type.bf16)
        return ov.Tensor(array, shared_memory=True)

    tensors = [tensor(a) for a in inputs]
    numbers = lambda a: np.asarray(a).view(case.dtype) if case.type == "bf16" else np.asarray(a)  # noqa: E731
    call = Holder(lambda: compiled(tensors))
    yield Contestant("OpenVINO", "default", call, lambda: numbers(call.value[0]))
    request = compiled.create_infer_request()
    outs = [np.empty(case.shape, case.dtype) for _ in compiled.outputs]
    for i, each in enumerate(tensors):
        request.set_input_tensor(i, each)
    for i, each in enumerate(outs):
        request.set_output_tensor(i, tensor(each))
    yield Contestant("OpenVINO", "tensors set", request.infer, lambda: outs[0])
