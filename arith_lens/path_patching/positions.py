"""Path patching at chosen positions of the prompt: activation patching by layer and position.

Every other computation of this package patches END alone. Here a component gets its counterfactual
output at one position, at all tokens of a role, or at each position in turn. Nothing is frozen
(`paths="total"`), since a change at an earlier position reaches END through attention alone.
"""

from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from arith_lens.components import Activations, Head, Mlp
from arith_lens.effects import HEAD_AXES, MLP_AXES, ComponentEffects, Effects
from arith_lens.hooks import patch_heads, patch_mlps
from arith_lens.model import HookedLike
from arith_lens.pairs import PromptPairs, Role
from arith_lens.path_patching.engines import (
    HookEngine,
    Interventions,
    PatchSettings,
    Propagation,
    n_left_out,
)
from arith_lens.path_patching.streams import Stream, stream_effects
from arith_lens.path_patching.sweep import sweep_rows

PatchPositions: TypeAlias = str | int | Role
"""`"end"`: END; `"each"`: each position in turn; a role or a span's name: all its tokens together;
an int: this position of each prompt, from its first token (0), or from END (-1)."""
POSITION_AXIS = "position"
END_POSITION = -1


@dataclass(frozen=True)
class Places:
    """The positions to patch, one or several in turn."""

    names: tuple[str, ...]
    """A name for each, such as `-3` or `operand b`."""
    positions: PatchPositions
    """What they were made from."""

    @classmethod
    def of(cls, positions: PatchPositions, pairs: PromptPairs) -> "Places":
        """The places of some pairs.

        Raises:
            ValueError: positions of another kind, a role without tokens, or pairs without roles.
            IndexError: no prompt has this position.
            ValueError: in prompts of unequal lengths, a token without a counterpart.
        """
        names = _column_names(pairs) if positions == "each" else (str(positions),)
        places = cls(names, positions)
        masks = places.masks(pairs)
        pairs.require_counterparts(masks, f"positions={positions!r}")
        if not bool(masks.any()):
            if isinstance(positions, int):
                raise IndexError(
                    f"expected positions from {-int(pairs.lengths.max())} to "
                    f"{int(pairs.lengths.max()) - 1}, found {positions}"
                )
            raise ValueError(f"expected tokens of the role {positions}, found none in any pair")
        return places

    def masks(self, pairs: PromptPairs) -> Bool[Tensor, "place pair pos"]:
        """Where each place is in the prompts of some of the pairs."""
        mask, positions = pairs.attention_mask, self.positions
        width = mask.shape[1]
        if positions == "each":
            n = len(self.names)
            column = torch.arange(width)[None] == torch.arange(width - n, width)[:, None]
            return column[:, None] & mask
        if isinstance(positions, str) and positions in pairs.roles:
            return pairs.role_mask(positions)[None]
        if not isinstance(positions, int) or isinstance(positions, bool):
            raise ValueError(
                "expected positions 'end', 'each', a whole number or a role "
                f"({', '.join(pairs.roles)}), found {positions!r}; choose one of these"
            )
        return pairs.position_mask(positions)[None]


def _column_names(pairs: PromptPairs) -> tuple[str, ...]:
    """The position of each column from END, with its role if all prompts agree on it."""
    names = []
    for column in range(-int(pairs.lengths.max()), 0):
        present = pairs.attention_mask[:, column]
        roles = () if pairs.spans is None else pairs.roles
        role = next((r for r in roles if bool(pairs.role_mask(r)[present, column].all())), None)
        names.append(str(column) if role in (None, Role.OTHER) else f"{column} {role}")
    return tuple(names)


@dataclass(frozen=True)
class PositionEngine:
    """One forward per sender and place."""

    model: HookedLike
    patching: PatchSettings
    places: Places

    def __call__(
        self, pairs: PromptPairs, foil: Int[Tensor, " pair"] | None
    ) -> Float[Tensor, "row pair"]:
        """The unpatched logit, then sender by sender the effects at each place; NaN where a prompt
        does not have the place."""
        masks = self.places.masks(pairs)

        def interventions(
            patching: PatchSettings, reference: Activations, counterfactual: Activations
        ) -> Interventions:
            yield []
            for sender in patching.components:
                for mask in masks:
                    if isinstance(sender, Head):
                        yield patch_heads([sender], counterfactual, positions=mask)
                    elif isinstance(sender, Mlp):
                        yield patch_mlps([sender], counterfactual, positions=mask)
                    elif isinstance(sender, Stream):
                        yield sender.patch(counterfactual, mask)

        def names(patching: PatchSettings) -> list[str]:
            senders, places = patching.components, self.places.names
            return [f"with {sender} patched at {place}" for sender in senders for place in places]

        propagation = Propagation(sweep_rows, interventions, names, at_end=False)
        if streams := [s for s in self.patching.components if isinstance(s, Stream)]:
            recorded = [one.hook_name for one in streams]
            propagation = replace(propagation, recorded=lambda layer: recorded[layer : layer + 1])
        values = HookEngine(self.model, self.patching, propagation)(pairs, foil).cpu()
        absent = ~masks.any(-1).repeat(len(self.patching.components), 1)
        return torch.cat([values[:1], values[1:].masked_fill(absent, float("nan"))])

    def notes(self) -> dict[str, Any]:
        return {}


def position_effects(
    values: Float[Tensor, "row pair"],
    pairs: PromptPairs,
    patching: PatchSettings,
    places: Places,
    notes: dict[str, Any],
) -> ComponentEffects:
    """The values of a `PositionEngine` as effects: with an axis of positions for `"each"`."""
    n_places = len(places.names)
    at = f" at {places.names[0]}" if places.positions not in ("each", END_POSITION) else ""
    paths = f"{patching.paths}{at}"  # so that effects at two positions are never joined
    common: dict[str, Any] = {"metric": patching.metric, "paths": paths, **pairs.units}
    axes: tuple[str, ...] = ()
    if places.positions == "each":
        axes = (POSITION_AXIS,)
        common["labels"] = {POSITION_AXIS: places.names}
    common |= {"logit": values[0], "n_left_out": n_left_out(values), "computation": notes}
    if isinstance(patching.components[0], Stream):
        of_places = values[1:].unflatten(0, (-1, n_places))
        return stream_effects(of_places, patching.n_heads, axes, **common)
    own = {name: common.pop(name) for name in ("logit", "n_left_out", "computation")}
    parts = [
        patching.senders.split(values[1 + place :: n_places], patching.n_heads)
        for place in range(n_places)
    ]
    heads, mlps = (torch.stack(part, dim=-2) for part in zip(*parts, strict=True))
    if not axes:
        heads, mlps = heads[..., 0, :], mlps[..., 0, :]
    return ComponentEffects(
        heads=Effects(heads, HEAD_AXES + axes, **common),
        mlps=Effects(mlps, MLP_AXES + axes, **common),
        **own,
    )


def refuse_positions(
    positions: PatchPositions, paths: str, engine: str, others: dict[str, Any]
) -> None:
    """Raise ValueError for what cannot be combined with positions other than END.

    Args:
        positions: those of `path_patch`.
        paths: the paths of the change.
        engine: the engine's name.
        others: arguments that only END has, by name.
    """
    if paths != "total" or engine != "hooks":
        raise ValueError(
            f"expected paths='total' and engine='hooks' with positions={positions!r}, found "
            f"paths={paths!r} and engine={engine!r}: with heads frozen, no change at another "
            "position than END reaches the logits; add both, and choose senders"
        )
    unusable = [name for name, value in others.items() if value]
    if unusable:
        raise ValueError(
            f"expected no {', '.join(unusable)} with positions={positions!r}, found "
            f"{'it' if len(unusable) == 1 else 'them'}; leave it out, or patch END"
        )
