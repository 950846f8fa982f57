"""`evaluate`: a model answers benchmarks, through the lm-evaluation-harness.

An `EvaluationResult` has the answers, question by question, with everything that decided them.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Unpack

import torch
from jaxtyping import Float, Int
from torch import Tensor

from arith_lens.answers import AccuracyChange, Answers
from arith_lens.arrays import Arrays, joined_arrays
from arith_lens.benchmarks import gold_answer, right_number
from arith_lens.components import NamedHook
from arith_lens.hooks import describe_hooks, hooks_digest
from arith_lens.model import load_model
from arith_lens.options import refuse_unknown_options, value_object
from arith_lens.runs import ResultSlot, Run

if TYPE_CHECKING:
    from pandas import DataFrame

KIND = "evaluation"


@dataclass(frozen=True, eq=False)
class EvaluationResult:
    """The outcome of an evaluation, with one entry per question, task by task."""

    answers: Answers
    """The model's answer, the expected answer, and whether it is right. Numbers are compared by
    their value; of choices the most likely is the answer, as in the harness."""
    number: Int[Tensor, " question"]
    """The number of the question in its task's data, from 0."""
    flag: tuple[str, ...]
    """Why the gold answer is not reliable; "" if it is."""
    scores: Mapping[str, Float[Tensor, " question"]]
    """The harness's own metrics by `<metric>,<filter>`; NaN for tasks without them."""
    settings: Mapping[str, Any]
    """What decided the numbers: for each task the prompt, shots, extractor, and digests of data and
    prompts; also groups, hooks, model, versions and seed."""
    seconds: Mapping[str, float]
    """The time for each task's prompts."""

    def __len__(self) -> int:
        return len(self.answers)

    @property
    def tasks(self) -> tuple[str, ...]:
        """The valid names of `task`: tasks, groups, and kinds within a task."""
        return tuple(
            dict.fromkeys([*self.settings["groups"], *self.settings["tasks"], *self.answers.task])
        )

    def task(self, name: str, *, trusted: bool = False) -> Answers:
        """The answers of a task or group.

        Args:
            name: one of `tasks`.
            trusted: whether to leave out questions whose gold answer is flagged.

        Raises:
            KeyError: there is no such task. The message lists all names.
        """
        return self.answers.select(
            [
                inside and not (trusted and flag)
                for inside, flag in zip(self._inside(name), self.flag, strict=True)
            ]
        )

    def change_to(
        self, after: "EvaluationResult", name: str | None = None, *, trusted: bool = False
    ) -> AccuracyChange:
        """Compare with another result, question by question, with McNemar's test.

        Raises:
            ValueError: the questions or their settings (prompt, shots, data) differ.
            KeyError: there is no such task.
        """
        for task, before in self.settings["tasks"].items():
            now = after.settings["tasks"].get(task)
            differ = [key for key in before if now is None or before[key] != now.get(key)]
            if differ:
                raise ValueError(
                    f"expected {task} asked in one way before and after, found another "
                    f"{', '.join(differ)}; evaluate both with the same arguments"
                )
        if name is None:
            return self.answers.change_to(after.answers)
        return self.task(name, trusted=trusted).change_to(after.task(name, trusted=trusted))

    def harness(self) -> "dict[str, dict[str, float]]":
        """The harness's own numbers: for each task, the mean of each metric."""
        by_task: dict[str, dict[str, float]] = {}
        for task in self.settings["tasks"]:
            inside = torch.tensor(self._inside(task))
            means = {name: values[inside].mean() for name, values in self.scores.items()}
            by_task[task] = {name: float(mean) for name, mean in means.items() if not mean.isnan()}
        return by_task

    def summary(self) -> "DataFrame":
        """One row per task and group: questions, right, accuracy and its interval, the same without
        flagged golds, shots, seconds, and the harness's numbers."""
        from pandas import DataFrame

        numbers = self.harness()
        rows = []
        for name in self.tasks:
            answers, trusted = self.task(name), self.task(name, trusted=True)
            if not len(answers):
                continue
            (low, high), of = answers.ci(), self._leaves(name)
            row = {"task": name, "questions": len(answers), "right": int(answers.correct.sum())}
            row |= {"accuracy": answers.accuracy, "low": low, "high": high}
            row |= {"flagged": len(answers) - len(trusted), "trusted": trusted.accuracy}
            row |= {
                "shots": ", ".join(sorted({str(self.settings["tasks"][t]["shots"]) for t in of}))
            }
            took = sum(self.seconds.get(t, 0.0) for t in of)
            row |= {"seconds": float("nan") if "/" in name else took}
            rows.append(row | numbers.get(name, {}))
        return DataFrame(rows)

    def _leaves(self, name: str) -> tuple[str, ...]:
        return tuple(self.settings["groups"].get(name, (name.split("/")[0],)))

    def _inside(self, name: str) -> list[bool]:
        if name not in self.tasks:
            raise KeyError(f"expected a task of {', '.join(self.tasks)}, found {name!r}")
        if "/" in name:
            return [task == name for task in self.answers.task]
        leaves = self._leaves(name)
        return [task.split("/")[0] in leaves for task in self.answers.task]

    def __str__(self) -> str:
        lines = []
        for name in self.tasks:
            answers, trusted = self.task(name), self.task(name, trusted=True)
            line = f"{name}: {answers.score}"
            if len(trusted) < len(answers):
                line += (
                    f"; {trusted.accuracy:.1%} without {len(answers) - len(trusted)} doubtful golds"
                )
            lines.append(line)
        return "\n".join(lines)

    def to_arrays(self) -> Arrays:
        """The arrays for a file; `from_arrays` reads them."""
        own = {"number": self.number, **{f"scores.{k}": v for k, v in self.scores.items()}}
        header = {"flag": list(self.flag), "scores": list(self.scores)}
        header |= {"settings": self.settings, "seconds": self.seconds}
        return joined_arrays(KIND, {"answers": self.answers.to_arrays()}, own, header)

    @classmethod
    def from_arrays(cls, arrays: Arrays) -> "EvaluationResult":
        """Read the arrays of `to_arrays`. Raises ValueError for another kind of result."""
        arrays.require(KIND)
        header = arrays.header
        return cls(
            Answers.from_arrays(arrays.part("answers")),
            arrays.tensors["number"],
            tuple(header["flag"]),
            {name: arrays.tensors[f"scores.{name}"] for name in header["scores"]},
            header["settings"],
            header["seconds"],
        )

    def to_dataframe(self) -> "DataFrame":
        """One row per question: task, number, expected, said, correct, flag, harness's metrics."""
        frame = self.answers.to_dataframe()
        frame.insert(1, "number", self.number.tolist())
        frame["flag"] = list(self.flag)
        for name, values in self.scores.items():
            frame[name] = values.tolist()
        return frame


@dataclass(frozen=True)
class Prompting:
    """How the questions are asked; `evaluate` explains each option."""

    held_out: bool = False
    shots: int | Mapping[str, int] | None = None
    seed: int = 1234


@dataclass(frozen=True)
class Decoding:
    """How answers are written; `evaluate` explains each option."""

    hook_steps: Literal["all", "prompt"] = "all"
    max_new_tokens: int | None = None
    too_long: Literal["error", "truncate"] = "error"
    batch_size: int | None = None


@dataclass(frozen=True)
class Entry:
    """What a run notes of a result."""

    name: str = "evaluation"
    """The name of the result."""
    facts: Mapping[str, Any] | None = None
    """Other JSON values."""


class EvaluationOptions(TypedDict, total=False):
    """The options of `evaluate`."""

    held_out: bool
    shots: int | Mapping[str, int] | None
    seed: int
    hook_steps: Literal["all", "prompt"]
    max_new_tokens: int | None
    too_long: Literal["error", "truncate"]
    batch_size: int | None
    name: str
    facts: Mapping[str, Any] | None


def evaluate(
    model: Any,
    tasks: str | Sequence[str],
    *,
    hooks: Iterable[NamedHook] = (),
    limit: int | None = None,
    data_dir: str | Path | None = None,
    run: Run | None = None,
    progress: bool = True,
    **options: Unpack[EvaluationOptions],
) -> EvaluationResult:
    """Ask a model the questions of benchmarks, with or without interventions.

    The lm-evaluation-harness makes the prompts and scores the answers. It uses its own tasks
    (`gsm8k`, `commonsense_qa`, `mmlu`, `mmlu_humanities`, ...) and tasks of this package in its
    format (`svamp`, `addsub`, `singleeq`; `world_word_problems`, `world_generic` and
    `world_two_digit` for the shipped models). Choices are compared by likelihood. A number is read
    from the text by one rule (`arith_lens.benchmarks`) and compared by its value; the harness's own
    metrics are in `scores`.

    Args:
        model: a HookedModel, or an argument of `load_model`: a directory (also of a tuned model), a
            hub id, a shipped model's name, `(hf_model, tokenizer)`.
        tasks: one name or several.
        hooks: interventions that act during the answers, such as `knockout_hooks(...)`. They need a
            loaded model.
        hook_steps: as in `HookedModel.generate`; "prompt" for hooks with positions.
        limit: the number of questions per task (per subject of MMLU); the first ones are used, as
            in the harness. None: all.
        data_dir: the folder of gsm8k/, svamp/, addsub/, singleeq/, mmlu/, csqa/ as published. None:
            the hub, which has neither AddSub nor SingleEq.
        held_out: whether to ask only the test parts of SVAMP, AddSub and SingleEq, for models that
            were trained on the train parts (`training_set`).
        shots: the number of worked examples before each question, for all tasks or by task. None: 8
            for GSM8K, 5 for MMLU, 7 for CommonsenseQA, 8 for the other word problems, none for the
            closed world.
        max_new_tokens: the largest length of a written answer. None: the task's own, mostly 256.
        too_long: whether a prompt beyond the model's context is an error or cut on its left.
        batch_size: the largest number of prompts at once; fewer if memory is short.
        seed: the seed of the shots that the harness draws (GSM8K, CommonsenseQA).
        run: an open run that stores answers as they are finished, so a killed evaluation continues.
        name: the name of the result in the run.
        facts: JSON values to store in the run, such as which heads are out.
        progress: whether to show a progress bar with the remaining time.

    Raises:
        ImportError: the harness is not installed.
        TypeError: there are hooks, but no loaded model; or an option does not exist.
        ValueError: a task is unknown, a limit or shots are not valid, a prompt is too long, or
            files have another schema.
        FileNotFoundError: the data folder lacks a file, or the hub cannot be reached.
        ConnectionError: the hub cannot be reached for a task that only the harness can read.

    Example:
        >>> import arith_lens as al
        >>> model = al.load_model("reference")
        >>> result = al.evaluate(model, ["world_two_digit"], limit=2, progress=False)
        >>> print(result)                          # right, of how many, Wilson's interval
        world_two_digit: 2 of 2 right, 100.0% (34.2% to 100.0%)
        ...
    """
    refuse_unknown_options(evaluate, options, Prompting, Decoding, Entry)
    prompting, decoding = value_object(Prompting, options), value_object(Decoding, options)
    entry = value_object(Entry, options)
    _check_harness()
    hooks = list(hooks)
    max_new_tokens, batch_size = decoding.max_new_tokens, decoding.batch_size
    _check_counts(limit=limit, max_new_tokens=max_new_tokens, batch_size=batch_size)
    from arith_lens.evaluation import harness
    from arith_lens.evaluation.hooked_lm import HookedLM

    names = [tasks] if isinstance(tasks, str) else list(tasks)
    built = harness.build(
        names, data_dir=data_dir, max_new_tokens=max_new_tokens, **vars(prompting)
    )
    loaded = _loaded(model, hooks)
    seed, facts = prompting.seed, entry.facts or {}
    settings = harness.settings_of(
        built, loaded, limit=limit, seed=seed, too_long=decoding.too_long
    )
    settings |= {"hooks": describe_hooks(hooks), "hook_steps": decoding.hook_steps}
    question = {
        "evaluation": settings,
        "hooks": hooks_digest(hooks) if run else None,
        "batch_size": batch_size,
    }
    slot = ResultSlot.of(run, entry.name, loaded, None, **question)
    if (arrays := slot.stored(progress=progress, **facts)) is not None:
        return EvaluationResult.from_arrays(arrays)
    lm = HookedLM(
        loaded,
        hooks,
        hook_steps=decoding.hook_steps,
        batch_size=batch_size,
        too_long=decoding.too_long,
        slot=slot,
        progress=progress,
    )
    samples = harness.run(lm, built, limit=limit)
    return slot.save(read_samples(samples, built.tasks, settings, lm), **facts)


def _check_harness() -> None:
    if find_spec("lm_eval") is None:
        raise ImportError(
            "expected the lm-evaluation-harness, found none installed; install the extra: "
            "pip install 'arith-lens[evaluation]'"
        )


def _check_counts(**counts: int | None) -> None:
    for name, count in counts.items():
        if count is not None and (isinstance(count, bool) or count < 1):
            raise ValueError(f"expected {name} of 1 or more, or None, found {count!r}")


def _loaded(model: Any, hooks: Sequence[NamedHook]) -> Any:
    if not isinstance(model, str | Path | tuple):
        return model
    if hooks:
        source = model if isinstance(model, str | Path) else "a model in memory"
        raise TypeError(
            f"expected a loaded model with hooks, found {source!r}: what hooks put in place was "
            "measured on a model, and acts on that one; model = load_model(...), make the hooks "
            "with it, and pass it"
        )
    return load_model(model)


LoggedSample = Mapping[str, Any]


def read_samples(
    samples: Mapping[str, Sequence[LoggedSample]],
    tasks: Mapping[str, Any],
    settings: Mapping[str, Any],
    lm: Any,
) -> EvaluationResult:
    """The outcomes of all tasks, in the order of the tasks and of their questions."""
    from arith_lens.evaluation.harness import questions_digest

    rows: list[tuple[bool, str, str, str, int, str, dict[str, float]]] = []
    about_tasks = {}
    for name, task in tasks.items():
        by_number = _by_question(samples[name])
        for number, of in by_number.items():
            doc = of[0]["doc"]
            label = f"{name}/{doc['kind']}" if "kind" in doc else name
            flag = doc.get("flag", "")
            rows.append((*_outcome(task, of[0]), label, number, flag, _scores(of)))
        prompts = ({"prompt": of[0]["arguments"][0][0]} for of in by_number.values())
        about_tasks[name] = {
            **settings["tasks"][name],
            "prompts_sha256": questions_digest(prompts),
            "truncated": int(lm.truncated[name]),
        }
    correct, written, expected, label, number, flag, scores = zip(*rows, strict=True)
    columns = {
        name: torch.tensor([of.get(name, float("nan")) for of in scores], dtype=torch.float64)
        for name in dict.fromkeys(score for of in scores for score in of)
    }
    return EvaluationResult(
        Answers(torch.tensor(correct), written, expected, label),
        torch.tensor(number),
        flag,
        columns,
        {**settings, "tasks": about_tasks},
        dict(lm.seconds),
    )


def _by_question(samples: Sequence[LoggedSample]) -> dict[int, list[LoggedSample]]:
    """The samples of each question, one per filter."""
    by_number: dict[int, list[LoggedSample]] = {}
    for sample in samples:
        by_number.setdefault(int(sample["doc_id"]), []).append(sample)
    return dict(sorted(by_number.items()))


def _scores(of: Sequence[LoggedSample]) -> dict[str, float]:
    return {
        f"{metric},{sample['filter']}": float(sample[metric])
        for sample in of
        for metric in sample["metrics"]
        if isinstance(sample[metric], int | float)
    }


def _outcome(task: Any, sample: LoggedSample) -> tuple[bool, str, str]:
    """Whether the answer is right, the answer, and the expected answer."""
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


def _chosen(task: Any, sample: LoggedSample) -> tuple[bool, str, str]:
    choices = task.doc_to_choice(sample["doc"])
    likelihoods = [float(response[0][0]) for response in sample["resps"]]
    choice = choices[max(range(len(choices)), key=likelihoods.__getitem__)]
    target = sample["target"]
    return bool(sample["acc"]), choice, choices[target] if isinstance(target, int) else str(target)
