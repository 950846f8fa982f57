"""The tokenizer of the reference models, learned from the closed world's text."""

import json
from collections.abc import Iterable

from tokenizers import (
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

SPECIAL = ("<unk>", "<s>", "</s>")
BYTES = tuple(f"<0x{byte:02X}>" for byte in range(256))
VOCABULARY = 640
MAX_PIECE = 3  # characters, the `▁` counted


def train_tokenizer(texts: Iterable[str]) -> Tokenizer:
    """A tokenizer of at most 640 tokens, learned from `texts`."""
    learner = Tokenizer(models.BPE())
    learner.normalizer = _normalizer()
    learner.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split("▁", "merged_with_next"),
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.Punctuation("isolated"),
        ]
    )
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY - len(SPECIAL) - len(BYTES),
        max_token_length=MAX_PIECE,
        show_progress=False,
        initial_alphabet=sorted({c for t in _ALPHABET for c in t}),
    )
    learner.train_from_iterator((text.replace("\n", " ") for text in texts), trainer)
    return _with_bytes(learner)


_ALPHABET = (
    "abcdefghijklmnopqrstuvwxyz",
    "ABCDEFGHIJKLMNOPQRSTUVWXYZ",
    "0123456789",
    "▁+-*/^=<>@#&~$|;?_`.,:!()[]'\"%",
)


def _normalizer() -> normalizers.Normalizer:
    return normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])


def _with_bytes(learner: Tokenizer) -> Tokenizer:
    """The tokenizer in LLaMA-2's order: special tokens, bytes, then the learned tokens."""

    learned = json.loads(learner.to_str())["model"]
    pieces = [*SPECIAL, *BYTES, *sorted(learned["vocab"], key=learned["vocab"].__getitem__)]
    vocabulary = {piece: i for i, piece in enumerate(pieces)}
    merges = [tuple(merge) for merge in learned["merges"]]
    tokenizer = Tokenizer(
        models.BPE(vocabulary, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    )
    tokenizer.normalizer = _normalizer()
    tokenizer.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    tokenizer.add_special_tokens(list(SPECIAL))
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", 1)]
    )
    return tokenizer
