"""The bias of a norm before an attention whose values have none: it goes into the bias of the output projection."""

import json

import torch
from safetensors.torch import load_file, save_file

from checkpoints import build, distance, generator, run
from decoders import DECODERS
from program import OUTSIDE_BUDGET, ROOT, call, load_rms, succeed
from saving import load, save, set_tensors, tensors

(CASE,) = (case for case in DECODERS if case.name == "gpt_neo")
ATTENTION = "transformer.h.0.attn.attention."
OPTIONS = ("--affine", "full", "--untie", "--target", "hf")


def converted(folder, *options):
    save(build(CASE), CASE, folder / "source", "f64")
    succeed("convert", folder / "source", folder / "out", *OPTIONS, *options)
    return folder / "source", folder / "out"


def test_it_moves(tmp_path):
    """By the formula: b' = M (b + W_o W_v shift), with no bias for the values."""
    source, out = converted(tmp_path)
    before, after = tensors(source), tensors(out)
    assert ATTENTION + "q_proj.bias" in after
    assert ATTENTION + "v_proj.bias" not in after
    added = json.loads((out / "rmsnorm.json").read_text())["biases"]
    assert added and not any("v_proj" in name for names in added for name in names)
    shift = before["transformer.h.0.ln_1.bias"]
    bias = before[ATTENTION + "out_proj.bias"]
    bias = bias + before[ATTENTION + "out_proj.weight"] @ before[ATTENTION + "v_proj.weight"] @ shift
    assert torch.allclose(after[ATTENTION + "out_proj.bias"], bias - bias.mean(), rtol=1e-13, atol=1e-14)
    succeed("verify", source, out)


def test_verify_sees_a_bias_that_did_not(tmp_path):
    source, out = converted(tmp_path)
    bias = tensors(source)[ATTENTION + "out_proj.bias"]

    def forget(held):
        if ATTENTION + "out_proj.bias" in held:
            held[ATTENTION + "out_proj.bias"] = bias - bias.mean()

    set_tensors(out, forget)
    done = call("verify", source, out)
    assert done.returncode == OUTSIDE_BUDGET
    assert "attn.attention.out_proj" in done.stdout


def test_a_projection_that_is_no_writer(tmp_path):
    own = tmp_path / "own.json"
    text = (ROOT / "convert/families/gpt_neo.json").read_text()
    own.write_text(text.replace('"through": "h.{i}.attn.attention.out_proj"', '"through": "h.{i}.mlp.c_fc"'))
    save(build(CASE), CASE, tmp_path / "source", "f32")
    done = call("convert", tmp_path / "source", tmp_path / "out", "--recipe", own)
    assert done.returncode != 0
    assert "goes through 'h.0.mlp.c_fc', which is no writer" in done.stderr
    assert not (tmp_path / "out").exists()


def test_with_an_adapter(tmp_path):
    """LoRA on values, projection and queries: merged into both models, these compute the same."""
    lora = tmp_path / "lora"
    lora.mkdir()
    numbers = generator("lora")
    modules = [f"{ATTENTION}{name}" for name in ("q_proj", "v_proj", "out_proj")]
    stored = {}
    for module in modules:
        for key, shape in (("lora_A", (2, 16)), ("lora_B", (16, 2))):
            drawn = torch.randn(shape, generator=numbers, dtype=torch.float64)
            stored[f"base_model.model.{module}.{key}.weight"] = drawn
    save_file(stored, lora / "adapter_model.safetensors", {"format": "pt"})
    (lora / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "r": 2, "lora_alpha": 2}))
    source, out = converted(tmp_path, "--adapter", lora)

    def merged(model, folder):
        held = load_file(folder / "adapter_model.safetensors")
        for module in modules:
            layer, name = model.get_submodule(module), f"base_model.model.{module}"
            layer.weight.data += held[name + ".lora_B.weight"] @ held[name + ".lora_A.weight"]
            added = held.get(name + ".lora_B.bias", torch.zeros(16, dtype=torch.float64))
            layer.bias = torch.nn.Parameter(added if layer.bias is None else layer.bias.data + added)
        return run(model, CASE)

    expected = merged(load(CASE.model_class, source), lora)
    assert distance(merged(load_rms(CASE, out), out / "adapter"), expected) < 1e-12
    assert distance(run(load_rms(CASE, out), CASE), expected) > 1e-3
