"""Small checkpoints of transformers, with parameters that hide nothing, and what is compared after a conversion."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import transformers
from torch.overrides import TorchFunctionMode


@dataclass(frozen=True, eq=False)
class Case:
    """One configuration of one class."""

    name: str
    model: str  # the class of transformers
    config: dict
    inputs: Callable[[transformers.PreTrainedConfig], dict]
    recipe: str = ""  # of convert/families; that of the name's first word by default
    outputs: tuple[str, ...] = ("logits",)
    rms: int = 0  # norms that become RMSNorm
    kept: int = 0  # LayerNorms that stay in the RMSNorm class
    centres: int = 0  # operations at entries
    renames: tuple[tuple[str, str], ...] = ()  # tensors are stored under these names: (regular expression, text)
    options: tuple[str, ...] = ()  # of rmsnorm convert
    heads: tuple[str, ...] = ()  # tensors that untying adds although the class has no head
    unseen: tuple[str, ...] = ()  # changed tensors that the inputs do not reach

    @property
    def family(self) -> str:
        return self.recipe or self.name.split()[0]

    @property
    def model_class(self) -> type[transformers.PreTrainedModel]:
        return getattr(transformers, self.model)


def generator(name: str) -> torch.Generator:
    return torch.Generator().manual_seed(zlib.crc32(name.encode()))


def _is_norm(name: str, module: torch.nn.Module) -> bool:
    return "norm" in type(module).__name__.lower() or "norm" in name.rsplit(".", 1)[-1].lower()


@torch.no_grad()
def randomise(model: torch.nn.Module, name: str) -> None:
    """Every parameter is drawn anew: no mean is zero, no norm is trivial, no bias vanishes."""
    numbers = generator(name)

    def normal(shape: torch.Size, mean: float, deviation: float) -> torch.Tensor:
        return torch.randn(shape, generator=numbers, dtype=torch.float64) * deviation + mean

    for path, module in model.named_modules():
        for key, value in module.named_parameters(recurse=False):
            offset = 1.0 if type(module).__name__.endswith("1P") else 0.0
            if _is_norm(path, module) and key == "weight":
                drawn = normal(value.shape, 1.0 - offset, 0.25)
            elif value.dim() <= 1 or "lambda" in key or "layer_scale" in path:
                drawn = normal(value.shape, 0.2, 0.3)
            elif isinstance(module, torch.nn.Embedding) or "token" in key or "embed" in key:
                drawn = normal(value.shape, 0.15, 0.5)
            else:
                inputs = value[0].numel() if value.dim() > 1 else 1
                drawn = normal(value.shape, 0.4 / inputs, inputs**-0.5)
            value.copy_(drawn)


@contextmanager
def default_double() -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def build(case: Case) -> transformers.PreTrainedModel:
    """The model in f64."""
    config = case.model_class.config_class(**case.config)
    config._attn_implementation = "eager"
    config._experts_implementation = "eager"
    with default_double():
        model = case.model_class(config).to(torch.float64)
    randomise(model, case.name)
    model.tie_weights()
    return model.eval()


SOFTMAX = (torch.nn.functional.softmax, torch.softmax, torch.Tensor.softmax)


class InDouble(TorchFunctionMode):
    """The casts to float32 that some classes have are left out for tensors of float64."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        x = args[0] if args else None
        if isinstance(x, torch.Tensor) and x.dtype == torch.float64:
            if func is torch.Tensor.float:
                return x
            if func in (torch.Tensor.to, torch.Tensor.type) and torch.float32 in (*args[1:], kwargs.get("dtype")):
                args = tuple(torch.float64 if a == torch.float32 else a for a in args)
                kwargs = {k: torch.float64 if v == torch.float32 else v for k, v in kwargs.items()}
            elif kwargs.get("dtype") == torch.float32 and func in SOFTMAX:
                kwargs["dtype"] = torch.float64
        return func(*args, **kwargs)


def floating(inputs: dict, dtype: torch.dtype) -> dict:
    return {k: v.to(dtype) if torch.is_tensor(v) and v.is_floating_point() else v for k, v in inputs.items()}


@torch.no_grad()
def run(model: torch.nn.Module, case: Case) -> dict[str, torch.Tensor]:
    """The outputs of the case's class, computed in f64."""
    torch.manual_seed(0)
    model = model.to(torch.float64).eval()
    with default_double(), InDouble():
        got = model(**floating(case.inputs(model.config), torch.float64))
    return {name: got[name] for name in case.outputs}


def distance(got: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> float:
    """The largest relative difference of the outputs, each in the Euclidean norm."""
    assert got.keys() == expected.keys()
    return max(((got[k] - expected[k]).norm() / expected[k].norm()).item() for k in expected)


def largest(got: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> float:
    """The largest difference of an element, against the largest element."""
    return max(((got[k] - expected[k]).abs().max() / expected[k].abs().max()).item() for k in expected)
