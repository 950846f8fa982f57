"""The published tokenizer files of LLaMA-2, Mistral and Llama-3, loaded without their models."""

import base64
from pathlib import Path
from typing import Any

BEGIN = "<|begin_of_text|>"
LLAMA_3_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def load_tokenizer(folder: Path) -> Any:
    """The tokenizer of a folder: Hugging Face files, or a published `tokenizer.model`.

    A `tokenizer.model` is SentencePiece's (LLaMA-2, Mistral) or a list of base64 tokens with their
    ranks (Llama-3).

    Raises:
        FileNotFoundError: the folder has neither.
    """
    from transformers import AutoTokenizer, LlamaTokenizer

    if (folder / "tokenizer.json").is_file():
        return AutoTokenizer.from_pretrained(folder)
    path = folder / "tokenizer.model"
    if not path.is_file():
        raise FileNotFoundError(
            f"expected tokenizer.json or tokenizer.model in {folder}, found neither"
        )
    ranks = _ranks(path.read_bytes())
    return (
        _byte_level(ranks) if ranks else LlamaTokenizer.from_pretrained(folder, add_bos_token=True)
    )


def _ranks(content: bytes) -> dict[bytes, int]:
    """Tokens and their ranks, in Llama-3's format; none where the file is of another."""
    lines = [line.split() for line in content.splitlines()]
    if not all(len(line) == 2 and line[1].isdigit() for line in lines):
        return {}
    return {base64.b64decode(token): int(rank) for token, rank in lines}


def _byte_level(ranks: dict[bytes, int]) -> Any:
    """A byte-level BPE in which the lower rank is merged first, with BOS in front."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast
    from transformers.convert_slow_tokenizer import bytes_to_unicode

    letters = bytes_to_unicode()
    written = {token: "".join(letters[byte] for byte in token) for token in ranks}
    merges = []
    for token in sorted(ranks, key=ranks.__getitem__):
        halves = ((token[:i], token[i:]) for i in range(1, len(token)))
        known = [(a, b) for a, b in halves if a in ranks and b in ranks]
        known.sort(key=lambda half: (ranks[half[0]], ranks[half[1]]))
        merges += [(written[a], written[b]) for a, b in known]
    vocabulary = {written[token]: rank for token, rank in ranks.items()}
    backend = Tokenizer(models.BPE(vocabulary, merges, ignore_merges=True))
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(LLAMA_3_SPLIT), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens([BEGIN])
    backend.post_processor = processors.TemplateProcessing(
        single=f"{BEGIN} $A", special_tokens=[(BEGIN, backend.token_to_id(BEGIN))]
    )
    return PreTrainedTokenizerFast(tokenizer_object=backend, bos_token=BEGIN)
