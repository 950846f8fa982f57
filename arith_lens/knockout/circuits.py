"""Do chosen components suffice? Keep only them, and compare with knocking them out.

A set of components is needed if the model fails without it (`knock_out`). It suffices if the model
still answers when everything else is replaced (`keep_only`). `circuit_curve` asks either question
for the first k components of an order, and sums the curve up as the MIB benchmark does: CPR and
CMD (Mueller et al., 2025).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Literal, Unpack, get_args

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from arith_lens.arrays import Arrays
from arith_lens.components import (
    Component,
    Components,
    Head,
    Mlp,
    every_component,
    every_mlp,
    parse_component,
)
from arith_lens.effects import Effects
from arith_lens.knockout.engine import KnockoutEngine, checked_components, engine_of
from arith_lens.knockout.knock_out import knock_out, knockout_slot
from arith_lens.knockout.outcomes import Outcomes, components_text, read_back, stored
from arith_lens.knockout.settings import Knockout, KnockoutOptions
from arith_lens.metrics import METRICS, Readout, Targets, get_metric, read_logits
from arith_lens.model import HookedLike, every_neuron
from arith_lens.options import check_choice, refuse_unknown_options, value_object
from arith_lens.pairs import NO_ANSWER, PromptPairs, candidate_tokens
from arith_lens.runs import Run
from arith_lens.statistics import HasUnits, resampled_means

if TYPE_CHECKING:
    from pandas import DataFrame

Among = Literal["heads", "mlps", "neurons", "all"]
CurveKind = Literal["keep_only", "knock_out"]

FRACTIONS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
"""The shares of all components at which the MIB benchmark reads a curve."""
N_RESAMPLES = 1000


def keep_only(
    model: HookedLike,
    pairs: PromptPairs,
    components: Components,
    *,
    among: str = "heads",
    progress: bool = True,
    **options: Unpack[KnockoutOptions],
) -> Outcomes:
    """What the model answers when all components but the chosen ones are replaced.

    Args:
        model: HookedModel or TransformerBridge.
        pairs: the prompts and their answers.
        components: the heads and MLPs, or neurons, that stay as they are.
        among: what is replaced if it is not chosen: all other `"heads"`, `"mlps"`, or both
            (`"all"`); or all other `"neurons"`.
        ablation, positions, means, seed, progress: as in `knock_out`.

    Returns:
        The outcomes; their `components` are those that were replaced.

    Raises:
        ValueError: a chosen component is not one of `among`; or as in `knock_out`.

    Example:
        >>> import arith_lens as al
        >>> model = al.load_model("reference")
        >>> pairs = al.sample_pairs(model, n=6, templates="symbols", counterfactual="operands")
        >>> alone = al.keep_only(model, pairs, ["5.5", "4.3", "6.0"], positions="end")
        >>> alone.correct.shape                    # [pair]
        torch.Size([6])
    """
    refuse_unknown_options(keep_only, options, Knockout)
    others = complement(model, components, among)
    return knock_out(model, pairs, others, progress=progress, **options)


@dataclass(frozen=True)
class CircuitCurve(HasUnits):
    """A metric as more and more components of an order are kept, or knocked out."""

    value: Float[Tensor, "size pair"]
    """The metric, read at END."""
    correct: Bool[Tensor, "size pair"]
    """Whether the most likely token of the vocabulary is C."""
    sizes: tuple[int, ...]
    """How many components are kept (or out), from 0 to all."""
    order: tuple[Component, ...]
    """All components, the first one first."""
    kind: str
    """`keep_only` or `knock_out`."""
    metric: str
    ablation: str
    positions: str
    means: str
    template: tuple[str, ...] | None = None
    cluster: Int[Tensor, " pair"] | None = None
    problem: tuple[str, ...] | None = None
    n_forwards: float = field(default=float("nan"))
    """The cost, in whole forwards of the pairs."""

    def effects(self) -> Effects:
        """Both measures as Effects, [measure size pair]."""
        labels = {"measure": ("correct", self.metric), "size": tuple(map(str, self.sizes))}
        values = torch.stack([self.correct.float(), self.value])
        return Effects(values, ("measure", "size"), "circuit", **self.units, labels=labels)

    def accuracy(self) -> Float[Tensor, " size"]:
        """The share of pairs answered with C at each size. Templates have equal weight."""
        return self.effects().mean()[0]

    def faithfulness(self) -> Float[np.ndarray, " size"]:
        """f at each size: 0 where all components are replaced, 1 where none is.

        It is (m(size) - m(all replaced)) / (m(none replaced) - m(all replaced)) of mean metrics.
        """
        return self._faithfulness(self.effects().mean()[1].double().numpy())

    @property
    def cpr(self) -> float:
        """The area under f over the share of components, by trapezoids.

        With `keep_only` a better order has a larger area. An area above 1 only says that harmful
        components were left out.
        """
        return float(self._areas(self.faithfulness())["cpr"])

    @property
    def cmd(self) -> float:
        """The area between f and 1 over the share of components, by trapezoids.

        With `keep_only` a better order has a smaller area; with `knock_out`, a larger one.
        """
        return float(self._areas(self.faithfulness())["cmd"])

    def intervals(self, *, seed: int = 0) -> dict[str, tuple[float, float]]:
        """The 95% intervals of `cpr` and `cmd`; problems are drawn as in `Effects.ci`."""
        areas = self._areas(self._draws(seed))
        ends = {name: np.nanquantile(draws, [0.025, 0.975]) for name, draws in areas.items()}
        return {name: (float(low), float(high)) for name, (low, high) in ends.items()}

    def to_dataframe(self) -> "DataFrame":
        """One row per size: share of the components, f and accuracy with 95% intervals."""
        from pandas import DataFrame

        low, high = np.nanquantile(self._draws(0), [0.025, 0.975], axis=0)
        effects = self.effects()
        ends = effects.ci()[:, 0].numpy()
        return DataFrame(
            {
                "size": list(self.sizes),
                "share": np.array(self.sizes) / len(self.order),
                "faithfulness": self.faithfulness(),
                "faithfulness_low": low,
                "faithfulness_high": high,
                "accuracy": effects.mean()[0].numpy(),
                "accuracy_low": ends[0],
                "accuracy_high": ends[1],
            }
        )

    def to_arrays(self) -> Arrays:
        """The arrays for a file; `from_arrays` reads them."""
        header = {"curve": self.kind, "metric": self.metric, "n_forwards": self.n_forwards}
        header |= {"sizes": list(self.sizes), "order": [*map(str, self.order)]}
        return stored("circuit_curve", self, header)

    @classmethod
    def from_arrays(cls, arrays: Arrays) -> "CircuitCurve":
        """Read `to_arrays` back. Raises ValueError for another kind of result."""
        fields, header = read_back("circuit_curve", arrays, "value")
        return cls(
            sizes=tuple(header["sizes"]),
            order=tuple(map(parse_component, header["order"])),
            kind=header["curve"],
            metric=header["metric"],
            n_forwards=header["n_forwards"],
            **fields,
        )

    def __repr__(self) -> str:
        return (
            f"CircuitCurve({self.kind}, {components_text(self.order)}; {self.metric}: "
            f"CPR {self.cpr:.2f}, CMD {self.cmd:.2f})"
        )

    def _draws(self, seed: int) -> Float[np.ndarray, "resample size"]:
        """f at each size in resamples of the problems."""
        sample = Effects(self.value, ("size",), self.metric, **self.units).sample()
        means = resampled_means(sample, slice(None), N_RESAMPLES, seed)
        return self._faithfulness(means.numpy().T)

    def _faithfulness(
        self, values: Float[np.ndarray, "*resample size"]
    ) -> Float[np.ndarray, "*resample size"]:
        first, last = values[..., :1], values[..., -1:]
        replaced, whole = (first, last) if self.kind == "keep_only" else (last, first)
        return (values - replaced) / (whole - replaced)

    def _areas(
        self, f: Float[np.ndarray, "*resample size"]
    ) -> dict[str, Float[np.ndarray, "*resample"]]:
        """`cpr` and `cmd`."""
        shares = np.array(self.sizes) / len(self.order)
        curves = {"cpr": f, "cmd": np.abs(1 - f)}
        return {name: np.asarray(np.trapezoid(curve, shares)) for name, curve in curves.items()}


@dataclass(frozen=True)
class CurveReading:
    """What a circuit curve is about, and its name."""

    among: str = "heads"
    """The components that the order is of."""
    candidates: Sequence[int] | None = None
    """The tokens that a metric compares with the answer."""
    name: str = "circuit_curve"
    """The name of the result in a run."""


class CircuitCurveOptions(KnockoutOptions, total=False):
    """The options of `circuit_curve`."""

    among: str
    candidates: Sequence[int] | None
    name: str


def circuit_curve(
    model: HookedLike,
    pairs: PromptPairs,
    order: Components,
    *,
    kind: str = "keep_only",
    metric: str = "probability",
    fractions: Sequence[int | float] = FRACTIONS,
    run: Run | None = None,
    progress: bool = True,
    **options: Unpack[CircuitCurveOptions],
) -> CircuitCurve:
    """How a metric depends on how many components of an order are kept, or knocked out.

    All sizes are computed together: what they share below the first layer in which they differ is
    computed once. Choose the order on other problems than those of `pairs` (`halves`); else the
    curve shows how well an order can be fitted.

    Args:
        model: HookedModel or TransformerBridge.
        pairs: the prompts and their answers.
        order: every component of `among`, the most important one first.
        kind: `"keep_only"` replaces all but the first k, `"knock_out"` replaces the first k.
        among: the components that the order is of: `"heads"`, `"mlps"`, `"neurons"` or `"all"`.
        metric: one of `metrics.METRICS` that is not a share and needs no foil.
        candidates: as in `path_patch`, for metrics that read them.
        ablation, positions, means, seed: as in `knock_out`.
        fractions: the shares of all components at which the curve is read; 0 and 1 are added.
        run: an open run, which keeps shards as they finish, and then the result as `name`.
        name: the name of the result in the run.
        progress: whether to show a progress bar.

    Raises:
        ValueError: the order is not of exactly the components of `among`; a fraction outside 0 to
            1; a metric that is a share or needs a foil; or as in `knock_out`.
        TypeError: an option does not exist.

    Example:
        >>> import arith_lens as al
        >>> model = al.load_model("reference")
        >>> pairs = al.sample_pairs(model, n=6, templates="symbols", counterfactual="operands")
        >>> effects = al.path_patch(model, pairs, metric="digit_contrast", progress=False)
        >>> order = effects.heads.top(96)          # of all heads, strongest first
        >>> curve = al.circuit_curve(model, pairs, order, fractions=(0, 0.05, 1))
        >>> cpr = curve.cpr                        # the area under the curve
    """
    refuse_unknown_options(circuit_curve, options, Knockout, CurveReading)
    knockout, reading = value_object(Knockout, options), value_object(CurveReading, options)
    among = reading.among
    check_choice("kind", kind, get_args(CurveKind))
    components = components_among(model, among)
    chosen = checked_components(model, order)
    if {*chosen} != {*components}:
        raise ValueError(
            f"expected an order of all {len(components)} components ({among}), found "
            f"{len(chosen)}: {components_text(chosen)}; append the others, or change among="
        )
    sizes = _sizes(fractions, len(components))
    tokens = metric_candidates(model, pairs, metric, reading.candidates)
    slot = knockout_slot(
        run,
        reading.name,
        model,
        pairs,
        knockout,
        method="circuit_curve",
        order=[*map(str, chosen)],
        kind=kind,
        sizes=sizes,
        metric=metric,
        candidates=tokens,
    )
    if (arrays := slot.stored(progress=progress)) is not None:
        return CircuitCurve.from_arrays(arrays)
    engine = engine_of(model, pairs, components, knockout)
    out = (lambda k: chosen[k:]) if kind == "keep_only" else (lambda k: chosen[:k])
    variants = [frozenset(out(k)) for k in sizes]
    answered = with_other_answers(engine, metric)
    read = partial(read_metric, metric=metric, pairs=answered, candidates=tokens)
    values = engine(variants, slot=slot, progress=progress, read=read)
    curve = CircuitCurve(
        value=values[1].float(),
        correct=values[0].bool(),
        sizes=sizes,
        order=chosen,
        kind=kind,
        metric=metric,
        means=engine.replacements.kind,
        n_forwards=engine.forwards(variants),
        **knockout.question,
        **pairs.units,
    )
    return slot.save(curve)


def components_among(model: HookedLike, among: str) -> list[Component]:
    """All heads, all MLPs or both, or all neurons. Raises ValueError for another `among`."""
    check_choice("parts (among=)", among, get_args(Among))
    if among == "neurons":
        return [*every_neuron(model, every_mlp(int(model.cfg.n_layers)))]
    everything = every_component(int(model.cfg.n_layers), int(model.cfg.n_heads))
    kind = {"heads": Head, "mlps": Mlp, "all": Head | Mlp}[among]
    return [component for component in everything if isinstance(component, kind)]


def complement(model: HookedLike, components: Components, among: str) -> list[Component]:
    """The components of `among` that are not chosen."""
    everything, chosen = components_among(model, among), {*checked_components(model, components)}
    strange = chosen - {*everything}
    if strange:
        raise ValueError(
            f"expected components to keep among the {among}, found {', '.join(map(str, strange))}; "
            "choose among='all' to keep heads and MLPs, and 'neurons' to keep neurons"
        )
    return [component for component in everything if component not in chosen]


def _sizes(fractions: Sequence[int | float], total: int) -> tuple[int, ...]:
    if not all(0 <= fraction <= 1 for fraction in fractions):
        raise ValueError(f"expected fractions from 0 to 1, found {list(fractions)}")
    return tuple(sorted({0, total, *(round(fraction * total) for fraction in fractions)}))


def metric_candidates(
    model: HookedLike, pairs: PromptPairs, metric: str, candidates: Sequence[int] | None
) -> tuple[int, ...] | None:
    """The candidates that a metric reads. Raises ValueError for shares and for foils."""
    description = get_metric(metric, None, candidates)
    if description.share_of is not None:
        names = [name for name, one in METRICS.items() if one.share_of is None]
        raise ValueError(
            f"expected a metric that is not a share among {', '.join(names)}, found {metric!r}; "
            "faithfulness is a share already"
        )
    if description.reads != "candidates":
        return None
    return candidate_tokens(model, pairs.answer.tolist(), candidates)


def with_other_answers(engine: KnockoutEngine, metric: str) -> PromptPairs:
    """The engine's pairs, with C' of the counterfactuals from which replacements come.

    Raises:
        ValueError: the metric reads C', and a pair has none.
    """
    other = engine.other_answers
    without = int((other == NO_ANSWER).sum())
    if METRICS[metric].reads == "likeliest" and without:
        raise ValueError(
            f"expected a counterfactual with another answer for each pair with {metric!r}, found "
            f"{without} of {len(other)} without one; sample pairs with counterfactual='operands', "
            "use ablation='counterfactual', or leave these pairs out"
        )
    return replace(engine.pairs, counterfactual_answer=other)


def read_metric(
    logits: Float[Tensor, "state pair d_vocab"],
    rows: Int[Tensor, " pair"],
    *,
    metric: str,
    pairs: PromptPairs,
    candidates: tuple[int, ...] | None,
) -> Float[Tensor, "what=2 state pair"]:
    """Whether the answer is right, and the metric, on the CPU."""
    others = None if candidates is None else torch.tensor(candidates)
    targets = Targets.of(pairs[rows], METRICS[metric].reads, candidates=others)
    readout = Readout.stack([read_logits(state, targets) for state in logits])
    correct = logits.argmax(-1) == targets.answer.to(logits.device)
    return torch.stack([correct.double(), METRICS[metric].value(readout).double()]).cpu()
