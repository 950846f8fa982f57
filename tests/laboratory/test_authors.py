"""The comparison with other people's code: the same scores agree, and a wrong rule is seen."""

import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch

from arith_lens import load_model
from laboratory.authors import __main__ as authors_main
from laboratory.authors import plain
from laboratory.authors.comparison import own_scores, random_model, rows, task_of
from laboratory.authors.exchange import Result, Task, load_results
from laboratory.speed.measure import Shape, any_tokenizer, random_token_pairs, twin

SHAPE = Shape(3, 32, 4, 48, 60, n_pairs=3, n_tokens=7)
Sides = tuple[Any, Any, Task]


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Sides:
    """The loaded model, its pairs, and the task that the other side reads."""
    hf, pairs = random_model(SHAPE), random_token_pairs(SHAPE)
    task = task_of(twin(hf), pairs, tmp_path_factory.mktemp("task"), rounds=1)
    return load_model((hf, any_tokenizer())), pairs, Task.read(task.folder, 1)


def test_plain_transformers_agrees_and_a_planted_rule_is_seen(sides: Sides) -> None:
    """The other side's scores are the same; with a rule on our side they differ by much."""
    model, pairs, task = sides
    (theirs,) = plain.results(task, "")
    assert theirs.scores is not None and theirs.seconds > 0
    row, *planted = rows(
        model, pairs, task, [theirs, *(replace(theirs, method=one) for one in PLANTED)]
    )
    for part in ("heads", "mlps"):
        largest = row[f"{part}_largest"]
        assert largest > 1e-4 and row[f"{part}_difference"] < 1e-5 * largest
        assert all(one[f"{part}_difference"] > 1e-3 * one[f"{part}_largest"] for one in planted)


PLANTED = ("relp", "products", "attention, norms")
"""What differs from a plain gradient in heads and in MLPs."""


def test_rules_of_a_method_are_those_of_its_name(sides: Sides) -> None:
    model, pairs, _ = sides
    whole = own_scores(model, pairs, "gim")
    rules = own_scores(model, pairs, "norms, softmax, attention, products")
    less = own_scores(model, pairs, "norms, softmax, attention")
    assert torch.allclose(whole["heads"], rules["heads"], rtol=1e-4, atol=1e-6)
    assert not torch.allclose(whole["heads"], less["heads"], rtol=1e-3)


def test_scores_of_another_order_are_seen(sides: Sides) -> None:
    """Heads and pairs exchanged, as a wrong adapter would."""
    model, pairs, task = sides
    scores = own_scores(model, pairs, "atp")
    right = Result("atp", "ours", scores=scores)
    wrong = replace(right, scores={**scores, "heads": scores["heads"].flip(1)})
    first, second = rows(model, pairs, task, [right, wrong])
    assert first["heads_difference"] == 0 and first["heads_r"] == pytest.approx(1)
    assert second["heads_difference"] > 0.1 * second["heads_largest"]
    other = replace(right, scores={**scores, "mlps": scores["mlps"][1:]})
    with pytest.raises(ValueError, match=r"expected scores of \[3, 3\], found \[2, 3\] of mlps"):
        list(rows(model, pairs, task, [other]))


def test_what_is_missing_has_a_row_with_its_name(
    sides: Sides, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, pairs, task = sides
    if find_spec("eap"):
        pytest.skip("EAP-IG is installed")
    file = tmp_path / "results.safetensors"
    monkeypatch.setattr(sys, "argv", ["", "eap_ig", str(task.folder), str(file), "1"])
    authors_main.main()
    (row,) = rows(model, pairs, task, load_results(file))
    assert row["code"] == row["method"] == "eap_ig"
    assert "expected the package eap, found none" in row["missing"]
