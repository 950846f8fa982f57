"""One training: on what, and what is asked before and after; many side by side; what they leave."""

import gc
import hashlib
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
from typing import Any, ClassVar, Generic, TypeAlias, TypeVar

import torch

import arith_lens as al
from arith_lens.answers import Answers, Question
from arith_lens.benchmarks import training_parts
from arith_lens.benchmarks.training import TrainingPart, to_dataset
from arith_lens.evaluation import EvaluationResult
from arith_lens.fine_tuning import TuningResult
from arith_lens.fine_tuning.results import DELTA
from arith_lens.paper import BENCHMARKS
from arith_lens.reference.sets import Line, load_set, world_questions
from arith_lens.runs import Run, RunError, find_runs
from experiments.does_tuning_help import VALIDATION, Training
from experiments.results import TABLE, TRAINING, trainings, tuned_by
from experiments.settings import ModelSettings

EXPERIMENT, TABLE_1 = "does_tuning_help", "1"
Settings = TypeVar("Settings", bound=ModelSettings)
Work = TypeVar("Work")
Result = TypeVar("Result")
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

    def ask(self, model: Any, _keep: Path) -> tuple[Answers, Facts]:
        """How a model answers all of them."""
        return al.answer_questions(model, self.all_questions(), whole_words=False), {}

    def described(self) -> list[str]:
        """What is tuned on and asked, in words."""
        n_available = len(load_set("word_problems_tuning"))
        questions = self.all_questions()
        test = sum(not question.task.startswith(VALIDATION) for question in questions)
        return [
            f"tuned on {self.n_examples:,} of {n_available:,} word problems of the closed world",
            f"asked before and after: {len(questions) - test:,} validation word problems, to "
            f"choose rates on; {test:,} test questions",
        ]

    @property
    def n_examples(self) -> int:
        """Of a training."""
        n_available = len(load_set("word_problems_tuning"))
        return min(self.examples or n_available, n_available)


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
        return result.answers, benchmark_facts(result)

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
            questions = sum(
                min(len(t.eval_docs), self.questions or len(t.eval_docs)) for t in tasks
            )
            subjects = f" on {len(tasks)} subjects" if len(tasks) > 1 else ""
            shots = {int(task.config.num_fewshot or 0) for task in tasks}
            lines.append(f"  {name}: {questions:,} questions{subjects}, {_joined(shots)} shots")
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


def benchmark_facts(result: EvaluationResult) -> Facts:
    """What decided the answers: shots, and prompts that were cut on their left, by benchmark."""
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


@dataclass(frozen=True)
class TunedModel:
    """One precise training at the chosen rate."""

    name: str
    """Such as seed-0."""
    result: TuningResult

    @property
    def heads(self) -> tuple[al.Head, ...]:
        return tuple(map(al.Head.parse, self.result.heads))

    @property
    def sha256(self) -> str:
        """Of the trained slices' file."""
        return hashlib.sha256((Path(self.result.output) / DELTA).read_bytes()).hexdigest()

    def load(self, settings: ModelSettings) -> al.HookedModel:
        """The model, ready for every analysis, in the dtype and on the device of the settings."""
        dtype = None if settings.dtype is None else getattr(torch, settings.dtype)
        return al.load_model(self.result.model(), dtype=dtype, device=settings.device)


@dataclass(frozen=True)
class AfterTuning(Generic[Settings]):
    """A question about tuned models: its settings, and the models that a run of Table 1 left."""

    settings: Settings
    models: tuple[TunedModel, ...]

    @classmethod
    def find(cls, settings: Settings, root: Path) -> "AfterTuning[Settings]":
        """With the models of the newest finished run of the tuning experiment.

        Raises:
            RunError: there is none, or the folder of a model is gone.
        """
        return cls(settings, tuple(precise_models(tuning_run(settings.model, root))))

    @property
    def identity(self) -> dict[str, Any]:
        """What names a run of this question: the settings, and the weights that were trained."""
        return {**vars(self.settings), "tuned": [model.sha256 for model in self.models]}


def tuning_run(model: str, root: Path) -> Run:
    """The newest finished run of the tuning experiment that has Table 1.

    Raises:
        RunError: there is none; the message has the command that makes one.
    """
    runs = find_runs(EXPERIMENT, model=model, root=root)
    complete = [run for run in runs if TABLE.is_in(run, TABLE_1)]
    if not complete:
        raise RunError(
            f"expected a finished run of {model} with Table 1 under {root / EXPERIMENT}, found "
            f"none. Make one: python -m experiments {EXPERIMENT} --table 1 --model {model}"
        )
    return complete[0]


def precise_models(run: Run) -> list[TunedModel]:
    """The precisely tuned models of Table 1, a seed each.

    Raises:
        RunError: the folder of one is gone.
    """
    rates = TABLE.load(run, TABLE_1).rates
    (row,) = (row for row in rates if row.method == "precise")
    models = []
    for name in trainings(run):
        facts = TRAINING.facts(run, name)
        if tuned_by(facts) == row and facts["rate"] == rates[row]:
            folder = run.path / "trainings" / name
            try:
                models.append(TunedModel(f"seed-{facts['seed']}", TuningResult.load(folder)))
            except FileNotFoundError as error:
                raise RunError(
                    f"{error}. Train it again: python -m experiments {EXPERIMENT} --model "
                    f"{run.config['model']} --again"
                ) from error
    return sorted(models, key=lambda one: one.name)
