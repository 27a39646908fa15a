"""Models of transformers with RMSNorm in place of LayerNorm, for checkpoints that `rmsnorm convert` wrote.

    AutoModelForCausalLM.from_pretrained("converted", trust_remote_code=True)

The writers of these checkpoints are centred, so that the vectors their norms read have mean 0, and RMSNorm gives what
LayerNorm gives. config.json says under "rmsnorm" which modules are such norms, and before which modules the stream is
centred. Any class of transformers is here under its own name. With the package `rmsnorm` its kernels are used on CPUs;
RMSNORM_KERNELS=0 in the environment leaves them out.
"""

import os
import re

import torch
import transformers
from torch import nn


def _kernels():
    if os.environ.get("RMSNORM_KERNELS") == "0":
        return None
    try:
        import rmsnorm.torch
    except (ImportError, RuntimeError, OSError):  # not installed, or nothing here to compile its operators with
        return None
    return rmsnorm.torch


KERNELS = _kernels()


def center(x):
    if KERNELS is not None and x.device.type == "cpu":
        return KERNELS.center(x)
    wide = x if x.dtype == torch.float64 else x.float()
    return (wide - wide.mean(-1, keepdim=True)).to(x.dtype)


class RMSNorm(nn.Module):
    """x / sqrt(mean(x^2) + eps) * weight + bias, rounded once. It takes over the parameters of the norm it replaces."""

    def __init__(self, norm, affine):
        super().__init__()
        self.eps = getattr(norm, "eps", getattr(norm, "variance_epsilon", 1e-5))
        # NemotronLayerNorm1P stores the gain less 1, and forms it in the weight's own type.
        self.offset = 1 if type(norm).__name__.endswith("1P") else 0
        self.weight = getattr(norm, "weight", None) if affine in ("keep", "bias") else None
        self.bias = getattr(norm, "bias", None) if affine == "keep" else None

    def forward(self, x):
        weight = self.weight if self.weight is None or not self.offset else self.weight + self.offset
        if KERNELS is not None and x.device.type == "cpu":
            return KERNELS.rms_norm(x, weight, self.bias, epsilon=self.eps)
        y = x if x.dtype == torch.float64 else x.float()
        y = y * torch.rsqrt(y.square().mean(-1, keepdim=True) + self.eps)
        if weight is not None:
            y = y * weight
        if self.bias is not None:
            y = y + self.bias
        return y.to(x.dtype)

    def extra_repr(self):
        return f"eps={self.eps}, weight={self.weight is not None}, bias={self.bias is not None}"


def _pattern(paths):
    """Matches the full path of a module that ends with one of `paths`, where {i} stands for a number."""
    parts = [re.escape(path).replace(r"\{i\}", r"\d+") for path in paths]
    return re.compile(r"(?:.*\.)?(?:" + "|".join(parts) + ")") if parts else re.compile(r"(?!)")


def _center_first_input(module, args, kwargs):
    if args:
        return (center(args[0]), *args[1:]), kwargs
    return args, {**kwargs, "hidden_states": center(kwargs["hidden_states"])}


def replace_norms(model, settings):
    norms = _pattern(settings["norms"])
    entries = _pattern(settings.get("centre", []))
    replaced = 0
    for path, module in list(model.named_modules()):
        if norms.fullmatch(path):
            if "LayerNorm" not in type(module).__name__:
                continue  # an identity in this configuration, or a list of norms
            model.set_submodule(path, RMSNorm(module, settings.get("affine", "keep")))
            replaced += 1
        elif entries.fullmatch(path):
            module.register_forward_pre_hook(_center_first_input, with_kwargs=True)
    if not replaced:
        raise ValueError(f"{type(model).__name__} has none of the norms that its config.json names: {settings['norms']}")


def __getattr__(name):
    """The class of transformers with this name, with its norms replaced."""
    base = getattr(transformers, name, None)
    if not (isinstance(base, type) and issubclass(base, transformers.PreTrainedModel)):
        raise AttributeError(f"transformers has no model class {name}")

    def __init__(self, config, *args, **kwargs):
        base.__init__(self, config, *args, **kwargs)
        replace_norms(self, config.rmsnorm)

    made = type(name, (base,), {"__init__": __init__, "__module__": __name__, "__doc__": base.__doc__})
    globals()[name] = made
    return made
