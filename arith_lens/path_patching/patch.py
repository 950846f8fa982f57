"""`path_patch`: check the settings, compute shard by shard, return one effect per pair."""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Unpack

import torch
from jaxtyping import Float, Int
from torch import Tensor

from arith_lens.caller_warnings import warn_caller
from arith_lens.components import Component, Components
from arith_lens.effects import HEAD_AXES, MLP_AXES, ComponentEffects, Effects
from arith_lens.methods import (
    HOOKS_SHARD,
    SHARD,
    Computation,
    Engine,
    MetricTokens,
    Notes,
    ShardLoop,
    Storage,
    every_pair,
    joined_notes,
    shard_size,
)
from arith_lens.metrics import SMALL_TOTAL, Metric, MetricFunction
from arith_lens.model import HookedLike
from arith_lens.options import check_choice, refuse_unknown_options, value_object
from arith_lens.pairs import NO_ANSWER, PromptPairs
from arith_lens.path_patching.engines import (
    HookEngine,
    PatchSettings,
    Propagation,
    SweepEngine,
    n_left_out,
    patch_settings,
)
from arith_lens.path_patching.fewer_evaluations import Race, Screening, StoppingRule, race
from arith_lens.path_patching.options import (
    PATH_PATCH_KINDS,
    Checks,
    PatchSite,
    PathPatchOptions,
    Screen,
    Stopping,
)
from arith_lens.path_patching.positions import (
    END_POSITION,
    Places,
    PositionEngine,
    position_effects,
    refuse_positions,
)
from arith_lens.path_patching.streams import Stream
from arith_lens.runs import Run, method_identity
from arith_lens.statistics import strata_of

SMALL_LOGIT = 0.5
"""Below this, a ratio to the logit says more about the logit than about the patch."""


def path_patch(
    model: HookedLike,
    pairs: PromptPairs,
    *,
    senders: Components | None = None,
    paths: str = "via_mlps",
    metric: str | MetricFunction = "relative_logit",
    engine: str = "sweep",
    run: Run | None = None,
    progress: bool = True,
    **options: Unpack[PathPatchOptions],
) -> ComponentEffects:
    """The effect on the answer of giving each component its counterfactual output at END.

    This is Algorithm 1 and Appendix B of the paper (section 4.1). The reference prompts run, and
    activations of the counterfactuals replace those of one component at a time. A negative effect
    means that the component helps the answer.

    Args:
        model: HookedModel or TransformerBridge.
        pairs: the prompts and their answers.
        senders: heads and MLPs to patch, one at a time; None: all. Effects of others are NaN. Or
            `"resid_pre"`, `"resid_mid"`, `"resid_post"` or `"attn_out"`: the residual stream, or
            attention's output, of each layer in turn, with `paths="total"` and `engine="hooks"`
            (not in the paper). The effects are then in `.stream`.
        screen: approximate effects, such as those of `attribute`. Only the `keep_strongest` senders
            that it ranks highest are computed, and some of the others, drawn at random, to check
            it. `computation["screen"]` says how many stronger ones it may have missed.
        keep_strongest: the number of senders that screening keeps. The default is 64. `keep` is
            another name of it. (The `keep` of `sample_pairs` is a filter of pairs.)
        until: stop with a sender when its place is clear (`path_patching.fewer_evaluations`):
            `"threshold"` (key or not), a number (beyond this effect or not), or `"top10"` (among
            the 10 most negative or not; any number). Its effects on the other pairs are NaN.
            `computation["race"]` has intervals of the means over all pairs. They are guaranteed
            only with `bound`. Without it they miss effects that few pairs have. The intervals of
            `Effects.ci` are not valid after a race.
        bound: for `until`: the largest size that an effect on any pair can have, in the metric's
            unit, known before the effects are. A race then needs more pairs, and its intervals hold
            together with 95% confidence, whatever the effects within the bound are. A sender that
            exceeds it is computed on all pairs, with a warning.
        paths: on which paths a change may reach the logits. `"via_mlps"`: the residual stream and
            MLPs, with all other heads frozen (the paper's figures). `"direct"`: the residual stream
            alone. `"total"`: all paths (`engine="hooks"` only).
        metric: one of `metrics.METRICS`. `relative_logit` leaves out pairs whose logit is not
            positive. Shares of the total leave out pairs on which the whole counterfactual prompt
            changes almost nothing. `interchange` and `answers_other` leave out pairs whose
            counterfactual has no answer. The result has their number, and a warning says it. Or a
            function of logits [row d_vocab] (and, if it takes a second argument, of the pairs of
            these rows) that returns one number per row, such as `lambda logits: logits[:, 8]`; the
            effect is its value in the patched run less that in the reference run. A run knows the
            function by its code.
        foil: for `logit_difference`, one token per pair, to compare with the answer.
        candidates: for `digit_contrast`, the tokens whose mean logit is compared with the answer's.
            The default is the ten digits, written as the answers are.
        engine: `"sweep"`, exact and fast, for most families; `"hooks"`, for all models.
        certify: first prove on a few pairs that the sweep reproduces the model.
        spot_checks: the number of random (sender, pair) cells to compute again by hooks. The
            largest difference is stored in `computation`.
        positions: where components are patched (not in the paper). `"end"`: END. A `Role`: all its
            tokens together. A whole number: this position, from the first token (0) or from END
            (-1). `"each"`: each position in turn; the effects then have a last axis of positions
            with names, and NaN where a prompt is shorter. All but `"end"` need `paths="total"` and
            `engine="hooks"`.
        batch_size: the number of pairs in a shard. Equal shards give equal bits; others agree
            within rounding.
        run: an open run (`with open_run(...) as run`), which stores each shard when it is finished,
            and then the result. Shards and results that are already stored are not computed again.
        name: the name of the result in the run. The default is the pairs' operation, or
            `path_patching` if they have none or several.
        progress: whether to show a progress bar.

    Returns:
        One effect per pair, for heads [layer head pair] and for MLPs [layer pair], on the CPU. The
        unit depends on the metric: for `relative_logit`, -0.14 means that the logit falls by 14%.
        The sweep also splits each effect into the part through the final norm's scale and the rest
        (`Effects.by_norm_scale`, `Effects.without_norm_scale`).

    Raises:
        UnsupportedTrunk: the sweep cannot compute this model.
        CertificateError: the sweep does not reproduce the model; the numbers are in the message.
        FloatingPointError: an activation is NaN or infinite; the message names its layer.
        IndexError: the model does not have a sender.
        TypeError: `screen` is not ComponentEffects, or an option does not exist.
        ValueError: paths, metric, foil, engine, until, bound or a number is not valid, there are no
            pairs, or `screen` lacks a sender.
        RunError: the run is not open or was opened with another model; or the disk cannot be
            written, and finished shards are kept.

    Example:
        >>> import arith_lens as al
        >>> model = al.load_model("reference")
        >>> pairs = al.sample_pairs(model, n=6, templates="symbols", counterfactual="operands")
        >>> effects = al.path_patch(model, pairs, metric="digit_contrast", progress=False)
        >>> effects.heads.per_pair.shape           # [layer head pair]
        torch.Size([12, 8, 6])
        >>> strongest = effects.heads.top(3)       # most negative means first
    """
    refuse_unknown_options(path_patch, options, *PATH_PATCH_KINDS)
    tokens, storage = value_object(MetricTokens, options), value_object(Storage, options)
    screen, stopping = value_object(Screen, options), value_object(Stopping, options)
    checks, positions = value_object(Checks, options), value_object(PatchSite, options).positions
    patching = patch_settings(
        model, senders, paths=paths, metric=metric, pairs=pairs, unequal=True, **vars(tokens)
    )
    places = screening = None
    if isinstance(patching.components[0], Stream) and positions == "end":
        positions = END_POSITION
        if paths != "total" or engine != "hooks":
            raise ValueError(
                f"expected paths='total' and engine='hooks' with senders={senders!r}, found "
                f"paths={paths!r} and engine={engine!r}; give both"
            )
    if positions != "end":
        only_end = {"screen": screen.screen is not None, "until": stopping.until is not None}
        refuse_positions(positions, paths, engine, only_end | {"spot_checks": checks.spot_checks})
        places = Places.of(positions, pairs)
    if screen.screen is not None:
        screening = Screening.of(screen.screen, patching.components, screen.n_kept)
        patching = patching.only(screening.components)
    foil = tokens.foil
    identity = asdict(checks) | patching_details(patching, foil, run)
    if screening is not None:
        identity["screen"] = screening.choice()
    if places is not None:
        identity |= {"positions": str(positions), "places": list(places.names)}
    engine_of = partial(engine_for, engine, model, certify=checks.certify)
    make_engine, loop = partial(engine_of, patching), every_pair
    if places is not None:
        make_engine = partial(PositionEngine, model, patching, places)
    if stopping.until is not None:
        rule = StoppingRule.of(stopping.until, patching.metric, stopping.bound)
        identity |= {"race": [rule.line, rule.k], "bound": rule.bound}
        loop = partial(_raced, engine_of, patching, rule)
    computation = Computation(
        title="path patching",
        make_engine=make_engine,
        result=_Result(model, pairs, patching, foil, places, screening, checks.spot_checks),
        read=ComponentEffects.from_arrays,
        settings={"engine": engine, "paths": paths, "metric": patching.metric},
        identity=identity,
        foil=foil,
        shard_size=shard_size(storage.batch_size, HOOKS_SHARD if engine == "hooks" else SHARD),
        loop=loop,
    )
    name = storage.name or operation_name(pairs)
    return computation.run(model, pairs, run=run, name=name, progress=progress)


@dataclass(frozen=True)
class _Result:
    """Makes the result of a path patching from the numbers of all pairs."""

    model: HookedLike
    pairs: PromptPairs
    patching: PatchSettings
    foil: Int[Tensor, " pair"] | None
    places: Places | None
    screening: Screening | None
    spot_checks: int

    def __call__(self, values: Float[Tensor, "row pair"], computation: Notes) -> ComponentEffects:
        pairs, patching, n_senders = self.pairs, self.patching, len(self.patching.components)
        computation = computation | {"n_senders": n_senders}
        if self.places is not None:
            warn_of_left_out(values, pairs, patching.metric, patching.measure)
            computation["positions"] = list(self.places.names)
            return position_effects(values, pairs, patching, self.places, computation)
        if self.spot_checks:
            check = HookEngine(self.model, patching, Propagation.of(patching.paths))
            effects = values[1 : 1 + n_senders]
            checked = _spot_checks(check, effects, pairs, self.foil, self.spot_checks)
            computation["spot_checks"] = checked
        result = component_effects(values, pairs, patching, computation)
        if self.screening is not None:
            computation["screen"] = self.screening.notes(result)
        return result


def engine_for(
    name: str,
    model: HookedLike,
    patching: PatchSettings,
    *,
    certify: bool,
    propagation: Propagation | None = None,
) -> Engine:
    """The engine of this name. Raises ValueError and UnsupportedTrunk as `path_patch` does."""
    if name == "hooks":
        return HookEngine(model, patching, propagation or Propagation.of(patching.paths))
    check_choice("engine", name, ("sweep", "hooks"))
    return SweepEngine.of(model, patching, certify=certify, propagation=propagation)


def patching_details(
    patching: PatchSettings, foil: Int[Tensor, " pair"] | None, run: Run | None
) -> dict[str, Any]:
    """The method, senders, foils and metric function, for the identity of a computation.

    Raises:
        RunError: the metric function refers to something that a run cannot describe.
    """
    foils = None if foil is None else foil.cpu().long().numpy().tobytes()
    details: dict[str, Any] = {
        "method": "path_patch",
        "senders": [str(sender) for sender in patching.components],
        "candidates": patching.candidates,
        "foil_sha256": foils and hashlib.sha256(foils).hexdigest(),
    }
    if run is not None and patching.function is not None:
        details["metric_function"] = method_identity(patching.function)
    return details


def component_effects(
    values: Float[Tensor, "row pair"],
    pairs: PromptPairs,
    patching: PatchSettings,
    computation: dict[str, Any],
) -> ComponentEffects:
    """The result of an engine's values: the logit, the effects, and those with the scale held.

    Warns as `warn_of_left_out`.
    """
    warn_of_left_out(values, pairs, patching.metric, patching.measure)
    n_rows, senders = 1 + len(patching.components), patching.senders
    heads, mlps = senders.split(values[1:n_rows], patching.n_heads)
    held_heads = held_mlps = None
    if len(values) > n_rows:
        held_heads, held_mlps = senders.split(values[n_rows:], patching.n_heads)
    common: dict[str, Any] = {"metric": patching.metric, "paths": patching.paths, **pairs.units}
    return ComponentEffects(
        heads=Effects(heads, HEAD_AXES, **common, held_norm=held_heads),
        mlps=Effects(mlps, MLP_AXES, **common, held_norm=held_mlps),
        logit=values[0],
        n_left_out=n_left_out(values),
        computation=computation,
    )


def operation_name(pairs: PromptPairs) -> str:
    operations = set(pairs.operation or ())
    return operations.pop() if len(operations) == 1 else "path_patching"


def warn_of_left_out(
    values: Float[Tensor, "row pair"], pairs: PromptPairs, metric: str, measure: Metric
) -> None:
    """Warn if pairs have no effect, or an unstable one, because of the metric.

    Each reason has its own warning, with the number of its pairs and what to do.

    Args:
        values: an engine's values; row 0 is the unpatched logit of the answer.
        pairs: all pairs.
        metric: the metric's name.
        measure: the metric.
    """
    computed = ~values[0].isnan()  # a race may have needed no effect of some pairs
    left_out = values[1:].isnan().all(0) & computed
    if measure.share_of == "reference":
        _warn_of_ratios(values[0][computed])
        return
    if measure.reads in ("other answer", "likeliest"):
        own = pairs.counterfactual_answer
        without = (own == NO_ANSWER) | (own == pairs.answer)
        _warn_of_no_answer(int(without.sum()), len(pairs))
        left_out &= ~without
    n, of = int(left_out.sum()), int(computed.sum())
    if n and measure.share_of == "total":
        warn_caller(
            f"expected counterfactual prompts that change what {metric!r} reads by at "
            f"least {SMALL_TOTAL}, found a smaller change in {n} of {of} pairs, which are left "
            "out, because no share of it can be stated; take counterfactuals that change the "
            "answer, or a metric that is no share, such as 'logit_difference' or 'logit'",
        )
    elif n:
        warn_caller(
            f"expected a number of {metric!r} for each pair, found NaN in {n} of {of} "
            "pairs, which are left out; return finite numbers, or leave these pairs out yourself",
        )


def _warn_of_ratios(logit: Float[Tensor, " pair"]) -> None:
    """Warn if logits are not positive, or too small for a stable ratio."""
    left_out, small = int((logit <= 0).sum()), int(((logit > 0) & (logit < SMALL_LOGIT)).sum())
    if small or left_out:
        warn_caller(
            f"expected logits of the answer of at least {SMALL_LOGIT}, found {left_out} of "
            f"{len(logit)} pairs left out because theirs is not positive, and {small} with a "
            "smaller one, whose relative change is unstable; use metric='logit', which has neither "
            "problem",
        )


def _warn_of_bound(outcome: Race, components: Sequence[Component]) -> None:
    """Warn if effects are larger than the bound that the intervals of a race rest on."""
    beyond = [str(components[i]) for i in outcome.beyond_bound.nonzero()[:, 0].tolist()]
    if beyond:
        warn_caller(
            f"expected no effect larger than bound={outcome.bound}, found larger ones of "
            f"{len(beyond)} senders ({', '.join(beyond[:5])}); these were computed on all pairs, "
            "but the intervals of the others rest on a bound that does not hold: choose a larger "
            "bound",
        )


def _warn_of_no_answer(without: int, n_pairs: int) -> None:
    """Warn if pairs are left out because their counterfactual has no answer that is not C."""
    if without:
        warn_caller(
            "expected counterfactuals with another answer than the reference's "
            f"(counterfactual_answer), found none in {without} of {n_pairs} pairs, which are "
            "left out; counterfactual='operands' makes pairs that have one",
        )


def _spot_checks(
    engine: HookEngine,
    effects: Float[Tensor, "sender pair"],
    pairs: PromptPairs,
    foil: Int[Tensor, " pair"] | None,
    count: int,
) -> dict[str, Any]:
    """Compute random cells again by hooks: their number, and the largest difference."""
    cells = effects.isfinite().nonzero()
    order = torch.randperm(len(cells), generator=torch.Generator().manual_seed(0))[:count]
    largest = 0.0
    for row, pair in cells[order].tolist():
        pair_slice = slice(pair, pair + 1)
        sender = engine.patching.components[row]
        again = engine.of(sender)(pairs[pair_slice], None if foil is None else foil[pair_slice])
        largest = max(largest, float((again[1, 0].cpu() - effects[row, pair]).abs()))
    return {"cells": len(order), "largest_difference": largest}


def _raced(
    engine_of: Callable[..., Engine],
    patching: PatchSettings,
    rule: StoppingRule,
    loop: ShardLoop,
    make_engine: Callable[[], Engine],
) -> tuple[Float[Tensor, "row pair"], Notes]:
    """Compute each sender on as many pairs as the rule needs. The first round is certified."""
    n, components, n_pairs = len(patching.components), patching.components, len(loop.pairs)
    values, notes = torch.full((1 + n, n_pairs), float("nan")), []
    held = torch.full((n, n_pairs), float("nan"))

    def measure(
        chosen: Sequence[int], rows: Int[Tensor, " chosen_pair"], number: int
    ) -> Float[Tensor, "chosen chosen_pair"]:
        racing = patching.only([components[i] for i in chosen])
        engine = engine_of(racing) if number == 0 else engine_of(racing, certify=False)
        computed, note = loop.of_pairs(rows)(engine, round=number)
        notes.append(note)
        values[0, rows] = computed[0]
        if len(computed) > 1 + len(chosen):
            held[torch.tensor(chosen)[:, None], rows] = computed[1 + len(chosen) :]
        return computed[1 : 1 + len(chosen)]

    outcome = race(measure, n, strata_of(loop.pairs.template, n_pairs), rule)
    _warn_of_bound(outcome, components)
    values[1:] = outcome.values
    if held.isfinite().any():
        values = torch.cat([values, held])
    return values, {**joined_notes(notes), "race": outcome.notes([str(one) for one in components])}
