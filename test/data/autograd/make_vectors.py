"""Writes vectors.safetensors: what PyTorch's autograd gives, in float64, for the formulas of docs/, on random numbers.

Run with PyTorch and safetensors installed: python test/data/autograd/make_vectors.py
Each tensor is CASE/OPERAND; the metadata gives CASE its operation and settings: "rms_norm_backward epsilon=0.1".
The formulas are written with PyTorch's elementary operators; the gradients are its own.
"""

from pathlib import Path

import torch
from safetensors.torch import save_file

generator = torch.Generator().manual_seed(20261130)
tensors, metadata = {}, {"torch": torch.__version__}


def normal(*shape):
    return torch.randn(*shape, dtype=torch.float64, generator=generator).requires_grad_()


def rms_norm(x, weight=None, bias=None, axis=-1, epsilon=1e-6, weight_offset=0.0, outside=False, partial=0):
    part = x.narrow(axis, 0, partial or x.shape[axis])
    square = (part * part).mean(axis, keepdim=True)
    inv = 1 / (square.sqrt() + epsilon) if outside else 1 / (square + epsilon).sqrt()
    out = x * inv
    if weight is not None:
        out = out * (weight + weight_offset)
    return out if bias is None else out + bias


def layer_norm(x, weight=None, bias=None, epsilon=1e-5, weight_offset=0.0):
    centred = x - x.mean(-1, keepdim=True)
    out = centred / ((centred * centred).mean(-1, keepdim=True) + epsilon).sqrt()
    if weight is not None:
        out = out * (weight + weight_offset)
    return out if bias is None else out + bias


def silu(v):
    return v / (1 + torch.exp(-v))


def gated(x, gate, weight, order, groups, epsilon=1e-6):
    u = x * silu(gate) if order == "first" else x
    shape = u.shape
    u = rms_norm(u.reshape(*shape[:-1], groups, -1), epsilon=epsilon).reshape(shape) * weight
    return u if order == "first" else u * silu(gate)


def rotate(x, cosine, sine, interleaved):
    turned = 2 * cosine.shape[-1]
    c, s = cosine.unsqueeze(-2), sine.unsqueeze(-2)
    if interleaved:
        a, b = x[..., 0:turned:2], x[..., 1:turned:2]
        both = torch.stack([a * c - b * s, b * c + a * s], -1).flatten(-2)
    else:
        a, b = x[..., : turned // 2], x[..., turned // 2 : turned]
        both = torch.cat([a * c - b * s, b * c + a * s], -1)
    return torch.cat([both, x[..., turned:]], -1)


def keep(case, operation, settings, operands):
    metadata[case] = " ".join([operation, *settings])
    for name, value in operands.items():
        if value is not None:
            tensors[f"{case}/{name}"] = value.detach().contiguous().clone()


def backward(case, operation, forward, settings=(), rows=5, cols=37, weighted=True, layer=False, add=False, **options):
    x = normal(rows, cols)
    weight = normal(cols) if weighted else None
    bias = normal(cols)
    dy = normal(rows, cols)
    total = x * 1  # what the norm reads, as a tensor of its own
    out = forward(total, weight, bias, **options)
    loss = (out * dy).sum()
    arriving = normal(rows, cols) if add else None
    if add:
        loss = loss + (total * arriving).sum()
    loss.backward()
    operands = {"x": x, "dy": dy, "weight": weight, "dx": x.grad, "dbias": bias.grad}
    if weighted:
        operands["dweight"] = weight.grad
    if add:
        operands |= {"d_residual_out": arriving, "dresidual": x.grad}
    keep(case, operation, settings, operands)


backward("rms", "rms_norm_backward", rms_norm)
backward("rms_bare", "rms_norm_backward", rms_norm, weighted=False)
backward("rms_epsilon", "rms_norm_backward", rms_norm, ["epsilon=0.5"], epsilon=0.5)
backward("rms_offset", "rms_norm_backward", rms_norm, ["weight_offset=1"], weight_offset=1.0)
backward(
    "rms_outside", "rms_norm_backward", rms_norm, ["epsilon_placement=1", "epsilon=0.5"], outside=True, epsilon=0.5
)
backward("rms_partial", "rms_norm_backward", rms_norm, ["partial=10"], partial=10)
backward("rms_long", "rms_norm_backward", rms_norm, rows=2, cols=2100)
backward("layer", "layer_norm_backward", layer_norm)
backward("layer_bare", "layer_norm_backward", layer_norm, weighted=False)
backward(
    "layer_offset",
    "layer_norm_backward",
    layer_norm,
    ["weight_offset=1", "epsilon=0.5"],
    weight_offset=1.0,
    epsilon=0.5,
)
backward("add_rms", "add_rms_norm_backward", rms_norm, add=True)
backward("add_rms_partial", "add_rms_norm_backward", rms_norm, ["partial=10"], add=True, partial=10)
backward("add_layer", "add_layer_norm_backward", layer_norm, add=True)

for order in ("last", "first"):
    for groups in (1, 3):
        x, gate, weight, dy = normal(4, 36), normal(4, 36), normal(36), normal(4, 36)
        out = gated(x, gate, weight, order, groups)
        (out * dy).sum().backward()
        settings = [f"gate_order={int(order == 'first')}", f"groups={groups}"]
        case = f"gated_{order}_{groups}"
        keep(case, "gated_rms_norm", settings, {"x": x, "gate": gate, "weight": weight, "out": out})
        gradients = {"dx": x.grad, "dgate": gate.grad, "dweight": weight.grad}
        keep(
            f"{case}_backward",
            "gated_rms_norm_backward",
            settings,
            {"x": x, "gate": gate, "weight": weight, "dy": dy} | gradients,
        )

for interleaved in (False, True):
    for turned in (16, 12):
        q, k, q_weight, k_weight = normal(3, 2, 16), normal(3, 2, 16), normal(16), normal(16)
        angle = normal(16, turned // 2).detach()  # more positions than tokens
        # The table is float32, as the operation takes it; the references turn by those numbers.
        table = torch.cat([angle.cos(), angle.sin()], -1).float()
        cosine, sine = table.double()[:3].chunk(2, -1)
        outs = [rotate(rms_norm(v, w), cosine, sine, interleaved) for v, w in ((q, q_weight), (k, k_weight))]
        settings = [f"rope_layout={int(interleaved)}", f"rotary_dim={turned}", "k_heads=2"]
        operands = {"q": q, "k": k, "q_weight": q_weight, "k_weight": k_weight, "cos_sin": table}
        keep(
            f"rope_{int(interleaved)}_{turned}",
            "qk_norm_rope",
            settings,
            operands | {"q_out": outs[0], "k_out": outs[1]},
        )

x, weight, bias, dy = normal(2, 6, 3, 5), normal(6), normal(6), normal(2, 6, 3, 5)
spread = (1, 6, 1, 1)
(rms_norm(x, weight.view(spread), bias.view(spread), axis=1) * dy).sum().backward()
gradients = {"dx": x.grad, "dweight": weight.grad, "dbias": bias.grad}
keep("channels", "rms_norm_channels_backward", [], {"x": x, "weight": weight, "dy": dy} | gradients)
x, weight, bias, dy = normal(2, 6, 3, 5), normal(6), normal(6), normal(2, 6, 3, 5)
grouped = rms_norm(x.view(2, 3, 30), epsilon=1e-6).view(2, 6, 3, 5) * weight.view(spread) + bias.view(spread)
(grouped * dy).sum().backward()
gradients = {"dx": x.grad, "dweight": weight.grad, "dbias": bias.grad}
keep("groups", "group_rms_norm_backward", ["groups=3"], {"x": x, "weight": weight, "dy": dy} | gradients)

save_file(tensors, Path(__file__).with_name("vectors.safetensors"), metadata=metadata)
