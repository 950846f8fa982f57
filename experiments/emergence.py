"""How do the heads, the last MLP and the carry emerge in training? Snapshots of one training.

`--folder` has the snapshots, each in a folder that is named by its step. All are measured on the
same prompts: accuracy, effects of all heads under two lenses, the last MLP exchanged, and the carry
of two-digit sums at END, layer by layer. Saves a run under results/emergence/, which
`python -m figures emergence` draws. A snapshot is measured once, also if later ones are added.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

import arith_lens as al
from arith_lens.effects import Effects
from arith_lens.runs import Run
from experiments.carry import UNDER_100
from experiments.estimates import matrix_rate, time_text
from experiments.results import (
    SNAPSHOT_ANSWERS,
    SNAPSHOT_CARRY,
    SNAPSHOT_LAST_MLP,
    SNAPSHOT_MAP,
    TRAINING_LOSS,
)
from experiments.settings import Experiment, ModelSettings, random_pairs

OPERATION, TEMPLATE = "addition", "addition/0"
LENSES = {"operands": "digit_contrast", "word": "relative_logit"}
"""By counterfactual: the metric of the map."""
ONE_DIGIT, WITH_CARRY, WITHOUT_CARRY = (
    "one-digit",
    "two-digit-with-carry",
    "two-digit-without-carry",
)
"""The sums whose accuracy is measured."""
LOG = "log.jsonl"
"""The training's losses, in the folder above that of the snapshots."""


@dataclass(frozen=True)
class EmergenceConfig(ModelSettings):
    """How do the heads, the last MLP and the carry emerge in training?"""

    folder: Path | None = None
    """The snapshots: a folder whose folders are named by their steps."""
    n: int = 200
    """Pairs of two-digit sums for the carry, half of them to fit; and sums of each kind whose
    accuracy is measured."""
    seed: int = 0
    """The seed of all draws."""


@dataclass(frozen=True)
class Training:
    """The settings, and the steps of a training's snapshots."""

    settings: EmergenceConfig
    steps: tuple[int, ...]

    @classmethod
    def of(cls, config: EmergenceConfig, root: Path) -> "Training":
        """The snapshots in the folder of the settings.

        Raises:
            ValueError: no folder is named, or it has fewer than two.
        """
        if config.folder is None:
            raise ValueError(
                "expected a folder of snapshots, found none; give --folder TRAINING/snapshots"
            )
        steps = sorted(int(one.name) for one in config.folder.iterdir() if one.name.isdigit())
        if len(steps) < 2:
            raise ValueError(
                f"expected two snapshots or more in {config.folder}, in folders that are named by "
                f"their steps, found {len(steps)}; train with --snapshots 40"
            )
        return cls(config, tuple(steps))

    @property
    def identity(self) -> dict[str, Any]:
        """What identifies the run: the settings and the steps."""
        return {**asdict(self.settings), "steps": list(self.steps)}

    def snapshots(self) -> Iterator[tuple[int, Path]]:
        """The step and the folder of each snapshot."""
        folder = self.settings.folder
        assert folder is not None
        names = {int(one.name): one for one in folder.iterdir() if one.name.isdigit()}
        yield from ((step, names[step]) for step in self.steps)

    def losses(self) -> dict[int, float]:
        """The logged loss of steps; empty without a log."""
        assert self.settings.folder is not None
        log = self.settings.folder.parent / LOG
        lines = log.read_text(encoding="utf-8").splitlines() if log.is_file() else []
        return {int(line["step"]): float(line["loss"]) for line in map(json.loads, lines)}


def compute(run: Run, model: al.HookedModel, training: Training) -> None:
    """The losses, then the results of each snapshot."""
    config = training.settings
    if losses := training.losses():
        _save_losses(run, losses)
    prompts = None
    for step, folder in training.snapshots():
        print(f"step {step}", flush=True)
        snapshot = al.load_model(str(folder), device=config.device)
        run.admit(snapshot)
        prompts = prompts or Prompts.of(snapshot, config)
        _save_snapshot(run, snapshot, prompts, config, str(step))


def _save_losses(run: Run, losses: dict[int, float]) -> None:
    """One number for each logged step, [step 1]."""
    labels = {"step": tuple(map(str, losses))}
    values = torch.tensor([*losses.values()])[:, None]
    TRAINING_LOSS.save(run, Effects(values, ("step",), "loss", labels=labels))


@dataclass(frozen=True, eq=False)
class Prompts:
    """The prompts that all snapshots answer."""

    sums: Mapping[str, al.PromptPairs]
    """By kind of sum, for the accuracy."""
    lenses: Mapping[str, al.PromptPairs]
    """By counterfactual, for the maps."""
    carry: al.InterchangePairs

    @classmethod
    def of(cls, model: al.HookedModel, config: EmergenceConfig) -> "Prompts":
        """All prompts, by the tokenizer of one snapshot."""
        lenses = {name: lens_pairs(model, name, config.seed) for name in LENSES}
        return cls(accuracy_pairs(model, config), lenses, carry_pairs(model, config.n, config.seed))


def _save_snapshot(
    run: Run, model: al.HookedModel, prompts: Prompts, config: EmergenceConfig, step: str
) -> None:
    """Everything that is measured of one snapshot."""
    quiet: dict[str, Any] = {"progress": False}
    for sums, pairs in prompts.sums.items():
        parts, facts = (step, sums), {"answers": pairs.answer.tolist()}
        settings = {"components": [], **quiet}
        SNAPSHOT_ANSWERS.compute(run, al.knock_out, model, pairs, *parts, facts=facts, **settings)
    for lens, pairs in prompts.lenses.items():
        name = SNAPSHOT_MAP.name(step, lens)
        al.path_patch(model, pairs, metric=LENSES[lens], run=run, name=name, **quiet)
    settings = {"components": [al.Mlp(model.n_layers - 1)], "ablation": "counterfactual"}
    settings |= {"positions": "end", **quiet}
    exchanged = prompts.lenses["operands"]
    SNAPSHOT_LAST_MLP.compute(run, al.knock_out, model, exchanged, step, **settings)
    tested = prompts.carry.pairs[prompts.carry.test]
    draw: dict[str, Any] = {"n": config.n, "seed": config.seed}
    SNAPSHOT_CARRY.compute(run, carry_by_layer, model, tested, step, **draw)


def accuracy_pairs(model: al.HookedModel, config: EmergenceConfig) -> dict[str, al.PromptPairs]:
    """Sums of one digit in all wordings; of two digits, below 100, with and without a carry.

    None is left out because of its answer.
    """
    options: dict[str, Any] = {"keep": "all", "seed": config.seed}
    pairs = {ONE_DIGIT: al.sample_pairs(model, OPERATION, **options)}
    options |= {"operands": range(10, 90), "answer_token": "first", "templates": [TEMPLATE]}
    large = al.sample_pairs(model, OPERATION, **options)
    assert large.operands is not None
    small, carries = large.operands.sum(1) < 100, (large.operands % 10).sum(1) > 9
    for name, chosen in ((WITH_CARRY, small & carries), (WITHOUT_CARRY, small & ~carries)):
        pairs[name] = random_pairs(large[chosen], config.n, config.seed)
    return pairs


def lens_pairs(model: al.HookedModel, counterfactual: str, seed: int) -> al.PromptPairs:
    """Sums of one digit in one wording, all of them."""
    options: dict[str, Any] = {"counterfactual": counterfactual, "keep": "all", "seed": seed}
    return al.sample_pairs(model, OPERATION, templates=[TEMPLATE], **options)


def carry_pairs(model: al.HookedModel, n: int, seed: int) -> al.InterchangePairs:
    """Matched pairs of the carry of the ones. None is left out because of its answers."""
    causal = al.causal_model(OPERATION, "carry")
    options: dict[str, Any] = {"sources": "matched", "templates": [TEMPLATE], "answers": UNDER_100}
    return al.interchange_pairs(model.tokenizer, causal, "ones_carry", n=n, seed=seed, **options)


def carry_by_layer(
    model: al.HookedModel, pairs: al.PromptPairs, *, n: int, seed: int
) -> al.Interchange:
    """The interchange of the carry at the exit of each layer.

    Args:
        model: the model.
        pairs: the tested half of `carry_pairs`, which identifies the result.
        n: as in `carry_pairs`.
        seed: of the pairs and of the controls.
    """
    sites = [al.Site(layer) for layer in range(model.n_layers)]
    return al.interchange(model, carry_pairs(model, n, seed), sites, seed=seed)


def _plan(model: al.HookedModel, training: Training) -> str:
    rate = matrix_rate(model)
    per_token = 2 * sum(weight.numel() for weight in model.bridge.parameters())
    runs = training.settings.n // 2 * model.n_layers * 17 / 2
    return (
        f"{len(training.steps)} snapshots of steps {training.steps[0]} to {training.steps[-1]}; "
        f"for each, runs of END alone: {runs:.0f}, at most {time_text(runs * per_token, rate)}; "
        "and two maps of 36 sums of one digit"
    )


main = Experiment(
    "emergence",
    EmergenceConfig,
    compute,
    _plan,
    figure="emergence",
    question=Training.of,
    identity=lambda training: training.identity,
)
