"""What an intervention did at each component, pair by pair, with its statistics.

There is one effect per pair, since a mean without its spread cannot be distinguished from noise.
Means weigh the templates equally. Errors, intervals and tests count a problem as one observation:
nine wordings of 3 + 5 are not nine independent pieces of evidence.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from arith_lens.arrays import Arrays
from arith_lens.components import Component, Head, Mlp, Neuron, as_components, as_mlps
from arith_lens.effects.places import HEAD_AXES as HEAD_AXES
from arith_lens.effects.places import MLP_AXES as MLP_AXES
from arith_lens.effects.places import NEURON_AXES, place_columns, place_of
from arith_lens.intervals import share_interval, studentised_interval
from arith_lens.options import check_choice
from arith_lens.statistics import (
    HasUnits,
    Sample,
    bootstrap_interval,
    chosen_units,
    clustered_stderr,
    false_discovery_control,
    joined_units,
    mean_over_strata,
    sign_test,
    strata_of,
    t_test,
)

if TYPE_CHECKING:
    from pandas import DataFrame

GROWING = (
    "interchange",
    "answers_other",
    "share_of_total",
    "share_of_total_contrast",
    "share_of_total_probability",
)
"""Metrics on which an effect of 1 is that of the whole counterfactual prompt. On all others, what
helps the answer has a negative effect."""

IntervalMethod = Literal["auto", "studentised", "share", "percentile"]
SHARES = (
    "correct",
    "right",
    "wrong",
    "answers_other",
    "answers C'",
    "top-1 is C",
    "interchange_accuracy",
)
"""Metrics, and labels of the axis `measure`, that say of each pair whether something happened: 0 or
1, or the share of draws in which it did. Their means have the interval of a share."""
WINNER = "winner of "
"""How the metrics of `arith_lens.probes.winners` begin. Their numbers are 0 or 1, too."""


class NoTemplates(ValueError):
    """The pairs were not made from templates."""


@dataclass(frozen=True)
class Effects(HasUnits):
    """One number for each component and prompt pair; NaN where a pair or a component was left out.

    Standard errors, intervals and tests take `over`: `"problem"` (default) or `"prompt"`. Over
    problems, they speak of other problems of the same kind and, where problems occur in several
    wordings, of other wordings too. Over prompts, each reference prompt counts as one observation,
    and the wordings are fixed: such intervals are too narrow when wordings of one problem agree.
    """

    per_pair: Float[Tensor, "*component pair"]
    axes: tuple[str, ...]
    metric: str
    paths: str | None = None
    template: tuple[str, ...] | None = None
    """The wording of each pair; None where pairs have none."""
    cluster: Int[Tensor, " pair"] | None = None
    """The reference prompt of each pair: the same number for the same prompt."""
    labels: Mapping[str, tuple[str, ...]] | None = None
    """Names along an axis that is not simply counted, such as the roles of attention."""
    problem: tuple[str, ...] | None = None
    """The problem of each pair; where it is None, reference prompts are counted instead."""
    held_norm: Float[Tensor, "*component pair"] | None = None
    """The effects with the final norm's scale held at the reference run's; None: not computed."""

    def __post_init__(self) -> None:
        if len(self.axes) != self.per_pair.ndim - 1:
            raise ValueError(
                f"expected one name for each component axis of {tuple(self.per_pair.shape)} (the "
                f"last axis is the pair), found {self.axes}; name each axis once"
            )
        for name, values in self.units.items():
            if values is not None and len(values) != self.n_pairs:  # pyright: ignore
                raise ValueError(
                    f"expected one {name} for each of {self.n_pairs} pairs, found "
                    f"{len(values)}; give one per pair, or None"  # pyright: ignore
                )

    @property
    def n_pairs(self) -> int:
        """How many pairs there are, those left out included."""
        return self.per_pair.shape[-1]

    def __getitem__(self, component: Component | str | tuple[int, int] | int) -> "Effects":
        """The effects of one component on all pairs, such as `effects["5.5"].mean()`.

        Args:
            component: a head (`Head(5, 5)`, `"5.5"`, `"L5H5"`, `(5, 5)`), an MLP (`Mlp(5)`,
                `"MLP 5"`; where all effects are of MLPs, also 5), or a neuron (`Neuron(5, 17)`,
                `"MLP 5.17"`).

        Returns:
            Effects without the axes of heads, or of MLPs; other axes, such as roles, stay.

        Raises:
            TypeError: something that names no component, or effects of other components.
            KeyError, IndexError: these effects do not have it.
        """
        only_mlps = self.axes == MLP_AXES
        (one,) = (
            as_mlps(component)  # pyright: ignore
            if only_mlps
            else as_components(component, neurons=self.axes[:2] == NEURON_AXES)  # pyright: ignore
        )
        axes, place = place_of(one, self.axes, self.per_pair.shape, self.labels or {})
        return replace(
            self,
            per_pair=self.per_pair[place],
            axes=self.axes[len(axes) :],
            held_norm=None if self.held_norm is None else self.held_norm[place],
            labels={name: of for name, of in (self.labels or {}).items() if name not in axes}
            or None,
        )

    def mean(self) -> Float[Tensor, "*component"]:
        """Mean over the pairs of each template, then over templates; NaN pairs are left out."""
        strata = strata_of(self.template, self.n_pairs)
        return mean_over_strata(self.per_pair.double(), strata).float()

    def stderr(self, *, over: str = "problem") -> Float[Tensor, "*component"]:
        """Standard error of `mean`; see `arith_lens.statistics.clustered_stderr`.

        NaN where there are fewer than two problems (or prompts) in all.
        """
        return self._stderr(over)[0]

    def _stderr(self, over: str) -> tuple[Float[Tensor, "*component"], Float[Tensor, "*component"]]:
        """The standard error and its degrees of freedom."""
        sample = self.sample(over=over)
        sample = replace(sample, values=sample.values.double())
        shape = self.per_pair.shape[:-1]
        error, freedom = clustered_stderr(sample)
        return error.float().reshape(shape), freedom.float().reshape(shape)

    def ci(
        self,
        level: float = 0.95,
        *,
        over: str = "problem",
        method: str = "auto",
        n_resamples: int = 1000,
        seed: int = 0,
    ) -> Float[Tensor, "bound=2 *component"]:
        """Lower and upper end of an interval of `mean`. NaN where `stderr` is.

        docs/knockout.md has the measured coverage of each method.

        Args:
            level: such as 0.95.
            over: what counts as one observation; see `Effects`.
            method: `"auto"`: `"share"` for numbers that say whether an answer was right (the metric
                or measure is one of `SHARES`, and all numbers are from 0 to 1), else
                `"studentised"`.
                `"studentised"`: the bootstrap-t, which holds for skewed effects. Problems are drawn
                with replacement, each in all its wordings. `"share"`: Wilson's, for numbers that
                are 0 or 1 (both in `arith_lens.intervals`). `"percentile"`: the quantiles of
                redrawn means (`arith_lens.statistics.resampled_means`). It is narrower, and too
                narrow for skewed effects and for shares near 0 or 1: 30 of 30 have no width.
            n_resamples: the number of draws; `"share"` draws nothing.
            seed: the seed of the draws.

        Raises:
            ValueError: a level outside 0 to 1, another `over` or `method`, or `"share"` for numbers
                below 0 or above 1.
        """
        if not 0 < level < 1:
            raise ValueError(f"expected a level between 0 and 1, found {level}; say 0.95 for 95%")
        check_choice("method", method, get_args(IntervalMethod))
        sample = self.sample(over=over)
        is_share = torch.full((len(sample.values),), method == "share")
        if method == "auto":
            is_share = self._has_answers()
        ends = torch.empty(2, len(sample.values), dtype=torch.float64)
        if is_share.any():
            shares = replace(sample, values=sample.values[is_share])
            ends[:, is_share] = share_interval(shares, level=level)
        if not is_share.all():
            interval = bootstrap_interval if method == "percentile" else studentised_interval
            means = replace(sample, values=sample.values[~is_share])
            resampled = interval(means, level=level, n_resamples=n_resamples, seed=seed)
            ends[:, ~is_share] = resampled.double()
        return ends.float().reshape(2, *self.per_pair.shape[:-1])

    def _has_answers(self) -> Bool[Tensor, " component"]:
        """Which components, of the flattened axes, have numbers that say if an answer was right."""
        shape = self.per_pair.shape[:-1]
        is_named = torch.full(shape, self.metric in SHARES or self.metric.startswith(WINNER))
        names = (self.labels or {}).get("measure")
        if names is not None and "measure" in self.axes:
            after = [1] * (len(shape) - 1 - self.axes.index("measure"))
            is_named |= torch.tensor([name in SHARES for name in names]).reshape(-1, *after)
        values = self.per_pair
        is_answer = (((values >= 0) & (values <= 1)) | values.isnan()).all(-1).cpu()
        return (is_named & is_answer).reshape(-1)

    def sign_test(self, *, over: str = "problem") -> Float[Tensor, "*component"]:
        """Two-sided p-value that effects of either sign are equally likely, one vote per problem.

        Problems whose mean effect is exactly zero do not vote. The test reads the sign alone:
        an effect of 0.01% that never changes its sign is significant, and still small.
        """
        return sign_test(self.per_pair.double(), self.sample(over=over).clusters)

    def q_values(self, *, over: str = "problem") -> Float[Tensor, "*component"]:
        """`sign_test` after Benjamini and Hochberg's control of false discoveries over all.

        Of heads and MLPs of one experiment together: `ComponentEffects.q_values`.
        """
        return false_discovery_control(self.sign_test(over=over))

    def t_q_values(self, *, over: str = "problem") -> Float[Tensor, "*component"]:
        """A t-test of `mean` by `stderr` after Benjamini and Hochberg's control over all.

        It reads the sizes of effects, which `q_values` does not: it finds a mean that differs from
        zero with fewer problems, and is less robust to a few extreme ones.
        """
        return false_discovery_control(t_test(self.mean(), *self._stderr(over)))

    def towards_counterfactual(self) -> Float[Tensor, "*component"]:
        """The mean, its sign turned for metrics of `GROWING`: the strongest is most negative."""
        return -self.mean() if self.metric in GROWING else self.mean()

    def top(self, k: int) -> list[Head] | list[Mlp] | list[Neuron]:
        """The k strongest components, the strongest first; NaN means never come.

        The strongest has the most negative mean. Of metrics on which 1 is as much as the whole
        counterfactual prompt (`GROWING`), it has the largest.

        Raises:
            ValueError: k is below 0; or all means are NaN, so that there is nothing to rank: every
                pair was left out, or no component of this kind was computed.
            TypeError: k is not a whole number, or the effects are of other axes than components.
        """
        if not isinstance(k, Integral) or isinstance(k, bool):
            raise TypeError(f"expected a whole number of components, found {k!r}; write .top(3)")
        if k < 0:
            raise ValueError(f"expected a number of components of 0 or more, found {k}")
        means = self.towards_counterfactual()
        if k and means.numel() and bool(means.isnan().all()):
            raise ValueError(
                f"expected effects to rank, found NaN for every component of {self!r}: the metric "
                "left out all pairs, or the senders were others; choose another metric, "
                "counterfactuals that change the answer, or these senders"
            )
        order = torch.argsort(means.nan_to_num(nan=float("inf")).flatten(), stable=True)
        chosen = [int(i) for i in order if not means.flatten()[i].isnan()][:k]
        if self.axes == HEAD_AXES:
            return [Head(i // means.shape[1], i % means.shape[1]) for i in chosen]
        if self.axes == MLP_AXES:
            return [Mlp(i) for i in chosen]
        if self.axes == NEURON_AXES:
            layers = [Mlp.parse(name).layer for name in (self.labels or {})["mlp"]]
            return [Neuron(layers[i // means.shape[1]], i % means.shape[1]) for i in chosen]
        raise TypeError(
            f"expected effects of heads {HEAD_AXES}, MLPs {MLP_AXES} or neurons {NEURON_AXES}, "
            f"found the axes {self.axes}; rank those with .mean() instead"
        )

    def select(self, mask: Bool[Tensor, " pair"] | Int[Tensor, " chosen"] | slice) -> "Effects":
        """The same effects on some of the pairs."""
        rows = torch.arange(self.n_pairs)[mask]
        held = None if self.held_norm is None else self.held_norm[..., rows]
        return replace(
            self,
            per_pair=self.per_pair[..., rows],
            held_norm=held,
            **chosen_units(self.units, rows),
        )

    def measure(self, name: str) -> "Effects":
        """One measure of several on the axis `measure`. It is the metric, whose interval it has.

        Raises:
            KeyError: there is no such measure.
        """
        names = (self.labels or {}).get("measure", ())
        if name not in names:
            raise KeyError(f"expected a measure among {', '.join(names)}, found {name!r}")
        axis, labels = self.axes.index("measure"), dict(self.labels or {})
        del labels["measure"]
        return replace(
            self,
            per_pair=self.per_pair.select(axis, names.index(name)),
            axes=(*self.axes[:axis], *self.axes[axis + 1 :]),
            metric=name,
            labels=labels or None,
            held_norm=None,
        )

    def without_norm_scale(self) -> "Effects":
        """The part of each effect that does not act through the final norm's scale.

        It is the effect when the norm divides each patched run by the scale of the reference run:
        a component that merely makes the residual stream longer, so that the norm shrinks every
        logit, has none. With `by_norm_scale` it adds up to the effect, pair by pair.

        Raises:
            ValueError: the effects were computed in another way than by the sweep.
        """
        if self.held_norm is None:
            raise ValueError(
                "expected effects that are split by the final norm's scale, found effects without "
                "that; compute them with path_patch(engine='sweep')"
            )
        return replace(self, per_pair=self.held_norm, held_norm=None)

    def by_norm_scale(self) -> "Effects":
        """The part of each effect that acts through the final norm's scale; see
        `without_norm_scale`."""
        beside = self.without_norm_scale()
        return replace(beside, per_pair=self.per_pair - beside.per_pair)

    def __add__(self, other: "Effects") -> "Effects":
        """The pairs of both, after one another; their references count as different ones.

        A problem that both have is one problem.

        Raises:
            ValueError: effects of other components, or measured in another way.
        """
        if not isinstance(other, Effects):
            return NotImplemented
        for name in ("axes", "metric", "paths", "labels"):
            ours, theirs = getattr(self, name), getattr(other, name)
            if ours != theirs:
                raise ValueError(f"expected effects of the same {name}, found {ours} and {theirs}")
        units = joined_units(self.units, other.units)
        return self.combined(other, lambda a, b: torch.cat([a, b], dim=-1), **units)

    def combined(
        self, other: "Effects", how: Callable[[Tensor, Tensor], Tensor], **changes: Any
    ) -> "Effects":
        """These effects and others as one; the part with the norm held where both have it.

        Args:
            other: effects of the same components.
            how: makes the numbers of the result from both.
            changes: other fields of the result.
        """
        held = None
        if self.held_norm is not None and other.held_norm is not None:
            held = how(self.held_norm, other.held_norm)
        per_pair = how(self.per_pair, other.per_pair)
        return replace(self, per_pair=per_pair, held_norm=held, **changes)

    def by_template(self) -> dict[str, "Effects"]:
        """Each template's own effects, by its name.

        Raises:
            NoTemplates: The pairs were not made from templates.
        """
        if self.template is None:
            raise NoTemplates(
                "expected the template of each pair, found none; make the pairs with sample_pairs, "
                "because pairs from bare tokens have no templates"
            )
        names = np.array(self.template)
        return {
            name: self.select(torch.as_tensor(names == name)) for name in sorted({*self.template})
        }

    def places(self) -> dict[str, Any]:
        """The columns that name the component of each row, in the order of `per_pair`.

        A head has the columns `head` ("5.2"), `layer` and `index` in every table. Every other axis
        has a column of its name, with its labels or with numbers from 0.
        """
        return place_columns(self.axes, self.per_pair.shape[:-1], self.labels or {})

    def to_dataframe(self) -> "DataFrame":
        """One row per component: its names (`places`), mean, stderr, 95% interval, pairs used.

        In a CSV file, read the column `head` as text (`dtype={"head": str}`), else 5.10 becomes
        5.1.
        """
        from pandas import DataFrame

        low, high = self.ci()
        columns = self.places()
        statistics = {"mean": self.mean(), "stderr": self.stderr(), "ci_low": low, "ci_high": high}
        columns |= {name: value.flatten().numpy() for name, value in statistics.items()}
        columns["n"] = (~self.per_pair.isnan()).sum(-1).flatten().numpy()
        return DataFrame(columns)

    def to_arrays(self) -> Arrays:
        """For a file: templates and problems are numbered, the header has their names."""
        tensors, names = {"per_pair": self.per_pair}, {}
        for unit in ("template", "problem"):
            labels = getattr(self, unit)
            names[unit] = sorted({*(labels or ())})
            if labels is not None:
                numbers = {name: number for number, name in enumerate(names[unit])}
                tensors[unit] = torch.tensor([numbers[name] for name in labels], dtype=torch.long)
        for name in ("cluster", "held_norm"):
            if getattr(self, name) is not None:
                tensors[name] = getattr(self, name)
        header = {
            "kind": "effects",
            "axes": [*self.axes, "pair"],
            "metric": self.metric,
            "paths": self.paths,
            "templates": names["template"],
            "problems": names["problem"],
            "labels": None if self.labels is None else dict(self.labels),
        }
        return Arrays(tensors, header)

    @classmethod
    def from_arrays(cls, arrays: Arrays) -> "Effects":
        """Read `to_arrays` back, bit for bit. Raises ValueError for another kind of result."""
        arrays.require("effects")
        tensors, header = arrays.tensors, arrays.header
        units = {
            unit: tuple(header[f"{unit}s"][i] for i in tensors[unit].tolist())
            for unit in ("template", "problem")
            if unit in tensors
        }
        labels = header["labels"]
        return cls(
            per_pair=tensors["per_pair"],
            axes=tuple(header["axes"][:-1]),
            metric=header["metric"],
            paths=header["paths"],
            cluster=tensors.get("cluster"),
            held_norm=tensors.get("held_norm"),
            **units,
            labels=labels and {axis: tuple(names) for axis, names in labels.items()},
        )

    def save(self, path: str | Path) -> Path:
        """Write one safetensors file, which `Effects.load` reads back bit for bit; its path."""
        return self.to_arrays().save(path)

    @classmethod
    def load(cls, path: str | Path) -> "Effects":
        """Read what `save` wrote. Raises ValueError for another file, with its path."""
        return cls.from_arrays(Arrays.load(path))

    def heatmap(self, **options: Any) -> Any:
        """A plotly figure of the mean; `options` go to `plotting.heatmap`.

        Relative effects are in percent, with colours that reach to the strongest one.
        """
        from arith_lens.effects.pictures import heatmap

        return heatmap(self, **options)

    def __repr__(self) -> str:
        axes = " x ".join(
            f"{n} {axis}s" for n, axis in zip(self.per_pair.shape, self.axes, strict=False)
        )
        paths = f", paths {self.paths}" if self.paths else ""
        return f"Effects({axes or 'one number'}, {self.n_pairs} pairs, {self.metric}{paths})"

    def figure_html(self, name: str = "") -> str:
        """An `<img>` of the mean, for a notebook or a page; `name` (plain text) heads it."""
        from arith_lens.effects.pictures import figure_html

        return figure_html(self, name)

    def _repr_html_(self) -> str:
        return self.figure_html()

    def sample(self, *, over: str = "problem") -> Sample:
        """The numbers with their templates and problems, for `arith_lens.statistics`."""
        flat = self.per_pair.flatten(0, -2) if self.axes else self.per_pair[None]
        return Sample.of(flat, self.units, over)
