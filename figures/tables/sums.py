"""The table `sums`: the column addition of a computer, and the digit that each layer writes most.

Keys: case, the name of the prompt; prompt, its text; answer, the right next token; prediction, the
likeliest one; base and column, from 0 for the last one, of the computer's addition; layer, with the
digit that its MLP writes most and digit_class ("C", "A or B", "C±1" or "other").
"""

from collections.abc import Iterator, Mapping
from typing import Any

from arith_lens.effects import Effects
from arith_lens.problems import column_addition
from arith_lens.runs import Run
from experiments import results
from figures.tables.number import Number
from figures.tables.table import QuestionTable, Row, row

BASES = (2, 10)
PROBABILITY, MARGIN = "probability of the prediction", "margin over the second digit"
COLUMNS = ("carry", "A", "B", "sum")
STEP = "sum after this column"
FROM_LAYER = "first layer from which on C stays first"
OTHERS_BEFORE = "layers before C stays first that write none of A, B, C and C±1"


def table(run: Run, /) -> QuestionTable:
    """The rows of a run of `like_a_computer`. Raises RunError if it is damaged."""
    rows: list[Row] = []
    for case in results.SUM_COSINES.labels(run):
        facts = results.SUM_COSINES.facts(run, case)
        keys = {"case": case, "prompt": facts["text"]}
        keys |= {"answer": facts["answer"], "prediction": facts["said"]}
        rows.append(row(PROBABILITY, Number(facts["probability"]), **keys))
        for base in BASES:
            rows += _addition_rows(facts["a"], facts["b"], base, **keys)
        rows += layer_rows(results.SUM_COSINES.load(run, case), facts, **keys)
    return QuestionTable.of("sums", str(run.config["model"]), rows)


def _addition_rows(a: int, b: int, base: int, **keys: str) -> Iterator[Row]:
    """Each column's carry, digits and sum, and the number in the columns up to it."""
    added = column_addition(a, b, base)
    for name, digits in zip(COLUMNS, (added.carries, added.a, added.b, added.result), strict=True):
        for column, digit in enumerate(reversed(digits)):
            yield row(name, Number(digit, unit="count"), **keys, base=base, column=column)
    for column, so_far in enumerate(added.steps):
        yield row(STEP, Number(so_far, unit="count"), **keys, base=base, column=column)


def layer_rows(cosines: Effects, facts: Mapping[str, Any], **keys: str) -> Iterator[Row]:
    """The digit that each layer writes most, its class, and its margin over the next digit."""
    of_prompt = cosines.per_pair[..., 0]
    first, second = of_prompt.topk(2, dim=1).values.T
    digits = of_prompt.argmax(1).tolist()
    kinds = [_kind(digit, facts) for digit in digits]
    for layer, margin in enumerate((first - second).tolist()):
        of_layer = {"layer": layer, "digit": str(digits[layer]), "digit_class": kinds[layer]}
        yield row(MARGIN, Number(margin, unit="cosine"), **keys, **of_layer)
    start = max((layer + 1 for layer, kind in enumerate(kinds) if kind != "C"), default=0)
    if start < len(kinds):
        yield row(FROM_LAYER, Number(start, unit="layers"), **keys)
        before = Number(kinds[:start].count("other"), unit="count")
        yield row(OTHERS_BEFORE, before, **keys)


def _kind(digit: int, facts: Mapping[str, Any]) -> str:
    answer = int(facts["answer"])
    if digit == answer:
        return "C"
    if str(digit) in f"{facts['a']}{facts['b']}":
        return "A or B"
    return "C±1" if abs(digit - answer) == 1 else "other"
