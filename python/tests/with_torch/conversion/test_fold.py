"""`rmsnorm fold`: the weights of RMSNorms move into their readers, in the families' own classes."""

import pytest
import torch

from checkpoints import build, distance, run
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


def test_the_gated_norm_has_another_gain(tmp_path):
    """Two kinds of gain in one model: only the ordinary norms store the gain less 1."""
    case = CASES["qwen3_next"]
    save(build(case), case, tmp_path / "source", "f64")
    succeed("fold", tmp_path / "source", tmp_path / "out")
    name = "model.layers.0.linear_attn.norm.weight"
    assert tensors(tmp_path / "out")[name].equal(tensors(tmp_path / "source")[name])


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
