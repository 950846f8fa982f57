"""The closed world's word problems as prompt pairs: GSM8K's stand-in for the reference models."""

from collections.abc import Collection
from typing import Any

from arith_lens.pairs import PromptPairs
from arith_lens.reference.rewording import PARTS, world_edits
from arith_lens.reference.sets import load_set
from arith_lens.reference.word_problems import FAMILIES
from arith_lens.word_problems import Conversion, WordProblem, word_problem_pairs


def world_pairs(
    model: Any,
    family: str | None = None,
    *,
    change: Collection[str] = PARTS,
    split: str = "test",
    seed: int = 0,
) -> tuple[PromptPairs, Conversion]:
    """Prompt pairs of the closed world's word problems, aligned as GSM8K's are.

    "Diana has 21 hats. Diana donates 2 hats. How many hats does Diana have now?" becomes "Diana
    knows 21 hats. Diana admires 2 cards. What big cups does Nora have now?", at the same number of
    tokens; C is the first digit of the answer, and the family the pair's template. Not filtered:
    see `keep_correct`, whose `counterfactual_correct` says how often C is answered nevertheless.

    Args:
        model: a model with a `.tokenizer`, or a tokenizer.
        family: "gain_lose", "compare", "groups" or "two_step"; None: all four.
        change: what is reworded, among "question", "operators", "referents" and "possession":
            see `world_edits`.
        split: "test", "validation" or "tuning".
        seed: of the draw among the replacements.

    Raises:
        ValueError: an unknown family, part or split, or no problem that converts.
    """
    if family is not None and family not in FAMILIES:
        raise ValueError(f"family={family!r}: expected one of {', '.join(FAMILIES)}, or None")
    lines = load_set(f"word_problems_{split}")
    problems = [
        WordProblem(
            line["prompt"],
            line["answer"],
            world_edits(line["prompt"], line["task"], change),
            line["task"],
        )
        for line in lines
        if family in (None, line["task"])
    ]
    return word_problem_pairs(model, problems, seed=seed)
