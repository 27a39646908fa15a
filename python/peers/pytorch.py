"""PyTorch's functions, eager and compiled, transformers' module, and this library's PyTorch operators."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from contestant import Contestant, Holder, Unavailable
from peer_cases import EPSILON, Operands

try:
    import torch
    import torch.nn.functional as F
except ImportError as error:
    raise Unavailable("PyTorch is not installed") from error


def version() -> str:
    return torch.__version__


def tensor(array: np.ndarray | None) -> torch.Tensor | None:
    """The array's memory as a tensor."""
    if array is None:
        return None
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def torch_forward(operands: Operands) -> Callable[..., object]:
    shape = (operands.case.cols,)
    if operands.case.op == "layer_norm":
        return lambda x, w, b, r: F.layer_norm(x, shape, w, b, EPSILON)
    if operands.case.op == "add_rms_norm":

        def add_rms_norm(x, w, b, r):
            total = x + r
            return F.rms_norm(total, shape, w, EPSILON), total

        return add_rms_norm
    return lambda x, w, b, r: F.rms_norm(x, shape, w, EPSILON)


def transformers_forward(operands: Operands) -> Callable[..., object] | None:
    if operands.case.op == "layer_norm":
        return None  # it uses PyTorch's own
    try:
        from transformers.models.llama.modeling_llama import LlamaRMSNorm
    except ImportError:
        return None
    module = LlamaRMSNorm(operands.case.cols, EPSILON)
    module.weight = torch.nn.Parameter(tensor(operands.weight).clone())
    if operands.case.op == "add_rms_norm":

        def add_rms_norm(x, w, b, r):
            total = x + r
            return module(total), total

        return add_rms_norm
    forward = lambda x, w, b, r: module(x)  # noqa: E731
    forward.weight = module.weight
    return forward


def our_forward(operands: Operands) -> Callable[..., object] | None:
    try:
        import rmsnorm.torch as ours
    except ImportError:
        return None
    op = operands.case.op
    if op == "layer_norm":
        return lambda x, w, b, r: ours.layer_norm(x, w, b, epsilon=EPSILON)
    if op == "add_rms_norm":
        return lambda x, w, b, r: ours.add_rms_norm(x, r, w, epsilon=EPSILON)
    return lambda x, w, b, r: ours.rms_norm(x, w, epsilon=EPSILON)


def backward_of(forward: Callable[..., object], arguments: tuple, dy: torch.Tensor) -> Callable[[], object]:
    """The backward pass alone: gradients of x and of the weight."""
    x, w, b, r = arguments
    x.requires_grad_()
    w = getattr(forward, "weight", w)
    w.requires_grad_()
    y = forward(x, w, b, r)
    return lambda: torch.autograd.grad(y, (x, w), dy, retain_graph=True)


def contestants(operands: Operands, threads: int) -> Iterator[Contestant]:
    torch.set_num_threads(threads)
    forward = torch_forward(operands)
    programs = {
        "PyTorch eager": forward,
        "PyTorch compiled": torch.compile(forward, dynamic=False),
        "transformers": transformers_forward(operands),
        "rmsnorm.torch": our_forward(operands),
    }
    for peer, program in programs.items():
        if program is None:
            continue
        copies = [tensor(a) for a in (operands.x, operands.weight, operands.bias, operands.residual)]
        if operands.dy is None:
            run = Holder(torch.no_grad()(lambda p=program, c=copies: p(*c)))
        else:
            run = Holder(
                backward_of(program, tuple(c if c is None else c.clone() for c in copies), tensor(operands.dy))
            )
        result = lambda r=run: r.first().detach().double().numpy()  # noqa: E731
        yield Contestant(peer, "default", run, result)
        yield Contestant(peer, "freed pages kept", run, result, keep_freed_pages=True)
