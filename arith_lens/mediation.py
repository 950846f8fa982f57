"""Which MLPs carry the effects of heads to the logits, computed with the sweep."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, Unpack

import torch
from jaxtyping import Float
from torch import Tensor

from arith_lens.arrays import Arrays, joined_arrays
from arith_lens.components import Activations, Component, Components, Head, as_components, every_mlp
from arith_lens.effects import Effects
from arith_lens.hooks import freeze, patch_heads, patch_mlps
from arith_lens.methods import (
    Computation,
    MetricTokenOptions,
    MetricTokens,
    Notes,
    Senders,
    Storage,
    StorageOptions,
    shard_size,
)
from arith_lens.model import HookedLike
from arith_lens.options import refuse_unknown_options, value_object
from arith_lens.pairs import PromptPairs
from arith_lens.path_patching import (
    Interventions,
    LayerInput,
    PatchSettings,
    Propagation,
    Recording,
    Trunk,
    engine_for,
    head_changes,
    n_left_out,
    patch_settings,
    patching_details,
    warn_of_left_out,
)
from arith_lens.runs import Run

if TYPE_CHECKING:
    from pandas import DataFrame


MEDIATION_PARTS = {
    "via_mlps": "via_mlps",
    "direct": "direct",
    "all_but_one_mlp": "but",
    "only_one_mlp": "only",
}
"""The effects of a mediation, and their names in files."""
VIEWS = ("mediated", "mediated_alone")


@dataclass(frozen=True)
class Mediation:
    """Effects of patching each head, with all other heads frozen, under four rules for the MLPs.

    A head's change does not reach the MLPs below it, so `mediated` and `mediated_alone` are 0
    there.
    """

    heads: tuple[Head, ...]
    """The heads that were patched."""
    via_mlps: Effects
    """All MLPs are computed again, [head, pair]: `path_patch(paths="via_mlps")`."""
    direct: Effects
    """All MLPs are frozen, [head, pair]: `path_patch(paths="direct")`."""
    all_but_one_mlp: Effects
    """The MLP of one layer is frozen, [head, mlp, pair]."""
    only_one_mlp: Effects
    """Only the MLP of one layer is computed again, [head, mlp, pair]."""
    logit: Float[Tensor, " pair"]
    """The answer's logit in the unpatched run, [pair]."""
    n_left_out: int = 0
    """The number of pairs without effects, because their logit is not positive."""
    computation: Mapping[str, Any] = field(default_factory=dict)
    """How it was computed: engine, shards, dtype, certificate."""

    @property
    def mediated(self) -> Effects:
        """How much of the effect disappears when one MLP is frozen, [head, mlp, pair]."""
        change = self.via_mlps.per_pair[:, None] - self.all_but_one_mlp.per_pair
        return replace(self.all_but_one_mlp, per_pair=change, paths="mediated")

    @property
    def mediated_alone(self) -> Effects:
        """How much one MLP alone adds to the direct effect, [head, mlp, pair]."""
        change = self.only_one_mlp.per_pair - self.direct.per_pair[:, None]
        return replace(self.only_one_mlp, per_pair=change, paths="mediated_alone")

    @property
    def interaction(self) -> Effects:
        """`via_mlps` minus the direct effect and the sum over layers, [head, view, pair].

        The views are the sums of `mediated` and of `mediated_alone` over MLPs. Both are 0 if
        MLPs act independently.
        """
        through = self.via_mlps.per_pair - self.direct.per_pair
        left = [through - part.per_pair.sum(1) for part in (self.mediated, self.mediated_alone)]
        labels = {**(self.direct.labels or {}), "view": VIEWS}
        axes = ("head", "view")
        together = torch.stack(left, dim=1)
        return replace(
            self.direct, per_pair=together, axes=axes, labels=labels, paths="interaction"
        )

    def to_dataframe(self) -> "DataFrame":
        """One row per head and MLP: means and intervals of `mediated` and `mediated_alone`, of the
        head's direct effect, and of its effect via MLPs."""
        from pandas import DataFrame

        def columns(name: str, part: Effects) -> DataFrame:
            table: Any = part.to_dataframe()
            names = {"mean": name, "ci_low": f"{name}_low", "ci_high": f"{name}_high"}
            return table[[*part.places(), *names]].rename(columns=names)

        tables = [columns(name, getattr(self, name)) for name in (*VIEWS, "direct", "via_mlps")]
        return reduce(DataFrame.merge, tables)

    def to_arrays(self) -> Arrays:
        """The arrays for a file: the four effects and the logits."""
        parts = {
            file_name: getattr(self, name).to_arrays()
            for name, file_name in MEDIATION_PARTS.items()
        }
        header = {
            "heads": [str(head) for head in self.heads],
            "n_left_out": self.n_left_out,
            "computation": dict(self.computation),
        }
        return joined_arrays("mediation", parts, {"logit": self.logit}, header)

    @classmethod
    def from_arrays(cls, arrays: Arrays) -> "Mediation":
        """Read `to_arrays` back, bit for bit. Raises ValueError for another kind of result."""
        arrays.require("mediation")
        return cls(
            heads=tuple(Head.parse(name) for name in arrays.header["heads"]),
            **{
                name: _by_mlp(Effects.from_arrays(arrays.part(file_name)))
                for name, file_name in MEDIATION_PARTS.items()
            },
            logit=arrays.tensors["logit"],
            n_left_out=arrays.header["n_left_out"],
            computation=arrays.header["computation"],
        )

    def __repr__(self) -> str:
        heads = " ".join(map(str, self.heads))
        n_layers = self.all_but_one_mlp.per_pair.shape[1]
        return f"Mediation({heads}; {n_layers} layers, {len(self.logit)} pairs)"

    def _repr_html_(self) -> str:
        return self.mediated._repr_html_()


def _by_mlp(part: Effects) -> Effects:
    """Effects per head and MLP with the MLPs' names, which results of earlier versions lack."""
    if part.axes != ("head", "layer"):
        return part
    n_layers = part.per_pair.shape[1]
    labels = {**(part.labels or {}), "mlp": tuple(map(str, every_mlp(n_layers)))}
    return replace(part, axes=("head", "mlp"), labels=labels)


Recomputed: TypeAlias = Literal["all", "none", "all but one", "only one"]
"""Which MLPs are computed again: all, none, all but one, one alone."""


@dataclass(frozen=True)
class MediationRow:
    """A head that is patched, and the MLPs that may react."""

    head: Head
    recomputed: Recomputed
    mlp: int | None = None
    """The layer whose MLP is frozen ("all but one") or may react ("only one")."""

    def recomputes(self, layer: int) -> bool:
        """Whether the MLP of this layer is computed again."""
        if self.recomputed in ("all", "none"):
            return self.recomputed == "all"
        return (layer == self.mlp) == (self.recomputed == "only one")

    def __str__(self) -> str:
        which = self.recomputed if self.mlp is None else f"{self.recomputed} {self.mlp}"
        return f"with {self.head} patched and MLPs recomputed: {which}"


def rows_of(senders: Senders) -> list[MediationRow]:
    """The meaning of the rows after the unpatched one, in the order of `mediated_rows`."""
    rows: list[MediationRow] = []
    heads: list[Head] = []
    after: list[tuple[Head, int]] = []
    for layer, indices in enumerate(senders.heads):
        new = [Head(layer, index) for index in indices]
        heads += new
        rows += [MediationRow(head, "all") for head in new]
        rows += [MediationRow(head, "all but one", layer) for head in heads]
        after += [(head, layer) for head in heads]
    direct = [MediationRow(head, "none") for head in heads]
    return [*rows, *direct, *(MediationRow(head, "only one", layer) for head, layer in after)]


def mediated_rows(
    trunk: Trunk, recording: Recording, senders: Senders
) -> Float[Tensor, "row pair d_model"]:
    """END's residual stream before the final norm: unpatched, then in the order of `rows_of`."""
    n_pairs, d_model = recording.stream.shape[1:]
    n_heads = sum(map(len, senders.heads))
    n_rows = 1 + len(rows_of(senders))
    first_direct = 1 + (n_rows - 1) // 2  # half of the rows pass MLPs, half are added at the end
    rows = torch.empty(n_rows, n_pairs, d_model, device=recording.stream.device)
    head_deltas = rows[first_direct : first_direct + n_heads]
    alone = rows[first_direct + n_heads :]
    rows[0] = recording.stream[0]
    live, joined, done = 1, 0, 0
    own: list[int] = []
    for layer, heads in zip(trunk.each_layer(), senders.heads, strict=True):
        earlier, joined = joined, joined + len(heads)
        own_heads = None
        if heads:
            own_heads = head_changes(trunk, recording, layer, heads)
            attention = recording.attn_out[0, layer]
            head_deltas[earlier:joined] = trunk.layers[layer].written_change(attention, own_heads)
            own += range(live, live + len(heads))
        after_mlp = _through_layer(
            trunk, recording, layer, rows, own, (live, earlier), own_heads, head_deltas[:joined]
        )
        live += len(heads)
        rows[live : live + joined], alone[done : done + joined] = after_mlp
        live, done = live + joined, done + joined
    rows[first_direct:] += rows[0]
    return rows


def _through_layer(
    trunk: Trunk,
    recording: Recording,
    layer: int,
    rows: Float[Tensor, "row pair d_model"],
    own: Sequence[int],
    counts: tuple[int, int],
    own_heads: Float[Tensor, "sent pair d_model"] | None,
    head_deltas: Float[Tensor, "joined pair d_model"],
) -> tuple[Float[Tensor, "joined pair d_model"], Float[Tensor, "joined pair d_model"]]:
    """Let the live rows pass a layer.

    Args:
        rows: all rows; the live ones are changed in place.
        own: for each head, the index of its own row in `rows`.
        counts: the number of live rows, and of heads of earlier layers. No MLP has reacted to a
            head of this layer yet, so its own row is also the row of this MLP alone.
        own_heads: the changes of the attention's output by the heads of this layer; None: it has
            none.
        head_deltas: what each head up to this layer adds to END's residual stream.

    Returns:
        For each head up to this layer: its row with this MLP frozen, and the difference of its row
        from the unpatched one if only this MLP reacts.
    """
    live, earlier = counts
    before = rows[[0, *own[:earlier]]]
    new = slice(live, live + len(head_deltas) - earlier)
    alone = rows[new.stop : new.stop + earlier]
    torch.add(head_deltas[:earlier], rows[0], out=alone)
    through = rows[: new.stop + earlier]
    trunk.layers[layer].advance(LayerInput(through, recording.attn_out[0, layer], new, own_heads))
    held = torch.cat([before[1:] - before[0], head_deltas[earlier:]]) + rows[0]
    answered = torch.cat([alone, rows[new]])
    return held, answered - rows[0]


def _interventions(
    patching: PatchSettings, reference: Activations, counterfactual: Activations
) -> Interventions:
    """The hooks of the unpatched run, then those of each of `rows_of`."""
    layers = range(patching.n_layers)
    held = freeze(layers, reference, mlps=False)
    yield held
    for row in rows_of(patching.senders):
        frozen = [layer for layer in layers if not row.recomputes(layer)]
        patched = patch_heads([row.head], counterfactual, positions=-1)
        yield held + patch_mlps(frozen, reference) + patched


MEDIATION = Propagation(
    mediated_rows, _interventions, lambda patching: [str(row) for row in rows_of(patching.senders)]
)


class MediationOptions(MetricTokenOptions, StorageOptions, total=False):
    """The options of `mediators`."""


def mediators(
    model: HookedLike,
    pairs: PromptPairs,
    heads: Components,
    *,
    metric: str = "relative_logit",
    engine: str = "sweep",
    certify: bool = True,
    run: Run | None = None,
    progress: bool = True,
    **options: Unpack[MediationOptions],
) -> Mediation:
    """Which MLPs carry each head's effect on the answer's logit (not in the paper).

    Each head is patched at END as in `path_patch(paths="via_mlps")`: all other heads are frozen at
    the reference run. This is done with all MLPs computed again, with none, with all but one (for
    each layer), and with one alone (for each layer).

    Args:
        model: HookedModel or TransformerBridge.
        pairs: the prompts and their answers.
        heads: the heads to patch, such as `key_heads(effects)`. The result keeps their order.
        metric: one of `metrics.METRICS`, as in `path_patch`.
        foil: for `logit_difference`, one token per pair, to compare with the answer.
        candidates: for `digit_contrast`, the tokens whose mean logit is compared with the answer's.
        engine: `"sweep"`, exact and fast, for most families; `"hooks"`, one forward per
            number, for all models.
        certify: first prove on a few pairs that the sweep reproduces the model.
        batch_size: the number of pairs in a shard.
        run: an open run that stores finished shards, and then the result. What is stored is not
            computed again.
        name: the name of the result in the run. The default is `mediators`.
        progress: whether to show a progress bar.

    Returns:
        One effect per pair, on the CPU. `mediated`, `mediated_alone` and `interaction` follow from
        them.

    Raises:
        UnsupportedTrunk, CertificateError, FloatingPointError: as in `path_patch`.
        IndexError, RunError: as in `path_patch`.
        ValueError: no head is given, or an MLP; or the metric or the foil is not valid.
        TypeError: an option does not exist.
    """
    refuse_unknown_options(mediators, options, MetricTokens, Storage)
    tokens, storage = value_object(MetricTokens, options), value_object(Storage, options)
    chosen = _checked_heads(heads)
    patching = _patching(model, pairs, chosen, metric, tokens)
    order = [str(head) for head in chosen]

    def result(values: Tensor, computation: Notes) -> Mediation:
        warn_of_left_out(values, pairs, patching.metric, patching.measure)
        return _mediation(values, chosen, pairs, patching, computation)

    computation = Computation(
        title="mediators",
        make_engine=lambda: engine_for(
            engine, model, patching, certify=certify, propagation=MEDIATION
        ),
        result=result,
        read=Mediation.from_arrays,
        settings={"engine": engine, "metric": patching.metric},
        identity=patching_details(patching, tokens.foil, run)
        | {"certify": certify, "method": "mediators", "order": order},
        foil=tokens.foil,
        shard_size=shard_size(storage.batch_size),
    )
    name = storage.name or "mediators"
    return computation.run(model, pairs, run=run, name=name, progress=progress)


def _checked_heads(components: Components) -> list[Head]:
    """The heads in the same order, without repeats."""
    chosen = list(dict.fromkeys(as_components(components)))
    heads = [one for one in chosen if isinstance(one, Head)]
    if len(heads) < len(chosen) or not heads:
        strange = [one for one in chosen if not isinstance(one, Head)]
        raise ValueError(
            f"expected heads such as Head(12, 22), found {strange or 'none'}; take them from "
            "key_heads(effects) or effects.heads.top(k)"
        )
    return heads


def _patching(
    model: HookedLike,
    pairs: PromptPairs,
    heads: Sequence[Component],
    metric: str,
    tokens: MetricTokens,
) -> PatchSettings:
    return patch_settings(
        model, heads, paths="via_mlps", metric=metric, pairs=pairs, **vars(tokens)
    )


def _mediation(
    values: Float[Tensor, "row pair"],
    heads: Sequence[Head],
    pairs: PromptPairs,
    patching: PatchSettings,
    computation: dict[str, Any],
) -> Mediation:
    """Rows to their places; an MLP below its head changes nothing, held or free."""
    values_by_row = dict(zip(rows_of(patching.senders), values[1:], strict=True))

    def rows(recomputed: Recomputed) -> Float[Tensor, "head pair"]:
        return torch.stack([values_by_row[MediationRow(head, recomputed)] for head in heads])

    def rows_of_layer(
        recomputed: Recomputed, below: Recomputed, layer: int
    ) -> Float[Tensor, "head pair"]:
        return torch.stack(
            [
                values_by_row.get(
                    MediationRow(head, recomputed, layer), values_by_row[MediationRow(head, below)]
                )
                for head in heads
            ]
        )

    layers = range(patching.n_layers)
    all_but_one = torch.stack(
        [rows_of_layer("all but one", "all", layer) for layer in layers], dim=1
    )
    only_one = torch.stack([rows_of_layer("only one", "none", layer) for layer in layers], dim=1)
    labels = {"head": tuple(map(str, heads)), "mlp": tuple(map(str, every_mlp(patching.n_layers)))}

    def effects(numbers: Tensor, paths: str) -> Effects:
        axes = ("head", "mlp")[: numbers.ndim - 1]
        return Effects(
            per_pair=numbers,
            axes=axes,
            metric=patching.metric,
            paths=paths,
            **pairs.units,
            labels={axis: labels[axis] for axis in axes},
        )

    return Mediation(
        heads=tuple(heads),
        via_mlps=effects(rows("all"), "via_mlps"),
        direct=effects(rows("none"), "direct"),
        all_but_one_mlp=effects(all_but_one, "via all MLPs but one"),
        only_one_mlp=effects(only_one, "via one MLP alone"),
        logit=values[0],
        n_left_out=n_left_out(values),
        computation=computation,
    )
