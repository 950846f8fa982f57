"""Was a text the answer? The metrics of the tasks that this package adds to the harness."""

from collections.abc import Mapping, Sequence
from typing import Any

from arith_lens.answers import Question
from arith_lens.answers.answering import is_right
from arith_lens.benchmarks import gold_answer, parse_number, same_number
from arith_lens.benchmarks.parsing import TOLERANCE

EXTRACTOR = f"arith_lens.benchmarks.parse_number, right within {TOLERANCE}"


def number(doc: Mapping[str, Any], results: Sequence[str]) -> dict[str, int]:
    """Whether the number that the text gives as its answer is the gold one."""
    return {"number": int(right_number(results[0], doc["answer"]))}


def right_number(text: str, gold: str) -> bool:
    """Whether a text gives the gold answer, written as a number or as GSM8K writes a solution."""
    written = gold_answer(gold) if "####" in gold else gold
    return same_number(parse_number(text), float(written.replace(",", "")))


def follows(doc: Mapping[str, Any], results: Sequence[str]) -> dict[str, int]:
    """Whether the text starts with the answer, as the model cards of the closed world count."""
    asked = Question(doc["prompt"], doc["answer"])
    return {"follows": int(is_right(results[0], asked, whole_words=False))}
