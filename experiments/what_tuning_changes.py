"""What does tuning change? Effects of every head and MLP before it and after, on the same prompts.

Path patching over the four operations, of the model as it was and of each tuned one: do the tuned
heads come to matter more, does the calculation move to others? The prompts are those that the model
answered right before; how many it still does is kept beside the effects. By default the tuned
models are those of Table 1's precise trainings, which the newest run of
experiments/does_tuning_help has kept; give your own as delta files, as outputs of `fine_tune`, or
as checkpoints. Saves a run under results/what_tuning_changes/, which `figures/before_after.py`
draws.
"""

from dataclasses import dataclass
from functools import reduce
from operator import add
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

import arith_lens as al
from arith_lens.effects import BeforeAfter
from arith_lens.fine_tuning import Delta, TuningResult, load_delta
from arith_lens.fine_tuning.results import DELTA, FILE
from arith_lens.pairs.correctness import answer
from arith_lens.runs import Run
from experiments.command import command, exit_on_user_error
from experiments.does_tuning_help.tuned import precise_models, tuning_run
from experiments.results import PATHS, TUNED_MAP, UNTUNED_MAP
from experiments.settings import (
    BEFORE_FILTER,
    PooledSample,
    loaded_model,
    pooled,
    pooled_samples,
)


@dataclass(frozen=True)
class Tuned:
    """A tuned model: a delta file, an output of `fine_tune`, or a checkpoint, told apart by what
    is there."""

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
        """What holds the weights: with other contents, the run is another."""
        return sorted(self.path.rglob("*.safetensors")) if self.path.is_dir() else [self.path]

    def made(self) -> TuningResult | Delta | None:
        """What knows which components were tuned; None for a checkpoint.

        Raises:
            ValueError: a file of another kind
        """
        if self.path.is_dir():
            return TuningResult.load(self.path) if (self.path / FILE).is_file() else None
        return load_delta(self.path)

    def components(self) -> list[str]:
        """Heads and MLPs that were trained alone; those that LoRA was set against were not."""
        made = self.made()
        if made is None or (isinstance(made, TuningResult) and made.untouched is None):
            return []
        return [*map(str, made.heads), *map(str, made.mlps)]

    def load(self, base: str, device: str | None) -> al.HookedModel:
        """The model, ready to be patched."""
        made = self.made()
        return al.load_model(made.model(base) if made else str(self.path), device=device)


@dataclass(frozen=True)
class Config(PooledSample):
    """What does tuning change? Effects of every head and MLP before it and after."""

    tuned: tuple[Path, ...] = ()
    """Delta files, outputs of fine_tune, or checkpoints; those of Table 1 if not given."""
    paths: Literal["via_mlps", "direct"] = "via_mlps"
    """What may carry a change: MLPs but no other head (Appendix B), or nothing (Algorithm 1)."""
    metric: Literal["relative_logit", "logit", "logprob", "probability"] = "relative_logit"
    """What is read from the logits."""


def main(
    config: Annotated[Config, tyro.conf.arg(name="")],
    *,
    root: Path = Path("results"),
    dry_run: bool = False,
    again: bool = False,
) -> None:
    """Patch, save and say where.

    Args:
        config: what to compute.
        root: where runs are kept, that of the tuning among them.
        dry_run: print what it would cost, and stop.
        again: compute anew what an earlier run of this configuration has saved.
    """
    with exit_on_user_error():
        tuned = tuned_models(config, root)
    model = loaded_model(config, weights=not dry_run)
    if dry_run:
        pairs = pooled(pooled_samples(model, n=config.n, seed=config.seed, keep="all"))
        names = ", ".join(one.name for one in tuned)
        cost = al.plan(model, pairs, **_settings(config))
        print(f"as it was, and {names}: each {cost}{BEFORE_FILTER}")
        return
    with exit_on_user_error():
        inputs = [path for one in tuned for path in one.files]
        opened = al.open_run(
            "what_tuning_changes", config, model=model, inputs=inputs, root=root, again=again
        )
    with opened as run:
        missing = [one for one in tuned if again or not TUNED_MAP.is_in(run, one.name)]
        if missing:
            pairs = pooled_samples(model, n=config.n, seed=config.seed)
            before = _map(run, model, "before", pairs, config)
            UNTUNED_MAP.save(run, before, pairs=pooled(pairs))
            for one in missing:
                compare(one, before, pairs, config, run)
    print(f"saved in {run.path}; python -m figures before_after --model {config.model} draws it")


def tuned_models(config: Config, root: Path) -> list[Tuned]:
    """What is compared with the model as it was.

    Raises:
        OSError, ValueError, RunError: one is not there, or cannot be read
    """
    if not config.tuned:
        found = precise_models(tuning_run(config.model, root))
        return [Tuned(one.name, Path(one.result.output)) for one in found]
    models = [Tuned(_name(path), path) for path in config.tuned]
    names = [one.name for one in models]
    if len({*names, "before"}) <= len(names):
        raise ValueError(
            "expected tuned models whose files' or folders' names tell them apart, none of them "
            f"'before', found {', '.join(names)}; rename some"
        )
    for one in models:
        one.made()
    return models


def _name(path: Path) -> str:
    """As a result of a run may be called; a file `delta.safetensors` by its folder."""
    whole = path.absolute()
    name = whole.parent.name if whole.name == DELTA else whole.name.removesuffix(".safetensors")
    return "".join(c if c.isascii() and c.isalnum() else "-" for c in name).strip("-")


def compare(
    tuned: Tuned,
    before: al.ComponentEffects,
    pairs: dict[str, al.PromptPairs],
    config: Config,
    run: Run,
) -> None:
    """Patch one tuned model, and save both sides and how often it still answers right."""
    with exit_on_user_error():
        model = tuned.load(config.model, config.device)
    run.admit(model)
    both = BeforeAfter(before, _map(run, model, tuned.name, pairs, config))
    together = pooled(pairs)
    right, _ = answer(model, together, "reference", batch_size=128)
    TUNED_MAP.save(
        run,
        both,
        tuned.name,
        pairs=together,
        still_right=float(right.double().mean()),
        components=tuned.components(),
    )
    print(f"{tuned.name}: still answers {right.double().mean():.1%} of {len(together)} right")


def _map(
    run: Run, model: Any, label: str, pairs: dict[str, al.PromptPairs], config: Config
) -> al.ComponentEffects:
    """A model's effects on the pairs of all operations."""
    maps = [
        al.path_patch(model, some, run=run, name=PATHS.name(name, label), **_settings(config))
        for name, some in pairs.items()
    ]
    return reduce(add, maps)


def _settings(config: Config) -> dict[str, Any]:
    """Of path patching."""
    return {"paths": config.paths, "metric": config.metric}


if __name__ == "__main__":
    command(main, "what_tuning_changes", __doc__, shares=False)
