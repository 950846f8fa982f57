"""One training: what is tuned, on what, what is asked before and after; and many side by side."""

import gc
import os
import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from math import isnan
from multiprocessing import get_context, parent_process
from multiprocessing.connection import wait
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias, TypeVar

import torch

import arith_lens as al
from arith_lens.answers import Answers, Question
from arith_lens.arrays import Arrays
from arith_lens.benchmarks import training_parts
from arith_lens.benchmarks.training import TrainingPart, to_dataset
from arith_lens.evaluation import EvaluationResult
from arith_lens.paper import BENCHMARKS
from arith_lens.reference.sets import Line, load_set, world_questions

if TYPE_CHECKING:
    from pandas import DataFrame

Work = TypeVar("Work")
Result = TypeVar("Result")
Method: TypeAlias = Literal["full", "precise", "lora", "random"]
VALIDATION = "validation/"
"""Before the task's name of a question that rates are chosen on."""


@dataclass(frozen=True)
class Tuned:
    """What a row of a table tunes; LoRA has as many parameters as so many heads."""

    method: Method
    heads: int = 0
    mlps: int = 0

    @property
    def name(self) -> str:
        return "full" if self.method == "full" else f"{self.method}-{self.heads}-{self.mlps}"


@dataclass(frozen=True)
class Training:
    """One training of a row."""

    tuned: Tuned
    rate: float
    seed: int

    @property
    def name(self) -> str:
        """What its answers are called in a run."""
        return f"{self.tuned.name}-rate-{rate_name(self.rate)}-seed-{self.seed}"


def rate_name(rate: float) -> str:
    """A rate as part of a name, which may hold no dots: 0.003 is 0p003."""
    return f"{rate:g}".replace(".", "p")


@dataclass(frozen=True)
class Sizes:
    """How much Tables 2 and 5 tune: sizes that stand for the paper's in a model of another size."""

    heads: int
    """Of Table 1."""
    several: tuple[int, ...]
    """Heads, Table 2."""
    mlps: int
    """Beside `heads`, Table 2."""
    more: tuple[int, ...]
    """MLPs, Table 5."""


def rows(table: Literal[1, 2, 5], sizes: Sizes) -> tuple[Tuned, ...]:
    """The rows of a table, in the paper's order."""
    if table == 1:
        methods: tuple[Method, ...] = ("precise", "lora", "random")
        return (Tuned("full"), *(Tuned(method, sizes.heads) for method in methods))
    if table == 2:
        alone = (Tuned("precise", heads) for heads in sizes.several)
        return (*alone, Tuned("precise", sizes.heads, sizes.mlps))
    return tuple(Tuned("precise", sizes.heads, mlps) for mlps in sizes.more)


def validation_accuracy(answers: Answers) -> float:
    """The share of validation questions answered right, NaN where there are none; no other question
    takes part."""
    chosen = [task.startswith(VALIDATION) for task in answers.task]
    return answers.select(chosen).accuracy


def grid(tuned: Iterable[Tuned], rates: Iterable[float], seed: int) -> list[Training]:
    """One training per row and rate, those of a row together."""
    rates = tuple(rates)
    return [Training(row, rate, seed) for row in dict.fromkeys(tuned) for rate in rates]


def repeats(chosen: Mapping[Tuned, float], seeds: Iterable[int]) -> list[Training]:
    """Further trainings of each row at its rate."""
    seeds = tuple(seeds)
    return [Training(row, rate, seed) for row, rate in chosen.items() for seed in seeds]


@dataclass(frozen=True)
class Chosen:
    """Which trainings make a table: of each row the rate with the best validation accuracy."""

    validation: Mapping[Tuned, Mapping[float, float]]
    """Accuracy by rate, all with one seed."""

    @property
    def rates(self) -> dict[Tuned, float]:
        """The chosen rate of each row; the smaller of equals.

        Raises:
            ValueError: several rates, and no validation to choose on.
        """
        for row, found in self.validation.items():
            if len(found) > 1 and any(isnan(accuracy) for accuracy in found.values()):
                raise ValueError(
                    f"expected validation questions to choose a rate on, found none for {row.name} "
                    f"at {', '.join(f'{rate:g}' for rate in found)}; train at one rate"
                )
        return {
            row: max(found, key=lambda rate: (found[rate], -rate))
            for row, found in self.validation.items()
        }

    @classmethod
    def from_arrays(cls, arrays: Arrays) -> "Chosen":
        """What `to_arrays` has written."""
        header, accuracy = arrays.header, arrays.tensors["validation_accuracy"].tolist()
        rows = (Tuned(row["method"], row["heads"], row["mlps"]) for row in header["rows"])
        by_rate = (
            dict(zip(*row, strict=True)) for row in zip(header["rates"], accuracy, strict=True)
        )
        return cls(dict(zip(rows, by_rate, strict=True)))

    def to_arrays(self) -> Arrays:
        """The rows with their chosen rates and all rates are in the header."""
        rows = [{**asdict(row), "rate": rate} for row, rate in self.rates.items()]
        accuracy = [[*found.values()] for found in self.validation.values()]
        rates = [[*found] for found in self.validation.values()]
        header = {"kind": "chosen_rates", "rows": rows, "rates": rates}
        return Arrays({"validation_accuracy": torch.tensor(accuracy)}, header)

    def to_dataframe(self) -> "DataFrame":
        """One row per setting and rate: method, heads, mlps, rate, validation_accuracy, chosen."""
        from pandas import DataFrame

        return DataFrame(
            {**asdict(row), "rate": rate, "validation_accuracy": accuracy, "chosen": rate == best}
            for (row, best) in self.rates.items()
            for rate, accuracy in self.validation[row].items()
        )


END_OF_ANSWER = "\n"
"""What follows an answer in the closed world. It is learned with the answer: a model that is tuned
on bare answers forgets to stop, and "17" becomes "171". EOS, which the shipped models have never
seen, is not appended: to learn that token costs more than to learn word problems."""

Facts: TypeAlias = dict[str, Any]
"""What a run stores beside answers, in JSON's values."""


@dataclass(frozen=True)
class World:
    """Tuning and evaluation within the closed world's frozen sets."""

    examples: int
    """To tune on, drawn with the training's seed; 0: all."""
    questions: int
    """Of each family of word problems, from the test set; 0: all."""
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

    def ask(self, model: Any, _keep: Path) -> tuple[Answers, Facts]:
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
    examples: int
    """To tune on, drawn with the training's seed; 0: all."""
    questions: int
    """The first so many of each benchmark; 0: all."""
    names: tuple[str, ...] = BENCHMARKS
    shots: Mapping[str, int] = field(default_factory=dict)
    """Worked examples by benchmark; as in `evaluate` where not given."""
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

    def ask(self, model: Any, keep: Path) -> tuple[Answers, Facts]:
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


def asked_how(result: EvaluationResult) -> Facts:
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


@dataclass(frozen=True)
class Recipe:
    """What all trainings share; the rest is as `fine_tune` has it, which is the paper's."""

    epochs: int
    batch: int
    micro_batch: int | None = None
    bf16: bool = False
    recompute: bool = False
    """Gradient checkpointing."""
    save_every: int = 100
    """Steps that a training which is broken off may lose."""

    def settings(self, rate: float, *, seed: int, end_with_eos: bool) -> dict[str, Any]:
        """As arguments of `fine_tune`."""
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
class Job:
    """Everything that a worker needs."""

    training: Training
    source: str
    heads: tuple[al.Head, ...]
    """The strongest; the methods lora and random are set against them."""
    mlps: tuple[al.Mlp, ...]
    recipe: Recipe
    study: World | Benchmarks
    output: Path
    device: str | None = None
    dtype: str = "float32"
    """In which the model is asked, before as after."""


def train_and_ask(job: Job) -> tuple[Answers, dict[str, Any]]:
    """The tuned model's answers, and what is worth keeping of the training.

    A training that was broken off in `job.output` goes on; a finished one is not repeated.
    """
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
    tuned_model = al.load_model(
        result.model(),
        dtype=getattr(torch, job.dtype),
        device=job.device or ("cuda" if torch.cuda.is_available() else "cpu"),
    )
    answers, facts = job.study.ask(tuned_model, job.output)
    return answers, described(job) | facts | {
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


def described(job: Job) -> dict[str, Any]:
    """Which training a result is of, for its facts."""
    return {
        **asdict(job.training.tuned),
        "rate": job.training.rate,
        "seed": job.training.seed,
    }


def side_by_side(
    work: Callable[[Work], Result], jobs: Sequence[Work], processes: int
) -> Iterator[tuple[Work, Result]]:
    """Each job with its result, as they finish, several at a time, each in a process of one thread.

    Small models leave cores idle when one training has them all; two trainings with a core each are
    faster than one with two. With one process the work is done here. What a job raises is raised
    here, and no further job is begun. `work` and jobs must be picklable.
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
    """One thread, and no life without the process that gave the work: a worker whose parent was
    killed would wait for ever."""
    torch.set_num_threads(1)
    Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)
