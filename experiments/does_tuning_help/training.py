"""One training: its data and its test questions; parallel trainings."""

import gc
import os
import random
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from multiprocessing import get_context, parent_process
from multiprocessing.connection import wait
from pathlib import Path
from threading import Thread
from typing import Any, ClassVar, TypeAlias, TypeVar

import torch

import arith_lens as al
from arith_lens.answers import Answers, Question, load_questions
from arith_lens.benchmarks import training_parts
from arith_lens.benchmarks.training import TrainingPart, to_dataset
from arith_lens.evaluation import EvaluationResult
from arith_lens.fine_tuning import TuningResult
from arith_lens.paper import BENCHMARKS
from arith_lens.reference.sets import Line, load_set, world_questions
from experiments.does_tuning_help import Training
from experiments.does_tuning_help.questions import VALIDATION

Work = TypeVar("Work")
Result = TypeVar("Result")
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


def drawn_examples(lines: Sequence[Line], seed: int, limit: int) -> list[Line]:
    """`limit` examples in an order that the seed draws; 0: all."""
    order = [*lines]
    random.Random(f"tuning {seed}").shuffle(order)
    return order[: limit or None]


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
    """Test questions of each family of word problems; 0: all."""
    end_with_eos: ClassVar[bool] = False

    def tuning_set(self, seed: int) -> list[Line]:
        """Word problems with answers. None of them is a validation or test problem."""
        lines = drawn_examples(load_set("word_problems_tuning"), seed, self.examples)
        return [{**line, "answer": line["answer"] + END_OF_ANSWER} for line in lines]

    def all_questions(self) -> list[Question]:
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

    def ask(self, model: Any, _root: Path) -> tuple[Answers, AnswerFacts]:
        """A model's answers to all questions."""
        return al.answer_questions(model, self.all_questions(), whole_words=False), {}

    def described(self) -> list[str]:
        """The training data and the questions, in words."""
        n_available = len(load_set("word_problems_tuning"))
        questions = self.all_questions()
        test = sum(not question.task.startswith(VALIDATION) for question in questions)
        return [
            f"tuned on {self.n_examples:,} of {n_available:,} word problems of the closed world",
            f"questions before and after: {len(questions) - test:,} validation word problems, to "
            f"choose rates on; {test:,} test questions",
        ]

    @property
    def n_examples(self) -> int:
        """Examples per training."""
        n_available = len(load_set("word_problems_tuning"))
        return min(self.examples or n_available, n_available)


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
        return drawn_examples(self._trained, seed, self.examples)

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

        lines = [f"tuned on {self.n_examples:,} solved word problems of {self.data_dir}:"]
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

    @property
    def n_examples(self) -> int:
        """Examples per training."""
        return min(self.examples or len(self._trained), len(self._trained))

    @cached_property
    def _parts(self) -> list[TrainingPart]:
        return training_parts(data_dir=self.data_dir)

    @cached_property
    def _trained(self) -> list[Line]:
        return lines_of(self._parts, "solution")


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
        return drawn_examples(self._parts[0], seed, self.examples)

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
            f"tuned on the numbers of {self.n_examples:,} word problems of {self.data_dir}",
            f"questions before and after: {validation:,} validation word problems, to choose rates "
            f"on; {test - validation:,} test problems; CommonsenseQA by the likelihood of its "
            f"choices' texts ({self.questions or 'all'} questions)",
        ]

    @property
    def n_examples(self) -> int:
        """Examples per training."""
        return min(self.examples or len(self._parts[0]), len(self._parts[0]))

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


@dataclass(frozen=True)
class Recipe:
    """The settings of all trainings; all others are the defaults of `fine_tune`, the paper's."""

    epochs: int
    batch: int
    micro_batch: int | None = None
    bf16: bool = False
    recompute: bool = False
    """Gradient checkpointing."""
    save_every: int = 100
    """Steps between checkpoints, which a killed training may lose."""

    def settings(self, rate: float, *, seed: int, end_with_eos: bool) -> dict[str, Any]:
        """The arguments of `fine_tune`."""
        return {
            "learning_rate": rate,
            "epochs": self.epochs,
            "batch_size": self.batch,
            "micro_batch": self.micro_batch,
            "bf16": self.bf16,
            "gradient_checkpointing": self.recompute,
            "save_every": self.save_every,
            "seed": seed,
            "end_with_eos": end_with_eos,
        }


@dataclass(frozen=True)
class TrainingJob:
    """Everything that a worker needs."""

    training: Training
    source: str
    heads: tuple[al.Head, ...]
    """The strongest heads; for lora and random, as many are tuned."""
    mlps: tuple[al.Mlp, ...]
    recipe: Recipe
    study: Study
    output: Path
    device: str | None = None
    dtype: str = "float32"
    """The precision for answering, before and after tuning."""


def tuning_result(job: TrainingJob) -> TuningResult:
    """Train, or continue a training that was stopped in `job.output`; a finished one is read."""
    tuned = job.training.tuned
    full = tuned.method == "full"
    result = al.fine_tune(
        job.source,
        job.study.tuning_set(job.training.seed),
        method=tuned.method,
        heads=() if full else job.heads,
        mlps=() if full else job.mlps,
        output=job.output,
        device=job.device,
        progress=False,
        **job.recipe.settings(
            job.training.rate, seed=job.training.seed, end_with_eos=job.study.end_with_eos
        ),
    )
    gc.collect()  # the Trainer holds itself, and with it the optimizer's state
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    return result


def tuned_model(job: TrainingJob, result: TuningResult) -> al.HookedModel:
    """The model that a training has left, for answering."""
    return al.load_model(
        result.model(),
        dtype=getattr(torch, job.dtype),
        device=job.device or ("cuda" if torch.cuda.is_available() else "cpu"),
    )


def train_and_ask(job: TrainingJob) -> tuple[Answers, dict[str, Any]]:
    """The tuned model's answers, and the facts of the training."""
    result = tuning_result(job)
    answers, facts = job.study.ask(tuned_model(job, result), job.output)
    return answers, training_settings(job) | facts | {
        "which_heads": list(result.heads),
        "which_mlps": list(result.mlps),
        "parameters": result.n_tuned,
        "of": result.n_parameters,
        "lora_rank": result.lora_rank,
        "n_examples": result.n_examples,
        "seconds": result.seconds,
        "samples_per_second": result.samples_per_second,
        "losses": [list(point) for point in result.losses],
        "untouched": str(result.untouched),
    }


def training_settings(job: TrainingJob) -> dict[str, Any]:
    """The settings of a training, for the facts of its result."""
    return {
        **asdict(job.training.tuned),
        "rate": job.training.rate,
        "seed": job.training.seed,
    }


def side_by_side(
    work: Callable[[Work], Result], jobs: Sequence[Work], processes: int
) -> Iterator[tuple[Work, Result]]:
    """Run jobs in parallel, each in a process with one thread, and yield each when it is done.

    Two trainings of a small model with one core each are faster than one with two cores. With one
    process, the jobs run in this process. If a job raises an error, it is raised here, and no other
    job is started. `work` and the jobs must be picklable.
    """
    if processes == 1 or len(jobs) < 2:
        for job in jobs:
            yield job, work(job)
        return
    with ProcessPoolExecutor(
        processes, mp_context=get_context("spawn"), initializer=_start
    ) as pool:
        futures = {pool.submit(work, job): job for job in jobs}
        try:
            for done in as_completed(futures):
                yield futures[done], done.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _start() -> None:
    """Use one thread, and end with the parent process.

    Otherwise a worker whose parent was killed would wait forever.
    """
    torch.set_num_threads(1)
    Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)
