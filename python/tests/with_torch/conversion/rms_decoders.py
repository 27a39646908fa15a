"""Families that have RMSNorm already: `rmsnorm fold` moves the weights of their norms into the readers."""

from checkpoints import Case
from decoders import LLAMA_LIKE, ids
from encoders import pair_ids

UNTIED = {**LLAMA_LIKE, "tie_word_embeddings": False}
HEADS = {**LLAMA_LIKE, "head_dim": 8}
MLA = {
    **LLAMA_LIKE,
    "num_key_value_heads": 2,
    "kv_lora_rank": 8,
    "q_lora_rank": 8,
    "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 4,
    "v_head_dim": 8,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "n_shared_experts": 1,
    "moe_intermediate_size": 8,
    "first_k_dense_replace": 1,
    "n_group": 1,
    "topk_group": 1,
}
GEMMA_3N = {
    **HEADS,
    "num_hidden_layers": 3,
    "vocab_size_per_layer_input": 37,
    "hidden_size_per_layer_input": 4,
    "laurel_rank": 4,
    "altup_num_inputs": 2,
    "num_kv_shared_layers": 1,
    "layer_types": ["sliding_attention", "full_attention", "full_attention"],
    "activation_sparsity_pattern": [0.0, 0.0, 0.0],
    "intermediate_size": [24, 24, 24],
}
QWEN_3_NEXT = {
    **HEADS,
    "layer_types": ["linear_attention", "full_attention"],
    "linear_num_value_heads": 2,
    "linear_num_key_heads": 1,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
    "linear_conv_kernel_dim": 2,
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 8,
    "shared_expert_intermediate_size": 8,
    "decoder_sparse_step": 1,
}

T5_GEMMA = {"vocab_size": HEADS["vocab_size"], "encoder": HEADS, "decoder": {**HEADS, "num_hidden_layers": 3}}
GEMMA_3 = {
    "text_config": HEADS,
    "vision_config": {
        "hidden_size": 16,
        "intermediate_size": 24,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "image_size": 16,
        "patch_size": 4,
    },
    "mm_tokens_per_image": 4,
}


# Towers for pictures and sound, as small as their classes let them be.
TOWER = {**GEMMA_3["vision_config"], "head_dim": 8}
GEMMA_3N_WHOLE = {
    "text_config": GEMMA_3N,
    "vision_config": {"architecture": "test_resnet", "hidden_size": 16, "model_args": None, "vocab_offset": 37},
    "audio_config": {
        "hidden_size": 16,
        "conf_num_hidden_layers": 1,
        "conf_num_attention_heads": 2,
        "sscp_conv_channel_size": [4, 4],
        "input_feat_size": 16,
        "vocab_offset": 165,
    },
}
PER_LAYER_INPUT = {"vocab_size_per_layer_input": 37, "hidden_size_per_layer_input": 4}
GEMMA_4_EXPERTS = {
    **HEADS,
    **PER_LAYER_INPUT,
    "enable_moe_block": True,
    "num_experts": 4,
    "top_k_experts": 4,  # all: see test_two_of_four_experts
    "moe_intermediate_size": 8,
}
GEMMA_4_WHOLE = {
    "text_config": {**HEADS, **PER_LAYER_INPUT},
    "vision_config": TOWER,
    "audio_config": None,
}
QWEN_TOWER = {
    "depth": 1,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_heads": 2,
    "patch_size": 4,
    "out_hidden_size": 16,
    "num_position_embeddings": 16,
}


def text_ids(config):
    return ids(config.text_config)


# rms: the norms whose weight is trivial afterwards.
RMS_DECODERS = [
    Case("llama", "LlamaForCausalLM", UNTIED, ids, rms=5),
    Case(
        "llama tied",
        "LlamaForCausalLM",
        {**LLAMA_LIKE, "tie_word_embeddings": True, "attention_bias": True},
        ids,
        rms=4,
    ),
    Case("mistral", "MistralForCausalLM", HEADS, ids, rms=5),
    Case("qwen2", "Qwen2ForCausalLM", UNTIED, ids, rms=5),
    Case("qwen3", "Qwen3ForCausalLM", {**HEADS, "tie_word_embeddings": False}, ids, rms=5),
    Case("qwen3 tied", "Qwen3ForCausalLM", {**HEADS, "tie_word_embeddings": True}, ids, rms=4),
    Case(
        "qwen3_moe",
        "Qwen3MoeForCausalLM",
        {**HEADS, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 8},
        ids,
        rms=5,
    ),
    Case("phi3", "Phi3ForCausalLM", LLAMA_LIKE, ids, rms=5),
    Case("deepseek_v2", "DeepseekV2ForCausalLM", MLA, ids, rms=9),
    Case("deepseek_v3", "DeepseekV3ForCausalLM", MLA, ids, rms=9),
    Case("olmo2", "Olmo2ForCausalLM", LLAMA_LIKE, ids, rms=1),
    Case("gpt_oss", "GptOssForCausalLM", {**HEADS, "num_local_experts": 4, "num_experts_per_tok": 2}, ids, rms=5),
    Case("gemma", "GemmaForCausalLM", HEADS, ids, rms=4),
    Case("gemma2", "Gemma2ForCausalLM", HEADS, ids, rms=4),
    Case("gemma3_text", "Gemma3ForCausalLM", HEADS, ids, rms=4),
    Case("gemma3", "Gemma3ForConditionalGeneration", GEMMA_3, text_ids, rms=4),
    Case("t5gemma", "T5GemmaForConditionalGeneration", T5_GEMMA, pair_ids, rms=14),
    Case("gemma3n_text", "Gemma3nForCausalLM", GEMMA_3N, ids, rms=6),
    Case("gemma3n", "Gemma3nForConditionalGeneration", GEMMA_3N_WHOLE, text_ids, rms=6),
    Case("gemma4_text", "Gemma4ForCausalLM", {**HEADS, **PER_LAYER_INPUT}, ids, rms=4),
    Case("gemma4_text experts", "Gemma4ForCausalLM", GEMMA_4_EXPERTS, ids, rms=6),
    Case("gemma4", "Gemma4ForConditionalGeneration", GEMMA_4_WHOLE, text_ids, rms=4),
    Case("qwen3_next", "Qwen3NextForCausalLM", QWEN_3_NEXT, ids, rms=5),
    Case("qwen3_5_text", "Qwen3_5ForCausalLM", QWEN_3_NEXT, ids, rms=5),
    Case("qwen3_5_moe_text", "Qwen3_5MoeForCausalLM", QWEN_3_NEXT, ids, rms=5),
    Case(
        "qwen3_5",
        "Qwen3_5ForConditionalGeneration",
        {"text_config": QWEN_3_NEXT, "vision_config": QWEN_TOWER},
        text_ids,
        rms=5,
    ),
    Case(
        "qwen3_5_moe",
        "Qwen3_5MoeForConditionalGeneration",
        {"text_config": QWEN_3_NEXT, "vision_config": QWEN_TOWER},
        text_ids,
        rms=5,
    ),
    Case(
        "recurrent_gemma",
        "RecurrentGemmaForCausalLM",
        {**HEADS, "lru_width": 16, "num_hidden_layers": 3, "attention_window_size": 8},
        ids,
        rms=6,
    ),
    Case("vaultgemma", "VaultGemmaForCausalLM", HEADS, ids, rms=4),
]
