"""The settings of a path patching, and the two engines that compute a shard of pairs.

`SweepEngine` computes all senders in one pass. `HookEngine` computes the same with composable
hooks, in one forward per sender: it runs the reference prompt, freezes what must not change, and
gives one sender at END the output that it had in the counterfactual run. It is general and slow.

Both take pairs and their foils. They return the unpatched logit of the answer in row 0, then the
effect of each sender. `notes` returns what a result should record about the shards that were
computed since the last call.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, TypeAlias, cast, get_args

import torch
from jaxtyping import Float, Int
from torch import Tensor

from arith_lens.components import (
    Activations,
    Component,
    Components,
    Head,
    NamedHook,
    mlp_out_name,
    z_name,
)
from arith_lens.hooks import freeze, patch_heads, patch_mlps
from arith_lens.memory import fitting_pairs, in_chunks
from arith_lens.methods import Certificate, Senders, as_senders
from arith_lens.metrics import (
    METRICS,
    OWN_METRIC,
    Metric,
    MetricFunction,
    Readout,
    Targets,
    get_metric,
    n_arguments,
    read_logits,
)
from arith_lens.model import HookedLike, ResumedRuns, active_hooks, checked_columns, record
from arith_lens.options import check_choice
from arith_lens.pairs import PromptPairs, candidate_tokens, check_kinds, check_pairs
from arith_lens.path_patching.certificate import (
    HOOKS_INSTEAD,
    SWEEP_CLAIM,
    certificate_of,
    checked_pairs,
    repeat,
)
from arith_lens.path_patching.layers import UnsupportedTrunk
from arith_lens.path_patching.recording import Recording, per_pair_tokens, record_pairs
from arith_lens.path_patching.streams import HOOK_NAMES, streams_of
from arith_lens.path_patching.sweep import (
    HOOK_ENGINE,
    Trunk,
    direct_rows,
    has_component_points,
    refuse_uneven_hooks,
    rows_bytes,
    sweep_rows,
    trunk_of,
)

Paths: TypeAlias = Literal["via_mlps", "direct", "total"]
"""The paths on which a change may reach the logits: through MLPs but no other head (Appendix B),
through the residual stream alone (Algorithm 1 to the letter), or all (activation patching)."""

Interventions: TypeAlias = Iterable[list[NamedHook]]
"""Lists of hooks, one per forward. The first one does not change the reference run."""


@dataclass(frozen=True)
class PatchSettings:
    """Which components are patched, on which paths they may act, and how the logits are read."""

    components: tuple[Any, ...]
    """The senders (components, or streams of layers) in the order of the sweep's rows."""
    paths: Paths
    """The paths on which a change may reach the logits."""
    metric: str
    """One of `metrics.METRICS`, or the name of `function`."""
    n_layers: int
    """The model's number of layers."""
    n_heads: int
    """The model's number of heads per layer."""
    candidates: tuple[int, ...] | None = None
    """Tokens that are compared with the answer, for metrics that read them."""
    per_pair_tokens: int | None = None
    """The number of tokens at the end of each prompt that are recorded for this prompt alone; None:
    all of them."""
    function: MetricFunction | None = None
    """A metric of the user's."""

    @cached_property
    def senders(self) -> Senders:
        return Senders.of(self.components, self.n_layers)

    @property
    def measure(self) -> Metric:
        """What is read, and how effects on it are expressed."""
        return METRICS[self.metric] if self.function is None else OWN_METRIC

    def targets(self, pairs: PromptPairs, foil: Int[Tensor, " pair"] | None) -> Targets:
        """What is read of some pairs."""
        candidates, function = self.candidate_tokens, self.function
        reads = self.measure.reads
        return Targets.of(pairs, reads, foil=foil, candidates=candidates, function=function)

    @property
    def reads_vocabulary(self) -> bool:
        return self.measure.reads in ("vocabulary", "likeliest", "function")

    @property
    def reads_second_token(self) -> bool:
        """Whether the logit of a second token is read: the foil's, or that of C'."""
        return self.measure.reads in ("foil", "other answer", "likeliest")

    @property
    def reads_total(self) -> bool:
        """Whether the metric also reads the counterfactual run."""
        return self.measure.share_of == "total"

    @property
    def candidate_tokens(self) -> Int[Tensor, " candidate"] | None:
        """The candidates as a tensor."""
        return None if self.candidates is None else torch.tensor(self.candidates)

    def only(self, components: Collection[Any]) -> "PatchSettings":
        """The same settings for some of the senders, in the same order."""
        return replace(self, components=tuple(c for c in self.components if c in components))


def effects_of(
    readout: Readout, metric: Metric, rows: Sequence[str], counterfactual: Readout | None = None
) -> Float[Tensor, "row pair"]:
    """Row 0: the unpatched logit of the answer. Other rows: the effects.

    Args:
        readout: the logits of all rows.
        metric: how effects are expressed.
        rows: what each row but the first is, for the error.
        counterfactual: the logits of the counterfactual run, for shares of the total.

    Raises:
        FloatingPointError: a logit is not finite. The message names its row.
    """
    broken = (~readout.answer.isfinite()).any(-1).nonzero().flatten().tolist()
    if broken:
        where = ["in the reference run", *rows][broken[0]]
        raise FloatingPointError(
            f"expected finite logits, found NaN or infinity {where}; load the model in a wider "
            "dtype (bfloat16 or float32), and check its weights"
        )
    changes = metric.effect(readout, readout.unpatched(), counterfactual)
    return torch.cat([readout.answer[:1], changes[1:]])


def n_left_out(values: Float[Tensor, "row pair"]) -> int:
    """The number of computed pairs without any effect, because they have no ratio."""
    computed = values[:, ~values[0].isnan()]
    return int(computed[1:].isnan().all(0).sum())


def patch_settings(
    model: HookedLike,
    senders: Components | None,
    *,
    paths: str,
    metric: str | MetricFunction,
    foil: Int[Tensor, " foil"] | None,
    pairs: PromptPairs,
    candidates: Sequence[int] | None = None,
    unequal: bool = False,
) -> PatchSettings:
    """Check the settings against the model and the pairs. Raises the errors of `path_patch`.

    `unequal` is that of `check_pairs`.
    """
    check_kinds(model, pairs)
    n_layers, n_heads = int(model.cfg.n_layers), int(model.cfg.n_heads)
    check_choice("paths", paths, get_args(Paths))
    function = None if isinstance(metric, str) else metric
    reads = _checked_metric(metric, foil, candidates).reads
    if not len(pairs):
        raise ValueError("expected at least one pair, found none; sample more, or filter less")
    if foil is not None and len(foil) != len(pairs):
        raise ValueError(f"expected one foil for each of {len(pairs)} pairs, found {len(foil)}")
    check_pairs(model, pairs, unequal=unequal)
    return PatchSettings(
        components=streams_of(senders, model)
        if isinstance(senders, str) and senders in HOOK_NAMES
        else as_senders(senders, n_layers, n_heads),
        paths=cast(Paths, paths),
        metric=metric if isinstance(metric, str) else metric_name(metric),
        function=function,
        n_layers=n_layers,
        n_heads=n_heads,
        candidates=candidate_tokens(model, pairs.answer.tolist(), candidates)
        if reads == "candidates"
        else None,
        per_pair_tokens=per_pair_tokens(model, pairs),
    )


def _checked_metric(
    metric: str | MetricFunction,
    foil: Int[Tensor, " foil"] | None,
    candidates: Sequence[int] | None,
) -> Metric:
    """The metric. Raises ValueError if it is unknown, or does not read what is given for it."""
    if isinstance(metric, str):
        return get_metric(metric, foil, candidates)
    if not callable(metric):
        raise ValueError(
            f"expected a metric among {', '.join(METRICS)}, or a function of logits [row d_vocab], "
            f"or of logits and pairs, found {metric!r:.80}"
        )
    if foil is not None or candidates is not None:
        raise ValueError(
            "expected no foil and no candidates with a metric function, found some; the function "
            "has all logits, so read these tokens there"
        )
    n_arguments(metric)
    return OWN_METRIC


def metric_name(metric: MetricFunction) -> str:
    """The name of a metric function, such as `my_metric()`, which no named metric has."""
    return f"{getattr(metric, '__name__', type(metric).__name__)}()"


def fitting_engine(
    model: HookedLike,
    paths: str = "via_mlps",
    *,
    explain: Callable[[str], Any] = lambda reason: None,
) -> str:
    """`"sweep"` if it can compute these paths of this model, else `"hooks"`.

    Args:
        paths: as in `path_patch`.
        explain: is called with a sentence if the model does not fit the sweep.

    Raises:
        UnsupportedTrunk: no engine can compute the model.
    """
    if paths == "total":
        return "hooks"
    try:
        trunk_of(model)
    except UnsupportedTrunk as error:
        if not has_component_points(model):
            raise
        reason = str(error).partition(", found ")[2].partition("; use ")[0]
        explain(
            f"The fast sweep does not fit this model: {reason}. The slower engine computes the "
            "same by one forward for each component; the bar shows the time that is left."
        )
        return "hooks"
    return "sweep"


@dataclass(frozen=True)
class Propagation:
    """How changes of the senders reach END: the rows of a sweep, and the same by hooks."""

    rows: Callable[[Trunk, Recording, Senders], Float[Tensor, "row pair d_model"]]
    """The function that computes END's residual stream before the final norm. Row 0 is
    unpatched."""
    interventions: Callable[[PatchSettings, Activations, Activations], Interventions]
    """The function that makes the hooks of each row, from the reference run and from the
    counterfactual run at END."""
    names: Callable[[PatchSettings], Sequence[str]]
    """The function that says what each of the other rows is, such as `with 12.22 patched`."""
    splits_norm: bool = False
    """Whether each row of a sweep is also read with the final norm's scale held at the reference
    run's."""
    at_end: bool = True
    """Whether the counterfactual run is recorded at END alone; else at all positions."""
    recorded: Callable[[int], Sequence[str]] = lambda layer: (z_name(layer), mlp_out_name(layer))
    """The function that names the hook points of a layer whose values the hooks need."""

    @classmethod
    def of(cls, paths: Paths) -> "Propagation":
        """The propagation of a path patching, with one row per sender."""
        return cls(
            sweep_rows if paths == "via_mlps" else direct_rows,
            patch_one_by_one,
            lambda patching: [f"with {sender} patched" for sender in patching.components],
            splits_norm=True,
        )


def patch_one_by_one(
    patching: PatchSettings, reference: Activations, counterfactual: Activations
) -> Interventions:
    """What the paths do not let change is frozen; then one sender at a time is patched at END.

    Args:
        patching: the senders and the paths.
        reference: the reference run, to which components are frozen.
        counterfactual: the counterfactual run at END.
    """
    held: list[NamedHook] = []
    if patching.paths != "total":
        held = freeze(range(patching.n_layers), reference, mlps=patching.paths == "direct")
    yield held
    for sender in patching.components:
        patch = patch_heads if isinstance(sender, Head) else patch_mlps
        yield held + patch([sender], counterfactual, positions=-1)  # pyright: ignore[reportArgumentType]


@dataclass(frozen=True)
class HookEngine:
    """One forward per row, from the first layer and token that the row's hooks change. It works
    with any model that has the hook points."""

    model: HookedLike
    patching: PatchSettings
    propagation: Propagation

    @torch.no_grad()
    def __call__(
        self, pairs: PromptPairs, foil: Int[Tensor, " pair"] | None
    ) -> Float[Tensor, "row pair"]:
        patching, device = self.patching, torch.device(self.model.cfg.device)

        def read(runs: ResumedRuns, hooks: list[NamedHook]) -> Readout:
            return read_logits(runs.logits(hooks), patching.targets(pairs, foil))

        reference, other = (
            ResumedRuns(self.model, tokens.to(device), mask.to(device))
            for tokens, mask in pairs.sides
        )
        interventions = self.propagation.interventions(patching, *self._runs(pairs))
        readout = Readout.stack([read(reference, hooks) for hooks in interventions])
        total = read(other, []) if patching.reads_total else None
        return effects_of(readout, patching.measure, self.propagation.names(patching), total)

    def _runs(self, pairs: PromptPairs) -> tuple[Activations, Activations]:
        """z and MLP outputs of the reference run at all positions, and of the other run."""
        model, layers = self.model, range(self.patching.n_layers)
        names = [name for layer in layers for name in self.propagation.recorded(layer)]
        (tokens, mask), (other_tokens, other_mask) = pairs.sides
        try:
            reference = record(model, tokens, names, attention_mask=mask)
        except KeyError as error:
            architecture = getattr(model.cfg, "architecture", "this model")
            raise ValueError(
                f"expected attention heads and an MLP in every layer, found that {architecture} "
                f"lacks one of their hook points ({error.args[0]}); path patching cannot be done "
                "on it"
            ) from error
        at = -1 if self.propagation.at_end else None
        other = record(model, other_tokens, names, attention_mask=other_mask, positions=at)
        if at is None:
            other = {name: pairs.at_counterparts(value) for name, value in other.items()}
        return reference, other

    def of(self, sender: Component) -> "HookEngine":
        """The same engine for one sender."""
        return replace(self, patching=self.patching.only([sender]))

    def notes(self) -> dict[str, Any]:
        return {}


@dataclass
class SweepEngine:
    """All senders in one pass; the first shard is certified before its numbers are returned."""

    model: HookedLike
    patching: PatchSettings
    trunk: Trunk
    propagation: Propagation
    names: Sequence[str]
    """What each row but the first is."""
    certify: bool
    hooked: bool = False
    """Whether hooks are active, so that the model must run with its hook points."""
    certificate: Certificate | None = None
    """The certificate of the first shard, once it is computed."""
    pending_notes: dict[str, Any] = field(default_factory=dict)
    """What `notes` will return next."""
    cure: str = HOOKS_INSTEAD
    """What to do if the certificate fails."""

    @classmethod
    def of(
        cls,
        model: HookedLike,
        patching: PatchSettings,
        *,
        certify: bool,
        propagation: Propagation | None = None,
        advice: str = HOOK_ENGINE,
    ) -> "SweepEngine":
        """The engine for a model. `advice` is that of `trunk_of`.

        Raises:
            UnsupportedTrunk: the sweep cannot compute this model, or cannot reproduce a hook on it.
            ValueError: no sweep can compute these paths.
        """
        if patching.paths == "total":
            raise ValueError(
                "expected paths='via_mlps' or 'direct' with engine='sweep', found 'total': later "
                "heads then change at every position; use engine='hooks', for chosen senders"
            )
        hooks, trunk = active_hooks(model), trunk_of(model, advice=advice)
        refuse_uneven_hooks(hooks, trunk)
        propagation = propagation or Propagation.of(patching.paths)
        names = propagation.names(patching)
        return cls(model, patching, trunk, propagation, names, certify, hooked=bool(hooks))

    def __call__(
        self, pairs: PromptPairs, foil: Int[Tensor, " pair"] | None
    ) -> Float[Tensor, "row pair"]:
        patching, uncertified = self.patching, self.certify and self.certificate is None
        shortest = int(pairs.lengths.argmin())
        recording, repeated = record_pairs(
            self.model,
            pairs,
            # all pairs, if hooks may act on some of them only
            logits=uncertified and (self.hooked or checked_pairs(pairs.lengths)),
            columns=checked_columns(pairs.answer, int(self.model.cfg.d_vocab)),
            hooked=self.hooked,
            repeated=shortest if self.certify and not self.hooked else None,
            per_pair_tokens=patching.per_pair_tokens,
        )
        ends = torch.empty(len(pairs), recording.stream.shape[-1])

        def part(chosen: slice) -> Tensor:
            chosen_foil = None if foil is None else foil[chosen]
            part = recording.pairs(chosen)
            rows = self.propagation.rows(self.trunk, part, self.patching.senders)
            ends[chosen] = rows[0].cpu()
            return self.effects(rows, part, patching.targets(pairs[chosen], chosen_foil))

        n_rows = 1 + len(self.names)
        one_pair = rows_bytes(n_rows, recording.stream.shape[-1])
        chunk = fitting_pairs(one_pair, len(pairs), recording.stream.device)
        values, chunk = in_chunks(part, len(pairs), chunk)
        if uncertified:
            repeated_forwards = (
                repeat(self.model, pairs) if repeated is None else {shortest: repeated}
            )
            self.certificate = certificate_of(
                self.trunk, recording, repeated_forwards, ends, values, pairs, self.patching.senders
            )
            self.certificate.require(SWEEP_CLAIM, self.cure)
            self.pending_notes["certificate"] = asdict(self.certificate)
        # the number of pairs that were swept at once; it depends on the free memory
        self.pending_notes.setdefault("chunk_sizes", []).append(min(chunk, len(pairs)))
        return values

    def notes(self) -> dict[str, Any]:
        notes, self.pending_notes = self.pending_notes, {}
        return notes

    def effects(
        self,
        rows: Float[Tensor, "row pair d_model"],
        recording: Recording,
        targets: Targets,
    ) -> Float[Tensor, "value pair"]:
        """Row 0: the unpatched logit; then the effects; then, for path patching, the effects with
        the final norm's scale held at the reference run's."""
        patching, names = self.patching, self.names

        def read(some: Tensor, scale_of: Tensor | None = None) -> Readout:
            return self.trunk.read(some, targets, scale_of=scale_of)

        readout, total = read(rows), None
        if patching.reads_total:
            counterfactual = recording.end[1:].float()
            total = read(counterfactual).unpatched()
        values = effects_of(readout, patching.measure, names, total)
        if not self.propagation.splits_norm:
            return values
        held = read(rows, rows[0])
        return torch.cat([values, effects_of(held, patching.measure, names, total)[1:]])
