"""Runs a text recogniser before and after its conversion: how far apart its probabilities are, and how fast both are.

python compare_onnx.py ORIGINAL CONVERTED
"""

import sys
import time

import numpy as np
import onnxruntime

WIDTHS = (64, 160, 320, 480, 640)  # of an image, in pixels; the height is 48
ROUNDS = 30


def session(path):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def main(original, converted):
    sessions = [session(original), session(converted)]
    random = np.random.default_rng(0)
    print(f"ONNX Runtime {onnxruntime.__version__}, one thread")
    print("width   largest difference of a probability   original ms   converted ms")
    for width in WIDTHS:
        # Dark strokes on a light ground, from -1 to 1 as the model wants them.
        image = np.where(random.random((1, 1, 6, width // 8)) < 0.4, -0.8, 0.9).repeat(8, 2).repeat(8, 3)
        image = np.broadcast_to(image, (1, 3, 48, width)).astype(np.float32)
        first, second = (s.run(None, {"x": image})[0] for s in sessions)
        times = [[], []]
        for _ in range(ROUNDS):  # in turn, so that both see the same machine
            for s, seconds in zip(sessions, times, strict=True):
                start = time.perf_counter()
                s.run(None, {"x": image})
                seconds.append(time.perf_counter() - start)
        before, after = (1e3 * float(np.median(seconds)) for seconds in times)
        print(f"{width:5d}   {np.abs(first - second).max():36.1e}   {before:11.2f}   {after:12.2f}")


if __name__ == "__main__":
    main(*sys.argv[1:])
