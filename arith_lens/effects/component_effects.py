"""The effects of a whole model: every head and MLP, which of them are key, and their tables."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from arith_lens.arrays import Arrays, joined_arrays
from arith_lens.caller_warnings import warn_caller
from arith_lens.components import Component, Head, Mlp, as_components, every_component
from arith_lens.effects.effects import GROWING, HEAD_AXES, Effects
from arith_lens.statistics import false_discovery_control

if TYPE_CHECKING:
    from pandas import DataFrame

    from arith_lens.explorer_page import Explorer


@dataclass(frozen=True)
class ComponentEffects:
    """The effects of every head and every MLP of a model, from one experiment.

    `logit` is the answer's logit in the unpatched reference run, from the same kernels as the
    effects. `n_left_out` pairs have no effect: their logit is not
    positive, for a ratio, or the metric cannot be stated for them. `computation`
    says how it was computed: engine, shards, dtype, certificate.
    """

    heads: Effects
    mlps: Effects
    logit: Float[Tensor, " pair"]
    n_left_out: int = 0
    computation: Mapping[str, Any] = field(default_factory=dict)
    stream: Effects | None = None
    """The effects of the residual stream or of attention's outputs, [layer pair] or [layer position
    pair], if these were the senders. Heads and MLPs are then NaN."""

    def __add__(self, other: "ComponentEffects") -> "ComponentEffects":
        """The effects on the pairs of both, such as those of two operations.

        Raises:
            ValueError: effects of another shape, or measured in another way.
        """
        if not isinstance(other, ComponentEffects):
            return NotImplemented
        parts = [
            part
            for one in (self, other)
            for part in one.computation.get("parts", [one.computation])
        ]
        return ComponentEffects(
            heads=self.heads + other.heads,
            mlps=self.mlps + other.mlps,
            logit=torch.cat([self.logit, other.logit]),
            n_left_out=self.n_left_out + other.n_left_out,
            computation={"parts": parts},
            stream=self.stream
            if self.stream is None or other.stream is None
            else self.stream + other.stream,
        )

    def __getitem__(self, component: Head | Mlp | str | tuple[int, int]) -> Effects:
        """The effects of one head or MLP on all pairs, such as `effects["5.5"]` or `"MLP 5"`.

        Raises:
            TypeError, IndexError: as in `Effects[...]`.
        """
        (one,) = as_components(component)
        return (self.heads if isinstance(one, Head) else self.mlps)[one]

    def top(self, k: int) -> list[Component]:
        """The k strongest components, heads and MLPs together, as `Effects.top` ranks them.

        Raises:
            ValueError, TypeError: as `Effects.top`.
        """
        heads = self.heads.towards_counterfactual()
        mlps = self.mlps.towards_counterfactual()
        known = [p for p in (self.heads, self.mlps) if not bool(p.per_pair.isnan().all())]
        candidates = [one for part in known or [self.heads] for one in part.top(k)]

        def strength(one: Component) -> float:
            return float(heads[one.layer, one.index] if isinstance(one, Head) else mlps[one.layer])

        return sorted(candidates, key=strength)[:k]

    def q_values(
        self, *, over: str = "problem"
    ) -> tuple[Float[Tensor, "layer head *place"], Float[Tensor, " layer *place"]]:
        """Of heads and of MLPs: sign tests, false discoveries controlled over both together.

        Benjamini and Hochberg's control, over all components of the experiment: calling all with
        q below 0.05 real, one expects that at most 5% of those are not.
        """
        heads, mlps = (part.sign_test(over=over) for part in (self.heads, self.mlps))
        together = false_discovery_control(torch.cat([heads.flatten(), mlps.flatten()]))
        of_heads, of_mlps = together.tensor_split([heads.numel()])
        return of_heads.reshape(heads.shape), of_mlps.reshape(mlps.shape)

    def to_arrays(self) -> Arrays:
        """For a file: heads, MLPs and logits; how they were computed is in the header."""
        parts = {"heads": self.heads.to_arrays(), "mlps": self.mlps.to_arrays()}
        if self.stream is not None:
            parts["stream"] = self.stream.to_arrays()
        header = {"n_left_out": self.n_left_out, "computation": dict(self.computation)}
        return joined_arrays("component_effects", parts, {"logit": self.logit}, header)

    @classmethod
    def from_arrays(cls, arrays: Arrays) -> "ComponentEffects":
        """Read `to_arrays` back, bit for bit. Raises ValueError for another kind of result."""
        arrays.require("component_effects")
        return cls(
            heads=Effects.from_arrays(arrays.part("heads")),
            mlps=Effects.from_arrays(arrays.part("mlps")),
            logit=arrays.tensors["logit"],
            n_left_out=arrays.header["n_left_out"],
            computation=arrays.header["computation"],
            stream=Effects.from_arrays(arrays.part("stream"))
            if "stream" in arrays.header
            else None,
        )

    def save(self, path: str | Path) -> Path:
        """Write one safetensors file, which `ComponentEffects.load` reads back; its path."""
        return self.to_arrays().save(path)

    @classmethod
    def load(cls, path: str | Path) -> "ComponentEffects":
        """Read what `save` wrote. Raises ValueError for another file, with its path."""
        return cls.from_arrays(Arrays.load(path))

    def to_dataframe(self) -> "DataFrame":
        """One row per component: its name, head and index (none for an MLP), layer, mean, error,
        interval, pairs, q. Of the stream: one row per layer (and position)."""
        if self.stream is not None:
            return self.stream.to_dataframe()
        table = joined_tables(self.heads, self.mlps)
        table["q"] = torch.cat([part.flatten() for part in self.q_values()]).numpy()
        return table

    def explore(self) -> "Explorer":
        """The map to click on, with each component's effect for every wording and problem.

        It shows itself in a notebook; `.save(path)` writes an offline page. `al.explore(model,
        pairs)` also shows what the components read and write, and knocks them out.
        """
        from arith_lens.explorer_page import Explorer

        return Explorer({"effects": ({}, effect_tables(self))}, title="Map of effects")

    def __repr__(self) -> str:
        if self.stream is not None:
            return f"ComponentEffects(stream={self.stream!r})"
        return f"ComponentEffects(heads={self.heads!r}, mlps={self.mlps!r})"

    def _repr_html_(self) -> str:
        if self.stream is not None:
            return self.stream.figure_html("stream")
        return self.heads.figure_html("heads") + self.mlps.figure_html("MLPs")


def joined_tables(heads: Effects, mlps: Effects) -> "DataFrame":
    """The tables of heads and of MLPs as one, with a column `component` ("5.2", "MLP 5")."""
    from pandas import concat

    of_heads, of_mlps = heads.to_dataframe(), mlps.to_dataframe()
    table: Any = concat([of_heads, of_mlps], ignore_index=True)
    names = [*of_heads["head"], *(str(Mlp(int(layer))) for layer in of_mlps["layer"])]
    table.insert(0, "component", names)
    return table.astype({"index": "Int64"})


KEY = {"relative_logit": -0.05}
"""The mean effect that key heads are below, of the metric that the paper measures with."""

ERROR_RATE = 0.05
"""The share of false discoveries that is expected among heads whose mean is called non-zero."""


def key_heads(effects: Effects | ComponentEffects, threshold: float | None = None) -> list[Head]:
    """The heads whose mean effect is below `threshold`, strongest first (paper, section 5.1).

    Chance alone makes no key head: the mean must also differ from zero (`differs_from_zero`).
    Effects of a single problem show no difference from zero: then there is a warning.
    Heads beyond the threshold on the other side oppose the answer; they are not key heads.

    Args:
        threshold: below 0 (above 0 for metrics that grow with the counterfactual, such as
            `interchange`); None: the paper's -0.05 (-5%), which is one of relative logits.

    Raises:
        ValueError: the effects are of another metric and there is no threshold, or the threshold is
            0 or more.

    Example:
        >>> import arith_lens as al
        >>> model = al.load_model("reference")
        >>> pairs = al.sample_pairs(model, n=6, templates="symbols", counterfactual="operands")
        >>> effects = al.path_patch(model, pairs, metric="digit_contrast", progress=False)
        >>> heads = al.key_heads(effects, threshold=-0.5)   # in logits, as the metric is
    """
    heads = effects.heads if isinstance(effects, ComponentEffects) else effects
    if heads.axes != HEAD_AXES:
        raise TypeError(f"expected effects of heads {HEAD_AXES}, found the axes {heads.axes}")
    if threshold is None and heads.metric not in KEY:
        raise ValueError(
            f"expected a threshold for effects of the metric {heads.metric!r}, found none; the "
            f"paper's {KEY['relative_logit']:.0%} is of relative_logit. Give threshold= in units "
            "of your metric, or take .top(k)"
        )
    if not _has_error(heads):
        warn_caller(
            "expected effects of two problems or more, found those of "
            f"{min(1, heads.n_pairs)}; nothing differs from zero there, so no head is a key head. "
            "Sample more problems, or rank the heads with .top(k)"
        )
    threshold = KEY[heads.metric] if threshold is None else threshold
    sign = -1 if heads.metric in GROWING else 1
    if sign * threshold >= 0:
        raise ValueError(
            f"expected a threshold {'above' if sign < 0 else 'below'} 0 for {heads.metric}, such "
            f"as {-sign * 0.05}, found {threshold}; key heads are those whose patching takes the "
            "answer away"
        )
    chosen = (sign * heads.mean() < sign * threshold) & differs_from_zero(heads)
    strongest = heads.top(int(chosen.numel()))
    return [head for head in strongest if isinstance(head, Head) and chosen[head.layer, head.index]]


def _has_error(effects: Effects) -> bool:
    """Whether there are two problems or more, without which a mean has no error."""
    return len({*effects.sample().clusters.tolist()}) > 1


def differs_from_zero(effects: Effects) -> Bool[Tensor, "*component"]:
    """Whether the mean of each component differs from zero.

    It is a t-test on the standard error over problems, with false discoveries controlled at 5% over
    all components (Benjamini and Hochberg). Effects of fewer than two problems have no error, and
    no mean that differs from zero.
    """
    return effects.t_q_values() < ERROR_RATE


def effect_tables(effects: ComponentEffects) -> dict[str, "DataFrame"]:
    """The tables of a map of effects.

    Returns:
        `effects`: one row per component, with paths, metric, layer, head (-1: an MLP), mean, the
        ends of its 95% interval, and whether it is a key head. `units`: one row per component and
        unit (`template` or `problem`), with the mean over the pairs of this unit. `held`: one row
        per component, its mean and interval with the final norm's scale held; no rows if the
        effects were not split in this way.
    """
    from pandas import DataFrame, concat

    heads = effects.heads
    if heads.axes != HEAD_AXES:
        raise TypeError(
            f"expected effects of components {HEAD_AXES}, found the axes {heads.axes}; explore "
            "those of one position"
        )
    setting = {"paths": heads.paths or "", "metric": heads.metric}
    n_layers, n_heads, _ = heads.per_pair.shape
    names = every_component(n_layers, n_heads)
    known = not heads.per_pair.isnan().all()
    judged = known and heads.metric in KEY and _has_error(heads)
    key = {*map(str, key_heads(heads))} if judged else set()
    table = effects.to_dataframe()
    table = DataFrame(
        setting
        | {
            "component": list(map(str, names)),
            "layer": table["layer"],
            "head": table["index"].fillna(-1).astype(int),
            **{name: table[name] for name in ("mean", "ci_low", "ci_high")},
            "key": [str(name) in key for name in names],
        }
    )
    units = [("template", heads.template), ("problem", heads.problem)]
    parts = []
    for unit, labels in units:
        for name in dict.fromkeys(labels or ()):
            rows = torch.tensor([label == name for label in labels or ()])
            means = [part.select(rows).mean().flatten() for part in (heads, effects.mlps)]
            columns = {"unit": unit, "name": name, "component": table["component"]}
            parts.append(DataFrame(setting | columns | {"mean": torch.cat(means).numpy()}))
    empty = DataFrame(columns=[*setting, "unit", "name", "component", "mean"])
    return {
        "effects": table,
        "units": concat(parts, ignore_index=True) if parts else empty,
        "held": _held_table(effects, setting),
    }


def _held_table(effects: ComponentEffects, setting: dict[str, str]) -> "DataFrame":
    """The effects with the final norm's scale held; no rows if they were not split."""
    from pandas import DataFrame

    columns = ["component", "mean", "ci_low", "ci_high"]
    if effects.heads.held_norm is None or effects.mlps.held_norm is None:
        return DataFrame(columns=[*setting, *columns])
    parts = (effects.heads.without_norm_scale(), effects.mlps.without_norm_scale())
    table = joined_tables(*parts)
    names = every_component(*effects.heads.per_pair.shape[:2])
    return DataFrame(table.assign(component=list(map(str, names)), **setting)[[*setting, *columns]])
