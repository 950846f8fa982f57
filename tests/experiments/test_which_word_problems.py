"""Published word problems with one-digit answers: which are used, and what the predictions say."""

from pathlib import Path

import pytest
import torch

import arith_lens as al
from arith_lens.effects import Effects
from arith_lens.pairs.correctness import answer
from arith_lens.runs import find_runs, open_run
from experiments import other_prompts, results
from experiments.other_prompts import which_word_problems
from figures import predictions as exhibit
from figures.tables import predictions

DATA = Path(__file__).parents[1] / "data"


def test_only_questions_whose_whole_answer_is_a_digit(tmp_path: Path) -> None:
    config = which_word_problems.config(data_dir=DATA, datasets=("svamp",))
    which_word_problems(config, root=tmp_path)
    (run,) = find_runs("which_word_problems", root=tmp_path)
    model = al.load_model("reference")
    pairs = other_prompts.one_digit_pairs(model, "svamp", config)
    golds = {record.question.strip(): record.gold for record in al.load_records("svamp", DATA)}
    assert 0 < len(pairs) < len(golds), "not all answers are digits"
    for text, digit in zip(pairs.reference_text or (), pairs.answer_text or (), strict=True):
        assert golds[text.removesuffix(" ").removesuffix(" The answer is")] == digit
    right, _ = answer(model, pairs, "reference", 8)
    assert other_prompts.counts(run, "svamp")[:2] == (len(pairs), int(right.sum()))
    assert "needs 60 pairs: svamp" in exhibit.skipped(run)
    assert not [*predictions.word_problem_outcomes(run, run, ["addition"])]


def test_a_pair_whose_counterfactual_is_still_answered_is_not_used(tmp_path: Path) -> None:
    right = torch.tensor([[1, 1, 1, 0], [0, 1, 0, 1]]).float()
    outcomes = Effects(
        torch.stack([right, right], dim=1), ("side", "measure"), "share", problem=tuple("abcd")
    )
    with open_run("which_word_problems", {"datasets": ["svamp"]}, root=tmp_path) as run:
        results.ANSWER_PROBABILITY.save(run, outcomes, "svamp")
    assert other_prompts.counts(run, "svamp") == (4, 3, 2)


def test_layers_of_reading_and_writing_are_set_side_by_side(tmp_path: Path) -> None:
    noise = 1 + 0.01 * torch.linspace(-1, 1, 6)
    roles = ("A", "B", "C", "others without C", "others without A, B, C")

    def probe(*curves: list[float]) -> Effects:
        values = torch.tensor(curves).T[..., None] * noise
        labels = {"token": roles}
        return Effects(values, ("layer", "token"), "x", problem=tuple("abcdef"), labels=labels)

    flat, reads, writes = [0.0] * 8, [0.0, 0, 1, 0, 0, 0, 0, 0], [0.0, 0, 0, 0, 0, 1, 1, 1]
    config = {"operations": ["addition"]}
    with open_run("what_do_mlps_add", config, root=tmp_path) as run:
        results.PROBE.save(run, probe(reads, reads, flat, flat, flat), "addition", "mlp_in")
        results.PROBE.save(run, probe(flat, flat, writes, flat, flat), "addition", "write")
        results.PROBE.save(run, probe(flat, flat, writes, flat, flat), "addition", "logit")
    rise, apart = predictions.written_outcomes(run, ["addition"])
    assert rise.number.value == pytest.approx(1, abs=1e-3)
    assert rise.keys["verdict"] == "holds here"
    assert (apart.number.value, apart.keys["verdict"]) == (3, "does not hold here")
