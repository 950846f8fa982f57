"""What the harness logged of each question, as an EvaluationResult."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from arith_lens.answers import Answers
from arith_lens.benchmarks import gold_answer
from arith_lens.evaluation.harness import Built
from arith_lens.evaluation.result import EvaluationResult
from arith_lens.evaluation.scoring import right_number
from arith_lens.evaluation.settings import digest

Sample = Mapping[str, Any]


def read_samples(
    samples: Mapping[str, Sequence[Sample]], built: Built, settings: Mapping[str, Any], lm: Any
) -> EvaluationResult:
    """The outcomes of all tasks, in the order of the tasks and of their questions."""
    told: list[tuple[bool, str, str, str]] = []
    numbers: list[int] = []
    flags: list[str] = []
    scores: list[dict[str, float]] = []
    prompts = {}
    for name, task in built.tasks.items():
        by_number = _by_question(samples[name])
        prompts[name] = digest({"prompt": _prompt(of[0])} for of in by_number.values())
        for number, of in by_number.items():
            doc = of[0]["doc"]
            label = f"{name}/{doc['kind']}" if "kind" in doc else name
            told.append((*_outcome(task, of[0]), label))
            numbers.append(number)
            flags.append(doc.get("flag", ""))
            scores.append(_scores(of))
    correct, said, expected, label = zip(*told, strict=True)
    names = dict.fromkeys(score for of in scores for score in of)
    tasks = {
        name: {
            **about,
            "prompts_sha256": prompts[name],
            "truncated": int(lm.truncated[name]),
        }
        for name, about in settings["tasks"].items()
    }
    return EvaluationResult(
        Answers(torch.tensor(correct), tuple(said), tuple(expected), tuple(label)),
        torch.tensor(numbers),
        tuple(flags),
        {n: _column(scores, n) for n in names},
        {**settings, "tasks": tasks},
        dict(lm.seconds),
    )


def _by_question(samples: Sequence[Sample]) -> dict[int, list[Sample]]:
    """The samples of each question, one a filter."""
    found: dict[int, list[Sample]] = {}
    for sample in samples:
        found.setdefault(int(sample["doc_id"]), []).append(sample)
    return dict(sorted(found.items()))


def _prompt(sample: Sample) -> str:
    return sample["arguments"][0][0]


def _scores(of: Sequence[Sample]) -> dict[str, float]:
    return {
        f"{metric},{sample['filter']}": float(sample[metric])
        for sample in of
        for metric in sample["metrics"]
        if isinstance(sample[metric], int | float)
    }


def _column(scores: Sequence[Mapping[str, float]], name: str) -> torch.Tensor:
    values = [of.get(name, float("nan")) for of in scores]
    return torch.tensor(values, dtype=torch.float64)


def _outcome(task: Any, sample: Sample) -> tuple[bool, str, str]:
    """Whether it is right, what was said, what was expected."""
    if task.OUTPUT_TYPE == "multiple_choice":
        return _chosen(task, sample)
    text, target = sample["resps"][0][0], str(sample["target"])
    if "follows" in sample:  # the closed world's
        return bool(sample["follows"]), text, target.strip()
    if "number" in sample:
        return bool(sample["number"]), text, target
    if "####" in target:  # GSM8K's
        return right_number(text, target), text, gold_answer(target)
    metric = sample["metrics"][0]  # of another task of the harness: its own verdict
    return bool(sample[metric]), text, target


def _chosen(task: Any, sample: Sample) -> tuple[bool, str, str]:
    choices = task.doc_to_choice(sample["doc"])
    likelihoods = [float(response[0][0]) for response in sample["resps"]]
    said = choices[max(range(len(choices)), key=likelihoods.__getitem__)]
    target = sample["target"]
    return bool(sample["acc"]), said, choices[target] if isinstance(target, int) else str(target)
