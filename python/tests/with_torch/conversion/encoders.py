"""Everything that is no plain decoder: encoders with decoders, text encoders, vision, speech."""

import torch

from checkpoints import Case, generator
from decoders import LENGTH, VOCABULARY, ids


def normal(*shape):
    return torch.randn(*shape, generator=generator("other"), dtype=torch.float64)


def pair_ids(config):
    both = ids(config)
    return {**both, "decoder_input_ids": both["input_ids"][:, :5].flip(1)}


def picture(config):
    return {"pixel_values": normal(2, config.num_channels, config.image_size, config.image_size)}


def masked_picture(config):
    patches = (config.image_size // config.patch_size) ** 2
    return {**picture(config), "bool_masked_pos": (torch.arange(2 * patches).reshape(2, patches) % 3 == 0)}


def larger_picture(config):
    side = config.image_size + 2 * config.patch_size
    return {"pixel_values": normal(2, config.num_channels, side, side), "interpolate_pos_encoding": True}


def picture_of_vision(config):
    return picture(config.vision_config)


def text_and_picture(config):
    return {**ids(config.text_config), **picture(config.vision_config)}


def just_ids(config):
    return {"input_ids": ids(config)["input_ids"]}


def spectrum(config):
    frames = 2 * config.max_source_positions
    tokens = ids(config)["input_ids"][:, :5]
    return {"input_features": normal(2, config.num_mel_bins, frames), "decoder_input_ids": tokens}


def wave(config):
    return {"input_values": normal(2, 400) + 0.1}


def cut_wave(config):
    mask = torch.ones(2, 400, dtype=torch.long)
    mask[1, 300:] = 0
    return {**wave(config), "attention_mask": mask}


PAIR = {
    "vocab_size": VOCABULARY,
    "d_model": 16,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 24,
    "decoder_ffn_dim": 24,
    "max_position_embeddings": 32,
    "decoder_start_token_id": 2,
}
WHISPER = {
    **PAIR,
    "num_mel_bins": 5,
    "max_source_positions": 6,
    "max_target_positions": 16,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "suppress_tokens": None,
    "begin_suppress_tokens": None,
}
MODERNBERT = {
    "vocab_size": VOCABULARY,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "cls_token_id": 1,
    "sep_token_id": 2,
    "local_attention": 4,
}
VIT = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "image_size": 8,
    "patch_size": 4,
    "num_channels": 3,
    "encoder_stride": 4,
    "num_labels": 3,
}
DINO = {**{k: v for k, v in VIT.items() if k not in ("encoder_stride", "intermediate_size")}, "mlp_ratio": 2}
TEXT = {
    "vocab_size": VOCABULARY,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "max_position_embeddings": LENGTH,
    "projection_dim": 8,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
SEEN = {
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "image_size": 8,
    "patch_size": 4,
    "num_channels": 3,
    "projection_dim": 8,
}
SPEECH = {
    "vocab_size": VOCABULARY,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "conv_dim": [8, 8],
    "conv_stride": [5, 4],
    "conv_kernel": [10, 4],
    "num_feat_extract_layers": 2,
    "num_conv_pos_embeddings": 4,
    "num_conv_pos_embedding_groups": 2,
    "do_stable_layer_norm": True,
    "feat_extract_norm": "layer",
    "conv_bias": True,
    "layerdrop": 0.0,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
ADAPTERS = {
    "add_adapter": True,
    "num_adapter_layers": 2,
    "adapter_attn_dim": 4,
}

# What modules are called in newer versions, as some files have it.
NEW_NAMES = (
    (r"encoder\.layer\.", "layers."),
    (r"attention\.attention\.(q|k|v)[a-z]*", r"attention.\1_proj"),
    (r"attention\.output\.dense", "attention.o_proj"),
    (r"intermediate\.dense", "mlp.fc1"),
    (r"output\.dense", "mlp.fc2"),
)

PAIRS = [
    Case("mbart", "MBartForConditionalGeneration", PAIR, pair_ids, rms=12, kept=2, centres=2),
    Case(
        "mbart untied",
        "MBartForConditionalGeneration",
        {**PAIR, "tie_word_embeddings": False},
        pair_ids,
        rms=12,
        kept=2,
        centres=2,
    ),
    Case("m2m_100", "M2M100ForConditionalGeneration", PAIR, pair_ids, rms=12, centres=2),
    Case("whisper", "WhisperForConditionalGeneration", WHISPER, spectrum, rms=12, centres=1),
    Case(
        "whisper base",
        "WhisperModel",
        {**WHISPER, "scale_embedding": True},
        spectrum,
        rms=12,
        centres=1,
        outputs=("last_hidden_state", "encoder_last_hidden_state"),
        heads=("proj_out.weight",),
    ),
    Case("modernbert", "ModernBertForMaskedLM", MODERNBERT, ids, rms=6, kept=2, centres=1),
    Case(
        "modernbert biases",
        "ModernBertForMaskedLM",
        {**MODERNBERT, "norm_bias": True, "attention_bias": True, "mlp_bias": True},
        ids,
        rms=6,
        kept=2,
        centres=1,
    ),
]
VISION = [
    Case("vit", "ViTForImageClassification", VIT, picture, rms=5),
    Case("vit new names", "ViTForImageClassification", VIT, picture, rms=5, renames=NEW_NAMES),
    Case("vit larger", "ViTForImageClassification", VIT, larger_picture, rms=5),
    Case("vit masked", "ViTForMaskedImageModeling", VIT, masked_picture, rms=5, outputs=("reconstruction",)),
    Case("vit base", "ViTModel", VIT, picture, rms=5, outputs=("last_hidden_state", "pooler_output")),
    Case("deit", "DeiTForImageClassificationWithTeacher", VIT, picture, rms=5),
    Case("deit masked", "DeiTForMaskedImageModeling", VIT, masked_picture, rms=5, outputs=("reconstruction",)),
    Case("dinov2", "Dinov2ForImageClassification", DINO, picture, rms=5, unseen=("mask_token",)),
    Case(
        "dinov2 swiglu",
        "Dinov2Model",
        {**DINO, "use_swiglu_ffn": True},
        masked_picture,
        rms=5,
        outputs=("last_hidden_state", "pooler_output"),
    ),
    Case(
        "dinov2_with_registers",
        "Dinov2WithRegistersForImageClassification",
        DINO,
        picture,
        rms=5,
        unseen=("mask_token",),
    ),
    Case("beit", "BeitForImageClassification", VIT, picture, rms=5),
    Case(
        "beit masked",
        "BeitForMaskedImageModeling",
        {**VIT, "vocab_size": VOCABULARY, "use_mask_token": True, "use_absolute_position_embeddings": True},
        masked_picture,
        rms=5,
    ),
    Case(
        "beit first token",
        "BeitForImageClassification",
        {**VIT, "use_mean_pooling": False, "layer_scale_init_value": 0.0},
        picture,
        rms=5,
    ),
    Case(
        "data2vec_vision",
        "Data2VecVisionForImageClassification",
        {**VIT, "use_relative_position_bias": True},
        picture,
        rms=5,
        recipe="data2vec-vision",
    ),
    Case(
        "clip",
        "CLIPModel",
        {"text_config": TEXT, "vision_config": SEEN, "projection_dim": 8},
        text_and_picture,
        rms=11,
        centres=1,
        outputs=("logits_per_image", "text_embeds", "image_embeds"),
    ),
    Case(
        "clip text",
        "CLIPTextModel",
        TEXT,
        ids,
        rms=5,
        outputs=("last_hidden_state", "pooler_output"),
        recipe="clip_text_model",
    ),
    Case(
        "clip text projected",
        "CLIPTextModelWithProjection",
        TEXT,
        ids,
        rms=5,
        outputs=("text_embeds",),
        recipe="clip_text_model",
    ),
    Case(
        "clip vision",
        "CLIPVisionModelWithProjection",
        SEEN,
        picture,
        rms=6,
        centres=1,
        outputs=("image_embeds",),
        recipe="clip_vision_model",
    ),
    Case(
        "siglip",
        "SiglipModel",
        {"text_config": TEXT, "vision_config": SEEN},
        text_and_picture,
        rms=10,
        kept=1,
        outputs=("logits_per_image", "text_embeds", "image_embeds"),
    ),
    Case(
        "siglip classes",
        "SiglipForImageClassification",
        {"text_config": TEXT, "vision_config": SEEN},
        picture_of_vision,
        rms=5,
        kept=1,
    ),
    Case(
        "siglip text",
        "SiglipTextModel",
        TEXT,
        just_ids,
        rms=5,
        outputs=("last_hidden_state", "pooler_output"),
        recipe="siglip_text_model",
    ),
    Case(
        "siglip vision",
        "SiglipVisionModel",
        SEEN,
        picture,
        rms=5,
        kept=1,
        outputs=("last_hidden_state", "pooler_output"),
        recipe="siglip_vision_model",
    ),
]
SPEAKING = [
    Case("wav2vec2", "Wav2Vec2ForCTC", SPEECH, cut_wave, rms=7, kept=1, centres=1),
    Case("wav2vec2 adapters", "Wav2Vec2ForCTC", {**SPEECH, **ADAPTERS}, wave, rms=9, kept=1, centres=1),
    Case("hubert", "HubertForCTC", SPEECH, wave, rms=7, kept=1, centres=1),
    Case(
        "hubert group norm",
        "HubertForCTC",
        {**SPEECH, "feat_extract_norm": "group", "conv_bias": False},
        wave,
        rms=5,
        kept=1,
        centres=1,
    ),
]
ENCODERS = PAIRS + VISION + SPEAKING
