"""Checkpoints as files: in several shards, in every type, under the names that published files have."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import torch
import transformers
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from checkpoints import Case, default_double

SHARD_SIZE = "12KB"  # a few tensors each
TYPES = {"f64": torch.float64, "f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
INDEX = "model.safetensors.index.json"


def save(model: transformers.PreTrainedModel, case: Case, folder: Path, dtype: str) -> None:
    """Writes the model, and leaves it as it is."""
    rounded: dict[tuple, torch.Tensor] = {}  # what is shared stays so, and is stored once
    state = {}
    for name, value in model.state_dict().items():
        if value.is_floating_point():
            value = rounded.setdefault((value.data_ptr(), value.shape), value.to(TYPES[dtype]))
        state[name] = value
    model.config.dtype = TYPES[dtype]
    model.save_pretrained(folder, state_dict=state, max_shard_size=SHARD_SIZE)
    rename(folder, case.renames)


def rename(folder: Path, renames: tuple[tuple[str, str], ...]) -> None:
    def new(name: str) -> str:
        for pattern, text in renames:
            name = re.sub(pattern, text, name)
        return name

    if not renames:
        return
    for file in folder.glob("*.safetensors"):
        save_file({new(name): t for name, t in load_file(file).items()}, file, {"format": "pt"})
    index = folder / INDEX
    if index.exists():
        text = json.loads(index.read_text())
        text["weight_map"] = {new(name): shard for name, shard in text["weight_map"].items()}
        index.write_text(json.dumps(text))


def set_keys(folder: Path, **keys: object) -> None:
    """Of config.json."""
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **keys}, indent=2))


def set_tensors(folder: Path, change: Callable[[dict[str, torch.Tensor]], None]) -> None:
    """Changes tensors where they lie; new ones go into the last shard."""
    index = folder / INDEX
    for file in sorted(folder.glob("*.safetensors")):
        with safe_open(file, "pt") as opened:
            metadata = opened.metadata()
        held = load_file(file)
        change(held)
        save_file(held, file, metadata)
    if index.exists():
        text = json.loads(index.read_text())
        text["weight_map"] = {
            name: file.name for file in sorted(folder.glob("*.safetensors")) for name in load_file(file)
        }
        index.write_text(json.dumps(text))


def tensors(folder: Path) -> dict[str, torch.Tensor]:
    """All shards together."""
    found: dict[str, torch.Tensor] = {}
    for file in sorted(folder.glob("*.safetensors")):
        found.update(load_file(file))
    return found


def load(model_class: type, folder: Path, extra: tuple[str, ...] = (), **options) -> transformers.PreTrainedModel:
    """Loads in f64, and demands that every parameter came from the files, and that only `extra` was left there."""
    with default_double():
        model, info = model_class.from_pretrained(
            folder,
            dtype=torch.float64,
            attn_implementation="eager",
            experts_implementation="eager",
            output_loading_info=True,
            **options,
        )
    faults = {key: sorted(info[key]) for key in ("missing_keys", "unexpected_keys", "mismatched_keys") if info[key]}
    assert set(faults.pop("unexpected_keys", ())) <= set(extra), info["unexpected_keys"]
    assert not faults, faults
    # Routers that their classes hold in float32 whatever is asked for.
    narrow = [name for name, value in model.named_parameters() if value.dtype != torch.float64]
    if narrow:
        stored = tensors(folder)
        for name in narrow:
            model.get_parameter(name).data = stored[name].double()
    return model.eval()
