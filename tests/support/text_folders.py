"""Small folders whose tokenizers have the settings of published ones, with random models."""

import json
from pathlib import Path
from typing import Any

import torch
import transformers
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

SPECIAL = ["<|bos|>", "<|eos|>", "<|im_start|>", "<|im_end|>"]
WORDS = [
    *("plus", "minus", "times", "equals", "is", "the", "sum", "of", "and", "null", "void"),
    *("Question", "Answer"),
]
SPLITS = {
    "three digits": r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+",
    "one digit": r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+",
    "joined": r" ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
}
ENDOFTEXT = {"bos_token": "<|eos|>", "eos_token": "<|eos|>"}
SETTINGS: dict[str, tuple[str, str, dict[str, Any], str]] = {
    "Qwen 2": (
        *("Qwen2", "one digit"),
        {"tokenizer_class": "Qwen2Tokenizer", "bos_token": None, "eos_token": "<|eos|>"},
        "$A",
    ),
    "GPT-2": ("GPT2", "joined", {"tokenizer_class": "GPT2Tokenizer", **ENDOFTEXT}, "$A"),
    "Pythia": ("GPTNeoX", "joined", {"tokenizer_class": "GPTNeoXTokenizer", **ENDOFTEXT}, "$A"),
    "OLMo": (
        *("Olmo", "joined"),
        {"tokenizer_class": "GPTNeoXTokenizer", "bos_token": None, "eos_token": "<|eos|>"},
        "$A <|eos|>",
    ),
    "SmolLM2": (
        *("Llama", "joined"),
        {
            "tokenizer_class": "GPT2Tokenizer",
            "bos_token": "<|im_start|>",
            "eos_token": "<|im_end|>",
        },
        "$A",
    ),
    "Llama 3": (
        *("Llama", "three digits"),
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": "<|bos|>",
            "eos_token": "<|eos|>",
        },
        "<|bos|> $A",
    ),
    "BOS and EOS": (
        *("Llama", "three digits"),
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": "<|bos|>",
            "eos_token": "<|eos|>",
        },
        "<|bos|> $A <|eos|>",
    ),
    "Gemma": (
        *("Gemma", "SentencePiece"),
        {
            "tokenizer_class": "GemmaTokenizer",
            "bos_token": "<|bos|>",
            "eos_token": "<|eos|>",
            "pad_token": "<pad>",
            "unk_token": "<unk>",
            "add_bos_token": True,
        },
        "<|bos|> $A",
    ),
}
"""Architecture, way of splitting, settings of the tokenizer, and what it adds to a text."""
ADD_BOS = {name: "bos" in kind[3] for name, kind in SETTINGS.items()}
"""Whether BOS is put before a text."""


def byte_level(split: str) -> Tokenizer:
    """Bytes, and each word and number up to 999 that the split leaves whole."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = dict.fromkeys([*SPECIAL, *letters])
    merges: dict[tuple[str, str], None] = {}
    numbers = [str(n) for n in range(1000)]
    for word in [f"Ġ{text}" for text in (*WORDS, *numbers)] + [*WORDS, *numbers]:
        piece = word[0]
        for letter in word[1:]:
            merges[piece, letter] = None
            piece += letter
            vocabulary[piece] = None
    tokenizer = Tokenizer(models.BPE({w: i for i, w in enumerate(vocabulary)}, [*merges]))
    bytes_alone = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(SPLITS[split]), "isolated"), bytes_alone]
    )
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def sentencepiece() -> Tokenizer:
    """Pieces with `▁` for a blank, as Gemma writes them: none before the first word."""
    characters = [chr(code) for code in range(33, 127)]
    vocabulary = dict.fromkeys(["<pad>", "<|eos|>", "<|bos|>", "<unk>", "▁", "\n", *characters])
    ids = {piece: i for i, piece in enumerate([*vocabulary, *(s for s in SPECIAL[2:])])}
    tokenizer = Tokenizer(models.BPE(ids, [], unk_token="<unk>"))
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.Fuse()])
    return tokenizer


def text_folder(name: str, folder: Path, **settings: Any) -> Path:
    """A folder of this kind, with changed settings of the tokenizer."""
    architecture, split, own, template = SETTINGS[name]
    tokenizer = sentencepiece() if split == "SentencePiece" else byte_level(split)
    tokenizer.add_special_tokens(SPECIAL)
    special = [(token, tokenizer.token_to_id(token)) for token in SPECIAL[:2] if token in template]
    tokenizer.post_processor = processors.TemplateProcessing(
        single=template, special_tokens=special
    )
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps(own | settings))
    small_model(architecture, tokenizer.get_vocab_size()).save_pretrained(folder)
    return folder


def small_model(architecture: str, vocab_size: int) -> Any:
    """A random model of two layers."""
    sizes: dict[str, Any] = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2}
    sizes |= {"num_attention_heads": 2, "max_position_embeddings": 128, "vocab_size": vocab_size}
    sizes |= {"bos_token_id": 0, "eos_token_id": 1, "initializer_range": 0.2}
    if architecture == "GPT2":
        sizes = {"vocab_size": vocab_size, "n_embd": 32, "n_layer": 2, "n_head": 2} | {
            "bos_token_id": 1,
            "eos_token_id": 1,
            "initializer_range": 0.2,
        }
    elif architecture not in ("GPTNeoX",):
        sizes |= {"num_key_value_heads": 1}
    if architecture == "Gemma":
        sizes |= {"head_dim": 16}
    config = getattr(transformers, f"{architecture}Config")(**sizes)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return transformers.AutoModelForCausalLM.from_config(config).eval()
