"""Does half precision change the map? Path patching in bfloat16 and float16 against float32.

On the pairs that the float32 model answers right: whether the heads and MLPs keep their order,
whether the key heads stay key, and how much a mean and a single pair change. The sweep keeps its
rows and the readout in float32. Some pairs are computed again by the hook engine, with all of the
model and its logits in half precision. Saves a run under results/how_precise/.
"""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
import tyro
from pandas import DataFrame

import arith_lens as al
from arith_lens.pairs import keep_correct
from arith_lens.path_patching import CertificateError
from arith_lens.runs import Run
from experiments.command import exit_on_user_error
from experiments.results import DTYPE_MAP, PrecisionFacts
from experiments.settings import BEFORE_FILTER, SampleSettings, loaded_model, operation_pairs


@dataclass(frozen=True)
class PrecisionConfig(SampleSettings):
    """Does half precision change the map? bfloat16 and float16 against float32."""

    dtype: Literal["float32"] = "float32"
    """The reference precision."""
    dtypes: tuple[Literal["bfloat16", "float16"], ...] = ("bfloat16", "float16")
    """What to compare with float32."""
    hooks: int = 16
    """Pairs per operation that the hook engine computes too, all in half precision."""


DISTANCES = ("largest_of_mean", "largest_of_pair", "root_mean_square")
"""How far effects are apart: fields of `Agreement`."""


@dataclass(frozen=True)
class Agreement:
    """Effects in half precision compared with float32, on the same pairs and components."""

    heads: float
    """Spearman's rank correlation over the heads' means."""
    mlps: float
    """The same over MLPs."""
    largest_of_mean: float
    """Largest difference of a component's mean."""
    largest_of_pair: float
    """Largest difference of one component in one pair."""
    root_mean_square: float
    """The root mean square of the differences, over components and pairs."""

    @classmethod
    def of(cls, wide: al.ComponentEffects, narrow: al.ComponentEffects) -> "Agreement":
        both = ((wide.heads, narrow.heads), (wide.mlps, narrow.mlps))
        means = [(a.mean() - b.mean()).abs().flatten() for a, b in both]
        pairs = torch.cat([(a.per_pair - b.per_pair).flatten() for a, b in both])
        pairs = pairs[pairs.isfinite()]
        return cls(
            heads=_spearman(*both[0]),
            mlps=_spearman(*both[1]),
            largest_of_mean=float(torch.cat(means).nan_to_num().max()),
            largest_of_pair=float(pairs.abs().max()),
            root_mean_square=float(pairs.square().mean().sqrt()),
        )


def main(
    config: Annotated[PrecisionConfig, tyro.conf.arg(name="")],
    *,
    root: Path = Path("results"),
    dry_run: bool = False,
) -> None:
    """Compute, save and print.

    Args:
        config: what to compute.
        root: the folder of all runs.
        dry_run: print what it would cost, and stop.
    """
    wide = loaded_model(config, weights=not dry_run)
    pairs = dict(operation_pairs(wide, config, keep="all" if dry_run else "correct"))
    if dry_run:
        for name, chosen in pairs.items():
            print(f"{name}, {1 + len(config.dtypes)} times: {al.plan(wide, chosen)}{BEFORE_FILTER}")
        return
    with exit_on_user_error():
        opened = al.open_run("how_precise", config, model=wide, root=root)
    with opened as run:
        for name, chosen in pairs.items():
            al.path_patch(wide, chosen, run=run, name=DTYPE_MAP.name(name, "float32"))
        del wide
        for dtype in config.dtypes:
            left = {n: p for n, p in pairs.items() if not DTYPE_MAP.is_in(run, n, dtype)}
            if left:
                _half(run, config, dtype, left)
    report(run)


def _half(
    run: Run, config: PrecisionConfig, dtype: str, pairs: Mapping[str, al.PromptPairs]
) -> None:
    """One dtype's effects, each saved with how it agrees with float32's."""
    with exit_on_user_error():
        model = al.load_model(config.model, dtype=getattr(torch, dtype), device=config.device)
    for name, chosen in pairs.items():
        wide = DTYPE_MAP.load(run, name, "float32")
        try:
            narrow = al.path_patch(model, chosen)
            hooks = _by_hooks(model, chosen, wide, narrow, config.hooks)
        except (FloatingPointError, CertificateError) as error:
            print(f"{name} in {dtype}: {type(error).__name__}: {error}")
            continue
        DTYPE_MAP.save(
            run,
            narrow,
            name,
            dtype,
            pairs=chosen,
            right=_n_right(model, chosen),
            agreement=asdict(Agreement.of(wide, narrow)),
            **hooks,
        )


def _n_right(model: al.HookedModel, pairs: al.PromptPairs) -> int:
    try:
        return len(keep_correct(model, pairs))
    except ValueError:  # none at all
        return 0


def _by_hooks(
    model: al.HookedModel,
    pairs: al.PromptPairs,
    wide: al.ComponentEffects,
    narrow: al.ComponentEffects,
    n_pairs: int,
) -> dict[str, Any]:
    """Some pairs by either engine, which shows what float32 rows are worth."""
    if not n_pairs:
        return {}
    step = max(1, len(pairs) // n_pairs)
    chosen = torch.arange(len(pairs)) % step == 0
    by_hooks = al.path_patch(model, pairs.filter(chosen), engine="hooks")
    expected = _select(wide, chosen)
    return {
        "hooks_pairs": int(chosen.sum()),
        "hooks": asdict(Agreement.of(expected, by_hooks)),
        "hooks_sweep": asdict(Agreement.of(expected, _select(narrow, chosen))),
    }


def _select(effects: al.ComponentEffects, chosen: torch.Tensor) -> al.ComponentEffects:
    heads, mlps = effects.heads.select(chosen), effects.mlps.select(chosen)
    return al.ComponentEffects(heads, mlps, effects.logit[chosen])


def _spearman(a: al.Effects, b: al.Effects) -> float:
    from scipy.stats import spearmanr

    correlation = spearmanr(a.mean().flatten(), b.mean().flatten(), nan_policy="omit")
    return float(correlation.statistic)  # pyright: ignore[reportAttributeAccessIssue]


def report(run: Run) -> None:
    """Print the agreement of the order and the key heads, then how much the numbers change."""
    print(f"{run.config['model']}: half precision against float32, relative change of the logit")
    orders, distances = [], []
    for operation, dtype, facts in _halves(run):
        both = (DTYPE_MAP.load(run, operation, precision) for precision in ("float32", dtype))
        wide, narrow = (set(al.key_heads(precision)) for precision in both)
        key = {"key in both": wide & narrow, "in float32": wide - narrow, "in half": narrow - wide}
        agreement = facts["agreement"]
        orders.append(
            {
                "operation": operation,
                "dtype": dtype,
                "right": f"{facts['right']}/{facts['pairs']}",
                "rho heads": f"{agreement['heads']:.4f}",
                "rho MLPs": f"{agreement['mlps']:.4f}",
            }
            | {title: " ".join(map(str, sorted(heads))) or "-" for title, heads in key.items()}
        )
        some = f"{operation} {dtype}, {facts.get('hooks_pairs')} pairs"
        measured = {
            f"{operation} {dtype}": agreement,
            f"{some}, sweep": facts.get("hooks_sweep"),
            f"{some}, all in half": facts.get("hooks"),
        }
        distances += [
            {"largest difference, in points": title}
            | {name.replace("_", " "): 100 * values[name] for name in DISTANCES}
            for title, values in measured.items()
            if values
        ]
    for rows in (orders, distances):
        print(f"\n{DataFrame(rows).to_string(index=False, float_format='{:.4f}'.format)}")
    print(f"\nsaved in {run.path}")


def _halves(run: Run) -> Iterator[tuple[str, str, PrecisionFacts]]:
    for operation in DTYPE_MAP.labels(run, None, "float32"):
        for dtype in DTYPE_MAP.labels(run, operation, None):
            if dtype != "float32":
                yield operation, dtype, DTYPE_MAP.facts(run, operation, dtype)
