"""One call of each operator, for tests that go over all of them."""

import torch

import rmsnorm.torch as rt


def tensor(*shape, dtype=torch.float64, grad=True, offset=0.0):
    value = torch.randn(*shape, dtype=torch.float64) + offset
    return value.to(dtype).requires_grad_(grad)


def table(positions, rotary_dim):
    angles = torch.rand(positions, rotary_dim // 2) * 6
    return torch.cat([angles.cos(), angles.sin()], 1)


def calls(dtype=torch.float64, grad=True):
    """Name, function, and tensors that may have gradients."""

    def make(*shapes):
        return tuple(tensor(*shape, dtype=dtype, grad=grad) for shape in shapes)

    cos_sin, positions = table(7, 4), torch.tensor([[0, 6, 2], [1, 1, 5]])
    x, d = (2, 3, 8), (8,)
    heads = [(2, 3, 4, 6), (2, 3, 2, 6), (6,), (6,)]
    return {
        "rms_norm": (lambda x, w, b: rt.rms_norm(x, w, b, epsilon=1e-3, weight_offset=1), make(x, d, d)),
        "rms_norm no parameters": (rt.rms_norm, make(x)),
        "rms_norm bias only": (lambda x, b: rt.rms_norm(x, None, b), make(x, d)),
        "rms_norm one row": (rt.rms_norm, make(d, d)),
        "rms_norm outside, partial": (
            lambda x, w: rt.rms_norm(x, w, epsilon=1e-2, epsilon_placement="outside", partial=5),
            make(x, d),
        ),
        "rms_norm partial": (lambda x, w: rt.rms_norm(x, w, partial=3), make(x, d)),
        "rms_norm broadcast": (lambda x, w, b: rt.rms_norm(x, w, b, weight_offset=1), make(x, (2, 1, 8), (3, 8))),
        "rms_norm transposed": (lambda x, w: rt.rms_norm(x.transpose(-1, -2), w), make((2, 8, 3), d)),
        "layer_norm": (lambda x, w, b: rt.layer_norm(x, w, b, weight_offset=1), make(x, d, d)),
        "layer_norm no parameters": (rt.layer_norm, make(x)),
        "layer_norm broadcast": (lambda x, w, b: rt.layer_norm(x, w, b), make(x, (2, 1, 8), (2, 1, 8))),
        "center": (rt.center, make(x)),
        "add_rms_norm": (rt.add_rms_norm, make(x, x, d, d)),
        "add_rms_norm outside": (
            lambda x, r, w: rt.add_rms_norm(x, r, w, epsilon=1e-2, epsilon_placement="outside"),
            make(x, x, d),
        ),
        "add_layer_norm": (rt.add_layer_norm, make(x, x, d, d)),
        "gated_rms_norm": (rt.gated_rms_norm, make(x, x, d)),
        "gated_rms_norm first": (
            lambda x, g, w: rt.gated_rms_norm(x, g, w, gate_order="first", groups=2),
            make(x, x, d),
        ),
        "gated_rms_norm no weight": (rt.gated_rms_norm, make(x, x)),
        "qk_norm_rope": (lambda q, k, qw, kw: rt.qk_norm_rope(q, k, qw, kw, cos_sin, positions), make(*heads)),
        "qk_norm_rope interleaved": (
            lambda q, k, qw, kw: rt.qk_norm_rope(q, k, qw, kw, cos_sin, rope_layout="interleaved", weight_offset=1),
            make(*heads),
        ),
        "qk_norm_rope no table": (rt.qk_norm_rope, make((3, 4, 6), (3, 2, 6), (4, 6), (6,))),
        "rms_norm_channels": (rt.rms_norm_channels, make((2, 6, 3, 2), (6,), (6,))),
        "group_rms_norm": (
            lambda x, w, b: rt.group_rms_norm(x, 3, w, b, weight_offset=1),
            make((2, 6, 3, 2), (6,), (6,)),
        ),
    }


NAMES = list(calls())
