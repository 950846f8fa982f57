"""On what is tuned, and what is asked before and after: of the closed world, or of benchmarks."""

import random
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

import arith_lens as al
from arith_lens.answers import Answers, Question
from arith_lens.benchmarks import training_parts
from arith_lens.benchmarks.training import TrainingPart, to_dataset
from arith_lens.evaluation import EvaluationResult
from arith_lens.paper import BENCHMARKS
from arith_lens.reference.sets import Line, load_set, world_questions
from experiments.does_tuning_help.settings import VALIDATION

END_OF_ANSWER = "\n"
"""What follows an answer in the closed world. It is learned with the answer: a model that is tuned
on bare answers forgets to stop, and "17" becomes "171". EOS, which the shipped models have never
seen, is not appended: to learn that token costs more than to learn word problems."""

Told: TypeAlias = dict[str, Any]
"""What a run keeps beside answers, in JSON's values."""


@dataclass(frozen=True)
class World:
    """Tuning and evaluation within the closed world's frozen sets."""

    examples: int  # to tune on, drawn with the training's seed; 0: all
    questions: int  # of each family of word problems, from the test set; 0: all
    end_with_eos: ClassVar[bool] = False

    def tuning_set(self, seed: int) -> list[Line]:
        """Word problems with answers; validation and test problems are others."""
        lines = load_set("word_problems_tuning")
        random.Random(f"tuning {seed}").shuffle(lines)
        lines = lines[: self.examples or None]
        return [{**line, "answer": line["answer"] + END_OF_ANSWER} for line in lines]

    def asked(self) -> list[Question]:
        """Validation word problems, to choose rates on, then the test questions."""
        validation = [
            replace(question, task=VALIDATION + question.task)
            for question in world_questions("word_problems_validation")
        ]
        return validation + self.test_questions()

    def test_questions(self) -> list[Question]:
        """Test word problems and the generic tasks."""
        families: dict[str, list[Question]] = defaultdict(list)
        for question in world_questions("word_problems_test"):
            families[question.task].append(question)
        test = [q for listed in families.values() for q in listed[: self.questions or None]]
        return test + world_questions("generic_test")

    def ask(self, model: Any, _keep: Path) -> tuple[Answers, Told]:
        """How a model answers all of them."""
        return al.answer_questions(model, self.asked(), whole_words=False), {}

    def described(self) -> list[str]:
        """What is tuned on and asked, in words."""
        there = len(load_set("word_problems_tuning"))
        asked = self.asked()
        test = sum(not question.task.startswith(VALIDATION) for question in asked)
        return [
            f"tuned on {self.n_examples:,} of {there:,} word problems of the closed world",
            f"asked before and after: {len(asked) - test:,} validation word problems, to choose "
            f"rates on; {test:,} test questions",
        ]

    @property
    def n_examples(self) -> int:
        """Of a training."""
        there = len(load_set("word_problems_tuning"))
        return min(self.examples or there, there)


@dataclass(frozen=True)
class Benchmarks:
    """The paper's: the train parts of four sets of word problems, and six benchmarks.

    SVAMP, AddSub and SingleEq are asked in their test parts: the whole sets hold the train parts.
    """

    data_dir: Path
    examples: int  # to tune on, drawn with the training's seed; 0: all
    questions: int  # the first so many of each benchmark; 0: all
    names: tuple[str, ...] = BENCHMARKS
    shots: Mapping[str, int] = field(default_factory=dict)  # as `evaluate` has them where not given
    max_new_tokens: int | None = None
    end_with_eos: ClassVar[bool] = True

    def tuning_set(self, seed: int) -> list[Line]:
        """Questions with their worked solutions; none is in a test set."""
        lines: list[Any] = [*self._trained]
        random.Random(f"tuning {seed}").shuffle(lines)
        return [
            {"task": line["source"], "prompt": line["prompt"], "answer": line["answer"]}
            for line in lines[: self.examples or None]
        ]

    def ask(self, model: Any, keep: Path) -> tuple[Answers, Told]:
        """How a model answers the benchmarks, and how they were asked.

        Parts are kept in a run under `keep` as they come: asking takes longer than a training.
        """
        with al.open_run("asked", {}, model=model, root=keep) as run:
            result = al.evaluate(
                model,
                self.names,
                limit=self.questions or None,
                data_dir=self.data_dir,
                held_out=True,
                shots=self.shots or None,
                max_new_tokens=self.max_new_tokens,
                too_long="truncate",
                run=run,
            )
        return result.answers, asked_how(result)

    def described(self) -> list[str]:
        """What is tuned on and asked, in words: reads all data, as a training would."""
        from arith_lens.evaluation.harness import build

        lines = [f"tuned on {self.n_examples:,} solved word problems of {self.data_dir}:"]
        lines += [f"  {line}" for part in self._parts for line in str(part).splitlines()]
        built = build(self.names, data_dir=self.data_dir, shots=self.shots or None, held_out=True)
        lines.append("asked before and after each training:")
        families: dict[str, list[Any]] = defaultdict(list)
        for task, of in built.tasks.items():
            families[_family(task)].append(of)
        for name, tasks in families.items():
            asked = sum(min(len(t.eval_docs), self.questions or len(t.eval_docs)) for t in tasks)
            subjects = f" on {len(tasks)} subjects" if len(tasks) > 1 else ""
            shots = {int(task.config.num_fewshot or 0) for task in tasks}
            lines.append(f"  {name}: {asked:,} questions{subjects}, {_joined(shots)} shots")
        return lines

    @property
    def n_examples(self) -> int:
        """Of a training."""
        return min(self.examples or len(self._trained), len(self._trained))

    @cached_property
    def _parts(self) -> list[TrainingPart]:
        return training_parts(data_dir=self.data_dir)

    @cached_property
    def _trained(self) -> list[Mapping[str, Any]]:
        return [*to_dataset(self._parts)]  # pyright: ignore[reportReturnType]


def asked_how(result: EvaluationResult) -> Told:
    """What decided the answers: shots, and prompts that were cut on their left, by benchmark."""
    shots: dict[str, set[int]] = defaultdict(set)
    cut: dict[str, int] = defaultdict(int)
    for task, about in result.settings["tasks"].items():
        name = _family(task)
        shots[name].add(about["shots"])
        cut[name] += about["truncated"]
    return {
        "shots": {name: _joined(found) for name, found in shots.items()},
        "cut": {name: count for name, count in cut.items() if count},
        "doubtful": sum(map(bool, result.flag)),
        "harness": result.settings["harness"],
    }


def _family(task: str) -> str:
    """MMLU's subjects are one benchmark."""
    return "mmlu" if task.startswith("mmlu") else task


def _joined(counts: set[int]) -> str:
    return ", ".join(map(str, sorted(counts)))
