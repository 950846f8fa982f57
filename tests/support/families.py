"""Small random models of many families, made from a configuration, and where their parts are."""

from dataclasses import dataclass
from typing import Any

import torch
from oracles import LLAMA, Places

from arith_lens.model import families

LLAMA_SIZES = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 128,
    "initializer_range": 0.15,  # large enough that each head tells in the logits
}
GROUPED = LLAMA_SIZES | {"num_key_value_heads": 2}
GPT_SIZES = {"n_layer": 2, "n_embd": 32, "n_head": 4, "n_positions": 128, "initializer_range": 0.15}
BLOOM_SIZES = {"hidden_size": 32, "n_layer": 2, "n_head": 4, "initializer_range": 0.15}
FALCON_SIZES = {
    "hidden_size": 32,
    "ffn_hidden_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "initializer_range": 0.15,
}
OPT_SIZES = {
    "hidden_size": 32,
    "ffn_dim": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 128,
    "init_std": 0.15,
    "word_embed_proj_dim": 32,
}
XGLM_SIZES = {
    "d_model": 32,
    "ffn_dim": 48,
    "num_layers": 2,
    "attention_heads": 4,
    "max_position_embeddings": 128,
    "init_std": 0.15,
}
MPT_SIZES = {
    "d_model": 32,
    "n_heads": 4,
    "n_layers": 2,
    "max_seq_len": 128,
    "initializer_range": 0.15,
}
GPT_NEO_SIZES = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_layers": 2,
    "num_heads": 4,
    "attention_types": [[["global", "local"], 1]],
    "max_position_embeddings": 128,
    "initializer_range": 0.15,
}
LOCAL_EXPERTS = {"num_local_experts": 4, "num_experts_per_tok": 2}
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24}
LLAMA_3 = {
    "rope_type": "llama3",
    "rope_theta": 500000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,  # so that scaling matters at this length
}
GRANITE = {"embedding_multiplier": 3.0, "attention_multiplier": 0.3}

GPT_2 = Places("transformer.h", "attn.c_proj", "mlp")
GPT_J = Places("transformer.h", "attn.out_proj", "mlp")
NEO_X = Places("gpt_neox.layers", "attention.dense", "mlp")
FALCON = Places("transformer.h", "self_attention.dense", "mlp")
PHI = Places("model.layers", "self_attn.dense", "mlp")
BLOOM = Places("transformer.h", "self_attention.dense", "mlp.dense_4h_to_h")
MPT = Places("transformer.blocks", "attn.out_proj", "ffn.down_proj")
GPT_NEO = Places("transformer.h", "attn.attention.out_proj", "mlp")
XGLM = Places("model.layers", "self_attn.out_proj", "fc2")
OPT = Places("model.decoder.layers", "self_attn.out_proj", "fc2")


@dataclass(frozen=True)
class Family:
    """A Transformers model class by its prefix, sizes, and where z and MLPs are."""

    prefix: str
    config: dict[str, Any]
    places: Places = LLAMA

    @property
    def row(self) -> families.Family:
        """What the library knows of the architecture."""
        import transformers

        return families.family_of(getattr(transformers, f"{self.prefix}Config"))

    def make(self, vocab_size: int, *, seed: int = 0, **config: Any) -> Any:
        """Random weights; norm weights and every bias random too, since ones and zeros hide."""
        import transformers

        settings = getattr(transformers, f"{self.prefix}Config")(
            vocab_size=vocab_size,
            attn_implementation="eager",
            bos_token_id=1,
            eos_token_id=2,
            **{"pad_token_id": None} | self.config | config,
        )
        head = {"GPT2": "LMHeadModel", "OpenAIGPT": "LMHeadModel"}.get(self.prefix, "ForCausalLM")
        name = "Gemma3ForCausalLM" if self.prefix == "Gemma3Text" else f"{self.prefix}{head}"
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            model = getattr(transformers, name)(settings).eval()
            for name, weight in model.named_parameters():
                is_norm = "norm" in name or "ln" in name
                if weight.ndim == 1 and is_norm and name.endswith("weight"):
                    weight.data.uniform_(0.3, 1.3)
                elif weight.ndim == 1:
                    weight.data.uniform_(-0.4, 0.6)
                elif weight.std() < 0.05:  # some classes do not go by initializer_range
                    weight.data.normal_(std=0.15)
        return model


ADDITIVE = {
    "Qwen2": Family("Qwen2", GROUPED),
    "Qwen3": Family("Qwen3", GROUPED | {"head_dim": 16}),
    "Qwen3, 12 layers": Family("Qwen3", GROUPED | {"head_dim": 8, "num_hidden_layers": 12}),
    "Llama-3": Family("Llama", GROUPED | {"rope_parameters": LLAMA_3}),
    "Llama-3, tied": Family(
        "Llama", GROUPED | {"rope_parameters": LLAMA_3, "tie_word_embeddings": True}
    ),
    "GPT-2": Family("GPT2", GPT_SIZES, GPT_2),
    "Phi-3": Family("Phi3", GROUPED),
    "OLMo": Family("Olmo", GROUPED),
    "SmolLM3": Family("SmolLM3", GROUPED | {"no_rope_layer_interval": 2}),
    "Starcoder2": Family("Starcoder2", GROUPED),
    "Gemma": Family("Gemma", GROUPED | {"head_dim": 16}),
    "Mixtral": Family("Mixtral", GROUPED | {"num_local_experts": 4}),
    "Qwen2-MoE": Family("Qwen2Moe", GROUPED | EXPERTS | {"shared_expert_intermediate_size": 24}),
    "Qwen3-MoE": Family("Qwen3Moe", GROUPED | EXPERTS | {"head_dim": 16}),
    "Granite, factors of 1": Family(
        "Granite", GROUPED | GRANITE | {"residual_multiplier": 1.0, "logits_scaling": 1.0}
    ),
    "GPT-NeoX, sequential": Family(
        "GPTNeoX", LLAMA_SIZES | {"use_parallel_residual": False}, NEO_X
    ),
    "Falcon, sequential": Family(
        "Falcon",
        FALCON_SIZES | {"parallel_attn": False, "multi_query": False, "bias": True, "alibi": True},
        FALCON,
    ),
    "Ministral 3": Family("Ministral3", GROUPED),
    "Arcee": Family("Arcee", GROUPED),
    "Apertus": Family("Apertus", GROUPED),
    "Ernie 4.5": Family("Ernie4_5", GROUPED | {"head_dim": 8}),
    "GLM": Family("Glm", GROUPED | {"head_dim": 8}),
    "GPT-Neo": Family("GPTNeo", GPT_NEO_SIZES, GPT_NEO),
    "GPT-BigCode": Family("GPTBigCode", GPT_SIZES, GPT_2),
    "gpt-oss": Family("GptOss", GROUPED | LOCAL_EXPERTS | {"head_dim": 8}),
    "HunYuan": Family("HunYuanDenseV1", GROUPED | {"head_dim": 8}),
    "Jais 2": Family("Jais2", GROUPED | {"head_dim": 8}),
    "MiniMax-M2": Family("MiniMaxM2", GROUPED | LOCAL_EXPERTS | {"head_dim": 8}),
    "NanoChat": Family("NanoChat", GROUPED),
    "Nemotron": Family("Nemotron", GROUPED | {"head_dim": 8}),
    "OLMoE": Family("Olmoe", GROUPED | {"num_experts": 4, "num_experts_per_tok": 2}),
    "Seed-OSS": Family("SeedOss", GROUPED | {"head_dim": 8}),
    "StableLM": Family(
        "StableLm", LLAMA_SIZES | {"num_key_value_heads": 4, "partial_rotary_factor": 0.5}
    ),
    "VaultGemma": Family("VaultGemma", GROUPED | {"head_dim": 16}),
}
"""Families whose layers add attention and MLP to the stream, each with a norm before it."""

OWN_LAYERS = {
    "Gemma 2": Family("Gemma2", GROUPED | {"head_dim": 16}),
    "Gemma 2, uncapped": Family(
        "Gemma2", GROUPED | {"head_dim": 16, "final_logit_softcapping": None}
    ),
    "Gemma 3": Family("Gemma3Text", GROUPED | {"head_dim": 16}),
    "Gemma 3, 12 layers": Family(
        "Gemma3Text", GROUPED | {"head_dim": 8, "num_hidden_layers": 12, "sliding_window": 6}
    ),
    "OLMo 2": Family("Olmo2", GROUPED),
    "OLMo 3": Family("Olmo3", GROUPED),
    "FlexOlmo": Family("FlexOlmo", GROUPED | {"num_experts": 4, "num_experts_per_tok": 2}),
    "EXAONE 4": Family(
        "Exaone4", GROUPED | {"sliding_window": None, "layer_types": ["full_attention"] * 2}
    ),
    "GLM-4": Family("Glm4", GROUPED | {"head_dim": 8}),
    "Granite": Family(
        "Granite", GROUPED | GRANITE | {"residual_multiplier": 0.22, "logits_scaling": 4.0}
    ),
    "Granite MoE": Family(
        "GraniteMoe",
        GROUPED | GRANITE | LOCAL_EXPERTS | {"residual_multiplier": 0.22, "logits_scaling": 4.0},
        Places(mlp="block_sparse_moe"),
    ),
    "Pythia": Family("GPTNeoX", LLAMA_SIZES, NEO_X),
    "GPT-J": Family("GPTJ", GPT_SIZES | {"rotary_dim": 4}, GPT_J),
    "CodeGen": Family("CodeGen", GPT_SIZES | {"rotary_dim": 4}, GPT_J),
    "Falcon": Family("Falcon", FALCON_SIZES, FALCON),
    "Phi": Family("Phi", LLAMA_SIZES, PHI),
    "StableLM, parallel": Family(
        "StableLm",
        LLAMA_SIZES
        | {"num_key_value_heads": 4, "partial_rotary_factor": 0.5, "use_parallel_residual": True},
    ),
    "Cohere": Family("Cohere", GROUPED | {"logit_scale": 0.25}),
    "Cohere 2": Family("Cohere2", GROUPED | {"logit_scale": 0.25}),
}
"""Families with other layers (norms after attention or MLP, parallel blocks, factors), whose own
code the sweep runs."""

SWEPT = ADDITIVE | OWN_LAYERS
"""Families that the sweep computes."""

REFUSED = {
    "BLOOM": (Family("Bloom", BLOOM_SIZES, BLOOM), r"takes more than its input \(residual\)"),
    "MPT": (Family("Mpt", MPT_SIZES, MPT), r"takes more than its input \(residual\)"),
    "OPT": (Family("OPT", OPT_SIZES, OPT), "an MLP that is not a module of its own"),
    "XGLM": (Family("XGLM", XGLM_SIZES, XGLM), "an MLP that is not a module of its own"),
    "OPT, projected": (
        Family("OPT", OPT_SIZES | {"word_embed_proj_dim": 16}, OPT),
        "no final norm",
    ),
}
"""Families that it refuses, and the reason it gives."""

WITHOUT_HEADS = {
    "JetMoE": Family(
        "JetMoe",
        GROUPED | LOCAL_EXPERTS | {"kv_channels": 8},
    ),
    "LFM2": Family(
        "Lfm2",
        GROUPED | {"layer_types": ["conv", "full_attention"], "block_auto_adjust_ff_dim": False},
    ),
}
"""Families in which some layers have no heads with outputs of their own."""

UNFAITHFUL = {"GPT": Family("OpenAIGPT", GPT_SIZES, GPT_2)}
"""Families whose bridge computes something else than Transformers."""

LATENT = Family(
    "DeepseekV3",
    LLAMA_SIZES
    | {
        "num_key_value_heads": 4,
        "n_routed_experts": 4,
        "n_group": 1,
        "topk_group": 1,
        "num_experts_per_tok": 2,
    }
    | {"moe_intermediate_size": 24, "first_k_dense_replace": 1}
    | {"kv_lora_rank": 16, "q_lora_rank": 16, "qk_rope_head_dim": 4, "qk_nope_head_dim": 8}
    | {"v_head_dim": 8},
)
"""Multi-head latent attention."""

EVERY = SWEPT | {name: family for name, (family, _) in REFUSED.items()}
"""Families whose bridge computes what Transformers computes."""
