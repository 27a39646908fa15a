"""What PyTorch asks of an operator: opcheck, torch.compile, autocast, fakes, the cost of a call."""

import os
import sys

import pytest
import torch

import cases
import rmsnorm.torch as rt


def arguments():
    """The arguments of each operator as its schema has them."""

    def make(*shape):
        return torch.randn(*shape, requires_grad=True)

    x, y, w, b = make(2, 3, 8), make(2, 3, 8), make(8), make(8)
    cos_sin, positions = cases.table(7, 4), torch.tensor([[0, 6, 2], [1, 1, 5]])
    q, k, image, channel = make(2, 3, 4, 6), make(2, 3, 2, 6), make(2, 6, 3, 2), make(6)
    plain = [t.detach() for t in (x, y, w, b, image, channel)]
    px, py, pw, _pb, pimage, pchannel = plain
    sums = torch.rand(2, 3, dtype=torch.float64)
    return {
        "rms_norm": [
            (x, w, b, 1e-6, 0.0, "inside", "once", 0, None),
            (x, None, None, 1e-6, 1.0, "outside", "exact", 3, None),
            (px.bfloat16(), pw, None, 1e-6, 0.0, "inside", "before_weight", 0, torch.float32),
        ],
        "layer_norm": [(x, w, b, 1e-5, 0.0, None), (x, None, b, 1e-5, 0.0, None)],
        "center": [(x,)],
        "add_rms_norm": [(x, y, w, b, 1e-6, 0.0, "inside", "once", 0, "rounded_sum", None)],
        "add_layer_norm": [(x, y, w, None, 1e-5, 0.0, "unrounded_sum", None)],
        "gated_rms_norm": [(x, y, w, 1e-6, "last", "once", 1, None), (x, y, None, 1e-6, "first", "once", 2, None)],
        "qk_norm_rope": [
            (q, k, channel, channel, cos_sin, positions, 1e-6, 0.0, "inside", "once", "half_split"),
            (q, k, None, None, cos_sin, None, 1e-6, 0.0, "inside", "once", "interleaved"),
        ],
        "channels": [(image, 0, channel, channel, 1e-6, 0.0), (image, 3, channel, None, 1e-6, 0.0)],
        "rms_norm_quantize": [
            (px, pw, None, 1e-6, 0.0, "inside", "once", 0, scaling, 1.0, False, torch.int8)
            for scaling in ("static", "per_row", "per_group")
        ],
        "add_rms_norm_quantize": [
            (px, py, pw, None, 1e-6, 0.0, "inside", "once", 0, "rounded_sum", scaling, 1.0, False, torch.int8)
            for scaling in ("static", "per_row", "per_group")
        ],
        "rms_norm_backward": [
            (py, px, pw, None, 1e-6, 0.0, "inside", 0, torch.float32, [True, True, True]),
            (py, px, None, px, 1e-6, 0.0, "inside", 0, torch.float32, [True, False, False]),
        ],
        "layer_norm_backward": [(py, px, pw, py, 1e-5, 0.0, torch.float32, [True, True, False])],
        "gated_rms_norm_backward": [
            (py, px, py, pw, 1e-6, "last", 1, True),
            (py, px, py, None, 1e-6, "first", 2, False),
        ],
        "channels_backward": [(pimage, pimage, g, pchannel, 1e-6, 0.0, torch.float32, [True] * 3) for g in (0, 2)],
        "rms_sum_squares": [(px,)],
        "rms_norm_apply": [
            (px, sums, 16, pw, None, 1e-6, 0.0, "inside", "once", None),
            (px.bfloat16(), sums, 8, None, None, 1e-6, 0.0, "outside", "before_weight", torch.float32),
        ],
        "rms_backward_sum": [(py, px, pw, 1.0)],
        "rms_norm_backward_apply": [
            (py, px, sums, sums, 16, pw, 1e-6, 0.0, "inside", torch.float32, [True] * 3),
            (py, px, sums, sums, 16, None, 1e-6, 0.0, "inside", torch.float32, [True, False, False]),
        ],
        "layer_sum": [(px,)],
        "layer_sum_squares": [(px, sums, 16)],
        "layer_norm_apply": [(px, sums, sums, 16, pw, pw, 1e-5, 0.0, None)],
        "layer_backward_sums": [(py, px, sums, 16, pw, 0.0)],
        "layer_norm_backward_apply": [
            (py, px, sums, sums, torch.stack([sums, sums]), 16, pw, 1e-5, 0.0, torch.float32, [True] * 3)
        ],
    }  # fmt: skip


CALLS = [(name, index) for name, calls in arguments().items() for index in range(len(calls))]


@pytest.mark.parametrize(("name", "index"), CALLS)
def test_opcheck(name, index):
    operator = getattr(torch.ops.rmsnorm, name).default
    torch.library.opcheck(operator, arguments()[name][index])


def test_every_operator_is_checked():
    names = {schema.name.split("::")[1] for schema in torch._C._jit_get_all_schemas() if "rmsnorm::" in schema.name}
    assert names == set(arguments())


@pytest.mark.parametrize("name", cases.NAMES)
def test_compiled_is_eager(name):
    function, tensors = cases.calls(torch.float32)[name]
    torch._dynamo.reset()
    compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
    outputs, expected = compiled(*tensors), function(*tensors)
    flat, flat_expected = (o if isinstance(o, tuple) else (o,) for o in (outputs, expected))
    weights = [torch.randn_like(each) for each in flat]
    for one, other in zip(flat, flat_expected, strict=True):
        assert torch.equal(one, other)
    gradients = torch.autograd.grad(flat, tensors, weights)
    for one, other in zip(gradients, torch.autograd.grad(flat_expected, tensors, weights), strict=True):
        torch.testing.assert_close(one, other)


class Block(torch.nn.Module):
    def __init__(self, width, norm, add_norm):
        super().__init__()
        self.first, self.norm, self.last = torch.nn.Linear(width, width), norm(width), add_norm(width)

    def forward(self, x):
        return self.last(self.first(self.norm(x)), x)


def test_compiled_module_with_inductor():
    """With PyTorch's own code generator, forward and backward, at two sizes of a dynamic axis."""
    torch._dynamo.reset()
    block = Block(16, rt.RMSNorm, rt.AddLayerNorm)
    compiled = torch.compile(block, fullgraph=True, dynamic=True)
    for rows in (3, 5):
        x = torch.randn(rows, 16)
        for one, other in zip(compiled(x), block(x), strict=True):
            torch.testing.assert_close(one, other)
        compiled(x)[0].sum().backward()
    assert all(parameter.grad is not None for parameter in block.parameters() if parameter is not block.last.bias)


def test_the_graph_keeps_the_operators():
    graph = torch.fx.experimental.proxy_tensor.make_fx(lambda x: rt.add_rms_norm(rt.layer_norm(x), x)[0])(
        torch.randn(2, 8)
    )
    called = [str(node.target) for node in graph.graph.nodes if node.op == "call_function"]
    assert "rmsnorm.layer_norm.default" in called and "rmsnorm.add_rms_norm.default" in called


def test_fakes():
    x = torch.empty(3, 5, 64, device="meta", dtype=torch.bfloat16)
    out, total = rt.add_rms_norm(x, x.float())
    assert out.is_meta and out.shape == x.shape and (out.dtype, total.dtype) == (torch.bfloat16, torch.float32)
    assert rt.RMSNorm(64, device="meta")(torch.empty(2, 64, device="meta")).shape == (2, 64)


def test_autocast():
    block = Block(16, rt.RMSNorm, rt.AddRMSNorm)
    x = torch.randn(3, 16)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out, total = block(x)  # the linear layer gives bfloat16 beside the float32 stream
        assert (out.dtype, total.dtype) == (torch.bfloat16, torch.float32)
        narrow = rt.add_rms_norm(x, x.bfloat16())[1]
        assert narrow.dtype == torch.float32
        q, k = rt.qk_norm_rope(torch.randn(2, 4, 8), torch.randn(2, 2, 8).bfloat16())
        assert q.dtype == k.dtype == torch.float32
    (out.float().sum() + total.sum()).backward()
    assert all(parameter.grad is not None for parameter in block.parameters())


def test_inference_mode_and_no_grad():
    x = torch.randn(2, 8, requires_grad=True)
    with torch.no_grad():
        assert not rt.rms_norm(x).requires_grad
    with torch.inference_mode():
        assert rt.rms_norm(x).is_inference()
    assert rt.rms_norm(x).grad_fn is not None


def test_a_call_costs_at_most_1_3_of_layer_norm():
    """[1, 64] float32 against torch.nn.functional.layer_norm; the best of several tries on a busy machine."""
    sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "..", "bench"))
    import call_overhead

    ratios = []
    for _ in range(10):
        times = call_overhead.measure_torch()
        ratios.append(times["rmsnorm.torch.layer_norm"] / times["torch.nn.functional.layer_norm"])
        if ratios[-1] <= 1.3:
            break
    assert min(ratios) <= 1.3
