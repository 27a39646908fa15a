"""patch(model) on small models of the families with random parameters: what it replaces and that all else stays."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from torch import nn

import rmsnorm.torch as ours

transformers = pytest.importorskip("transformers")

TEXT = {
    "vocab_size": 97,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
}
BEFORE_WEIGHT = "rms_norm, rounded before the weight"
ONCE = "rms_norm, rounded once"
ONE_PLUS = "rms_norm with 1 + weight, rounded once"
LAYER = "layer_norm"

# Family: class of the model, its configuration, formula, number of norms.
FAMILIES = {
    "llama": ("LlamaForCausalLM", "LlamaConfig", TEXT, BEFORE_WEIGHT, 5),
    "mistral": ("MistralForCausalLM", "MistralConfig", TEXT, BEFORE_WEIGHT, 5),
    "qwen2": ("Qwen2ForCausalLM", "Qwen2Config", TEXT, BEFORE_WEIGHT, 5),
    "qwen3": ("Qwen3ForCausalLM", "Qwen3Config", {**TEXT, "head_dim": 16}, BEFORE_WEIGHT, 9),
    "gemma": ("GemmaForCausalLM", "GemmaConfig", {**TEXT, "head_dim": 16}, ONE_PLUS, 5),
    "gemma2": ("Gemma2ForCausalLM", "Gemma2Config", {**TEXT, "head_dim": 16}, ONE_PLUS, 9),
    "gemma3": ("Gemma3ForCausalLM", "Gemma3TextConfig", {**TEXT, "head_dim": 16}, ONE_PLUS, 13),
    "phi3": ("Phi3ForCausalLM", "Phi3Config", TEXT, BEFORE_WEIGHT, 5),
    "olmo2": ("Olmo2ForCausalLM", "Olmo2Config", TEXT, ONCE, 9),
    "gpt_oss": (
        "GptOssForCausalLM",
        "GptOssConfig",
        {**TEXT, "head_dim": 16, "num_local_experts": 2, "num_experts_per_tok": 1},
        ONCE,
        5,
    ),
    "t5": (
        "T5EncoderModel",
        "T5Config",
        {"vocab_size": 97, "d_model": 64, "d_kv": 16, "d_ff": 96, "num_layers": 2, "num_heads": 4},
        BEFORE_WEIGHT,
        5,
    ),
    "deepseek_v3": (
        "DeepseekV3ForCausalLM",
        "DeepseekV3Config",
        {
            **TEXT,
            "num_key_value_heads": 4,
            "q_lora_rank": 32,
            "kv_lora_rank": 32,
            "qk_rope_head_dim": 8,
            "qk_nope_head_dim": 8,
            "v_head_dim": 16,
            "first_k_dense_replace": 2,
        },
        BEFORE_WEIGHT,
        9,
    ),
    "gpt2": (
        "GPT2LMHeadModel",
        "GPT2Config",
        {"vocab_size": 97, "n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 64},
        LAYER,
        5,
    ),
    "gpt_neox": ("GPTNeoXForCausalLM", "GPTNeoXConfig", TEXT, LAYER, 5),
    "vit": (
        "ViTModel",
        "ViTConfig",
        {
            "hidden_size": 64,
            "intermediate_size": 96,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "image_size": 32,
            "patch_size": 8,
        },
        LAYER,
        5,
    ),
    "clip": (
        "CLIPTextModel",
        "CLIPTextConfig",
        {**{k: v for k, v in TEXT.items() if k != "num_key_value_heads"}, "eos_token_id": 2},
        LAYER,
        5,
    ),
    "whisper": (
        "WhisperModel",
        "WhisperConfig",
        {
            "vocab_size": 97,
            "d_model": 64,
            "encoder_layers": 1,
            "decoder_layers": 1,
            "encoder_attention_heads": 4,
            "decoder_attention_heads": 4,
            "encoder_ffn_dim": 96,
            "decoder_ffn_dim": 96,
            "max_source_positions": 16,
            "max_target_positions": 16,
            "num_mel_bins": 8,
            "pad_token_id": 0,
            "decoder_start_token_id": 1,
        },
        LAYER,
        7,
    ),
}


def make(family: str, dtype: torch.dtype) -> nn.Module:
    model_name, config_name, settings, _, _ = FAMILIES[family]
    model = getattr(transformers, model_name)(getattr(transformers, config_name)(**settings))
    with torch.no_grad():
        for module in model.modules():
            if "norm" in type(module).__name__.lower():  # never only ones
                for parameter in module.parameters(recurse=False):
                    parameter.add_(0.2 * torch.randn_like(parameter))
    return model.to(dtype).eval()


def inputs(family: str, dtype: torch.dtype) -> dict[str, torch.Tensor]:
    ids = torch.randint(3, 97, (2, 9))
    if family == "vit":
        return {"pixel_values": torch.randn(2, 3, 32, 32, dtype=dtype)}
    if family == "whisper":
        return {"input_features": torch.randn(2, 8, 32, dtype=dtype), "decoder_input_ids": ids}
    return {"input_ids": ids}


def output(model: nn.Module, arguments: dict[str, torch.Tensor]) -> torch.Tensor:
    result = model(**arguments)
    return result.logits if hasattr(result, "logits") else result.last_hidden_state


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["f32", "bf16"])
@pytest.mark.parametrize("family", FAMILIES)
def test_a_patched_model_computes_the_same(family: str, dtype: torch.dtype) -> None:
    _, _, _, formula, count = FAMILIES[family]
    model, arguments = make(family, dtype), inputs(family, dtype)
    names = list(model.state_dict())
    before = output(model, arguments)
    before.float().square().mean().backward()
    gradients = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    model.zero_grad()

    report = ours.patch(model)
    assert not report.left, report
    assert len(report.replaced) == count, report
    assert set(report.replaced.values()) == {formula}, report
    assert list(model.state_dict()) == names

    after = output(model, arguments)
    after.float().square().mean().backward()
    # Both have errors of their own; those of bf16 grow from layer to layer.
    limit = 1e-5 if dtype == torch.float32 else 0.05
    assert (after - before).abs().max() <= limit * before.abs().max()
    largest = max(gradient.abs().max() for gradient in gradients.values())
    for name, parameter in model.named_parameters():
        if parameter.grad is not None:
            own = gradients[name].abs().max()  # of biases of keys: exactly 0, but for rounding
            assert (parameter.grad - gradients[name]).abs().max() <= limit * (10 * own + 0.01 * largest), name

    assert ours.unpatch(model) == count
    assert torch.equal(output(model, arguments), before)
    assert ours.unpatch(model) == 0


def test_the_kernels_are_used() -> None:
    model, arguments = make("llama", torch.float32), inputs("llama", torch.float32)
    ours.patch(model)
    with torch.profiler.profile() as profile:
        output(model, arguments)
    assert sum(event.count for event in profile.key_averages() if event.key.startswith("rmsnorm::rms_norm")) >= 5


def test_copies_are_patched_and_independent() -> None:
    model, arguments = make("llama", torch.float32), inputs("llama", torch.float32)
    ours.patch(model)
    expected = output(model, arguments)
    twin = copy.deepcopy(model)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    assert torch.equal(output(twin, arguments), expected)
    assert ours.unpatch(twin) == 5
    assert ours.unpatch(model) == 5


def test_a_pickled_model_comes_back_and_can_be_patched_again() -> None:
    norm = nn.Sequential(nn.LayerNorm(8))
    ours.patch(norm)
    x = torch.randn(3, 8)
    again = pickle.loads(pickle.dumps(norm))
    assert torch.allclose(again(x), norm(x), rtol=1e-6, atol=1e-6)
    assert list(ours.patch(again).replaced.values()) == [LAYER]


def test_what_is_not_known_is_left_with_the_reason() -> None:
    class OddRMSNorm(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight, self.eps = nn.Parameter(torch.ones(8)), 1e-6

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.weight * x / x.abs().mean(-1, keepdim=True)

    class GatedRMSNorm(OddRMSNorm):
        def forward(self, x: torch.Tensor, gate: torch.Tensor) -> torch.Tensor:
            return x * gate

    model = nn.ModuleDict(
        {"odd": OddRMSNorm(), "gated": GatedRMSNorm(), "image": nn.LayerNorm((4, 8)), "usual": nn.RMSNorm(8)}
    )
    report = ours.patch(model)
    assert list(report.replaced) == ["usual"]
    assert report.left["odd"] == "none of the known formulas gives its numbers"
    assert report.left["gated"] == "it is not called with x alone (TypeError)"
    assert report.left["image"] == "its weight has 2 axes; one is needed"
    assert "replaced 1 norms, left 3" in str(report)
    assert ours.patch(model).left["usual"] == "its forward is replaced already"


@pytest.mark.parametrize("eps", [None, 1e-2])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["f32", "bf16"])
def test_epsilon_of_torchs_own_norm(eps: float | None, dtype: torch.dtype) -> None:
    norm = nn.Sequential(nn.RMSNorm(64, eps)).to(dtype)
    x = 1e-3 * torch.randn(16, 64, dtype=dtype)
    before = norm(x)
    assert len(ours.patch(norm).replaced) == 1
    assert torch.allclose(norm(x).float(), before.float(), rtol=0.01 if dtype == torch.bfloat16 else 1e-5)
