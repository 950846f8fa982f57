"""`mediators`: which MLPs carry the effects of heads, shard by shard, effects a pair."""

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from arith_lens.components import Component, Components, Head, as_components
from arith_lens.effects import Effects
from arith_lens.mediation.hooks import MediationHooks
from arith_lens.mediation.result import Mediation
from arith_lens.mediation.rows import mediated_rows, rows_of, rows_through_mlps
from arith_lens.model import HookedLike, home_of
from arith_lens.pairs import PromptPairs
from arith_lens.path_patching.engines import Engine, Propagation, SweepEngine
from arith_lens.path_patching.flops import flops_of_rows
from arith_lens.path_patching.patch import (
    n_left_out,
    question_details,
    shard_size,
    warn_of_ratios,
)
from arith_lens.path_patching.prefixes import shard_recording_flops
from arith_lens.path_patching.question import Question, ask
from arith_lens.path_patching.shards import by_shards
from arith_lens.runs import ResultSlot, Run


@torch.no_grad()
def mediators(
    model: HookedLike,
    pairs: PromptPairs,
    heads: Components,
    *,
    metric: str = "relative_logit",
    foil: Int[Tensor, "pair"] | None = None,
    engine: str = "sweep",
    certify: bool = True,
    batch_size: int | None = None,
    run: Run | None = None,
    name: str = "mediators",
    progress: bool = True,
) -> Mediation:
    """Which MLPs carry each head's effect on the answer's logit.

    Each head is patched at END as in `path_patch(paths="via_mlps")`: all other heads stay at the
    reference run. MLPs are recomputed, all but one at a time, one alone at a time, all, and none.

    Args:
        heads: such as `key_heads(effects)`; the result keeps their order.
        metric: one of `metrics.METRICS`, as in `path_patch`.
        foil: for `logit_difference`, the token to set against each answer.
        engine: `"sweep"`, exact and fast, for additive pre-norm models; `"hooks"`, a forward for
            each number, for all models.
        certify: first prove on a few pairs that the sweep reproduces the model.
        batch_size: pairs in a shard.
        run: an open run that keeps shards as they finish, then the result under `name`; what is
            there of the same computation is not computed again.

    Returns:
        Effects a pair, on the CPU; `carried`, `conveyed` and `interaction` follow from them.

    Raises:
        UnsupportedTrunk, CertificateError, FloatingPointError: as `path_patch`.
        IndexError, RunError: as `path_patch`.
        ValueError: no head, an MLP among them, or a metric or foil that cannot be.
    """
    chosen = _heads(heads)
    question = _asked(model, pairs, chosen, metric, foil)
    compute = _engine(engine, model, question, certify=certify)
    size = shard_size(batch_size)
    settings = {"engine": engine, "metric": metric, "shard_size": size}
    details = question_details(question, foil) | settings | {"certify": certify}
    details |= {"method": "mediators", "order": [str(head) for head in chosen]}
    slot = ResultSlot.of(run, name, model, pairs, **details)
    if (arrays := slot.stored(progress=progress)) is not None:
        return Mediation.from_arrays(arrays)
    values, notes = by_shards(
        compute, pairs, foil, size, slot=slot, progress=progress, title="mediators"
    )
    warn_of_ratios(values[0], metric)
    computation = {
        **settings,
        "n_pairs": len(pairs),
        "dtype": str(model.W_U.dtype).removeprefix("torch."),
        "device": str(home_of(model.unembed)),
        "threads": torch.get_num_threads(),
        **notes,
    }
    return slot.save(_mediation(values, chosen, pairs, question, computation))


def mediation_flops(model: HookedLike, pairs: PromptPairs, heads: Components) -> int:
    """Floating-point operations of `mediators` with `relative_logit`, certificate left out: two
    forwards per pair without the vocabulary matrix, and each MLP's evaluations at END."""
    question = _asked(model, pairs, _heads(heads), "relative_logit", None)
    senders = question.senders
    n_rows = 1 + len(rows_of(senders))
    per_pair = flops_of_rows(model, question, rows_through_mlps(senders), n_rows)
    shards = pairs.batches(shard_size(None))
    recording = sum(shard_recording_flops(model, one, question.own_tokens) for one in shards)
    return recording + len(pairs) * per_pair


def _heads(given: Components) -> list[Head]:
    """Each once, in the order given."""
    chosen = list(dict.fromkeys(as_components(given)))
    heads = [one for one in chosen if isinstance(one, Head)]
    if len(heads) < len(chosen) or not heads:
        strange = [one for one in chosen if not isinstance(one, Head)]
        raise ValueError(
            f"expected heads such as Head(12, 22), found {strange or 'none'}; take them from "
            "key_heads(effects) or effects.heads.top(k)"
        )
    return heads


def _asked(
    model: HookedLike,
    pairs: PromptPairs,
    heads: Sequence[Component],
    metric: str,
    foil: Int[Tensor, "pair"] | None,
) -> Question:
    return ask(model, heads, paths="via_mlps", metric=metric, foil=foil, pairs=pairs)


def _engine(name: str, model: HookedLike, question: Question, *, certify: bool) -> Engine:
    if name == "hooks":
        return MediationHooks(model, question)
    if name != "sweep":
        raise ValueError(f"expected engine 'sweep' or 'hooks', found {name!r}")
    names = [str(row) for row in rows_of(question.senders)]
    way = Propagation(mediated_rows, names)
    return SweepEngine.of(model, question, certify=certify, propagation=way)


def _mediation(
    values: Float[Tensor, "row pair"],
    heads: Sequence[Head],
    pairs: PromptPairs,
    question: Question,
    computation: dict[str, Any],
) -> Mediation:
    """Rows to their places; an MLP below its head changes nothing, held or free."""
    place = {head: index for index, head in enumerate(heads)}
    every, none = values.new_empty(2, len(heads), values.shape[-1])
    rows = rows_of(question.senders)
    for row, value in zip(rows, values[1:], strict=True):
        if row.mlp is None:
            (every if row.free == "all" else none)[place[row.head]] = value
    but = every[:, None].repeat(1, question.n_layers, 1)
    only = none[:, None].repeat(1, question.n_layers, 1)
    for row, value in zip(rows, values[1:], strict=True):
        if row.mlp is not None:
            (but if row.free == "but" else only)[place[row.head], row.mlp] = value
    labels = {"head": tuple(str(head) for head in heads)}

    def effects(numbers: Tensor, paths: str) -> Effects:
        return Effects(
            per_pair=numbers,
            axes=("head", "layer")[: numbers.ndim - 1],
            metric=question.metric,
            paths=paths,
            template=pairs.template,
            cluster=pairs.cluster,
            labels=labels,
        )

    return Mediation(
        heads=tuple(heads),
        via_mlps=effects(every, "via_mlps"),
        direct=effects(none, "direct"),
        but=effects(but, "via all MLPs but one"),
        only=effects(only, "via one MLP alone"),
        logit=values[0],
        n_left_out=n_left_out(values),
        computation=computation,
    )
