"""`rmsnorm fold`: the weights of RMSNorms move into their readers, in the families' own classes."""

import json
from dataclasses import replace

import pytest
import torch

from checkpoints import InDouble, build, default_double, distance, run
from program import refusal, succeed
from rms_decoders import RMS_DECODERS
from saving import TYPES, load, save, set_keys, set_tensors, tensors
from test_families import EXACT, ROUNDINGS, each

CASES = {case.name: case for case in RMS_DECODERS}
# Stored as the gain less 1.
ONE_PLUS = (
    *("gemma", "gemma2", "gemma3_text", "gemma3", "t5gemma", "vaultgemma", "recurrent_gemma"),
    *("qwen3_next", "qwen3_5_text", "qwen3_5_moe_text", "qwen3_5", "qwen3_5_moe"),
)


@pytest.mark.parametrize(("case", "dtype"), each(RMS_DECODERS, TYPES))
def test_same_function(case, dtype, tmp_path):
    model = build(case)
    unrounded = run(model, case)
    source, out = tmp_path / "source", tmp_path / "out"
    save(model, case, source, dtype)
    succeed("fold", source, out)
    succeed("verify", source, out)
    expected = run(load(case.model_class, source), case)
    limit = EXACT if dtype == "f64" else ROUNDINGS * distance(expected, unrounded)
    assert distance(run(load(case.model_class, out), case), expected) <= limit
    trivial = 0.0 if case.name.split()[0] in ONE_PLUS else 1.0
    before, after = tensors(source), tensors(out)
    folded = [k for k, t in after.items() if "norm" in k and not t.equal(before[k])]
    assert all(after[k].eq(trivial).all() for k in folded)
    assert len(folded) == case.rms


def test_a_layer_behind_the_last(tmp_path):
    """DeepSeek 3 as published: it predicts one more token, and transformers does not load it."""
    case = CASES["deepseek_v3"]
    source, out = tmp_path / "source", tmp_path / "out"
    save(build(case), case, source, "f64")
    layer = f"model.layers.{json.loads((source / 'config.json').read_text())['num_hidden_layers']}."
    names = ("eh_proj", "enorm", "hnorm", "embed_tokens", "shared_head.norm", "shared_head.head", "self_attn.q_a_proj")
    added = {f"{layer}{name}.weight": torch.full((4, 4), 0.5, dtype=torch.float64) for name in names}

    def add(held):
        if "lm_head.weight" in held:
            held.update({name: value.clone() for name, value in added.items()})

    set_tensors(source, add)
    succeed("fold", source, out)
    succeed("verify", source, out)
    before, after = tensors(source), tensors(out)
    assert all(after[name].equal(value) for name, value in added.items())
    folded = [key for key, value in after.items() if "norm" in key and not value.equal(before[key])]
    assert len(folded) == case.rms - 1 and "model.norm.weight" not in folded
    expected = run(load(case.model_class, source, tuple(added)), case)
    assert distance(run(load(case.model_class, out, tuple(added)), case), expected) <= EXACT
    set_keys(source, num_nextn_predict_layers=0)
    assert refusal("fold", source, tmp_path / "again").startswith(f"R08 at {layer}")


@pytest.mark.parametrize("dtype", ["f64", "f32"])
def test_two_of_four_experts(dtype, tmp_path):
    """Gemma 4 with a choice. In narrower types a rounding of the stream, which fold causes, can tip it."""
    case = CASES["gemma4_text experts"]
    case = replace(case, config={**case.config, "top_k_experts": 2})
    source, out = tmp_path / "source", tmp_path / "out"
    model = build(case)
    unrounded = run(model, case)
    save(model, case, source, dtype)
    succeed("fold", source, out)
    expected = run(load(case.model_class, source), case)
    limit = EXACT if dtype == "f64" else ROUNDINGS * distance(expected, unrounded)
    assert distance(run(load(case.model_class, out), case), expected) <= limit
    set_keys(source, top_k_experts=4)
    assert distance(run(load(case.model_class, source), case), expected) > 1e-3  # others are left out


def test_the_gated_norm_has_another_gain(tmp_path):
    """Two kinds of gain in one model: only the ordinary norms store the gain less 1."""
    case = CASES["qwen3_next"]
    save(build(case), case, tmp_path / "source", "f64")
    succeed("fold", tmp_path / "source", tmp_path / "out")
    name = "model.layers.0.linear_attn.norm.weight"
    assert tensors(tmp_path / "out")[name].equal(tensors(tmp_path / "source")[name])


def further_tokens(held, prefix, hidden, embedded):
    """The logits of the published multi-token module, without the attention and the MLP of its layer."""

    def norm(x, name):
        return x / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt() * (1 + held[name].double())

    x = torch.cat(
        [norm(embedded, "mtp.pre_fc_norm_embedding.weight"), norm(hidden, "mtp.pre_fc_norm_hidden.weight")], -1
    )
    x = x @ held["mtp.fc.weight"].double().T
    x = x + norm(x, "mtp.layers.0.input_layernorm.weight") @ held["mtp.layers.0.self_attn.o_proj.weight"].double().T
    return norm(x, "mtp.norm.weight") @ held[prefix + "lm_head.weight"].double().T


@pytest.mark.parametrize("name", ["qwen3_next", "qwen3_5_text", "qwen3_5_moe_text", "qwen3_5"])
def test_layers_that_predict_further_tokens(name, tmp_path):
    """transformers does not load them; they read the last norm's output, and their logits must stay, too."""
    case = CASES[name]
    source, out = tmp_path / "source", tmp_path / "out"
    save(build(case), case, source, "f64")
    numbers = torch.Generator().manual_seed(3)
    shapes = {"pre_fc_norm_embedding": (16,), "pre_fc_norm_hidden": (16,), "fc": (16, 32), "norm": (16,)}
    shapes |= {"layers.0.input_layernorm": (16,), "layers.0.self_attn.o_proj": (16, 16)}
    added = {
        f"mtp.{key}.weight": torch.randn(shape, generator=numbers, dtype=torch.float64) * 0.3
        for key, shape in shapes.items()
    }

    def add(held):
        if any(key.endswith("lm_head.weight") for key in held):
            held.update(added)

    set_tensors(source, add)
    report = succeed("fold", source, out)
    succeed("verify", source, out)
    assert any("further tokens" in str(site.get("note")) for site in report["sites"])
    results = []
    for folder in (source, out):
        model, held = load(case.model_class, folder, tuple(added)), tensors(folder)
        inputs = case.inputs(model.config)
        with default_double(), InDouble(), torch.no_grad():
            got = model(**inputs, output_hidden_states=True)
            embedded = model.get_input_embeddings()(inputs["input_ids"])
        results.append(({"logits": got.logits}, further_tokens(held, "", got.hidden_states[-1], embedded)))
        assert all(held[key].equal(value) for key, value in added.items())
    (logits, further), (new_logits, new_further) = results
    assert distance(new_logits, logits) <= EXACT
    assert distance({"further": new_further}, {"further": further}) <= EXACT
    norms = [key for key, value in tensors(out).items() if "norm" in key and not value.equal(tensors(source)[key])]
    assert len(norms) == case.rms - 1  # all but the last


def test_untying_folds_the_final_norm(tmp_path):
    case = CASES["llama tied"]
    save(build(case), case, tmp_path / "source", "f64")
    report = refusal("convert", tmp_path / "source", tmp_path / "out")
    assert "fold" in report
    succeed("fold", tmp_path / "source", tmp_path / "out")
    assert "lm_head.weight" not in tensors(tmp_path / "out")
    assert not tensors(tmp_path / "out")["model.norm.weight"].eq(1).all()


def test_norms_of_quantised_readers_stay(tmp_path):
    """As GPT-OSS is published: experts in blocks of 4 bits, everything else in bf16."""
    case = CASES["gpt_oss"]
    source, out = tmp_path / "source", tmp_path / "out"
    save(build(case), case, source, "bf16")

    def pack(held):
        for name in [k for k in held if k.endswith(("experts.gate_up_proj", "experts.down_proj"))]:
            held[name + "_blocks"] = torch.zeros(4, 48, 1, 16, dtype=torch.uint8)
            held[name + "_scales"] = torch.zeros(4, 48, 1, dtype=torch.uint8)
            del held[name]

    set_tensors(source, pack)
    set_keys(source, quantization_config={"quant_method": "mxfp4"})
    succeed("fold", source, out)
    before, after = tensors(source), tensors(out)
    norms = [name for name in before if name.endswith("post_attention_layernorm.weight")]
    assert len(norms) == 2
    assert all(after[name].equal(before[name]) for name in norms)
    assert after["model.layers.0.input_layernorm.weight"].eq(1).all()
    assert refusal("fold", source, tmp_path / "full", "--affine", "full").startswith("R06")
