"""Graphs of one kind each, in ONNX Runtime before and after."""

import shutil
import subprocess

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from graph_tools import (
    DIFFERENT,
    IDS,
    PROGRAM,
    REFUSED,
    USAGE,
    Builder,
    convert,
    decoder,
    largest_difference,
    operators,
    rmsnorm,
    run,
)

# One rounding of f32 for each weight, and what the runtime's own sums lose.
TOLERANCE = {np.float32: 2e-6, np.float16: 4e-3}


def kinds(report):
    return [(norm["converted"], norm.get("code")) for norm in report["norms"]]


@pytest.mark.parametrize("opset", range(9, 25))
def test_written_out_under_every_operator_set(tmp_path, opset):
    before, after, report = convert(decoder(opset).model(), tmp_path, "--target", "onnx-plain")
    assert report["converted"] == 3 and report["operations_inserted"] == 0
    assert report["weights_centred"] == 4 and report["biases_centred"] == 2
    assert largest_difference(before, after, IDS) < TOLERANCE[np.float32]
    assert operators(after).count("Sub") == 0
    onnx.checker.check_model(onnx.load(after), full_check=True)


@pytest.mark.parametrize("target", ["onnx-plain", "onnx-simplified", "onnx-rms23"])
@pytest.mark.parametrize("form", ["op", "pow", "mul", "reciprocal", "power", "two_subs"])
def test_every_form_for_every_target(tmp_path, form, target):
    norm = {"form": "pow", "two_subs": True} if form == "two_subs" else {"form": form}
    before, after, report = convert(decoder(18, **norm).model(), tmp_path, "--target", target)
    assert report["converted"] == 3 and report["written_out"] == []
    assert largest_difference(before, after, IDS) < TOLERANCE[np.float32]
    ops = operators(after)
    assert ops.count("RMSNormalization") == (3 if target == "onnx-rms23" else 0)
    assert ops.count("SimplifiedLayerNormalization") == (3 if target == "onnx-simplified" else 0)
    assert "LayerNormalization" not in ops and "Sub" not in ops
    model = onnx.load(after)
    assert model.opset_import[0].version == (23 if target == "onnx-rms23" else 18)
    if target != "onnx-simplified":  # which is ONNX Runtime's own, without a schema
        onnx.checker.check_model(model, full_check=True)


@pytest.mark.parametrize(
    ("opset", "operator"), [(17, None), (22, None), (23, "RMSNormalization"), (24, "RMSNormalization")]
)
def test_automatic_target(tmp_path, opset, operator):
    _, after, report = convert(decoder(opset, form="op").model(), tmp_path)
    assert report["target"] == ("onnx-rms23" if operator else "onnx-plain")
    assert operator is None or operator in operators(after)


@pytest.mark.parametrize(("weight", "bias"), [(True, False), (False, True), (False, False)])
def test_norms_without_parameters(tmp_path, weight, bias):
    for target in ("onnx-plain", "onnx-rms23"):
        model = decoder(18, weight=weight, bias=bias).model()
        before, after, report = convert(model, tmp_path, "--target", target)
        assert report["converted"] == 3
        assert largest_difference(before, after, IDS) < TOLERANCE[np.float32]


@pytest.mark.parametrize("form", ["op", "pow", "cast"])
def test_half_precision(tmp_path, form):
    norm = {"form": "pow", "cast": True} if form == "cast" else {"form": form}
    before, after, report = convert(decoder(18, dtype=np.float16, **norm).model(), tmp_path)
    assert report["converted"] == 3
    assert largest_difference(before, after, IDS) < TOLERANCE[np.float16]
    onnx.checker.check_model(onnx.load(after), full_check=True)


def test_half_precision_behind_an_operator_that_is_not_known(tmp_path):
    """The type of its output is the scale's: the proof must know that, too. No runtime has the operator."""
    b = Builder(18, dtype=np.float16)
    x = b.node("Unknown", b.embedded(16), domain="somebody")
    b.extra_opsets = [helper.make_opsetid("somebody", 1)]
    for _ in range(2):
        x = b.block(x, 16, form="op")
    b.output(b.norm(x, 16, form="op"))
    report = convert(b.model(), tmp_path)[2]
    assert (report["converted"], report["operations_inserted"]) == (3, 1)


def test_half_precision_does_not_overflow(tmp_path):
    """A stream of numbers whose squares f16 cannot hold."""
    b = Builder(18, dtype=np.float16)
    x = b.embedded(16)
    x = b.node("Mul", x, b.constant(400.0))
    for _ in range(2):
        x = b.block(x, 16, form="op")
    b.output(b.norm(x, 16, form="op"))
    before, after, _ = convert(b.model(), tmp_path)
    assert largest_difference(before, after, IDS) < TOLERANCE[np.float16]


def test_bfloat16(tmp_path):
    """No CPU runtime has its kernels: the proof, the checker, and the file's own numbers have to do."""
    ml_dtypes = pytest.importorskip("ml_dtypes")
    model = decoder(18, dtype=ml_dtypes.bfloat16, form="op").model()
    before, after, report = convert(model, tmp_path)
    assert report["converted"] == 3
    onnx.checker.check_model(onnx.load(after), full_check=True)
    old = {t.name: numpy_helper.to_array(t) for t in onnx.load(before).graph.initializer}
    changed = 0
    for tensor in onnx.load(after).graph.initializer:
        new = numpy_helper.to_array(tensor)
        if tensor.name not in old or (new == old[tensor.name]).all():
            continue
        wanted = old[tensor.name].astype(np.float64)
        wanted = (wanted - wanted.mean(-1, keepdims=True)).astype(ml_dtypes.bfloat16)
        assert (new == wanted).mean() > 0.99  # the rest: f64 is rounded to bf16 by way of f32
        changed += 1
    assert changed == 6


def test_scales_of_all_shapes(tmp_path):
    width = 24
    for shape, converted in [((width,), 3), ((1, 1, width), 3), ((1,), 3), ((), 3), ((8, width), 2)]:
        b = Builder(18)
        x = b.embedded(width)
        for _ in range(2):
            x = b.block(x, width, form="op")
        scale = b.constant(b.random.normal(1, 0.3, shape), "gamma")
        b.output(b.norm(x, width, form="op" if len(shape) == 1 and shape[0] > 1 else "pow", scale=scale))
        for target in ("onnx-plain", "onnx-rms23"):
            before, after, report = convert(b.model(), tmp_path, "--target", target)
            # Written out, a scale of another shape is a product behind the norm.
            assert report["converted"] == 3, (shape, converted)
            assert largest_difference(before, after, IDS) < TOLERANCE[np.float32]


@pytest.mark.parametrize(
    ("different", "word"),
    [({"unbiased": True}, "unbiased"), ({"outside": True}, "root")],
)
def test_other_norms_stay(tmp_path, different, word):
    b = Builder(18)
    x = b.embedded(8)
    x = b.block(x, 8)
    x = b.block(x, 8, **different)
    b.output(b.norm(x, 8))
    before, after, report = convert(b.model(), tmp_path)
    stays = [norm for norm in report["norms"] if not norm["converted"]]
    assert len(stays) == 1 and stays[0]["code"] == "R09" and word in stays[0]["why"]
    assert largest_difference(before, after, IDS) < TOLERANCE[np.float32]


@pytest.mark.parametrize("form", ["op", "pow"])
def test_a_norm_over_other_axes_is_a_tap(tmp_path, form):
    """Over positions, or over positions and channels: a number that is added to all channels of a position matters."""
    b = Builder(18)
    x = b.embedded(8)
    for axis in (-1, 1, -1):
        if axis == 1 and form == "op":
            out = b.node("LayerNormalization", x, b.weight(8, 8), axis=1)
            x = b.node("Add", x, b.linear(out, 8, 8))
        else:
            x = b.block(x, 8, form=form, axis=axis)
    b.output(b.norm(x, 8))
    before, after, report = convert(b.model(), tmp_path)
    # Behind that norm one operation serves two; what is before it stays.
    assert kinds(report) == [(False, "R02"), (False, "R09"), (True, None), (True, None)]
    assert report["operations_inserted"] == 1
    assert largest_difference(before, after, IDS) < TOLERANCE[np.float32]


def test_nothing_but_other_norms_is_refused(tmp_path):
    report = convert(decoder(17, unbiased=True).model(), tmp_path, code=REFUSED)[2]
    assert report["refused"]["code"] == "R09"
    b = Builder()
    b.output(b.linear(b.embedded(8), 8, 8))
    assert convert(b.model(), tmp_path, code=REFUSED)[2]["refused"]["code"] == "R09"


def test_through_every_operator_on_other_axes(tmp_path):
    """A stream on its way through whatever leaves its axis alone; each step would break it if misread."""
    width = 12
    b = Builder(18)
    b.input("image", ["batch", 3, 8, "w"])
    x = b.node("Conv", "image", b.weight(width, 3, 4, 4), b.weight(width, stem="b"), strides=[4, 4])  # B D 2 w
    x = b.node("Reshape", x, b.constant([0, width, -1], dtype=np.int64))
    x = b.node("Transpose", x, perm=[0, 2, 1])
    token = b.node(
        "Expand",
        b.weight(1, 1, width, stem="token"),
        b.node("Concat", b.node("Shape", x, start=0, end=1), b.constant([1, width], dtype=np.int64), axis=0),
    )
    x = b.node("Concat", token, x, axis=1)
    x = b.block(x, width)
    x = b.unsqueeze(x, 1)
    x = b.node("Pad", x, b.constant([0, 0, 1, 0, 0, 0, 2, 0], dtype=np.int64), mode="constant")
    x = b.node("Squeeze", x, b.constant([1], dtype=np.int64))
    x = b.block(x, width)
    first, second = b.node("Split", x, b.constant([2, 6], dtype=np.int64), axis=1, outputs=2)
    x = b.node("Concat", second, first, axis=1)
    x = b.node("Mul", x, b.constant(0.5))
    x = b.node("Tile", x, b.constant([1, 2, 1], dtype=np.int64))
    x = b.node(
        "Slice", x, b.constant([1], dtype=np.int64), b.constant([9], dtype=np.int64), b.constant([1], dtype=np.int64)
    )
    x = b.node("Identity", b.node("Dropout", x))
    x = b.block(x, width, form="mul")
    x = b.node("Where", b.constant(np.arange(8).reshape(8, 1) % 2, dtype=bool), x, b.constant(np.zeros((1, 1, width))))
    pooled = b.node("ReduceMean", x, b.constant([1], dtype=np.int64), keepdims=0)
    last = b.node("Gather", x, b.constant(2, dtype=np.int64), axis=1)
    x = b.node(
        "Gemm",
        b.node("Relu", b.norm(pooled, width)),
        b.weight(width, width),
        b.weight(width, stem="b"),
        transB=1,
        alpha=0.5,
        beta=2.0,
    )
    x = b.node("Sub", x, last)
    b.output(b.norm(x, width), rank=2)
    feeds = {"image": np.random.default_rng(1).normal(size=(2, 3, 8, 8)).astype(np.float32)}
    before, after, report = convert(b.model(), tmp_path)
    assert report["converted"] == 5 and report["operations_inserted"] == 0, report["norms"]
    assert largest_difference(before, after, feeds) < TOLERANCE[np.float32]


def test_padding_with_a_number_is_no_pass(tmp_path):
    b = Builder(18)
    x = b.embedded(8)
    x = b.node("Pad", x, b.constant([0, 1, 0, 0, 0, 0], dtype=np.int64), b.constant(1.0), mode="constant")
    for _ in range(2):
        x = b.block(x, 8)
    b.output(b.norm(x, 8))
    before, after, report = convert(b.model(), tmp_path)
    assert report["operations_inserted"] == 1
    assert largest_difference(before, after, IDS) < TOLERANCE[np.float32]


def test_grouped_convolution_is_opaque(tmp_path):
    b = Builder(18)
    b.input("x", [2, 8, 6])
    x = b.node("Conv", "x", b.weight(8, 2, 1), b.weight(8, stem="b"), group=4)
    x = b.node("Transpose", x, perm=[0, 2, 1])
    for _ in range(2):
        x = b.block(x, 8)
    b.output(b.norm(x, 8))
    before, after, report = convert(b.model(), tmp_path)
    assert report["converted"] == 3 and report["operations_inserted"] == 1
    feeds = {"x": np.random.default_rng(1).normal(3, 1, (2, 8, 6)).astype(np.float32)}
    assert largest_difference(before, after, feeds) < TOLERANCE[np.float32]
    assert kinds(rmsnorm("inspect", before, "--entry", "weights"))[0] == (False, "R03")


@pytest.mark.parametrize("bias", ["conv", "add", "none"])
@pytest.mark.parametrize("groups", [1, 3])
def test_layer_scale_behind_a_convolution(tmp_path, bias, groups):
    """A ConvNeXt with its channels in front: the scale goes into the convolution, unless that has groups."""
    width = 12
    b = Builder(18)
    b.input("image", ["batch", 3, 8, 8])
    x = b.node("Conv", "image", b.weight(width, 3, 4, 4), b.weight(width, stem="b"), strides=[4, 4])
    for _ in range(3):
        inner = b.node("Transpose", x, perm=[0, 2, 3, 1])
        inner = b.node("Relu", b.linear(b.norm(inner, width, form="op"), width, 2 * width))
        inner = b.node("Transpose", inner, perm=[0, 3, 1, 2])
        slot = [b.weight(width, stem="b")] if bias == "conv" else []
        inner = b.node("Conv", inner, b.weight(width, 2 * width // groups, 1, 1), *slot, group=groups)
        if bias == "add":
            inner = b.node("Add", b.weight(width, 1, 1, stem="b"), inner)
        x = b.node("Add", x, b.node("Mul", inner, b.constant(b.random.normal(0.1, 0.3, (width, 1, 1)), "scale")))
    b.output(b.norm(b.node("Transpose", x, perm=[0, 2, 3, 1]), width, form="op"), rank=4)
    before, after, report = convert(b.model(), tmp_path)
    assert report["converted"] == 4
    assert (report["operations_inserted"] > 0) == (groups > 1)
    feeds = {"image": np.random.default_rng(1).normal(size=(2, 3, 8, 8)).astype(np.float32)}
    assert largest_difference(before, after, feeds) < TOLERANCE[np.float32]


def test_tied_head_keeps_the_original(tmp_path):
    b = Builder(18)
    b.input("ids", ["batch", 8], np.int64)
    table = b.weight(11, 12, stem="words")
    x = b.node("Gather", table, "ids")
    for _ in range(2):
        x = b.block(x, 12)
    b.output(b.node("MatMul", b.norm(x, 12), b.node("Transpose", table, perm=[1, 0])))
    before, after, report = convert(b.model(), tmp_path)
    assert report["constants_copied"] == 1 and report["operations_inserted"] == 0
    assert largest_difference(before, after, IDS) < TOLERANCE[np.float32]
    before, after, report = convert(b.model(), tmp_path, "--keep-tie")
    assert report["constants_copied"] == 0 and report["operations_inserted"] == 1
    assert largest_difference(before, after, IDS) < TOLERANCE[np.float32]


def test_raw_taps(tmp_path):
    """An output in the middle: what is behind it is converted at the price of one operation; what is before stays."""
    b = Builder(18)
    x = b.embedded(12)
    x = b.block(x, 12)
    b.output(x)
    for _ in range(3):
        x = b.block(x, 12)
    b.output(b.norm(x, 12))
    before, after, report = convert(b.model(), tmp_path)
    assert kinds(report)[0] == (False, "R02") and all(done for done, _ in kinds(report)[1:])
    assert report["operations_inserted"] == 1
    assert largest_difference(before, after, IDS) < TOLERANCE[np.float32]


def test_a_tap_behind_all_is_refused(tmp_path):
    b = Builder(18)
    x = b.embedded(12)
    for _ in range(3):
        x = b.block(x, 12)
    b.output(x)
    report = convert(b.model(), tmp_path, code=REFUSED)[2]
    assert report["refused"]["code"] == "R02" and "output" in report["refused"]["message"]


def test_post_norm_is_refused(tmp_path):
    b = Builder(18)
    x = b.norm(b.embedded(12), 12)
    for _ in range(2):
        inner = b.linear(b.node("Relu", b.linear(x, 12, 24)), 24, 12)
        x = b.norm(b.node("Add", x, inner), 12)
    b.output(x)
    before, after, report = convert(b.model(), tmp_path)
    assert kinds(report) == [(True, None), (False, "R01"), (False, "R01")]
    assert largest_difference(before, after, IDS) < TOLERANCE[np.float32]


def test_no_gain_is_refused(tmp_path):
    b = Builder(18)
    b.output(b.norm(b.input("x", [2, 8]), 8), rank=2)
    assert convert(b.model(), tmp_path, code=REFUSED)[2]["refused"]["code"] == "R13"


def test_a_subgraph_is_a_tap(tmp_path):
    b = decoder(18)
    tapped = next(node.output[0] for node in b.nodes if node.op_type == "Gather")
    branch = helper.make_graph(
        [helper.make_node("Identity", [tapped], ["inside"])],
        "branch",
        [],
        [helper.make_tensor_value_info("inside", TensorProto.FLOAT, None)],
    )
    condition = b.constant(True, dtype=bool)
    b.output(b.node("If", condition, then_branch=branch, else_branch=branch))
    before, after, report = convert(b.model(), tmp_path)
    assert report["operations_inserted"] == 1 and report["converted"] == 3
    assert largest_difference(before, after, IDS) < TOLERANCE[np.float32]
    message = convert(b.model(), tmp_path, "--target", "onnx-rms23", code=REFUSED)[2]["refused"]["message"]
    assert "R12" in message and "onnx-plain" in message


def test_operator_sets_are_raised_only_where_every_node_allows_it(tmp_path):
    message = convert(decoder(13).model(), tmp_path, "--target", "onnx-rms23", code=REFUSED)[2]["refused"]["message"]
    assert "R12" in message and "ReduceMean" in message


def test_a_function_with_a_known_name_is_not_known(tmp_path):
    """The model's own Add is no Add."""
    b = decoder(18)
    model = b.model()
    body = [helper.make_node("Mul", ["a", "b"], ["c"])]
    model.functions.append(helper.make_function("", "Add", ["a", "b"], ["c"], body, [helper.make_opsetid("", 18)]))
    path = tmp_path / "function.onnx"
    onnx.save(model, path)
    assert all(not norm["converted"] for norm in rmsnorm("inspect", path)["norms"])


@pytest.mark.parametrize("target", ["onnx-plain", "onnx-simplified"])
def test_skip_layer_normalization(tmp_path, target):
    width = 16
    b = Builder(17)
    b.extra_opsets.append(helper.make_opsetid("com.microsoft", 1))
    x = b.embedded(width)
    skip = b.linear(b.node("Relu", x), width, width)
    for i in range(3):
        gamma, beta = b.constant(b.random.normal(1, 0.3, width), "gamma"), b.weight(width, stem="beta")
        bias = b.weight(width, stem="bias") if i % 2 else ""
        names = [b.name(stem) for stem in ("norm", "none", "none", "sum")]
        b.nodes.append(
            helper.make_node(
                "SkipLayerNormalization",
                [x, skip, gamma, beta, bias],
                [names[0], "", "", names[3]],
                name=names[0],
                domain="com.microsoft",
                epsilon=1e-5,
            )
        )
        x, skip = names[3], b.linear(b.node("Relu", b.linear(names[0], width, 20)), 20, width)
    b.output(b.norm(b.node("Add", x, skip), width, form="op"))
    before, after, report = convert(b.model(), tmp_path, "--target", target)
    # The first writer is the embedding; its other reader, a Relu, is a tap.
    assert report["converted"] == 4 and report["operations_inserted"] == 1
    assert "SkipLayerNormalization" not in operators(after)
    assert largest_difference(before, after, IDS) < TOLERANCE[np.float32]


def test_fused_norms_that_stay_are_as_they_were(tmp_path):
    """Post-norm in ONNX Runtime's own operators: only the embedding's norm is converted."""
    width = 16
    b = Builder(17)
    b.extra_opsets.append(helper.make_opsetid("com.microsoft", 1))
    b.input("ids", [2, 8], np.int32)
    b.input("places", [2, 8], np.int32)
    parameters = [b.constant(b.random.normal(1, 0.3, width), "gamma"), b.weight(width, stem="beta")]
    x = b.name("embedded")
    b.nodes.append(
        helper.make_node(
            "EmbedLayerNormalization",
            ["ids", "", b.weight(11, width), b.weight(8, width), "", *parameters, "", "places"],
            [x, "mask"],
            name=x,
            domain="com.microsoft",
            epsilon=1e-5,
        )
    )
    for _ in range(2):
        inner = b.linear(b.node("Relu", b.linear(x, width, 20)), 20, width)
        parameters = [b.constant(b.random.normal(1, 0.3, width), "gamma"), b.weight(width, stem="beta")]
        x = b.node("SkipLayerNormalization", inner, x, *parameters, domain="com.microsoft", epsilon=1e-5)
    b.output(x)
    before, after, report = convert(b.model(), tmp_path)
    assert kinds(report) == [(True, None), (False, "R01"), (False, "R01")]
    assert operators(after).count("SkipLayerNormalization") == 2
    feeds = {
        "ids": np.arange(16, dtype=np.int32).reshape(2, 8) % 11,
        "places": np.tile(np.arange(8, dtype=np.int32), (2, 1)),
    }
    assert largest_difference(before, after, feeds) < TOLERANCE[np.float32]


def test_external_data_stays_by_reference(tmp_path):
    source, same, other = tmp_path / "before.onnx", tmp_path / "after.onnx", tmp_path / "elsewhere" / "after.onnx"
    other.parent.mkdir()
    onnx.save(decoder(18).model(), source, save_as_external_data=True, location="weights.bin", size_threshold=64)
    bytes_before = (tmp_path / "weights.bin").read_bytes()
    for target in (same, other):
        rmsnorm("convert", source, target)
        assert rmsnorm("verify", source, target)["equal"]
        assert largest_difference(source, target, IDS) < TOLERANCE[np.float32]
        assert (target.parent / "weights.bin").read_bytes() == bytes_before
        graph = onnx.load(target, load_external_data=False).graph
        assert any(t.data_location == TensorProto.EXTERNAL for t in graph.initializer)
    # A second output in that folder finds the weights of the first there, and does not replace them.
    assert "exists" in rmsnorm("convert", source, other.with_name("second.onnx"), code=4)["stderr"]


@pytest.mark.parametrize("location", ["../weights.bin", "/etc/passwd", "a/../../weights.bin", ""])
def test_external_data_outside_is_refused(tmp_path, location):
    folder = tmp_path / "model"
    folder.mkdir()
    onnx.save(
        decoder(18).model(), folder / "m.onnx", save_as_external_data=True, location="weights.bin", size_threshold=64
    )
    (tmp_path / "weights.bin").write_bytes((folder / "weights.bin").read_bytes())
    model = onnx.load(folder / "m.onnx", load_external_data=False)
    for tensor in model.graph.initializer:
        for entry in tensor.external_data:
            if entry.key == "location":
                entry.value = location
    (folder / "bad.onnx").write_bytes(model.SerializeToString())
    assert "R14" in rmsnorm("inspect", folder / "bad.onnx", code=REFUSED)["stderr"]


def test_what_is_not_known_is_kept(tmp_path):
    model = decoder(18).model()
    model.doc_string, model.graph.doc_string = "text of the model", "text of the graph"
    model.graph.node[0].doc_string = "text of a node"
    model.graph.metadata_props.add(key="k", value="v")  # no field of the program's own schema
    model.graph.node[0].metadata_props.add(key="k", value="v")
    helper.set_model_props(model, {"author": "somebody"})
    _, after, _ = convert(model, tmp_path)
    new = onnx.load(after)
    assert new.doc_string == model.doc_string and new.graph.doc_string == model.graph.doc_string
    assert new.graph.node[0].doc_string == "text of a node" and new.graph.node[0].metadata_props[0].value == "v"
    assert new.graph.metadata_props[0].value == "v"
    properties = {p.key: p.value for p in new.metadata_props}
    assert properties["author"] == "somebody" and properties["rmsnorm.converted"].startswith("rmsnorm ")


def test_a_second_conversion_is_refused(tmp_path):
    _, after, _ = convert(decoder(18).model(), tmp_path)
    assert "R11" in rmsnorm("convert", after, tmp_path / "again.onnx", code=REFUSED)["stderr"]
    assert "exists" in rmsnorm("convert", tmp_path / "before.onnx", after, code=4)["stderr"]


def test_numbers_that_are_none_are_refused(tmp_path):
    model = decoder(18).model()
    for tensor in model.graph.initializer:
        if tensor.name.startswith("b_") and list(tensor.dims) == [24]:
            values = numpy_helper.to_array(tensor).copy()
            values[3] = np.nan
            tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))
    assert convert(model, tmp_path, code=REFUSED)[2]["refused"]["code"] == "R10"


@pytest.mark.parametrize(
    ("command", "option"),
    [
        *[("convert", option) for option in ("--affine bias", "--entry op", "--dtype f16", "--adapter x")],
        *[(command, o) for command in ("convert", "verify") for o in ("--chunk 1MiB", "--threads 2", "--recipe x")],
    ],
)
def test_options_for_directories(command, option, tmp_path):
    before, after, _ = convert(decoder(18).model(), tmp_path)
    second = after if command == "verify" else tmp_path / "again.onnx"
    said = rmsnorm(command, before, second, *option.split(), code=USAGE)["stderr"]
    assert said.startswith(f"rmsnorm: {option.split()[0]} ")
    assert not (tmp_path / "again.onnx").exists()


def test_carried_rounding(tmp_path):
    model = decoder(18, dtype=np.float16, form="op").model()
    means = {}
    for options in ((), ("--carry-rounding",)):
        _, after, _ = convert(model, tmp_path, *options)
        properties = {p.key: p.value for p in onnx.load(after).metadata_props}
        assert properties.get("rmsnorm.rounding") == ("carried" if options else None)
        words = next(t for t in onnx.load(after).graph.initializer if t.name.startswith("words"))
        means[options] = np.abs(numpy_helper.to_array(words).astype(np.float64).mean(-1)).max()
    assert means[("--carry-rounding",)] < means[()] / 2


def test_same_bytes_again(tmp_path):
    model = decoder(18).model()
    first, second = (convert(model, tmp_path)[1].read_bytes() for _ in range(2))
    assert first == second


def test_drawing_and_inspection_leave_the_graph_alone(tmp_path):
    path, drawing = tmp_path / "m.onnx", tmp_path / "m.svg"
    onnx.save(decoder(18).model(), path)
    before = path.read_bytes()
    report = rmsnorm("inspect", path, "--svg", drawing)
    assert path.read_bytes() == before and len(report["streams"][0]["writers"]) == 6
    text = drawing.read_text()
    assert text.startswith("<svg") and text.count("RMSNorm") == 3 and text.count("centre ") == 6


def mutants(model):
    """The converted model with one fault each."""

    def changed(name, change):
        copy = onnx.ModelProto()
        copy.CopyFrom(model)
        tensor = next(t for t in copy.graph.initializer if t.name.startswith(name))
        values = numpy_helper.to_array(tensor).copy()
        tensor.CopyFrom(numpy_helper.from_array(change(values).astype(values.dtype), tensor.name))
        return copy

    biases = [t.name for t in model.graph.initializer if t.name.startswith("b_") and list(t.dims) == [24]]
    weights = [t.name for t in model.graph.initializer if t.name.startswith("w_") and list(t.dims) == [48, 24]]
    yield "a bias with a mean", changed(biases[0], lambda v: v + 0.01)
    yield "a bias of other numbers", changed(biases[0], lambda v: v[::-1])
    yield "a wrong axis", changed(weights[1], lambda v: v + v.mean(1, keepdims=True) - v.mean(0, keepdims=True) + 0.1)
    yield "positions skipped", changed("positions", lambda v: v + 0.05)
    yield "a table off by a little", changed("words", lambda v: v * (1 + 1e-5))
    yield "epsilon", changed("epsilon", lambda v: v * 10)
    yield "a reader", changed("gamma", lambda v: v + 1e-3)
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    add = [node for node in copy.graph.node if any(i.startswith("beta") for i in node.input)][-1]
    add.op_type = "Identity"
    del add.input[1:]
    yield "the final bias dropped", copy
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    relu = next(node for node in copy.graph.node if node.op_type == "Relu")
    relu.op_type = "Sigmoid"
    yield "another operator", copy
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    copy.graph.output[0].name = next(node.output[0] for node in copy.graph.node if node.op_type == "Relu")
    yield "another output", copy


@pytest.mark.parametrize("target", ["onnx-plain", "onnx-rms23"])
def test_verify_catches_mutants(tmp_path, target):
    before, after, _ = convert(decoder(18, form="pow").model(), tmp_path, "--target", target)
    caught = 0
    for what, mutant in mutants(onnx.load(after)) if target == "onnx-plain" else ():
        path = tmp_path / "mutant.onnx"
        onnx.save(mutant, path)
        report = rmsnorm("verify", before, path, code=DIFFERENT)
        assert not report["equal"] and report["faults"], what
        caught += 1
    # Nothing centred, but the norms replaced: the weights of the original in the new graph.
    copy = onnx.load(after)
    originals = {t.name: t for t in onnx.load(before).graph.initializer}
    for tensor in copy.graph.initializer:
        if tensor.name in originals:
            tensor.CopyFrom(originals[tensor.name])
    onnx.save(copy, tmp_path / "nothing.onnx")
    assert not rmsnorm("verify", before, tmp_path / "nothing.onnx", code=DIFFERENT)["equal"]
    assert largest_difference(before, tmp_path / "nothing.onnx", IDS) > 1e-3
    if target == "onnx-rms23":
        copy = onnx.load(after)
        norm = next(node for node in copy.graph.node if node.op_type == "RMSNormalization")
        next(a for a in norm.attribute if a.name == "epsilon").f = 1e-3
        onnx.save(copy, tmp_path / "epsilon.onnx")
        report = rmsnorm("verify", before, tmp_path / "epsilon.onnx", code=DIFFERENT)
        assert "epsilon" in report["faults"][0]["what"]
    else:
        assert caught == 10
    # The original proves equal to itself.
    assert rmsnorm("verify", before, shutil.copy(before, tmp_path / "same.onnx"))["identical"]
    assert not rmsnorm("verify", before, after)["identical"]


@pytest.mark.parametrize("target", ["onnx-plain", "onnx-rms23", "onnx-simplified"])
def test_a_default_that_callers_replace(tmp_path, target):
    b = decoder(18, form="op")
    model = b.model()
    fed = next(t for t in model.graph.initializer if t.name.startswith("w_") and list(t.dims) == [48, 24])
    model.graph.input.append(helper.make_tensor_value_info(fed.name, fed.data_type, fed.dims))
    before, after, report = convert(model, tmp_path, "--target", target)
    assert report["converted"] == 3 and report["weights_centred"] == 3
    feeds = {**IDS, fed.name: b.random.normal(0.2, 1, (48, 24)).astype(np.float32)}
    for fed_or_not in (IDS, feeds):
        assert largest_difference(before, after, fed_or_not) < TOLERANCE[np.float32]
    assert rmsnorm("verify", before, shutil.copy(before, tmp_path / "same.onnx"))["identical"]


def test_names_do_not_steer_the_terminal(tmp_path):
    """Escape sequences, line ends and 8-bit controls in names and paths; names of letters stay."""
    evil = "größe\x1b[31m\n\x9b2J"
    model = decoder(18, form="op").model()
    norms = [node for node in model.graph.node if node.op_type == "LayerNormalization"]
    norms[0].name = evil
    folder = tmp_path / evil
    folder.mkdir()
    path, after, other = folder / "m.onnx", folder / "after.onnx", folder / "other.onnx"
    onnx.save(model, path)
    wrong = onnx.load(path)
    next(node for node in wrong.graph.node if node.name == evil).op_type = evil
    onnx.save(wrong, other)
    for code, *arguments in (
        (0, "inspect", path),
        (0, "convert", path, after),
        (0, "verify", path, after),
        (4, "convert", path, after),
        (DIFFERENT, "verify", path, other),
        (4, "inspect", folder / "missing.onnx"),
        (REFUSED, "convert", after, folder / "again.onnx"),
    ):
        done = subprocess.run([PROGRAM, *map(str, arguments)], capture_output=True, check=False)
        assert done.returncode == code, done
        text = (done.stdout + done.stderr).decode()
        assert not any((ord(c) < 32 and c != "\n") or 127 <= ord(c) < 160 for c in text), text
        assert len(done.stderr.splitlines()) == (0 if code == 0 else 1)
        assert "größe\\x1b[31m\\x0a" in text or (arguments[0], code) == ("verify", 0)


def test_versions_that_are_not_known(tmp_path):
    model = decoder(18).model()
    model.opset_import[0].version = 99
    onnx.save(model, tmp_path / "opset.onnx")
    message = rmsnorm("inspect", tmp_path / "opset.onnx", code=REFUSED)["stderr"]
    assert "R14" in message and "99" in message and "28" in message
    model = decoder(18).model()
    model.ir_version = 99
    onnx.save(model, tmp_path / "format.onnx")
    message = rmsnorm("inspect", tmp_path / "format.onnx", code=REFUSED)["stderr"]
    assert "R14" in message and "ir_version is 99" in message and "14" in message


def test_a_gain_of_another_shape_or_type_is_another_function(tmp_path):
    """As many positions as channels: the runtime would run it."""
    b = Builder(17)
    x = b.embedded(8)
    b.output(b.norm(b.block(x, 8, form="op"), 8, form="op"))
    for target in ("onnx-plain", "onnx-rms23", "onnx-simplified"):
        before, after, _ = convert(b.model(), tmp_path, "--target", target)
        for change in (lambda v: v[:, None], lambda v: v.astype(np.float64)):
            copy = onnx.load(after)
            for tensor in copy.graph.initializer:
                if tensor.name.startswith("gamma"):
                    tensor.CopyFrom(numpy_helper.from_array(change(numpy_helper.to_array(tensor)), tensor.name))
            onnx.save(copy, tmp_path / "changed.onnx")
            assert not rmsnorm("verify", before, tmp_path / "changed.onnx", code=DIFFERENT)["equal"]


def test_fold_says_what_it_takes(tmp_path):
    onnx.save(decoder(18).model(), tmp_path / "m.onnx")
    assert "directory" in rmsnorm("fold", tmp_path / "m.onnx", tmp_path / "o.onnx", code=2)["stderr"]


def test_outputs_of_the_test_models_are_not_trivial(tmp_path):
    onnx.save(decoder(18).model(), tmp_path / "m.onnx")
    assert np.std(run(tmp_path / "m.onnx", IDS)[0]) > 0.1
