"""Figures 7 and 16: the attention from END of some heads, on a few prompts.

They read a run of `experiments/where_do_they_look.py` (the model's newest, or `--run PATH`) and are
drawn without loading a model.
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from arith_lens import plotting
from arith_lens.attention import Patterns
from arith_lens.runs import Run
from experiments import results
from figures.common import Options, chosen_run
from figures.exhibit import Chart

BLANKS = " ▁Ġ"
"""How tokenizers write the blank before a word."""


def fig7(options: Options) -> list[Chart]:
    """Figure 7: the attention of operand heads on formats that they were not found with.

    Reads a run of `experiments/where_do_they_look.py` (the model's newest, or `--run PATH`) and
    draws it without loading a model.

    Raises:
        RunError: there is no run.
    """
    run, patterns = _read(options, "formats")
    shares = ", ".join(f"{head} {share:.0%}" for head, share in weight_on_digits(patterns).items())
    return _chart(
        run,
        patterns,
        name="fig7",
        title="Figure 7: operand heads on formats that they were not found with",
        look="Whether the heads found in single-digit calculations still look at the numbers of "
        "word problems, time spans and decimals. In the paper they do. Here digits have this share "
        f"of their attention, on average over the prompts: {shares}.",
        says="Operand heads of one operation at least, on formats that they were not found with.",
    )


def fig16(options: Options) -> list[Chart]:
    """Figure 16: the attention of operator heads on the word of each operation.

    Reads a run of `experiments/where_do_they_look.py` (the model's newest, or `--run PATH`) and
    draws it without loading a model.

    Raises:
        RunError: there is no run.
    """
    run, patterns = _read(options, "words")
    parts = []
    for row, head in enumerate(patterns.heads):
        words = [
            strongest_word(tokens, weights[row, -1].numpy())
            for tokens, weights in zip(patterns.tokens, patterns.weights, strict=True)
        ]
        parts.append(f"{head} {', '.join(words)}")
    return _chart(
        run,
        patterns,
        name="fig16",
        title="Figure 16: operator heads on the word of each operation",
        look="Whether one head looks at the operation in whichever words it comes. In the paper "
        "the same heads look at plus, minus, times and divided by. Here the words with the largest "
        f"weights are, in order of the prompts: {'; '.join(parts)}.",
        says="Heads that are operator heads in one operation at least, on one sentence with each "
        "word.",
    )


def _read(options: Options, result: str) -> tuple[Run, Patterns]:
    run = chosen_run(options, "where_do_they_look")
    return run, results.PATTERNS.load(run, result)


def _chart(
    run: Run, patterns: Patterns, *, name: str, title: str, look: str, says: str
) -> list[Chart]:
    """The chart of some patterns, with interactive views. `says` begins its small print."""
    small_print = [says, *notes(run)]
    return [
        Chart(
            name=name,
            title=title,
            look=look,
            notes=small_print,
            runs=(run,),
            numbers=patterns.to_dataframe(),
            figure=draw(patterns, small_print),
            views=tuple(patterns.view(index) for index in range(len(patterns.prompts))),
            views_name=f"{name}-patterns",
        )
    ]


def draw(patterns: Patterns, small_print: Sequence[str]) -> plotting.Figure:
    """One panel per prompt, one row per head, one column per word."""
    return plotting.sentence_panels(
        [
            _sentence(prompt, tokens, patterns.heads, 100 * weights[:, -1].numpy())
            for prompt, tokens, weights in zip(
                patterns.prompts, patterns.tokens, patterns.weights, strict=True
            )
        ],
        legend="Attention from END",
        notes=small_print,
    )


def weight_on_digits(patterns: Patterns) -> dict[str, float]:
    """The mean share of each head's attention from END that digits have, over the prompts."""
    shares = np.array(
        [
            weights[:, -1][:, [token.strip(BLANKS).isdecimal() for token in tokens]].sum(1).numpy()
            for tokens, weights in zip(patterns.tokens, patterns.weights, strict=True)
        ]
    )
    return dict(zip(patterns.heads, shares.mean(0).tolist(), strict=True))


def strongest_word(tokens: Sequence[str], weights: Float[np.ndarray, " token"]) -> str:
    """The word with the largest weight, as the figure writes it."""
    words = word_groups(tokens)
    best = max(range(len(words)), key=lambda index: float(weights[words[index]].sum()))
    return _names(tokens, words)[best]


def _names(tokens: Sequence[str], words: Sequence[Sequence[int]]) -> tuple[str, ...]:
    """The words as the figure writes them. The last token is END."""
    texts = ["".join(tokens[i] for i in word).strip(BLANKS) for word in words]
    return (*(plotting.visible(text) if text else "␣" for text in texts[:-1]), "END")


def _sentence(
    prompt: str,
    tokens: Sequence[str],
    heads: tuple[str, ...],
    weights: Float[np.ndarray, "head token"],
) -> plotting.Sentence:
    words = word_groups(tokens)
    names = _names(tokens, words)
    return plotting.Sentence(
        title=f"“{prompt.strip()}”",
        rows=heads,
        words=names,
        values=np.stack([weights[:, word].sum(1) for word in words], axis=1),
        marked=tuple(name.isdecimal() for name in names),
    )


def word_groups(tokens: Sequence[str]) -> list[list[int]]:
    """The indices of the tokens of each word, in order.

    Pieces of one word are joined. Digits, blanks, signs and special tokens stay alone, and so does
    the last token, END.
    """
    words: list[list[int]] = []
    open_word = False
    for index, token in enumerate(tokens):
        letters = token.strip(BLANKS).isalpha() and index < len(tokens) - 1
        if letters and open_word and token[0] not in BLANKS:
            words[-1].append(index)
        else:
            words.append([index])
        open_word = letters
    return words


def notes(run: Run) -> list[str]:
    """The data of the figure."""
    return [
        f"Model: {run.config['model']}. Heads by the strength of their effect on the answer's "
        f"logit in single-digit calculations, seed {run.config['seed']}. Blue and printed: the "
        "weight in percent that END, the last token, gives to each token, from 1% on. Pieces of a "
        "word are one cell with their sum; digits (framed) and blanks (␣) are cells of their own."
    ]
