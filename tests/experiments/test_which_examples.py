"""Examples before a problem: what each form leaves out, and which form one half chooses."""

from pathlib import Path

import pytest
import torch

import arith_lens as al
from arith_lens.problems import Problem, all_problems
from arith_lens.runs import find_runs
from experiments import results, which_examples
from experiments.which_examples import FORMS, Form, chosen_forms

SUMS = all_problems("addition", answer_digits=1)
PROBLEM = Problem("addition", 3, 5)


def test_the_prompt_is_lines_of_solved_examples() -> None:
    *lines, last = Form(shots=3).prompt(PROBLEM, SUMS, 0).split("\n")
    assert last == "3 + 5 = " and len(lines) == 3
    for line in lines:
        a, _, b, _, c = line.split()
        assert int(a) + int(b) == int(c) != 8
    assert Form("3+5=8", 1).prompt(PROBLEM, SUMS, 0).endswith("\n3+5=")


def test_what_is_left_out() -> None:
    def answers(**form: object) -> set[str]:
        prompt = Form(shots=30, **form).prompt(PROBLEM, SUMS, 0)  # pyright: ignore
        return {line.partition(" = ")[2] for line in prompt.split("\n")[:-1]}

    def lines(**form: object) -> str:
        return Form(shots=35, **form).prompt(PROBLEM, SUMS, 0)  # pyright: ignore

    assert "8" not in answers() and "8" in answers(left_out="operands")
    assert "5 + 3" in lines(left_out="problem") and "5 + 3" not in lines(left_out="operands")
    assert "3 + 5 = 8" not in lines(left_out="problem")


def test_examples_are_the_same_or_each_problems_own() -> None:
    others = Problem("addition", 1, 1), Problem("addition", 2, 1)

    def examples(form: Form, problem: Problem, seed: int = 0) -> list[str]:
        return form.prompt(problem, SUMS, seed).split("\n")[:-1]

    same, own = (
        [examples(Form(shots=2, own=own, left_out="problem"), p) for p in others]
        for own in (False, True)
    )
    assert same[0] == same[1] and own[0] != own[1]
    assert same[0] != examples(Form(shots=2), others[0], 1), "another set"


def test_the_form_of_one_half_is_judged_on_the_other() -> None:
    problems = tuple(map(str, SUMS))
    best, cheat = 2, next(i for i, form in enumerate(FORMS) if not form.strict)
    right = torch.zeros(len(FORMS), len(problems))
    right[best, ::2], right[cheat] = 1, 1
    effects = al.Effects(right, ("form",), "right", problem=problems)
    choices = [*chosen_forms(effects, 0)]
    assert [name for name, _ in choices] == [str(FORMS[best])] * 2
    shares = [float(text.partition("%")[0]) for _, text in choices]
    assert sum(shares) / 2 == pytest.approx(50, abs=1) and shares[0] != 100


def test_a_run_has_every_form(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(which_examples, "FORMS", FORMS[:2])
    config = which_examples.ExamplesConfig(operations=("division",), exemplar_sets=1)
    which_examples.main(config, root=tmp_path)
    (run,) = find_runs("which_examples", root=tmp_path)
    right = results.EXAMPLE_OUTCOMES.load(run, "division")
    assert right.per_pair.shape == (2, 23) and "23 problems" in capsys.readouterr().out
    model = al.load_model("reference")
    prompt = FORMS[1].prompt(Problem("division", 6, 2), all_problems("division"), 0)
    tokens = torch.tensor([model.tokenizer(prompt)["input_ids"]])
    said = model.tokenizer.decode(model(tokens)[0, -1].argmax())
    assert {*(right.template or ())} == {"division/set 0"}, "a slash: sets are one kind of wording"
    at = (right.problem or ()).index("6 / 2")
    assert float(right.per_pair[1, at]) == (said.strip() == "3")
