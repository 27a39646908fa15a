"""Small graphs made with the onnx package, the command line, and runs in ONNX Runtime."""

import functools
import json
import os
import subprocess
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

ROOT = Path(__file__).resolve().parents[4]
PROGRAM = os.environ.get("RMSNORM_PROGRAM", str(ROOT / "build" / "release" / "rmsnorm"))
OCR_MODEL = ROOT / "examples" / "data" / "ch_PP-OCRv4_rec_infer.onnx"

USAGE, REFUSED, DIFFERENT = 2, 3, 5  # exit codes


def rmsnorm(*arguments, code=0):
    """Runs `rmsnorm ARGUMENTS --json`; returns its report, and as "stderr" what it says otherwise."""
    command = [PROGRAM, *map(str, arguments), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == code, f"{command}: {done.returncode}\n{done.stdout}\n{done.stderr}"
    report = json.loads(done.stdout) if done.stdout else {}
    report["stderr"] = done.stderr
    return report


def convert(model, folder, *options, code=0):
    """Saves the model if it is none yet, converts and proves; returns paths of both and the report."""
    before = model
    if not isinstance(model, Path):
        before = folder / "before.onnx"
        onnx.save(model, before)
    after = folder / f"after{len(list(folder.glob('after*')))}.onnx"
    report = rmsnorm("convert", before, after, *options, code=code)
    if code == 0:
        assert rmsnorm("verify", before, after)["equal"]
    else:
        assert not after.exists()
    return before, after, report


@functools.lru_cache(maxsize=4)  # the largest tests run two models many times
def session(path, changed, optimise):
    options = onnxruntime.SessionOptions()
    if not optimise:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def run(path, feeds, optimise=True):
    return session(str(path), os.stat(path).st_mtime_ns, optimise).run(None, feeds)


def largest_difference(before, after, feeds):
    """Relative to the largest number of each output."""
    worst = 0.0
    for a, b in zip(run(before, feeds), run(after, feeds), strict=True):
        a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
        assert np.isfinite(a).all() and a.size > 0
        worst = max(worst, float(np.abs(a - b).max() / np.abs(a).max()))
    return worst


def operators(path):
    return [node.op_type for node in onnx.load(path).graph.node]


class Builder:
    """A graph under construction: each method adds nodes and returns the name of a tensor."""

    def __init__(self, opset=17, ir_version=None, dtype=np.float32, seed=0):
        self.opset, self.dtype = opset, np.dtype(dtype)
        self.ir_version = ir_version or (3 if opset < 9 else 8 if opset < 20 else 10 if opset < 23 else 11)
        self.random = np.random.default_rng(seed)
        self.nodes, self.initializers, self.inputs, self.outputs = [], [], [], []
        self.extra_opsets = []

    @property
    def type(self):
        return helper.np_dtype_to_tensor_dtype(self.dtype)

    def name(self, stem):
        return f"{stem}_{len(self.nodes) + len(self.initializers)}"

    def constant(self, values, stem="c", dtype=None):
        name = self.name(stem)
        array = np.asarray(values).astype(dtype or self.dtype)
        self.initializers.append(numpy_helper.from_array(array, name))
        return name

    def weight(self, *shape, offset=0.1, stem="w"):
        """Random numbers whose means are not 0."""
        return self.constant(self.random.normal(offset, 1 / np.sqrt(shape[0]), shape), stem)

    def node(self, op, *inputs, stem=None, outputs=1, domain="", **attributes):
        names = [self.name((stem or op).lower()) + (f"_{i}" if i else "") for i in range(outputs)]
        self.nodes.append(helper.make_node(op, list(inputs), names, name=names[0], domain=domain, **attributes))
        return names[0] if outputs == 1 else names

    def input(self, name, shape, dtype=None):
        element = helper.np_dtype_to_tensor_dtype(np.dtype(dtype)) if dtype else self.type
        self.inputs.append(helper.make_tensor_value_info(name, element, shape))
        return name

    def output(self, name, rank=3):
        self.outputs.append(helper.make_tensor_value_info(name, self.type, [None] * rank))

    def linear(self, x, inputs, outputs):
        return self.node("Add", self.node("MatMul", x, self.weight(inputs, outputs)), self.weight(outputs, stem="b"))

    def mean(self, x, axis=-1, op="ReduceMean"):
        if self.opset >= 18:
            return self.node(op, x, self.constant([axis], "axes", np.int64), keepdims=1)
        return self.node(op, x, axes=[axis], keepdims=1)

    def unsqueeze(self, x, axis):
        if self.opset >= 13:
            return self.node("Unsqueeze", x, self.constant([axis], "axes", np.int64))
        return self.node("Unsqueeze", x, axes=[axis])

    def norm(self, x, width, form="pow", epsilon=1e-5, axis=-1, weight=True, bias=True, scale=None, **different):
        w = scale or (self.constant(self.random.normal(1, 0.3, width), "gamma") if weight else None)
        b = self.weight(width, stem="beta") if bias else None
        if form == "op":
            return self.node("LayerNormalization", x, w, *([b] if bias else []), axis=axis, epsilon=epsilon)
        mean = self.mean(x, axis)
        deviation = self.node("Sub", x, mean)
        other = self.node("Sub", x, mean) if different.get("two_subs") else deviation
        wide = other
        if different.get("cast"):
            wide = self.node("Cast", other, to=TensorProto.FLOAT)
        eps_dtype = np.float32 if different.get("cast") else None
        if form == "mul":
            square = self.node("Mul", wide, wide)
        else:
            square = self.node("Pow", wide, self.constant(2.0, "two", eps_dtype))
        variance = self.mean(square, axis)
        if different.get("unbiased"):
            variance = self.node("Mul", variance, self.constant(width / (width - 1), "unbiased"))
        eps = self.constant(epsilon, "epsilon", eps_dtype)
        if different.get("outside"):
            root = self.node("Add", self.node("Sqrt", variance), eps)
            out = self.node("Div", deviation, root)
        elif form == "reciprocal":
            root = self.node("Reciprocal", self.node("Sqrt", self.node("Add", variance, eps)))
            out = self.node("Mul", root, deviation)
        elif form == "power":
            root = self.node("Pow", self.node("Add", variance, eps), self.constant(-0.5, "minus_half", eps_dtype))
            out = self.node("Mul", deviation, root)
        else:
            root = self.node("Sqrt", self.node("Add", variance, eps))
            if different.get("cast"):
                root = self.node("Cast", root, to=self.type)
            out = self.node("Div", deviation, root)
        out = self.node("Mul", out, w) if w else out
        return self.node("Add", out, b) if b else out

    def block(self, x, width, **norm):
        """x + MLP(norm(x))"""
        inner = self.node("Relu", self.linear(self.norm(x, width, **norm), width, 2 * width))
        return self.node("Add", x, self.linear(inner, 2 * width, width))

    def embedded(self, width, words=11, positions=8):
        """Words and positions, as a decoder starts."""
        self.input("ids", ["batch", positions], np.int64)
        x = self.node("Gather", self.weight(words, width, stem="words"), "ids")
        return self.node("Add", x, self.weight(1, positions, width, stem="positions"))

    def model(self):
        opsets = [helper.make_opsetid("", self.opset), *self.extra_opsets]
        inputs = list(self.inputs)
        if self.ir_version < 4:
            inputs += [helper.make_tensor_value_info(t.name, t.data_type, t.dims) for t in self.initializers]
        graph = helper.make_graph(self.nodes, "graph", inputs, self.outputs, self.initializers)
        return helper.make_model(graph, opset_imports=opsets, ir_version=self.ir_version, producer_name="test")


IDS = {"ids": np.arange(16).reshape(2, 8) % 11}


def decoder(opset=17, width=24, blocks=2, dtype=np.float32, **norm):
    """Embeddings, blocks, a final norm and a head: every norm can be converted by weights alone."""
    b = Builder(opset, dtype=dtype)
    x = b.embedded(width)
    for _ in range(blocks):
        x = b.block(x, width, **norm)
    b.output(b.linear(b.norm(x, width, **norm), width, 5))
    return b
