"""ONNX Runtime: its fused operators, through run() and through bound memory."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from contestant import Contestant, Holder, Unavailable
from graphs import inputs_of, model
from peer_cases import Operands

try:
    import onnxruntime as ort
except ImportError as error:
    raise Unavailable("ONNX Runtime is not installed") from error

ELEMENT_TYPES = {"f32": 1, "f16": 10, "bf16": 16}


def version() -> str:
    return ort.__version__


def contestants(operands: Operands, threads: int) -> Iterator[Contestant]:
    case = operands.case
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 4
    try:
        session = ort.InferenceSession(
            model(operands, fused=True).SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
    except Exception as error:  # its own exception types are not public
        raise Unavailable(f"no kernel for {case.type}") from error
    inputs = inputs_of(operands)
    if case.type != "bf16":
        run = Holder(lambda: session.run(None, inputs))
        yield Contestant("ONNX Runtime", "default", run, lambda: run.value[0])
    binding = session.io_binding()
    results = {}
    for name, array in inputs.items():
        binding.bind_input(name, "cpu", 0, ELEMENT_TYPES[case.type], array.shape, array.ctypes.data)
    for output in session.get_outputs():
        results[output.name] = np.empty(case.shape, case.dtype)
        pointer = results[output.name].ctypes.data
        binding.bind_output(output.name, "cpu", 0, ELEMENT_TYPES[case.type], case.shape, pointer)
    yield Contestant(
        "ONNX Runtime", "memory bound", lambda: session.run_with_iobinding(binding), lambda: results["out"]
    )
