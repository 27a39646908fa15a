"""The library's operators for PyTorch: on the tensors' own memory, with autograd, autocast and torch.compile.

    import torch, rmsnorm.torch
    out = rmsnorm.torch.rms_norm(x, weight, epsilon=1e-5)
    norm = rmsnorm.torch.RMSNorm(4096)                       # loads the state_dict of torch.nn.RMSNorm

The operators are registered as torch.ops.rmsnorm. They take CPU tensors, use PyTorch's own threads
(torch.set_num_threads), and are compiled for the PyTorch that is installed when this module is first imported, which
takes a C++20 compiler and about a minute, once.
"""

from .functions import (
    add_layer_norm,
    add_rms_norm,
    add_rms_norm_quantize,
    center,
    gated_rms_norm,
    group_rms_norm,
    layer_norm,
    qk_norm_rope,
    rms_norm,
    rms_norm_channels,
    rms_norm_quantize,
)
from .modules import AddLayerNorm, AddRMSNorm, GatedRMSNorm, LayerNorm, RMSNorm
from .patching import patch, unpatch
from .sharded import sharded_layer_norm, sharded_rms_norm

__all__ = [
    "AddLayerNorm",
    "AddRMSNorm",
    "GatedRMSNorm",
    "LayerNorm",
    "RMSNorm",
    "add_layer_norm",
    "add_rms_norm",
    "add_rms_norm_quantize",
    "center",
    "gated_rms_norm",
    "group_rms_norm",
    "layer_norm",
    "patch",
    "qk_norm_rope",
    "rms_norm",
    "rms_norm_channels",
    "rms_norm_quantize",
    "sharded_layer_norm",
    "sharded_rms_norm",
    "unpatch",
]
