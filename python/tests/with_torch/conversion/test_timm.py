"""`--target timm`: the checkpoint loads in timm with RMSNorm, by the lines that the documentation has."""

import json
import re

import pytest
import timm
import torch
from timm.layers import RmsNorm

from checkpoints import Case, build, default_double, distance, floating, run
from decoders import DECODERS
from encoders import DINO, VISION, VIT, normal, picture
from program import OUTSIDE_BUDGET, ROOT, call, refusal, succeed
from saving import load, save, set_keys, set_tensors, tensors
from test_families import EXACT, ROUNDINGS, converted, each

TIMM = ("--target", "timm")
FOLDER = "vit-timm"  # in the documentation
OBLONG = {"image_size": (8, 12), "hidden_size": 22, "intermediate_size": 29}  # 22 * (29 / 22) is less than 29
BASE = ("last_hidden_state", "pooler_output")


def oblong_picture(config):
    return {"pixel_values": normal(2, config.num_channels, *config.image_size)}


def case(name, model, config, inputs=picture, options=(), **more):
    return Case(name, model, config, inputs, rms=5, options=TIMM + options, **more)


CASES = [
    case("vit", "ViTForImageClassification", VIT),
    case("vit no qkv bias", "ViTForImageClassification", {**VIT, "qkv_bias": False}),
    case("vit base", "ViTModel", VIT, outputs=BASE[:1]),
    case("vit oblong", "ViTForImageClassification", {**VIT, **OBLONG}, oblong_picture),
    case("deit", "DeiTForImageClassificationWithTeacher", VIT),
    case("deit one head", "DeiTForImageClassification", VIT),
    case("deit base", "DeiTModel", VIT, outputs=BASE[:1]),
    case("dinov2", "Dinov2Model", DINO, outputs=BASE),
    case("dinov2 no qkv bias", "Dinov2Model", {**DINO, "qkv_bias": False}, outputs=BASE),
    case("dinov2 swiglu", "Dinov2Model", {**DINO, "use_swiglu_ffn": True}, outputs=BASE),
    case("dinov2_with_registers", "Dinov2WithRegistersModel", DINO, outputs=BASE, recipe="dinov2"),
]
FULL = [  # in f64 only, as in test_affine.py: folding weights rounds more often than storing once
    case("vit full", "ViTForImageClassification", VIT, options=("--affine", "full")),
    case("deit full", "DeiTForImageClassificationWithTeacher", VIT, options=("--affine", "full")),
]
BY_NAME = {case.name: case for case in CASES}


def documented_lines():
    blocks = re.findall(r"```\n(.*?)```", (ROOT / "docs/conversion.md").read_text(), re.DOTALL)
    (lines,) = [block for block in blocks if "timm.create_model" in block]
    assert f'"{FOLDER}"' in lines
    return lines


def load_timm(folder):
    scope = {}
    with default_double():
        exec(documented_lines().replace(FOLDER, str(folder)), scope)
    return scope["model"].to(torch.float64).eval()


@torch.no_grad()
def run_timm(model, case):
    config = case.model_class.config_class(**case.config)
    x = floating(case.inputs(config), torch.float64)["pixel_values"]
    with default_double():
        pooled = model(x)
        every = model.head(model.forward_features(x)) if "last_hidden_state" in case.outputs else None
    found = {"logits": pooled, "pooler_output": pooled, "last_hidden_state": every}
    return {name: found[name] for name in case.outputs}


@pytest.mark.parametrize(("case", "dtype"), each(CASES, ("f64", "f32")) + each(FULL, ("f64",)))
def test_same_function(case, dtype, tmp_path):
    source, out, expected, stored_once = converted(case, dtype, tmp_path)
    succeed("verify", source, out)
    model = load_timm(out)
    kinds = [type(module) for module in model.modules()]
    assert kinds.count(RmsNorm) == case.rms
    assert not any(issubclass(kind, torch.nn.LayerNorm) for kind in kinds)
    limit = EXACT if dtype == "f64" else ROUNDINGS * stored_once
    assert distance(run_timm(model, case), expected) <= limit


def source_of(case, tmp_path, dtype="f32"):
    save(build(case), case, tmp_path / "source", dtype)
    return tmp_path / "source", tmp_path / "out"


def test_epsilon_that_a_configuration_can_say(tmp_path):
    """1e-6 is what timm's "rmsnorm" has; another is left out, and then nothing loads unnoticed with a LayerNorm."""
    source, out = source_of(BY_NAME["dinov2"], tmp_path / "dinov2", "f64")
    succeed("convert", source, out, *TIMM)
    with default_double():
        model = timm.create_model(f"local-dir:{out}", pretrained=True).eval()
    assert {m.eps for m in model.modules() if isinstance(m, RmsNorm)} == {1e-6}
    case = BY_NAME["dinov2"]
    assert distance(run_timm(model, case), run(load(case.model_class, source), case)) <= EXACT
    source, out = source_of(BY_NAME["vit"], tmp_path / "vit")
    succeed("convert", source, out, *TIMM)
    with pytest.raises(RuntimeError, match=r"Missing key.*norm1\.bias"):
        timm.create_model(f"local-dir:{out}", pretrained=True)
    assert {m.eps for m in load_timm(out).modules() if isinstance(m, RmsNorm)} == {1e-12}


def test_how_pictures_are_prepared(tmp_path):
    source, out = source_of(BY_NAME["vit"], tmp_path)
    seen = {"image_mean": [0.5, 0.4, 0.3], "image_std": [0.25, 0.5, 0.125]}
    (source / "preprocessor_config.json").write_text(json.dumps(seen))
    report = succeed("convert", source, out, *TIMM)
    assert any("image_size" in warning for warning in report["warnings"])
    settings = timm.data.resolve_model_data_config(load_timm(out))
    assert settings["input_size"] == (3, 8, 8)
    assert list(settings["mean"]) == seen["image_mean"]
    assert list(settings["std"]) == seen["image_std"]


def test_what_has_no_place_is_named(tmp_path):
    source, out = source_of(BY_NAME["vit base"], tmp_path)
    report = succeed("convert", source, out, *TIMM)
    (warning,) = (text for text in report["warnings"] if "left out" in text)
    assert "pooler.dense.weight" in warning
    assert "pooler.dense.bias" in warning
    assert not any("pooler" in name for name in tensors(out))


@pytest.mark.parametrize(
    ("name", "keys", "options", "expected"),
    [
        ("dinov2", {}, (), "R12 at classifier"),
        ("dinov2_with_registers", {}, (), "R12 at classifier"),
        ("dinov2 swiglu", {"architectures": ["Dinov2Backbone"]}, (), "R12 at architectures"),
        ("vit masked", {}, (), "R12 at architectures"),
        ("deit masked", {}, (), "R12 at architectures"),
        ("vit", {"hidden_act": "relu"}, (), "R12 at hidden_act"),
        ("vit", {}, ("--affine", "keep"), "R12 at vit.encoder.layer."),
        ("vit", {}, ("--entry", "op"), "R03"),
        ("beit", {}, (), "R12 at --target"),
        ("gpt2", {}, (), "R12 at --target"),
    ],
)
def test_refused(name, keys, options, expected, tmp_path):
    case = next(case for case in DECODERS + VISION if case.name == name)
    source, out = source_of(case, tmp_path)
    set_keys(source, **keys)
    assert refusal("convert", source, out, *TIMM, *options).startswith(expected)
    assert not out.exists()


def put(name, value):
    def change(held):
        held[name] = value(held[name].clone())

    return change


def swap_rows(qkv):
    return torch.cat([qkv[16:32], qkv[:16], qkv[32:]])


def at(index, number):
    def value(tensor):
        tensor[index] = number
        return tensor

    return value


def drop(name):
    return lambda held: held.pop(name)


MUTANTS = {
    "q and k the other way round": ("deit", put("blocks.1.attn.qkv.weight", swap_rows)),
    "bias of q and k the other way round": ("deit", put("blocks.0.attn.qkv.bias", swap_rows)),
    "class token not centred": ("deit", put("cls_token", lambda token: token + torch.arange(16.0) / 16)),
    "head of the other token": ("deit", lambda held: held.update({"head.weight": held["head_dist.weight"].clone()})),
    "patch embedding not centred": ("vit", put("patch_embed.proj.bias", lambda bias: bias + torch.arange(16.0) / 16)),
    "norm weight": ("vit", put("blocks.1.norm2.weight", lambda weight: weight * 1.25)),
    "final bias": ("dinov2", put("head.bias", torch.zeros_like)),
    "head": ("dinov2", put("head.weight", at((2, 3), 0.5))),
    "layer scale": ("dinov2", put("blocks.0.ls1.gamma", lambda gamma: gamma * 2)),
    "positions of registers": ("dinov2_with_registers", put("pos_embed", at((0, 2), 0.5))),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_mutant_is_caught(name, tmp_path):
    case_name, change = MUTANTS[name]
    case = BY_NAME[case_name]
    source, out = source_of(case, tmp_path, "f64")
    succeed("convert", source, out, *TIMM)
    expected = run(load(case.model_class, source), case)
    assert distance(run_timm(load_timm(out), case), expected) <= EXACT
    set_tensors(out, change)
    assert call("verify", source, out).returncode == OUTSIDE_BUDGET
    assert distance(run_timm(load_timm(out), case), expected) > 1e-3


@pytest.mark.parametrize(
    "change",
    [
        drop("blocks.0.attn.qkv.bias"),
        drop("head.bias"),
        lambda held: held.update({"mask_token": torch.zeros(1, 16)}),
        put("blocks.0.norm1.weight", lambda weight: weight.reshape(1, -1)),
    ],
    ids=["no bias", "no head", "one more", "another shape"],
)
def test_mutant_that_only_verify_sees(change, tmp_path):
    source, out = source_of(BY_NAME["dinov2"], tmp_path, "f64")
    succeed("convert", source, out, *TIMM)
    set_tensors(out, change)
    assert call("verify", source, out).returncode == OUTSIDE_BUDGET


@pytest.mark.parametrize("keys", [{"num_classes": 4}, {"model_args": {}}, {"norm_layer": "layernorm"}], ids=list)
def test_other_configuration_is_caught(keys, tmp_path):
    source, out = source_of(BY_NAME["vit"], tmp_path)
    succeed("convert", source, out, *TIMM)
    set_keys(out, **keys)
    assert call("verify", source, out).returncode == OUTSIDE_BUDGET
