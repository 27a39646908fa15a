"""Normalisation kernels for the CPU: RMSNorm, LayerNorm and their relatives.

    import numpy as np, rmsnorm
    out = rmsnorm.rms_norm(x, weight, epsilon=1e-5)      # x: [.., d], weight: [d]

Functions take NumPy arrays (bfloat16 and 8-bit floats through ml_dtypes) and every object with __dlpack__ whose memory
the CPU can read. Nothing is copied. Outputs are keyword arguments: an array to write to, or None, and a NumPy array is
made. Inputs come first, then parameters, then options, then outputs; the names are those of the C++ interface, and
help(rmsnorm.rms_norm) says what each means. Wrong arguments raise ValueError or TypeError with a message that names
the value and the rule. Large calls let other Python threads run.

`python -m rmsnorm info` shows what this machine uses. rmsnorm.torch has the operators and modules for PyTorch.
"""

import copyreg as _copyreg

from ._rmsnorm import (
    Target,
    add_layer_norm,
    add_layer_norm_backward,
    add_rank_sums,
    add_rms_norm,
    add_rms_norm_backward,
    add_rms_norm_quantize,
    center,
    gated_rms_norm,
    gated_rms_norm_backward,
    group_rms_norm,
    group_rms_norm_backward,
    layer_backward_sums,
    layer_norm,
    layer_norm_apply,
    layer_norm_backward,
    layer_norm_backward_apply,
    layer_sum,
    layer_sum_squares,
    partial_columns,
    qk_norm_rope,
    rms_backward_sum,
    rms_norm,
    rms_norm_apply,
    rms_norm_backward,
    rms_norm_backward_apply,
    rms_norm_channels,
    rms_norm_channels_backward,
    rms_norm_quantize,
    rms_sum_squares,
    target,
    target_reason,
    targets,
    use_target,
    version,
)

__version__ = version()

__all__ = [
    "Target",
    "add_layer_norm",
    "add_layer_norm_backward",
    "add_rank_sums",
    "add_rms_norm",
    "add_rms_norm_backward",
    "add_rms_norm_quantize",
    "center",
    "gated_rms_norm",
    "gated_rms_norm_backward",
    "group_rms_norm",
    "group_rms_norm_backward",
    "layer_backward_sums",
    "layer_norm",
    "layer_norm_apply",
    "layer_norm_backward",
    "layer_norm_backward_apply",
    "layer_sum",
    "layer_sum_squares",
    "partial_columns",
    "qk_norm_rope",
    "rms_backward_sum",
    "rms_norm",
    "rms_norm_apply",
    "rms_norm_backward",
    "rms_norm_backward_apply",
    "rms_norm_channels",
    "rms_norm_channels_backward",
    "rms_norm_quantize",
    "rms_sum_squares",
    "target",
    "target_reason",
    "targets",
    "use_target",
    "version",
]

# Functions are pickled by name, as Python's own are, so that multiprocessing can send them.
_copyreg.pickle(type(rms_norm), lambda function: function.__name__)
