"""Graphs as PyTorch's two exporters write them, from models of transformers with random parameters."""

import warnings

import numpy as np
import pytest
import torch
import transformers

from graph_tools import convert, largest_difference, rmsnorm

TOLERANCE = 5e-6  # f32, relative to an output's largest number


def randomised(model):
    """Norms with weights and biases that a mistake would show, and means that are not 0."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            spread = torch.randn(parameter.shape, generator=generator)
            if parameter.dim() > 1:
                parameter.copy_(spread * parameter.shape[-1] ** -0.5 + 0.02)
            else:
                parameter.copy_((1 if name.endswith("weight") else 0.1) + 0.2 * spread)
    return model.eval()


class Wrapped(torch.nn.Module):
    """One output, no caches."""

    def __init__(self, model, pick):
        super().__init__()
        self.model, self.pick = model, pick

    def forward(self, x):
        return self.pick(self.model, x)


def gpt2():
    config = transformers.GPT2Config(
        vocab_size=50, n_positions=16, n_embd=32, n_layer=2, n_head=4, attn_implementation="eager"
    )
    model = transformers.GPT2LMHeadModel(config)
    # With a mask: what transformers does without one, the old exporter cannot write.
    return (
        model,
        lambda m, x: m(input_ids=x, attention_mask=torch.ones_like(x), use_cache=False).logits,
        torch.arange(24).reshape(2, 12) % 50,
    )


def classifier(model):
    """Of pictures of 16 x 16."""
    return (
        model,
        lambda m, x: m(pixel_values=x).logits,
        torch.randn(2, 3, 16, 16, generator=torch.Generator().manual_seed(1)),
    )


def vit():
    config = transformers.ViTConfig(
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        image_size=16,
        patch_size=4,
        attn_implementation="eager",
    )
    return classifier(transformers.ViTForImageClassification(config))


def whisper():
    config = transformers.WhisperConfig(
        d_model=32,
        encoder_layers=2,
        encoder_attention_heads=4,
        encoder_ffn_dim=64,
        decoder_layers=1,
        decoder_attention_heads=4,
        decoder_ffn_dim=64,
        max_source_positions=20,
        vocab_size=50,
        num_mel_bins=8,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=1,
        attn_implementation="eager",
    )
    encoder = transformers.WhisperModel(config).encoder
    features = torch.randn(2, 8, 40, generator=torch.Generator().manual_seed(1))
    return encoder, lambda m, x: m(input_features=x).last_hidden_state, features


def dinov2():
    """With LayerScale."""
    config = transformers.Dinov2Config(
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        image_size=16,
        patch_size=4,
        attn_implementation="eager",
    )
    return classifier(transformers.Dinov2ForImageClassification(config))


def bert():
    config = transformers.BertConfig(
        vocab_size=50,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        max_position_embeddings=16,
        attn_implementation="eager",
    )
    model = transformers.BertModel(config, add_pooling_layer=False)
    return model, lambda m, x: m(input_ids=x).last_hidden_state, torch.arange(24).reshape(2, 12) % 50


def export(family, path, new, opset):
    model, pick, x = family()
    wrapped = Wrapped(randomised(model), pick).eval()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            wrapped, (x,), str(path), dynamo=new, opset_version=opset, input_names=["x"], external_data=False
        )
    return {"x": x.numpy()}


# Norms; of them converted; operations inserted. Whisper's stream starts behind a GELU.
FAMILIES = {gpt2: (5, 5, 0), vit: (5, 5, 0), dinov2: (5, 5, 0), whisper: (5, 5, 1), bert: (5, 1, 0)}
EXPORTERS = [(False, 14), (False, 17), (True, 18), (True, 23)]


@pytest.mark.parametrize(("new", "opset"), EXPORTERS, ids=[f"{'new' if n else 'old'}-{o}" for n, o in EXPORTERS])
@pytest.mark.parametrize("family", FAMILIES, ids=lambda f: f.__name__)
def test_exported(tmp_path, family, new, opset):
    source = tmp_path / "before.onnx"
    feeds = export(family, source, new, opset)
    norms, converted, inserted = FAMILIES[family]
    if family is dinov2 and not new:
        inserted = 1  # its positions come out of a Resize, which the new exporter computes beforehand
    targets = ["onnx-plain", "onnx-simplified"] + (["onnx-rms23"] if opset >= 18 else [])
    for target in targets:
        before, after, report = convert(source, tmp_path, "--target", target)
        assert len(report["norms"]) == norms
        assert (report["converted"], report["operations_inserted"]) == (converted, inserted), report["norms"]
        if family is bert:
            assert [norm.get("code") for norm in report["norms"]] == [None] + ["R01"] * 4
        if family is gpt2:
            assert report["constants_copied"] in (0, 1)  # the head is tied, unless the exporter has stored it twice
        assert largest_difference(before, after, feeds) < TOLERANCE


def test_openvino(tmp_path):
    openvino = pytest.importorskip("openvino")
    feeds = export(vit, tmp_path / "before.onnx", False, 17)
    before, after, _ = convert(tmp_path / "before.onnx", tmp_path)
    core = openvino.Core()
    exact = {"INFERENCE_PRECISION_HINT": "f32"}  # it computes in bf16 where the CPU can
    a, b = (core.compile_model(str(p), "CPU", exact)(feeds)[0] for p in (before, after))
    assert np.abs(a - b).max() < TOLERANCE * np.abs(a).max()


def test_inspection_of_an_export_names_what_people_know(tmp_path):
    export(gpt2, tmp_path / "before.onnx", False, 17)
    report = rmsnorm("inspect", tmp_path / "before.onnx")
    assert any("wte" in writer["tensor"] for writer in report["streams"][0]["writers"])
