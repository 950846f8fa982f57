"""On what is tuned, and what is asked before and after: of the closed world, or of benchmarks."""

import random
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import arith_lens as al
from arith_lens.answers import Answers, Question
from arith_lens.benchmarks import load_records, training_set
from arith_lens.benchmarks.record import normalised
from arith_lens.evaluation import EvaluationResult
from arith_lens.paper import BENCHMARKS
from arith_lens.reference.questions import world_questions
from arith_lens.reference.sets import Line, load_set
from experiments.does_tuning_help.settings import VALIDATION

END_OF_ANSWER = "\n"
"""What follows an answer in the closed world. It is learned with the answer: a model that is tuned
on bare answers forgets to stop, and "17" becomes "171". EOS, which the shipped models have never
seen, is not appended: to learn that token costs more than to learn word problems."""


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

    def ask(self, model: Any) -> Answers:
        """How a model answers all of them."""
        return al.answer_questions(model, self.asked(), whole_words=False)


@dataclass(frozen=True)
class Benchmarks:
    """The paper's: the train parts of four sets of word problems, and six benchmarks."""

    data_dir: Path
    examples: int  # to tune on, drawn with the training's seed; 0: all
    questions: int  # the first so many of each benchmark; 0: all
    end_with_eos: ClassVar[bool] = True

    def tuning_set(self, seed: int) -> list[Line]:
        """Questions with their worked solutions; none is in a test set."""
        lines: list[Any] = [*self._trained]
        random.Random(f"tuning {seed}").shuffle(lines)
        return [
            {"task": line["source"], "prompt": line["prompt"], "answer": line["answer"]}
            for line in lines[: self.examples or None]
        ]

    def ask(self, model: Any) -> Answers:
        """How a model answers the benchmarks' questions, those of the train parts left out."""
        result = al.evaluate(
            model, BENCHMARKS, data_dir=self.data_dir, limit=self.questions or None
        )
        return untrained(result, self.data_dir, [line["question"] for line in self._trained])

    @cached_property
    def _trained(self) -> list[Mapping[str, Any]]:
        return [*training_set(data_dir=self.data_dir)]  # pyright: ignore[reportReturnType]


def untrained(result: EvaluationResult, data_dir: Path, trained: Iterable[str]) -> Answers:
    """The answers to questions that are not among `trained`.

    SVAMP, AddSub and SingleEq are asked whole, and their train parts are parts of the whole.
    """
    known = {normalised(question) for question in trained}
    questions = {
        name: [normalised(r.question) for r in load_records(name, data_dir, split="whole")]
        for name in ("svamp", "addsub", "singleeq")
    }
    return result.answers.select(
        [
            task not in questions or questions[task][number] not in known
            for task, number in zip(result.answers.task, result.number.tolist(), strict=True)
        ]
    )
