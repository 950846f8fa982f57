"""The closed world's word problems as prompt pairs: GSM8K's stand-in for the reference models."""

from typing import Any

from arith_lens.pairs import PromptPairs
from arith_lens.reference.sets import load_set
from arith_lens.reference.word_problems import FAMILIES
from arith_lens.word_problems import Conversion, WordProblem, question_edits, word_problem_pairs


def world_pairs(
    model: Any, family: str | None = None, *, split: str = "test", seed: int = 0
) -> tuple[PromptPairs, Conversion]:
    """Prompt pairs of the closed world's word problems, made as GSM8K's are.

    "How many hats does Diana have now?" becomes "Which nice hats does Diana have now?", at the same
    number of tokens; C is the first digit of the answer, and the family the pair's template. Not
    filtered: see `keep_correct`.

    Args:
        model: a model with a `.tokenizer`, or a tokenizer.
        family: "gain_lose", "compare", "groups" or "two_step"; None: all four.
        split: "test", "validation" or "tuning".
        seed: of the draw among the replacements.

    Raises:
        ValueError: an unknown family or split, or no problem that converts.
    """
    if family is not None and family not in FAMILIES:
        raise ValueError(f"family={family!r}: expected one of {', '.join(FAMILIES)}, or None")
    lines = load_set(f"word_problems_{split}")
    problems = [
        WordProblem(line["prompt"], line["answer"], question_edits(line["prompt"]), line["task"])
        for line in lines
        if family in (None, line["task"])
    ]
    return word_problem_pairs(model, problems, seed=seed)
