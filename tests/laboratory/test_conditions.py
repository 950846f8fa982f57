"""Sums of several kinds, and the rows of a table as they are written."""

from pathlib import Path

import pandas as pd
import pytest

import arith_lens as al
from arith_lens.auditing.measures import Measure
from laboratory.conditions import KINDS, sums
from laboratory.rows import of_measure, write_rows


@pytest.mark.parametrize("kind", KINDS)
def test_the_prompts_of_a_kind_ask_what_its_name_says(kind: str) -> None:
    model = al.load_model("reference")
    pairs = sums(model, kind, 12)
    text, operands, totals, digit = KINDS[kind]
    assert pairs.reference_text is not None
    assert len(pairs) == 12 == len({*pairs.problem})
    for row, problem in enumerate(pairs.problem):
        a, b = map(int, problem.split(" + "))
        assert a in operands and b in operands and a + b in totals
        example, prompt = str(pairs.reference_text[row]).split("\n")
        known = prompt.removeprefix(text.format(a, b))
        answer = model.tokenizer.decode(pairs.answer[row])
        assert (known + answer).endswith(str(a + b)[: len(known) + 1])
        assert answer == str(a + b)[digit] and len(known) == digit % len(str(a + b))
        assert sum_of(example) != a + b and pairs.answer[row] != pairs.counterfactual_answer[row]


def sum_of(example: str) -> int:
    """The answer at the end of a solved example."""
    return int(example.split()[-1])


def test_rows_are_written_before_the_next_one_is_computed(tmp_path: Path) -> None:
    csv = tmp_path / "rows.csv"

    def rows():
        yield {"heads": "a", **of_measure(Measure(0.5, 0.25, 0.75, n=4))}
        assert pd.read_csv(csv).to_dict("records") == [
            {"heads": "a", "value": 0.5, "low": 0.25, "high": 0.75, "n": 4}
        ]
        yield {"heads": "b", **of_measure(Measure(1.0, 0.9, 1.0, n=4))}

    write_rows(rows(), csv)
    assert pd.read_csv(csv).heads.tolist() == ["a", "b"]
