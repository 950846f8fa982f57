"""A model's answers to benchmarks, question by question, with everything that decided them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from arith_lens.answers import AccuracyChange, Answers
from arith_lens.arrays import Arrays, joined_arrays

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
