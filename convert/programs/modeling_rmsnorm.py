"""Models of transformers with RMSNorm in place of LayerNorm, for checkpoints that `rmsnorm convert` wrote.

    AutoModelForCausalLM.from_pretrained("converted", trust_remote_code=True)

All that is added to the residual stream of such a checkpoint has mean 0, so that RMSNorm gives what LayerNorm gives.
rmsnorm.json beside this file says which modules are such norms, and where the stream is centred. With the package
`rmsnorm` its kernels are used on CPUs; RMSNORM_KERNELS=0 in the environment leaves them out.
"""

import json
import os

import torch
import transformers
from torch import nn
from transformers.utils import cached_file

SETTINGS = "rmsnorm.json"
PREFIX = "Rmsnorm"  # of the classes' names in auto_map


def _kernels():
    if os.environ.get("RMSNORM_KERNELS") == "0":
        return None
    try:
        import rmsnorm.torch
    except (ImportError, RuntimeError, OSError):  # not installed, or no compiler for its operators
        return None
    return rmsnorm.torch


KERNELS = _kernels()


def _has_kernels(x):
    return KERNELS is not None and x.device.type == "cpu"


def _wide(x):
    return x if x.dtype == torch.float64 else x.float()


def center(x):
    if _has_kernels(x):
        return KERNELS.center(x)
    wide = _wide(x)
    return (wide - wide.mean(-1, keepdim=True)).to(x.dtype)


class RMSNorm(nn.Module):
    """x / sqrt(mean(x^2) + epsilon) * gain + bias, rounded once, with the parameters of the LayerNorm it replaces."""

    def __init__(self, norm, site):
        super().__init__()
        self.epsilon = site["epsilon"]
        self.offset = 1 if site["gain"].endswith("one_plus_weight") else 0
        # 1 + weight in the weight's own type, as its class forms it, or without that rounding.
        self.rounds_gain = site["gain"] == "rounded_one_plus_weight"
        self.weight = getattr(norm, "weight", None)
        self.bias = getattr(norm, "bias", None)
        # What was folded into the readers is stored as 1 and 0, and left out.
        self.scales = self.weight is not None and site["folded"] != "full"
        self.shifts = self.bias is not None and site["folded"] == "none"
        for used, parameter in ((self.scales, self.weight), (self.shifts, self.bias)):
            if parameter is not None and not used:
                parameter.requires_grad_(False)

    def forward(self, x):
        weight = self.weight if self.scales else None
        bias = self.bias if self.shifts else None
        offset = self.offset
        if weight is not None and self.rounds_gain:
            weight, offset = weight + offset, 0
        if _has_kernels(x):
            offset = float(offset) if weight is not None else 0.0
            return KERNELS.rms_norm(x, weight, bias, epsilon=self.epsilon, weight_offset=offset)
        y = _wide(x)
        y = y * torch.rsqrt(y.square().mean(-1, keepdim=True) + self.epsilon)
        if weight is not None:
            y = y * (_wide(weight) + offset)
        if bias is not None:
            y = y + bias
        return y.to(x.dtype)

    def extra_repr(self):
        return f"epsilon={self.epsilon}, weight={self.scales}, bias={self.shifts}"


def _stream(args, kwargs):
    return args[0] if args else kwargs["hidden_states"]


def _center_input(module, args, kwargs):
    centered = center(_stream(args, kwargs))
    return ((centered, *args[1:]), kwargs) if args else (args, {**kwargs, "hidden_states": centered})


def _on_output(change):
    """A hook that changes a module's result, or the first of its results."""

    def hook(module, args, kwargs, output):
        if isinstance(output, tuple):
            return (change(output[0], args, kwargs), *output[1:])
        return change(output, args, kwargs)

    return hook


_center_output = _on_output(lambda out, args, kwargs: center(out))


# The module reads the stream before it is centred; its result is added to the stream, and brings the change.
@_on_output
def _center_residual(out, args, kwargs):
    x = _stream(args, kwargs)
    return (_wide(out) - _wide(x).mean(-1, keepdim=True)).to(out.dtype)


def _named(entries):
    return {name: entry for entry in entries for name in entry["module"]}


def _find(named, path):
    """The entry whose name is `path` or its end; the longest such name counts."""
    while path:
        if path in named:
            return named[path]
        path = path.partition(".")[2]
    return None


def apply_settings(model, settings):
    if settings["format"] != 1:
        raise ValueError(f"{SETTINGS}: format is {settings['format']}; this program reads format 1")
    sites, entries = _named(settings["sites"]), _named(settings["entry"])
    biases = _named([{"module": names} for names in settings["biases"]])
    replaced = 0
    for path, module in list(model.named_modules()):
        site = _find(sites, path)
        if site is not None and not isinstance(module, nn.Identity):
            if "norm" not in type(module).__name__.lower():
                raise ValueError(f"{path} of {type(model).__name__} is a {type(module).__name__}; it must be a norm")
            model.set_submodule(path, RMSNorm(module, site))
            replaced += 1
        if _find(biases, path) is not None and module.bias is None:
            module.bias = nn.Parameter(module.weight.new_zeros(module.weight.shape[0]))
        entry = _find(entries, path)
        if entry is not None and entry["side"] == "input":
            module.register_forward_pre_hook(_center_input, with_kwargs=True)
        elif entry is not None:
            hook = {"output": _center_output, "residual": _center_residual}[entry["side"]]
            module.register_forward_hook(hook, with_kwargs=True)
    if not replaced:
        raise ValueError(f"{type(model).__name__} has none of the norms that {SETTINGS} names")


def _read_settings(config):
    path = cached_file(config.name_or_path, SETTINGS, revision=getattr(config, "_commit_hash", None))
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def __getattr__(name):
    """The class of transformers with this name, with or without PREFIX, changed as rmsnorm.json says."""
    stock = name.removeprefix(PREFIX)
    base = getattr(transformers, stock, None)
    if not (isinstance(base, type) and issubclass(base, transformers.PreTrainedModel)):
        raise AttributeError(f"{__name__} has no class {name}, for transformers has no model {stock}")

    def __init__(self, config, *args, **kwargs):
        base.__init__(self, config, *args, **kwargs)
        self.rmsnorm_settings = _read_settings(config)
        apply_settings(self, self.rmsnorm_settings)

    def save_pretrained(self, save_directory, *args, **kwargs):
        base.save_pretrained(self, save_directory, *args, **kwargs)
        with open(os.path.join(save_directory, SETTINGS), "w", encoding="utf-8") as file:
            json.dump(self.rmsnorm_settings, file, indent=2)

    def is_custom_code(cls):
        return False

    # The stock name, and that this is no other code: so transformers translates the names of tensors of older versions.
    members = {
        "__init__": __init__,
        "__module__": __name__,
        "__doc__": base.__doc__,
        "save_pretrained": save_pretrained,
        "is_custom_code": classmethod(is_custom_code),
    }
    made = type(stock, (base,), members)
    globals()[stock] = globals()[PREFIX + stock] = made
    return made
