"""Measures all cases on a number of CPUs, in a process of its own: several peers fix their threads when they start.

One JSON object a line on standard output: a measurement, why there is none, or which peer comes next, so that a crash
has a name.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import warnings

PEERS = ("ours", "pytorch", "onnx_runtime", "openvino_peer", "jax_peer", "mlx_peer", "ncnn_peer", "onednn_peer")


def limit_threads(threads: int) -> None:
    """To the first CPUs that this process may use, before any library starts its threads."""
    cpus = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, set(cpus[:threads]))
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ[name] = str(threads)
    if threads == 1:
        os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
    os.environ.setdefault("JAX_PLATFORMS", "cpu")


def emit(**fields: object) -> None:
    print(json.dumps(fields), flush=True)


def main(threads: int, request: dict) -> None:
    limit_threads(threads)
    warnings.filterwarnings("ignore")

    import numpy as np

    from contestant import Contestant, Unavailable
    from measure import measure
    from peer_cases import Operands, cases

    peers = {}
    for name in PEERS:
        if request["peers"] and name not in request["peers"]:
            continue
        try:
            peers[name] = importlib.import_module(name)
            emit(peer=name, version=peers[name].version())
        except Unavailable as reason:
            emit(peer=name, unavailable=str(reason))

    for case in cases(request["ops"], request["types"], [tuple(s) for s in request["shapes"]]):
        operands = Operands(case)
        source = np.zeros(case.bytes // 2, np.uint8)
        target = np.zeros_like(source)
        running = [Contestant("copy", "memcpy", lambda t=target, s=source: np.copyto(t, s), lambda: None)]
        errors = [None]
        fields = {"op": case.op, "type": case.type, "rows": case.rows, "cols": case.cols, "threads": threads}
        for name, module in peers.items():
            emit(starting=name)
            try:
                for each in module.contestants(operands, threads):
                    each.run()
                    errors.append(operands.largest_error(each.result()))
                    running.append(each)
            except Unavailable as reason:
                emit(**fields, peer=name, unavailable=str(reason))
            except Exception as error:  # a peer that breaks must not end the comparison
                text = str(error).splitlines()[0][:160] if str(error) else ""
                emit(**fields, peer=name, unavailable=f"{type(error).__name__}: {text}")
        timings = measure(running)
        for each, timing, error in zip(running, timings, errors, strict=True):
            emit(
                **fields,
                peer=each.peer,
                setting=each.setting,
                us=timing.seconds * 1e6,
                spread=timing.spread,
                ratio_to_copy=timings[0].seconds / timing.seconds,
                error_ulp=error,
            )


if __name__ == "__main__":
    main(int(sys.argv[1]), json.loads(sys.argv[2]))
