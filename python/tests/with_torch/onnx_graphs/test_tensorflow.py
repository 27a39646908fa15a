"""Norms as exporters of TensorFlow write them: with the weight inside the formula, and as batch normalizations."""

import numpy as np
import onnx
import pytest

from graph_tools import IDS, REFUSED, ROOT, Builder, convert, largest_difference, operators, rmsnorm

GRAPHS = ROOT / "test" / "data" / "tensorflow"  # make_graphs.py there wrote them
TOLERANCE = 5e-6  # f32, relative to the output's largest number
WIDTH = 24


def words(path):
    """Token ids for one of the files."""
    shape = [d.dim_value or 3 for d in onnx.load(path).graph.input[0].type.tensor_type.shape.dim]
    return {"ids": (np.arange(np.prod(shape)) % 11).reshape(shape).astype(np.int32)}


@pytest.mark.parametrize("target", ["onnx-plain", "onnx-simplified", "onnx-rms23"])
@pytest.mark.parametrize("source", sorted(GRAPHS.glob("*.onnx")), ids=lambda path: path.stem)
def test_exported(tmp_path, source, target):
    if target == "onnx-rms23" and source.stem.endswith("13"):
        assert convert(source, tmp_path, "--target", target, code=REFUSED)[2]["refused"]["code"] == "R12"
        return
    before, after, report = convert(source, tmp_path, "--target", target)
    assert (len(report["norms"]), report["converted"], report["operations_inserted"]) == (5, 5, 0), report["norms"]
    assert {norm["form"] for norm in report["norms"]} == {"written out"}
    assert report["written_out"] == []
    assert report["nodes_before"] == len(operators(source)) > report["nodes_after"] == len(operators(after))
    assert largest_difference(before, after, words(source)) < TOLERANCE
    ops = operators(after)
    for gone in ("Sub", "BatchNormalization", "GlobalAveragePool", "ReduceSumSquare", "Neg"):
        assert gone not in ops
    if target != "onnx-simplified":
        onnx.checker.check_model(onnx.load(after), full_check=True)
    read = {name for node in onnx.load(after).graph.node for name in node.input}
    assert {tensor.name for tensor in onnx.load(after).graph.initializer} <= read


@pytest.mark.parametrize("source", sorted(GRAPHS.glob("*.onnx")), ids=lambda path: path.stem)
def test_a_norm_that_stays_keeps_its_nodes(tmp_path, source):
    """The sum that the second norm reads becomes an output: the first is not worth an operation of its own."""
    model = onnx.load(source)
    stream = rmsnorm("inspect", source)["norms"][1]["input"]
    model.graph.output.append(onnx.helper.make_tensor_value_info(stream, onnx.TensorProto.FLOAT, None))
    before, after, report = convert(model, tmp_path)
    assert [norm["converted"] for norm in report["norms"]] == [False, True, True, True, True]
    assert report["norms"][0]["code"] == "R02" and report["operations_inserted"] == 1
    assert largest_difference(before, after, words(source)) < TOLERANCE
    kept = [node.SerializeToString() for node in onnx.load(after).graph.node]
    first = next(i for i, node in enumerate(model.graph.node) if node.op_type == "MatMul")
    assert [kept.count(node.SerializeToString()) for node in model.graph.node[:first]] == [1] * first


def folded_norm(b, x, form, width=WIDTH, weight=True, bias=True, fault=None):
    """LayerNorm in one of the forms, with one of the faults."""
    w = b.constant(b.random.normal(1, 0.3, width), "gamma") if weight else None
    v = b.weight(1, 1, width, stem="beta") if bias else None
    mean = b.mean(x)
    of = b.node("Mul", x, b.constant(1.0)) if fault == "another mean" else x
    square = b.node("Sub", of, mean)
    square = b.node("Pow", square, b.constant(2.0)) if form == "sum" else b.node("Mul", square, square)
    variance = b.mean(square)
    if fault == "variance read":
        b.output(variance)
    inside = b.node("Add", variance, b.constant(1e-5)) if fault != "outside" else ""
    if fault == "outside":
        root = b.node("Reciprocal", b.node("Add", b.node("Sqrt", variance), b.constant(1e-5)))
    elif form != "quotient":
        root = b.node("Reciprocal", b.node("Sqrt", inside))
    if form in ("product", "weight first", "quotient"):
        deviation = b.node("Sub", x, mean)
        if form == "product":
            out = b.node("Mul", b.node("Mul", w, root) if weight else root, deviation)
        elif form == "weight first":
            out = b.node("Mul", b.node("Mul", w, deviation), root)
        else:
            out = b.node("Div", b.node("Mul", deviation, w), b.node("Sqrt", inside))
        return b.node("Add", out, v) if bias else out
    factor = b.node("Mul", w, root) if weight else root
    scaled = b.node("Mul", x, factor)
    if form == "negative":
        shift = b.node("Mul", factor, b.node("Neg", mean))
        return b.node("Add", scaled, b.node("Add", shift, v) if bias else shift)
    if fault == "another weight":
        factor = b.node("Mul", b.constant(b.random.normal(1, 0.3, width)), root)
    shift = b.node("Mul", mean, factor)
    if fault == "negative bias":
        return b.node("Sub", scaled, b.node("Add", shift, v))
    if fault == "no minus":
        return b.node("Add", scaled, b.node("Add", shift, v))
    return b.node("Add", b.node("Sub", v, shift), scaled) if bias else b.node("Sub", scaled, shift)


def stack(opset, **norm):
    b = Builder(opset)
    x = b.embedded(WIDTH)
    for _ in range(2):
        inner = b.node("Relu", b.linear(folded_norm(b, x, **norm), WIDTH, 2 * WIDTH))
        x = b.node("Add", x, b.linear(inner, 2 * WIDTH, WIDTH))
    b.output(b.linear(folded_norm(b, x, **norm), WIDTH, 5))
    return b


@pytest.mark.parametrize("opset", [9, 12, 17, 18, 23])
@pytest.mark.parametrize("form", ["product", "weight first", "quotient", "sum", "negative"])
def test_every_order_of_factors_and_terms(tmp_path, form, opset):
    before, after, report = convert(stack(opset, form=form).model(), tmp_path)
    assert (report["converted"], report["operations_inserted"]) == (3, 0), report["norms"]
    assert largest_difference(before, after, IDS) < TOLERANCE
    onnx.checker.check_model(onnx.load(after), full_check=True)


@pytest.mark.parametrize("target", ["onnx-plain", "onnx-simplified"])
@pytest.mark.parametrize(("weight", "bias"), [(True, False), (False, True), (False, False)])
@pytest.mark.parametrize("form", ["product", "sum", "negative"])
def test_without_parameters(tmp_path, form, weight, bias, target):
    model = stack(12, form=form, weight=weight, bias=bias).model()  # before ir_version 4 and after it
    for version in (3, 7):
        model.ir_version = version
        del model.graph.input[1:]
        if version < 4:
            model.graph.input.extend(
                onnx.helper.make_tensor_value_info(t.name, t.data_type, t.dims) for t in model.graph.initializer
            )
        before, after, report = convert(model, tmp_path, "--target", target)
        assert (report["converted"], report["operations_inserted"]) == (3, 0), report["norms"]
        assert largest_difference(before, after, IDS) < TOLERANCE


@pytest.mark.parametrize(
    "fault", ["another mean", "another weight", "negative bias", "no minus", "variance read", "outside"]
)
def test_what_is_no_norm_is_none(tmp_path, fault):
    model = stack(18, form="sum", fault=fault).model()
    refused = convert(model, tmp_path, code=REFUSED)[2]["refused"]
    assert refused["code"] == "R09"


@pytest.mark.parametrize("form", ["constant", "computed", "scaled", "biased"])
def test_instance_normalization(tmp_path, form):
    """Of positions, as channels: with scales and biases for them it is no LayerNorm."""
    b = Builder(18)
    x = b.embedded(WIDTH)
    positions = b.node("Shape", x, start=1, end=2)

    def filled(value):
        if form == "computed":
            number = onnx.helper.make_tensor("value", onnx.TensorProto.FLOAT, [1], [value])
            return b.node("ConstantOfShape", positions, value=number)
        return b.constant(np.full(8, value))

    def norm(x):
        scale = b.weight(8) if form == "scaled" else filled(1.0)
        bias = b.weight(8) if form == "biased" else filled(0.0)
        out = b.node("InstanceNormalization", x, scale, bias, epsilon=2e-5)
        return b.node("Add", b.node("Mul", out, b.weight(WIDTH, offset=1.0)), b.weight(WIDTH, stem="beta"))

    for _ in range(2):
        inner = b.node("Relu", b.linear(norm(x), WIDTH, 2 * WIDTH))
        x = b.node("Add", x, b.linear(inner, 2 * WIDTH, WIDTH))
    b.output(b.linear(norm(x), WIDTH, 5))
    if form in ("scaled", "biased"):
        assert convert(b.model(), tmp_path, code=REFUSED)[2]["refused"]["code"] == "R09"
        return
    before, after, report = convert(b.model(), tmp_path)
    assert (report["converted"], report["operations_inserted"]) == (3, 0), report["norms"]
    assert [norm["epsilon"] for norm in report["norms"]] == pytest.approx([2e-5] * 3)
    assert largest_difference(before, after, IDS) < TOLERANCE


def batch_norm_parts(path):
    """The first batch normalization of the file, and the node before it that squares."""
    model = onnx.load(path)
    return model, {node.op_type: node for node in reversed(model.graph.node)}


@pytest.mark.parametrize("change", ["scale", "bias", "axes", "width", "training", "deviation"])
def test_a_batch_normalization_that_is_another(tmp_path, change):
    model, first = batch_norm_parts(GRAPHS / "keras2_18.onnx")
    constants = {tensor.name: tensor for tensor in model.graph.initializer}
    norm = first["BatchNormalization"]
    if change in ("scale", "bias"):
        expand = next(n for n in model.graph.node if norm.input[1 if change == "scale" else 2] in n.output)
        constants[expand.input[0]].CopyFrom(onnx.numpy_helper.from_array(np.float32(0.5), expand.input[0]))
    elif change == "axes":
        gather = next(n for n in model.graph.node if n.op_type == "Gather" and n.name.startswith("Gather__"))
        constants[gather.input[1]].CopyFrom(onnx.numpy_helper.from_array(np.array([0, 1, 3]), gather.input[1]))
    elif change == "width":
        name = next(n for n in model.graph.node if norm.input[0] in n.output).input[1]
        constants[name].CopyFrom(onnx.numpy_helper.from_array(np.array([1, -1, 4, 1]), name))
    elif change == "training":
        norm.attribute.append(onnx.helper.make_attribute("training_mode", 1))
    else:
        first["Sub"].input[1] = norm.input[1]
    path = tmp_path / "changed.onnx"
    onnx.save(model, path)
    norms = rmsnorm("inspect", path)["norms"]
    # Constants are shared by all five; nodes are the first's.
    assert len(norms) == (4 if change in ("training", "deviation") else 0)
