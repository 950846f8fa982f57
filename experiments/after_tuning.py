"""What has tuning changed? Effects, other abilities, and questions that were not tuned on."""

from dataclasses import asdict, dataclass, replace
from functools import partial, reduce
from operator import add
from pathlib import Path
from typing import Any

import arith_lens as al
from arith_lens.answers import Question
from arith_lens.effects import BeforeAfter
from arith_lens.fine_tuning import RESULT_FILE, Delta, TuningResult, load_delta
from arith_lens.fine_tuning.results import DELTA_FILE
from arith_lens.pairs.correctness import answer
from arith_lens.reference.sets import unfamiliar_questions
from arith_lens.runs import Run
from experiments.command import exit_on_user_error
from experiments.configs.tuning import CarryingConfig, ChangesConfig, GainConfig
from experiments.does_tuning_help.models import AfterTuning, precise_models, tuning_run
from experiments.does_tuning_help.studies import World
from experiments.results import (
    GENERALISATION_ANSWERS,
    KNOCKOUT_ANSWERS,
    PATH_EFFECTS,
    TUNED_MAP,
    UNTUNED_ANSWERS,
    UNTUNED_MAP,
)
from experiments.selection import some_questions
from experiments.settings import (
    BEFORE_FILTER,
    Experiment,
    answer_without,
    control_sets,
    pooled,
    pooled_samples,
)


@dataclass(frozen=True)
class TunedSource:
    """A tuned model: a delta file, an output of `fine_tune`, or a checkpoint."""

    name: str
    path: Path

    def __post_init__(self) -> None:
        if not self.path.exists():
            raise FileNotFoundError(
                "expected a delta file, an output of fine_tune, or a checkpoint's folder, found "
                f"nothing at {self.path}"
            )

    @property
    def files(self) -> list[Path]:
        """The files of the weights; they identify the run."""
        return sorted(self.path.rglob("*.safetensors")) if self.path.is_dir() else [self.path]

    def tuning_output(self) -> TuningResult | Delta | None:
        """The tuned components and their changes; None for a checkpoint.

        Raises:
            ValueError: a file of another kind
        """
        if self.path.is_dir():
            return TuningResult.load(self.path) if (self.path / RESULT_FILE).is_file() else None
        return load_delta(self.path)

    def components(self) -> list[str]:
        """The heads and MLPs that were tuned; empty for LoRA and full tuning."""
        output = self.tuning_output()
        if output is None or (isinstance(output, TuningResult) and output.untouched is None):
            return []
        return [*map(str, output.heads), *map(str, output.mlps)]

    def load(self, base: str, device: str | None) -> al.HookedModel:
        """The model, ready to be patched."""
        output = self.tuning_output()
        return al.load_model(output.model(base) if output else str(self.path), device=device)


@dataclass(frozen=True)
class Comparison:
    """The settings, and the models that are compared with the model as it was."""

    settings: ChangesConfig
    tuned: tuple[TunedSource, ...]


def _save_changes(run: Run, model: al.HookedModel, question: Comparison) -> None:
    """The effects before tuning, then the effects of each tuned model."""
    config = question.settings
    pairs = pooled_samples(model, config)
    together = pooled(pairs)
    before = _map(run, model, "before", pairs, config)
    UNTUNED_MAP.save(run, before, pairs=together)

    def compare(tuned: TunedSource) -> None:
        """In a function, so that a tuned model is freed before the next one is loaded."""
        with exit_on_user_error():
            tuned_model = tuned.load(config.model, config.device)
        run.admit(tuned_model)
        both = BeforeAfter(before, _map(run, tuned_model, tuned.name, pairs, config))
        right, _ = answer(tuned_model, together, "reference", batch_size=128)
        facts = {"still_right": float(right.double().mean()), "components": tuned.components()}
        TUNED_MAP.save(run, both, tuned.name, pairs=together, **facts)

    for tuned in question.tuned:
        compare(tuned)


def _plan_changes(model: al.HookedModel, question: Comparison) -> str:
    config = question.settings
    pairs = pooled(pooled_samples(model, config, keep="all"))
    names = ", ".join(tuned.name for tuned in question.tuned)
    cost = al.plan(model, pairs, **_settings(config))
    return f"as it was, and {names}: each {cost}{BEFORE_FILTER}"


def tuned_models(config: ChangesConfig, root: Path) -> tuple[TunedSource, ...]:
    """The models that are compared with the model before tuning.

    Raises:
        OSError, ValueError, RunError: a model is missing or cannot be read
    """
    if not config.tuned:
        models = precise_models(tuning_run(config.model, root))
        return tuple(TunedSource(model.name, Path(model.result.output)) for model in models)
    models = tuple(TunedSource(_name(path), path) for path in config.tuned)
    names = [tuned.name for tuned in models]
    if len({*names, "before"}) <= len(names):
        raise ValueError(
            "expected tuned models whose files' or folders' names tell them apart, none of them "
            f"'before', found {', '.join(names)}; rename some"
        )
    for tuned in models:
        tuned.tuning_output()
    return models


def _name(path: Path) -> str:
    """A path as the name of a result; for a file `delta.safetensors`, its folder's name."""
    path = path.absolute()
    name = path.parent.name if path.name == DELTA_FILE else path.name.removesuffix(".safetensors")
    return "".join(c if c.isascii() and c.isalnum() else "-" for c in name).strip("-")


def _map(
    run: Run, model: Any, label: str, pairs: dict[str, al.PromptPairs], config: ChangesConfig
) -> al.ComponentEffects:
    """A model's effects on the pairs of all operations."""
    names = {operation: PATH_EFFECTS.name(operation, label) for operation in pairs}
    maps = (
        al.path_patch(model, some, run=run, name=names[operation], **_settings(config))
        for operation, some in pairs.items()
    )
    return reduce(add, maps)


def _settings(config: ChangesConfig) -> dict[str, Any]:
    """The settings of path patching."""
    return {"paths": config.paths, "metric": config.metric}


def _report_changes(run: Run) -> None:
    """Print how often each tuned model still answers right."""
    for name in TUNED_MAP.labels(run):
        facts = TUNED_MAP.facts(run, name)
        print(f"{name}: still answers {facts['still_right']:.1%} of {facts['pairs']} right")


what_tuning_changes = Experiment(
    "what_tuning_changes",
    ChangesConfig,
    _save_changes,
    _plan_changes,
    _report_changes,
    figure="before_after",
    question=lambda config, root: Comparison(config, tuned_models(config, root)),
    identity=lambda question: question.settings,
    inputs=lambda question: [path for tuned in question.tuned for path in tuned.files],
)


def _save_carrying(run: Run, model: al.HookedModel, question: AfterTuning[CarryingConfig]) -> None:
    """Every model's answers under every knockout."""
    config, tuned = question.settings, question.models
    questions = World(0, config.questions).test_questions()
    pairs = pooled(pooled_samples(model, config))  # the same for all models
    heads = tuned[0].heads
    sets = {"whole": (), "without": heads} | control_sets(heads, model, config)

    def answer(model: al.HookedModel, label: str) -> None:
        name = partial(KNOCKOUT_ANSWERS.name, label)
        answer_without(run, model, questions, sets, pairs, config, name)

    answer(model, "before")
    for tuned_model in tuned:
        loaded = tuned_model.load(config)
        run.admit(loaded)
        answer(loaded, tuned_model.name)


def _plan_carrying(model: al.HookedModel, question: AfterTuning[CarryingConfig]) -> str:
    config, n_models = question.settings, 1 + len(question.models)
    questions = World(0, config.questions).test_questions()
    n_controls = len(some_questions([q.task for q in questions], config.control_limit, config.seed))
    return (
        f"{len(questions)} questions, each answered twice by {n_models} models; {n_controls} of "
        f"them another {2 * config.controls} times"
    )


do_tuned_heads_carry_more = Experiment(
    "do_tuned_heads_carry_more",
    CarryingConfig,
    _save_carrying,
    _plan_carrying,
    figure="carrying",
    question=AfterTuning.of_precise,
    identity=lambda question: question.identity,
)


def _save_gain(run: Run, model: al.HookedModel, question: AfterTuning[GainConfig]) -> None:
    """The answers of the model before tuning and of each tuned one."""
    unfamiliar = generalisation_questions(question.settings)

    def answer(model: al.HookedModel, name: str, **facts: object) -> None:
        settings = {"whole_words": False, "run": run, "name": GENERALISATION_ANSWERS.name(name)}
        al.answer_questions(model, unfamiliar, facts=facts, progress=True, **settings)

    answer(model, UNTUNED_ANSWERS.name())
    for tuned in question.models:
        training = tuned.training
        tuned_model = tuned.load(question.settings)
        run.admit(tuned_model)
        facts = {"rate": training.rate, "seed": training.seed, "chosen_for": tuned.chosen_for}
        answer(tuned_model, training.name, **asdict(training.tuned), **facts)


def generalisation_questions(config: GainConfig) -> list[Question]:
    """The questions of all sets; the task of each is its set and its family or operation."""
    return [
        replace(question, task=f"{name}/{question.task}")
        for name, of_set in unfamiliar_questions(config.questions).items()
        for question in of_set
    ]


def _plan_gain(model: al.HookedModel, question: AfterTuning[GainConfig]) -> str:
    n_questions = len(generalisation_questions(question.settings))
    return f"{n_questions} questions, each answered by {1 + len(question.models)} models"


does_the_gain_hold = Experiment(
    "does_the_gain_hold",
    GainConfig,
    _save_gain,
    _plan_gain,
    figure="generalisation",
    question=AfterTuning.of_every_method,
    identity=lambda question: question.identity,
)
