"""`edge_effects`: who writes what a head or an MLP reads, and what that does to the answer."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import permutations
from math import factorial, prod
from typing import Unpack, cast, get_args

import torch
from torch import Tensor

from arith_lens.components import (
    Component,
    Components,
    Head,
    as_components,
    check_components,
    every_component,
)
from arith_lens.edges.engine import MLP_INPUT, EdgeEngine, EdgeSettings, Group, Places
from arith_lens.edges.recording import EMBEDDINGS, Via
from arith_lens.effects import Effects
from arith_lens.methods import Computation, Notes, Storage, StorageOptions, shard_size
from arith_lens.metrics import MetricFunction
from arith_lens.model import HookedLike
from arith_lens.options import check_choice, refuse_unknown_options, value_object
from arith_lens.pairs import PromptPairs, Role
from arith_lens.path_patching import (
    SweepEngine,
    patch_settings,
    patching_details,
    warn_of_left_out,
)
from arith_lens.runs import Run

CURE = (
    "Take active hooks off the model, and load it with dtype=torch.float32; where it fails even "
    "then, edges cannot be computed for this model, but path_patch may work on whole heads"
)
"""What to do if the certificate fails."""
TOGETHER = "together"
"""Everything before a receiver as one sender."""
SUBSETS = ("q", "k", "v", "qk", "qv", "kv", "qkv")
"""Every choice of inputs that read a changed stream."""


@dataclass(frozen=True)
class EdgeReading:
    """What of a receiver reads the change of a sender, and which of it."""

    inputs: Sequence[str] = ("q", "k", "v")
    """The inputs of the heads, or several letters together."""
    positions: str | int | Role = "all"
    """The tokens at which senders act."""
    group: str = "shared"
    """Whether heads that share keys and values with the receiver read the change too."""
    via: str = "via_mlps"
    """Whether the MLPs between sender and receiver react."""


class EdgeOptions(StorageOptions, total=False):
    """The options of `edge_effects`."""

    inputs: Sequence[str]
    positions: str | int | Role
    group: str
    via: str


def edge_effects(
    model: HookedLike,
    pairs: PromptPairs,
    receivers: Components,
    *,
    senders: Components | None = None,
    paths: str = "via_mlps",
    metric: str | MetricFunction = "relative_logit",
    run: Run | None = None,
    progress: bool = True,
    **options: Unpack[EdgeOptions],
) -> Effects:
    """The effect on the answer of each path sender → input of a receiver → logits (not in the
    paper).

    The reference prompts run. One sender gets its counterfactual output, and one input of one
    receiver reads the stream with this change; everything else that reads the sender does not. The
    receiver's new output at END then goes to the logits as in `path_patch`. This is exact: norms,
    scores and their softmax are computed again.

    Effects through q, k and v need not add up, because attention is not linear. Letters together,
    such as `"qkv"`, are inputs that read the change at the same time; with all seven of `SUBSETS`,
    `shapley_shares` splits the whole among q, k and v.

    Args:
        model: HookedModel or TransformerBridge.
        pairs: the prompts and their answers.
        receivers: heads and MLPs that read, such as `effects.heads.top(5)`.
        senders: heads and MLPs that write; None: all, and the embeddings. `"together"`: everything
            before the receiver as one sender, that is, the counterfactual run's own stream.
        inputs: inputs of the heads: `q`, `k`, `v`, or several letters together. An MLP has one
            input, `mlp`, which the result has if an MLP receives.
        positions: the tokens at which senders act. `"all"`; a `Role`; an int (0 is the prompt's
            first token, -1 is END); or `"each"`, which adds an axis of roles (of positions where
            pairs have no roles and one length).
        group: with `"shared"`, the heads that share keys and values with the receiver read the
            change in k or v too, because their weights are the same. With `"head"`, the receiver
            alone reads it. Both are equal in models without grouped queries.
        via: with `"via_mlps"`, the MLPs between sender and receiver react to the change, at each
            token by itself. With `"direct"` they are held.
        paths: from the receiver to the logits, `"via_mlps"` or `"direct"`, as in `path_patch`.
        metric: one of `metrics.METRICS` that needs no foil, or a function, as in `path_patch`.
        run: an open run, which stores each shard when it is finished, and then the result.
        batch_size: the number of pairs in a shard.
        name: the name of the result in the run. The default is `edges`.
        progress: whether to show a progress bar.

    Returns:
        [receiver input sender pair], or [receiver input sender role pair] with
        `positions="each"`. NaN where a sender does not come before the receiver, and for inputs
        that a receiver does not have.

    Raises:
        UnsupportedTrunk, UnsupportedReceiver: the model's layers cannot be computed one by one.
        CertificateError: all senders together do not have the effect that path patching gives for
            the receiver, or another check of the computation fails.
        FloatingPointError, IndexError, RunError: as in `path_patch`.
        ValueError: receivers, inputs, positions, group, via, paths or metric are not valid.
        TypeError: an option does not exist.

    Example:
        >>> import arith_lens as al
        >>> model = al.load_model("reference")
        >>> pairs = al.sample_pairs(model, n=6, templates="symbols", counterfactual="operands")
        >>> edges = al.edge_effects(model, pairs, ["5.5"], inputs=("v",), progress=False)
        >>> edges.axes                             # of per_pair, before the pairs
        ('receiver', 'input', 'sender')
    """
    refuse_unknown_options(edge_effects, options, EdgeReading, Storage)
    reading, storage = value_object(EdgeReading, options), value_object(Storage, options)
    settings = edge_settings(model, pairs, receivers, senders, reading, paths=paths, metric=metric)
    positions = reading.positions
    places, labels = places_of(pairs, positions)
    settings = replace(settings, n_places=len(labels))
    advice = "path_patch with engine='hooks' computes effects of its components alone"

    def make_engine() -> EdgeEngine:
        sweep = SweepEngine.of(model, settings.patching, certify=True, advice=advice)
        return EdgeEngine(model, settings, places, replace(sweep, cure=CURE))

    identity = patching_details(settings.patching, None, run) | {
        "method": "edge_effects",
        "receivers": [str(receiver) for receiver in settings.receivers],
        "senders": sender_names(settings),
        "inputs": list(settings.inputs),
        "positions": str(positions),
        "group": reading.group,
        "via": reading.via,
    }

    def result(values: Tensor, computation: Notes) -> Effects:
        warn_of_left_out(values, pairs, settings.patching.metric, settings.patching.measure)
        return _effects(values, settings, pairs, labels, each=positions == "each")

    computation = Computation(
        title="edges",
        make_engine=make_engine,
        result=result,
        read=Effects.from_arrays,
        settings={"metric": settings.patching.metric, "paths": paths},
        identity=identity,
        shard_size=shard_size(storage.batch_size),
    )
    name = storage.name or "edges"
    return computation.run(model, pairs, run=run, name=name, progress=progress)


def shapley_shares(edges: Effects) -> Effects:
    """The parts of the effect through q, k and v together that are due to each of them.

    The share of an input is its effect beside each choice of the other two, with the weights of
    Shapley. The three shares add up to the effect of `qkv`, pair by pair.

    Args:
        edges: of `edge_effects(inputs=SUBSETS)`.

    Returns:
        The same axes, with the inputs q, k and v.

    Raises:
        ValueError: some of the seven inputs are missing.
    """
    names = (edges.labels or {}).get("input", ())
    missing = [name for name in SUBSETS if name not in names]
    if missing:
        raise ValueError(
            f"expected effects of the inputs {', '.join(SUBSETS)}, found none of "
            f"{', '.join(missing)}; compute them with edge_effects(inputs=SUBSETS)"
        )
    effect = {"": torch.zeros_like(edges.per_pair[:, 0])}
    effect |= {name: edges.per_pair[:, names.index(name)] for name in SUBSETS}

    def joined(letters: Sequence[str]) -> str:
        return "".join(one for one in "qkv" if one in letters)

    shares = []
    for letter in "qkv":
        orders = [order[: order.index(letter)] for order in permutations("qkv")]
        gains = [effect[joined([*before, letter])] - effect[joined(before)] for before in orders]
        shares.append(torch.stack(gains).sum(0) / factorial(3))
    labels = {**(edges.labels or {}), "input": ("q", "k", "v")}
    return replace(edges, per_pair=torch.stack(shares, 1), labels=labels, held_norm=None)


def edge_settings(
    model: HookedLike,
    pairs: PromptPairs,
    receivers: Components,
    senders: Components | None,
    reading: EdgeReading,
    *,
    paths: str,
    metric: str | MetricFunction,
) -> EdgeSettings:
    """Check the arguments. Raises the errors of `edge_effects`."""
    group, via, inputs = reading.group, reading.via, reading.inputs
    for value, allowed, what in ((group, Group, "group"), (via, Via, "via"), (paths, Via, "paths")):
        check_choice(what, value, get_args(allowed))
    chosen = tuple(dict.fromkeys(as_components(receivers)))
    if not chosen:
        raise ValueError(
            "expected heads or MLPs that receive, found none; take effects.heads.top(5)"
        )
    names = tuple(dict.fromkeys([inputs] if isinstance(inputs, str) else inputs))
    strange = [name for name in names if name not in SUBSETS]
    if strange or not names:
        raise ValueError(
            f"expected inputs among {', '.join(SUBSETS)}, found {', '.join(strange) or 'none'}; "
            "write letters in the order q, k, v; MLPs that receive have their input in any case"
        )
    if metric == "logit_difference":
        raise ValueError(
            "expected a metric that needs no foil, found 'logit_difference'; choose "
            "digit_contrast, or give a function of the logits and the pairs"
        )
    n_layers, n_heads = int(model.cfg.n_layers), int(model.cfg.n_heads)
    patching = patch_settings(model, chosen, paths=paths, metric=metric, foil=None, pairs=pairs)
    together = isinstance(senders, str) and senders == TOGETHER
    writing: list[Component] = every_component(n_layers, n_heads) if senders is None else []
    if senders == EMBEDDINGS or (isinstance(senders, list | tuple) and EMBEDDINGS in senders):
        raise ValueError(
            f"expected heads and MLPs as senders, found {EMBEDDINGS!r}; leave senders out: then "
            "the embeddings are the first of all senders"
        )
    if senders is not None and not together:
        writing = list(dict.fromkeys(as_components(senders)))
    check_components(writing, n_layers, n_heads)
    settings = EdgeSettings(
        receivers=chosen,
        inputs=names + ((MLP_INPUT,) if any(not isinstance(r, Head) for r in chosen) else ()),
        senders=tuple(writing),
        embeddings=senders is None,
        together=together,
        n_places=1,
        group=cast(Group, group),
        via=cast(Via, via),
        patching=patching,
    )
    lonely = [receiver for receiver in chosen if not settings.n_before(receiver)]
    if lonely:
        raise ValueError(
            f"expected senders before every receiver, found none before {lonely[0]}; a head reads "
            "what lower layers write, an MLP also the heads of its own layer: give senders of "
            "these, or leave senders out"
        )
    return settings


def sender_names(settings: EdgeSettings) -> list[str]:
    """The names along the axis of senders."""
    first = [TOGETHER] * settings.together + [EMBEDDINGS] * settings.embeddings
    return [*first, *map(str, settings.senders)]


def places_of(pairs: PromptPairs, positions: str | int | Role) -> tuple[Places, tuple[str, ...]]:
    """The function from pairs to masks of the tokens at which senders act, and the masks' names."""
    if isinstance(positions, int) and not isinstance(positions, bool):
        shortest = int(pairs.lengths.min())
        if not -shortest <= positions < shortest:
            raise ValueError(
                f"expected a position from {-shortest} to {shortest - 1}, which every prompt has, "
                f"found {positions}; 0 is a prompt's first token, -1 is END"
            )
        return lambda some: [some.position_mask(positions)], (str(positions),)
    if positions == "all":
        return lambda some: [some.attention_mask], ("all",)
    if positions == "each" and pairs.spans is not None:
        roles = [role for role in pairs.roles if bool(pairs.role_mask(role).any())]
        return lambda some: [some.role_mask(role) for role in roles], tuple(map(str, roles))
    if positions == "each":
        lengths = pairs.lengths
        if int(lengths.min()) < int(lengths.max()):
            raise ValueError(
                "expected pairs with roles, or prompts of one length, found lengths from "
                f"{int(lengths.min())} to {int(lengths.max())}; give one position or 'all'"
            )
        columns = range(int(lengths.max()))
        return lambda some: [some.position_mask(i) for i in columns], tuple(map(str, columns))
    if positions not in pairs.roles:
        raise ValueError(
            f"expected positions of 'all', 'each', a number or a role ({', '.join(pairs.roles)}), "
            f"found {positions!r}; choose one of these"
        )
    role = str(positions)
    if not bool(pairs.role_mask(role).any()):
        known = ", ".join(one for one in pairs.roles if bool(pairs.role_mask(one).any()))
        raise ValueError(
            f"expected prompts with a token of the role {role}, found {known or 'no roles'}; "
            "choose one of these, 'all' or 'each'"
        )
    return lambda some: [some.role_mask(role)], (role,)


def edge_labels(settings: EdgeSettings) -> dict[str, tuple[str, ...]]:
    """The names along the axes of receivers, inputs and senders."""
    return {
        "receiver": tuple(map(str, settings.receivers)),
        "input": settings.inputs,
        "sender": tuple(sender_names(settings)),
    }


def _effects(
    values: Tensor,
    settings: EdgeSettings,
    pairs: PromptPairs,
    places: tuple[str, ...],
    *,
    each: bool,
) -> Effects:
    """The grid of edges, without the rows of all senders together."""
    n_edges, n_receivers = prod(settings.grid), len(settings.receivers)
    held_from = 1 + n_edges + n_receivers
    parts = (values[start : start + n_edges] for start in (1, held_from))
    grids = [part.unflatten(0, settings.grid) for part in parts]
    axes = ("receiver", "input", "sender", "role")
    labels = edge_labels(settings)
    if each:
        labels["role"] = places
    else:
        grids, axes = [grid[:, :, :, 0] for grid in grids], axes[:3]
    return Effects(
        grids[0],
        axes,
        settings.patching.metric,
        paths=settings.patching.paths,
        **pairs.units,
        labels=labels,
        held_norm=grids[1],
    )
