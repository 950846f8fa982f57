"""What parts do, one function for each kind of table: of heads and of MLPs.

Where answers are no digits, what parts write is read as the task's own answers.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from arith_lens.components import Component, Head, Mlp
from arith_lens.edges import composition
from arith_lens.effects import Effects
from arith_lens.exploration import tables
from arith_lens.explorer_page import Tables
from arith_lens.logit_attribution import logit_attribution
from arith_lens.model import HookedLike
from arith_lens.pairs import PromptPairs, candidate_tokens, pieces, tokenizer_of
from arith_lens.probes import head_probe, mlp_probe

N_ANSWERS = 8
"""Answers that are shown of each part and prompt: C, then those whose logits it raises most."""


def head_parts(
    model: HookedLike,
    pairs: PromptPairs,
    sample: Int[Tensor, " row"],
    heads: Sequence[Component],
    in_full: Sequence[Component],
) -> dict[str, Callable[[], Tables]]:
    """The functions that compute what is shown of heads, by part.

    Args:
        model, pairs: as in `explored`.
        sample: the rows of the prompts that are shown.
        in_full: those whose whole patterns are shown; of the others, the row of END is.
    """
    few = pairs[sample]
    chosen = [head for head in heads if isinstance(head, Head)]
    written = _written(model, pairs, few, chosen) or {
        "numbers": lambda: tables.role_tables(chosen, "write", head_probe(model, pairs, chosen)),
        "digits": lambda: tables.digit_tables(
            chosen, "write", head_probe(model, few, chosen, tokens="digits")
        ),
    }
    return {
        "attention": lambda: tables.attention_tables(model, pairs, chosen),
        "patterns": lambda: {"patterns": tables.pattern_table(model, few, chosen, in_full)},
        **written,
        "inputs": lambda: {"inputs": tables.input_table(composition(model, few, chosen))},
        "mediation": lambda: {"mediation": tables.mediation_table(model, few, chosen)},
    }


def mlp_parts(
    model: HookedLike,
    pairs: PromptPairs,
    sample: Int[Tensor, " row"],
    mlps: Sequence[Component],
    in_full: Sequence[Component] = (),
) -> dict[str, Callable[[], Tables]]:
    """The functions that compute what is shown of MLPs, by part."""
    few, layers = pairs[sample], [mlp.layer for mlp in mlps]

    def numbers(table: Callable[..., Tables], some: PromptPairs, **tokens: Any) -> Tables:
        probes = {
            read: mlp_probe(model, some, read=read, unit="logit", **tokens)
            for read in ("mlp_in", "write")
        }
        return tables.merged(
            table(mlps, read, tables.of_layers(one, layers)) for read, one in probes.items()
        )

    written = _written(model, pairs, few, mlps) or {
        "numbers": lambda: numbers(tables.role_tables, pairs),
        "digits": lambda: numbers(tables.digit_tables, few, tokens="digits"),
    }
    return {
        **written,
        "neurons": lambda: {
            "neurons": tables.neuron_table(model, few, [Mlp(layer) for layer in layers])
        },
    }


def without_digits(model: HookedLike, pairs: PromptPairs) -> bool:
    """Whether the answers are not each one digit."""
    try:
        candidate_tokens(model, pairs.answer.tolist())
    except ValueError:
        return True
    return False


def _written(
    model: HookedLike, pairs: PromptPairs, few: PromptPairs, parts: Sequence[Component]
) -> dict[str, Callable[[], Tables]]:
    """What parts write as answers, where neither answers nor operands are numbers; else nothing."""
    if pairs.operands is not None or not without_digits(model, pairs):
        return {}
    return {"numbers": lambda: _answer_tables(model, few, parts)}


def _answer_tables(model: HookedLike, pairs: PromptPairs, parts: Sequence[Component]) -> Tables:
    """What parts add to the logit of C and, on average, to those of the other answers; and the
    answers that they raise most on each prompt."""
    tokens = pairs.answer_tokens
    added = logit_attribution(model, pairs, tokens)
    rows = (added.labels or {})["component"]
    logits = added.per_pair[[rows.index(str(part)) for part in parts]]
    is_c = torch.tensor(tokens)[:, None] == pairs.answer
    means = [logits.masked_fill(~of, float("nan")).nanmean(1) for of in (is_c, ~is_c)]
    axes, labels = ("part", "token"), {"token": ("C", "other answers")}
    roles = Effects(torch.stack(means, 1), axes, "logit", **pairs.units, labels=labels)
    numbers: Any = tables.role_tables(parts, "write", roles)["numbers"]
    every = Effects(logits, axes, "logit")
    digits: Any = tables.digit_tables(parts, "write", every)["digits"]
    first = is_c.numpy()[digits.digit, digits.prompt] * 1e9 + digits.logit
    digits = digits.loc[first.sort_values(ascending=False).index]
    texts = [tables.spaced(text).strip() for text in pieces(tokenizer_of(model), [tokens]).values()]
    digits = digits.groupby(["component", "prompt"]).head(N_ANSWERS)
    return {
        "numbers": numbers.dropna(subset=["mean"]),
        "digits": digits.assign(digit=[texts[token] for token in digits.digit]),
    }
