"""patch(model): the norms of a model computed by this library, each in its family's own formula."""

from __future__ import annotations

import copy
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from . import functions

# Names under which modules keep epsilon.
_EPSILONS = ("eps", "variance_epsilon", "epsilon", "layer_norm_eps")
# Rows on which a module is compared with a formula.
_PROBE_ROWS = 64
# Largest difference from the module, as a part of the largest number: f32. Share of elements that differ: 16 bits.
# A formula with another order of roundings differs in a quarter of them.
_F32_DIFFERENCE, _SHARE_DIFFERENT = 1e-5, 0.01


@dataclass(frozen=True)
class Formula:
    """What a norm computes."""

    name: str
    call: Callable[[Tensor, Tensor | None, Tensor | None, float], Tensor]


def _promoted(x: Tensor, weight: Tensor | None) -> torch.dtype | None:
    """The type that weight * x has, where it is not that of x."""
    if weight is None or weight.dtype == x.dtype:
        return None
    return torch.promote_types(x.dtype, weight.dtype)


_FORMULAS = (
    # Llama, Mistral, Qwen 2 and 3, Phi-3, DeepSeek, T5
    Formula(
        "rms_norm, rounded before the weight",
        lambda x, w, b, e: functions.rms_norm(x, w, b, epsilon=e, rounding="before_weight", dtype=_promoted(x, w)),
    ),
    # OLMo 2, GPT-OSS, torch.nn.RMSNorm
    Formula(
        "rms_norm, rounded once",
        lambda x, w, b, e: functions.rms_norm(x, w, b, epsilon=e),
    ),
    # Gemma 1 to 3, Qwen3-Next
    Formula(
        "rms_norm with 1 + weight, rounded once",
        lambda x, w, b, e: functions.rms_norm(x, w, b, epsilon=e, weight_offset=1.0),
    ),
    # torch.nn.LayerNorm: GPT-2, NeoX, ViT, CLIP, Whisper
    Formula(
        "layer_norm",
        lambda x, w, b, e: functions.layer_norm(x, w, b, epsilon=e),
    ),
)

_BY_NAME = {formula.name: formula for formula in _FORMULAS}


@dataclass
class Report:
    """What patch did. replaced: name of the module -> formula; left: name -> why it computes as before."""

    replaced: dict[str, str] = field(default_factory=dict)
    left: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        lines = [f"replaced {len(self.replaced)} norms, left {len(self.left)}"]
        lines += [f"  {name}: {formula}" for name, formula in self.replaced.items()]
        lines += [f"  {name}: left, {reason}" for name, reason in self.left.items()]
        return "\n".join(lines)


class _Left(Exception):
    """Why a norm is left as it is."""


def _norms(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    for name, module in model.named_modules():
        kind = type(module).__name__.lower()
        if isinstance(module, (nn.LayerNorm, nn.RMSNorm)) or "rmsnorm" in kind or "layernorm" in kind:
            yield name, module


def _epsilon(module: nn.Module, dtype: torch.dtype) -> float:
    for name in _EPSILONS:
        value = getattr(module, name, None)
        if isinstance(value, float):
            return value
    if isinstance(module, nn.RMSNorm):  # None: the type's own
        return torch.finfo(torch.float32 if dtype.itemsize < 4 else dtype).eps
    raise _Left(f"its epsilon has none of the names {', '.join(_EPSILONS)}")


def _parameters(module: nn.Module) -> tuple[Tensor | None, Tensor | None, int]:
    """weight, bias and width."""
    own = dict(module.named_parameters(recurse=False))
    if set(own) - {"weight", "bias"} or any(True for _ in module.children()):
        raise _Left(f"it has more than weight and bias: {', '.join(own)}")
    weight, bias = own.get("weight"), own.get("bias")
    if weight is None:
        shape = getattr(module, "normalized_shape", ())
        if len(shape) != 1:
            raise _Left("it has no weight that gives its width")
        return None, None, shape[0]
    if weight.dim() != 1:
        raise _Left(f"its weight has {weight.dim()} axes; one is needed")
    return weight, bias, weight.shape[0]


def _agrees(expected: Tensor, found: Tensor) -> bool:
    if expected.dtype != found.dtype or expected.shape != found.shape:
        return False
    if expected.dtype == torch.float32:
        return bool((expected - found).abs().max() <= _F32_DIFFERENCE * expected.abs().max())
    return bool((expected != found).double().mean() <= _SHARE_DIFFERENT)


@torch.no_grad()
def _formula_of(module: nn.Module) -> Formula:
    """The formula that gives what a copy of the module with random parameters gives, in three types."""
    _, _, width = _parameters(module)
    seeded = torch.Generator().manual_seed(1)
    # An epsilon that shows, a row that is small enough for it to matter.
    rows = torch.randn(_PROBE_ROWS, width, generator=seeded) * torch.logspace(-4, 1, _PROBE_ROWS)[:, None]
    candidates = list(_FORMULAS)
    for parameter_type, row_type in (
        (torch.float32, torch.float32),
        (torch.bfloat16, torch.bfloat16),
        (torch.float16, torch.float16),
    ):
        probe = copy.deepcopy(module).to(parameter_type)
        probe.__dict__.pop("forward", None)
        for parameter in probe.parameters(recurse=False):
            parameter.copy_(torch.rand(parameter.shape, generator=seeded) + 0.5)
        x = rows.to(row_type)
        try:
            expected = probe(x)
        except Exception as error:  # a norm that wants more than x, such as a gate
            raise _Left(f"it is not called with x alone ({type(error).__name__})") from error
        w, b, _ = _parameters(probe)
        epsilon = _epsilon(probe, row_type)
        candidates = [each for each in candidates if _agrees(expected, each.call(x, w, b, epsilon))]
    if not candidates:
        raise _Left("none of the known formulas gives its numbers")
    return candidates[0]


def _patched_forward(self: nn.Module, x: Tensor) -> Tensor:
    if x.device.type != "cpu":
        return type(self).forward(self, x)
    weight, bias = getattr(self, "weight", None), getattr(self, "bias", None)
    return _BY_NAME[self._rmsnorm_formula].call(x, weight, bias, _epsilon(self, x.dtype))


# A pickled method is looked up again by its name: a model that was pickled while patched comes back with the forward of
# its class.
_patched_forward.__name__ = "forward"


def _own_forward(module: nn.Module) -> object:
    """The function behind a forward that is kept in the module itself, or None."""
    return getattr(vars(module).get("forward"), "__func__", vars(module).get("forward"))


def patch(model: nn.Module) -> Report:
    """Lets this library compute the norms of `model`, in place; the modules, their parameters and names stay.

    A norm is a torch.nn.LayerNorm or RMSNorm, or a module whose class is named so, as those of transformers are. Which
    formula it has - the order of its roundings, 1 + weight, epsilon - is found by comparing a copy of it, with random
    parameters, with each that this library knows, in float32, bfloat16 and float16; a norm that agrees with none is
    left as it is. Returns what was replaced and what was left, and why. unpatch(model) takes it back.
    """
    report = Report()
    known: dict[tuple, Formula | str] = {}
    for name, module in _norms(model):
        if _own_forward(module) not in (None, type(module).forward):
            report.left[name] = "its forward is replaced already"
            continue
        try:
            weight, bias, width = _parameters(module)
            if weight is not None and weight.device.type != "cpu":
                raise _Left(f"it is on {weight.device}; the kernels are for the CPU")
            kind = (type(module), width, weight is None, bias is None)
            if kind not in known:
                try:
                    known[kind] = _formula_of(module)
                except _Left as reason:
                    known[kind] = str(reason)
            found = known[kind]
            if isinstance(found, str):
                raise _Left(found)
        except _Left as reason:
            report.left[name] = str(reason)
            continue
        module._rmsnorm_formula = found.name
        module.forward = types.MethodType(_patched_forward, module)  # which follows copies of the module
        report.replaced[name] = found.name
    return report


def unpatch(model: nn.Module) -> int:
    """Takes back what patch did. Returns the number of norms."""
    count = 0
    for module in model.modules():
        if vars(module).pop("_rmsnorm_formula", None) is not None:
            count += _own_forward(module) is _patched_forward
            del module.forward
    return count
