"""The decoders: token ids in, logits out."""

import torch

from checkpoints import Case, generator

VOCABULARY = 37
LENGTH = 9


def ids(config, key="vocab_size"):
    tokens = torch.randint(3, getattr(config, key), (2, LENGTH), generator=generator("ids"))
    mask = torch.ones_like(tokens)
    mask[1, LENGTH - 2 :] = 0
    return {"input_ids": tokens, "attention_mask": mask}


def typed_ids(config):
    return {**ids(config), "token_type_ids": torch.arange(2 * LENGTH).reshape(2, LENGTH) % 5}


def crossed_ids(config):
    other = torch.randn(2, 4, config.n_embd, generator=generator("other"), dtype=torch.float64)
    return {**ids(config), "encoder_hidden_states": other}


GPT2 = {"vocab_size": VOCABULARY, "n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 16}
NEO = {
    "vocab_size": VOCABULARY,
    "hidden_size": 16,
    "num_layers": 2,
    "num_heads": 2,
    "max_position_embeddings": 16,
    "attention_types": [[["global", "local"], 1]],
    "window_size": 4,
}
GPTJ = {**GPT2, "n_head": 2, "rotary_dim": 4}
LLAMA_LIKE = {
    "vocab_size": VOCABULARY,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "intermediate_size": 24,
    "max_position_embeddings": 32,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
MANY_HEADS = {**LLAMA_LIKE, "num_key_value_heads": 2}
NEOX = {k: v for k, v in LLAMA_LIKE.items() if k != "num_key_value_heads"}
OPT = {
    "vocab_size": VOCABULARY,
    "hidden_size": 16,
    "word_embed_proj_dim": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "ffn_dim": 24,
    "max_position_embeddings": 16,
}
BLOOM = {"vocab_size": VOCABULARY, "hidden_size": 16, "n_layer": 2, "n_head": 2}
FALCON = {"vocab_size": VOCABULARY, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
MPT = {"vocab_size": VOCABULARY, "d_model": 16, "n_layers": 2, "n_heads": 2, "max_seq_len": 16, "expansion_ratio": 2}

DECODERS = [
    Case("gpt2", "GPT2LMHeadModel", GPT2, ids, rms=5),
    Case("gpt2 token types", "GPT2LMHeadModel", {**GPT2, "layer_norm_epsilon": 1e-3}, typed_ids, rms=5),
    Case("gpt2 no prefix", "GPT2LMHeadModel", GPT2, ids, rms=5, renames=((r"^transformer\.", ""),)),
    Case("gpt2 cross attention", "GPT2LMHeadModel", {**GPT2, "add_cross_attention": True}, crossed_ids, rms=7),
    Case("gpt2 untied", "GPT2LMHeadModel", {**GPT2, "tie_word_embeddings": False}, ids, rms=5),
    Case("gpt2 base", "GPT2Model", GPT2, ids, rms=5, outputs=("last_hidden_state",), heads=("lm_head.weight",)),
    Case("gpt2 tokens", "GPT2ForTokenClassification", GPT2, ids, rms=5),
    Case("gpt_bigcode", "GPTBigCodeForCausalLM", {**GPT2, "multi_query": True}, ids, rms=5),
    Case("gpt_bigcode many heads", "GPTBigCodeForCausalLM", {**GPT2, "multi_query": False}, ids, rms=5),
    Case("gpt_neo", "GPTNeoForCausalLM", NEO, ids, rms=5),
    Case("gptj", "GPTJForCausalLM", {**GPTJ, "tie_word_embeddings": False}, ids, rms=3),
    Case("codegen", "CodeGenForCausalLM", {**GPTJ, "n_head": 4, "tie_word_embeddings": False}, ids, rms=3),
    Case("gpt_neox", "GPTNeoXForCausalLM", NEOX, ids, rms=5),
    Case("gpt_neox new name", "GPTNeoXForCausalLM", NEOX, ids, rms=5, renames=((r"^embed_out", "lm_head"),)),
    Case("gpt_neox sequential", "GPTNeoXForCausalLM", {**NEOX, "use_parallel_residual": False}, ids, rms=5),
    Case("gpt_neox no biases", "GPTNeoXForCausalLM", {**NEOX, "attention_bias": False}, ids, rms=5),
    Case("opt", "OPTForCausalLM", OPT, ids, rms=5),
    Case("opt projected", "OPTForCausalLM", {**OPT, "word_embed_proj_dim": 8}, ids, rms=5),
    Case("opt no biases", "OPTForCausalLM", {**OPT, "enable_bias": False}, ids, rms=5),
    Case("opt no parameters", "OPTForCausalLM", {**OPT, "layer_norm_elementwise_affine": False}, ids, rms=5),
    Case("opt no prefix", "OPTForCausalLM", OPT, ids, rms=5, renames=((r"^model\.", ""),)),
    Case("bloom", "BloomForCausalLM", BLOOM, ids, rms=5, kept=1, centres=1),
    Case(
        "bloom no prefix", "BloomForCausalLM", BLOOM, ids, rms=5, kept=1, centres=1, renames=((r"^transformer\.", ""),)
    ),
    Case("falcon one norm", "FalconForCausalLM", {**FALCON, "bias": True, "alibi": False}, ids, rms=3),
    Case(
        "falcon alibi", "FalconForCausalLM", {**FALCON, "bias": False, "alibi": True, "multi_query": False}, ids, rms=3
    ),
    Case("falcon two norms", "FalconForCausalLM", {**FALCON, "new_decoder_architecture": True}, ids, rms=5),
    Case(
        "falcon two named one",
        "FalconForCausalLM",
        {**FALCON, "new_decoder_architecture": True, "num_ln_in_parallel_attn": 1},
        ids,
        rms=3,
    ),
    Case("falcon sequential", "FalconForCausalLM", {**FALCON, "parallel_attn": False, "bias": True}, ids, rms=5),
    Case("mpt", "MptForCausalLM", MPT, ids, rms=5),
    Case("phi", "PhiForCausalLM", MANY_HEADS, ids, rms=3),
    Case("phi qk", "PhiForCausalLM", {**MANY_HEADS, "qk_layernorm": True}, ids, rms=7),
    Case("starcoder2", "Starcoder2ForCausalLM", LLAMA_LIKE, ids, rms=5),
    Case("starcoder2 no biases", "Starcoder2ForCausalLM", {**LLAMA_LIKE, "use_bias": False}, ids, rms=5),
    Case("stablelm", "StableLmForCausalLM", LLAMA_LIKE, ids, rms=5),
    Case(
        "stablelm parallel",
        "StableLmForCausalLM",
        {**LLAMA_LIKE, "use_parallel_residual": True, "qk_layernorm": True, "use_qkv_bias": True},
        ids,
        rms=9,
    ),
    Case("persimmon", "PersimmonForCausalLM", {**NEOX, "num_attention_heads": 2}, ids, rms=9),
    Case("persimmon no qk", "PersimmonForCausalLM", {**NEOX, "qk_layernorm": False}, ids, rms=5),
    Case("nemotron", "NemotronForCausalLM", {**LLAMA_LIKE, "head_dim": 8}, ids, rms=5),
    Case("cohere", "CohereForCausalLM", LLAMA_LIKE, ids, rms=3, centres=1),
    Case("cohere qk", "CohereForCausalLM", {**LLAMA_LIKE, "use_qk_norm": True}, ids, rms=7, centres=1),
    Case("olmo", "OlmoForCausalLM", {**LLAMA_LIKE, "tie_word_embeddings": False}, ids, rms=5),
    Case("olmo tied", "OlmoForCausalLM", {**LLAMA_LIKE, "tie_word_embeddings": True}, ids, rms=5),
    Case("olmo clipped", "OlmoForCausalLM", {**LLAMA_LIKE, "clip_qkv": 0.5}, ids, rms=5),
    Case(
        "xglm",
        "XGLMForCausalLM",
        {
            "vocab_size": VOCABULARY,
            "d_model": 16,
            "num_layers": 2,
            "attention_heads": 2,
            "ffn_dim": 24,
            "max_position_embeddings": 16,
        },
        ids,
        rms=5,
        centres=1,
    ),
]
