"""What is tuned on, and which questions are answered before and after.

`World` has the closed world's frozen sets, `Benchmarks` the paper's data with written solutions,
`ShortAnswers` published word problems whose number is learned at once.
"""

import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

import arith_lens as al
from arith_lens.answers import Answers, Question, load_questions
from arith_lens.benchmarks import TrainingPart, to_dataset, training_parts
from arith_lens.evaluation import EvaluationResult
from arith_lens.paper import BENCHMARKS
from arith_lens.reference.sets import Line, load_set, world_questions
from experiments.does_tuning_help import VALIDATION

END_OF_ANSWER = "\n"
"""The end of an answer in the closed world, which is learned with the answer.

A model that is tuned on bare answers forgets to stop, and "17" becomes "171". EOS is not appended:
the shipped models have never seen it, and learning it costs more than learning word problems."""

ANSWER_SETS = ("svamp", "addsub", "singleeq")
"""Sets of word problems that are answered by a number at once."""
HELD_OUT = 0.15
"""The share of their train parts that chooses rates."""
COMMONSENSE = "commonsense_qa_text"
"""CommonsenseQA, answered by the likeliest text: small models are at chance with letters."""

AnswerFacts: TypeAlias = dict[str, Any]
"""The facts that a run stores beside answers, as JSON values."""


def sampled_examples(lines: Sequence[Line], seed: int, limit: int) -> list[Line]:
    """`limit` examples in an order that the seed draws; 0: all."""
    order = [*lines]
    random.Random(f"tuning {seed}").shuffle(order)
    return order[: limit or None]


def world_examples(name: str, seed: int, limit: int) -> list[Line]:
    """Examples of a frozen set of the closed world, whose answers end with a line break."""
    lines = sampled_examples(load_set(name), seed, limit)
    return [{**line, "answer": line["answer"] + END_OF_ANSWER} for line in lines]


def lines_of(parts: Sequence[TrainingPart], form: str) -> list[Line]:
    """The kept questions of benchmarks as examples, in a form of `training_set`."""
    rows: list[Any] = [*to_dataset(parts, form)]
    return [
        {"task": row["source"], "prompt": row["prompt"], "answer": row["answer"]} for row in rows
    ]


@dataclass(frozen=True)
class World:
    """Tuning and evaluation within the closed world's frozen sets."""

    examples: int
    """Examples to tune on, drawn with the training's seed; 0: all."""
    questions: int
    """Questions of each task; 0: all."""
    end_with_eos: ClassVar[bool] = False

    def tuning_set(self, seed: int) -> list[Line]:
        """Word problems with answers. None of them is a validation or test problem."""
        return world_examples("word_problems_tuning", seed, self.examples)

    def all_questions(self) -> list[Question]:
        """Validation word problems, to choose rates on, then the test questions."""
        validation = self.first("word_problems_validation")
        chosen = [replace(question, task=VALIDATION + question.task) for question in validation]
        return chosen + self.test_questions()

    def test_questions(self) -> list[Question]:
        """Test word problems and the generic tasks."""
        return self.first("word_problems_test") + self.first("generic_test")

    def first(self, name: str) -> list[Question]:
        """The first questions of each task of a frozen set."""
        tasks: dict[str, list[Question]] = defaultdict(list)
        for question in world_questions(name):
            tasks[question.task].append(question)
        return [q for listed in tasks.values() for q in listed[: self.questions or None]]

    def ask(self, model: Any, _root: Path) -> tuple[Answers, AnswerFacts]:
        """A model's answers to all questions."""
        return al.answer_questions(model, self.all_questions(), whole_words=False), {}

    def described(self) -> list[str]:
        """The training data and the questions, in words."""
        n_available = len(load_set("word_problems_tuning"))
        questions = self.all_questions()
        test = sum(not question.task.startswith(VALIDATION) for question in questions)
        return [
            f"tuned on {len(self.tuning_set(0)):,} of {n_available:,} word problems of the closed "
            "world",
            f"questions before and after: {len(questions) - test:,} validation word problems, to "
            f"choose rates on; {test:,} test questions",
        ]


@dataclass(frozen=True)
class Benchmarks:
    """The paper's data: the train parts of four sets of word problems, and six benchmarks.

    Of SVAMP, AddSub and SingleEq, only the test parts are evaluated, because the whole sets contain
    the train parts.
    """

    data_dir: Path
    examples: int
    """Examples to tune on, drawn with the training's seed; 0: all."""
    questions: int
    """The first questions of each benchmark; 0: all."""
    names: tuple[str, ...] = BENCHMARKS
    shots: Mapping[str, int] = field(default_factory=dict)
    """Worked examples by benchmark; the defaults of `evaluate` if not given."""
    max_new_tokens: int | None = None
    end_with_eos: ClassVar[bool] = True

    def tuning_set(self, seed: int) -> list[Line]:
        """Questions with their solutions. None of them is in a test set."""
        return sampled_examples(lines_of(self._parts, "solution"), seed, self.examples)

    def ask(self, model: Any, root: Path) -> tuple[Answers, AnswerFacts]:
        """A model's answers to the benchmarks, and how the harness asked them.

        Parts are saved in a run under `root`, because asking takes longer than a training.
        """
        with al.open_run("asked", {}, model=model, root=root) as run:
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
        return result.answers, benchmark_facts(result)

    def described(self) -> list[str]:
        """The training data and the questions, in words; reads all data, as a training does."""
        from arith_lens.evaluation.harness import build

        n_examples = len(self.tuning_set(0))
        lines = [f"tuned on {n_examples:,} solved word problems of {self.data_dir}:"]
        lines += [f"  {line}" for part in self._parts for line in str(part).splitlines()]
        built = build(self.names, data_dir=self.data_dir, shots=self.shots or None, held_out=True)
        lines.append("questions before and after each training:")
        families: dict[str, list[Any]] = defaultdict(list)
        for task, of in built.tasks.items():
            families[_family(task)].append(of)
        for name, tasks in families.items():
            questions = sum(
                min(len(t.eval_docs), self.questions or len(t.eval_docs)) for t in tasks
            )
            subjects = f" on {len(tasks)} subjects" if len(tasks) > 1 else ""
            shots = {int(task.config.num_fewshot or 0) for task in tasks}
            lines.append(f"  {name}: {questions:,} questions{subjects}, {_joined(shots)} shots")
        return lines

    @cached_property
    def _parts(self) -> list[TrainingPart]:
        return training_parts(data_dir=self.data_dir)


@dataclass(frozen=True)
class ShortAnswers:
    """Published word problems whose number is learned at once, without a written solution.

    The train parts of SVAMP, AddSub and SingleEq are tuned on, without overlaps with test parts. A
    fixed share of them is held out to choose rates on. The test parts and CommonsenseQA report.
    """

    data_dir: Path
    examples: int
    """Examples to tune on, drawn with the training's seed; 0: all."""
    questions: int
    """The first questions of each test part and of CommonsenseQA; 0: all."""
    end_with_eos: ClassVar[bool] = True

    def tuning_set(self, seed: int) -> list[Line]:
        """Problems with their numbers. None of them is a validation or test problem."""
        return sampled_examples(self._parts[0], seed, self.examples)

    def all_questions(self) -> list[Question]:
        """Validation problems, then the test problems."""
        validation = [
            Question(line["prompt"], line["answer"], VALIDATION + line["task"])
            for line in self._parts[1]
        ]
        test = (load_questions(name, self.data_dir, split="test") for name in ANSWER_SETS)
        return validation + [q for listed in test for q in listed[: self.questions or None]]

    def ask(self, model: Any, root: Path) -> tuple[Answers, AnswerFacts]:
        """A model's numbers, and the likeliest answers of CommonsenseQA by their texts."""
        with al.open_run("questions", {}, model=model, root=root) as run:
            numbers = al.answer_questions(
                model, self.all_questions(), batch_size=16, run=run, progress=True
            )
            others = al.evaluate(
                model,
                COMMONSENSE,
                limit=self.questions or None,
                data_dir=self.data_dir,
                run=run,
            )
        return numbers + others.answers, benchmark_facts(others)

    def described(self) -> list[str]:
        """The training data and the questions, in words."""
        validation, test = len(self._parts[1]), len(self.all_questions())
        return [
            f"tuned on the numbers of {len(self.tuning_set(0)):,} word problems of {self.data_dir}",
            f"questions before and after: {validation:,} validation word problems, to choose rates "
            f"on; {test - validation:,} test problems; CommonsenseQA by the likelihood of its "
            f"choices' texts ({self.questions or 'all'} questions)",
        ]

    @cached_property
    def _parts(self) -> tuple[list[Line], list[Line]]:
        """The problems to tune on, and those that are held out."""
        lines = lines_of(training_parts(ANSWER_SETS, self.data_dir, form="answer"), "answer")
        random.Random("validation").shuffle(lines)
        n_held_out = round(HELD_OUT * len(lines))
        return lines[n_held_out:], lines[:n_held_out]


Study: TypeAlias = World | Benchmarks | ShortAnswers
"""What is tuned on, and which questions are answered before and after."""


def benchmark_facts(result: EvaluationResult) -> AnswerFacts:
    """How a harness asked: worked examples, and prompts that were cut on their left."""
    shots: dict[str, set[int]] = defaultdict(set)
    cut: dict[str, int] = defaultdict(int)
    for task, about in result.settings["tasks"].items():
        name = _family(task)
        shots[name].add(about["shots"])
        cut[name] += about["truncated"]
    return {
        "shots": {name: _joined(counts) for name, counts in shots.items()},
        "cut": {name: count for name, count in cut.items() if count},
        "doubtful": sum(map(bool, result.flag)),
        "harness": result.settings["harness"],
    }


def _family(task: str) -> str:
    """MMLU's subjects are one benchmark."""
    return "mmlu" if task.startswith("mmlu") else task


def _joined(counts: set[int]) -> str:
    return ", ".join(map(str, sorted(counts)))
