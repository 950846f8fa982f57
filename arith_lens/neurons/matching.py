"""Does a neuron follow a rule? Its map against many rules, on values that chose none of them.

For each family, the rule that fits best is chosen on problems with one half of the values of A and
B, and scored on problems with the other half. The score is the area under the ROC curve (AUC): the
probability that the neuron tells a selected problem from another one. A family with many rules fits
anything a little, so each score has two nulls: the same with operands that are permuted within
digit positions, and untrained models of the same architecture.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from arith_lens.arrays import Arrays
from arith_lens.components import Mlp, Neuron
from arith_lens.neurons.heuristics import HEURISTICS, LEAST_CELLS, Family, ProblemGrid
from arith_lens.neurons.maps import NeuronMaps
from arith_lens.operations import OPERATIONS
from arith_lens.statistics import false_discovery_control

if TYPE_CHECKING:
    from pandas import DataFrame

NULL_POINT = 0.99
"""A neuron must exceed this quantile of both nulls."""


@dataclass(frozen=True)
class HeuristicMatches:
    """The best rule of each family for each neuron, its score, and the nulls."""

    mlps: tuple[Mlp, ...]
    families: tuple[str, ...]
    auc: Float[Tensor, "family neuron"]
    """On values that did not choose the rule; .5 is chance."""
    rules: tuple[tuple[str, ...], ...]
    """The rules of each family."""
    best: Int[Tensor, "family neuron"]
    """The number of the best rule of the family; -1 if no rule can be scored."""
    held_out: tuple[bool, ...]
    """Whether the family is scored on held-out values. Single problems cannot be: for them, the
    score is of memory."""
    null: Float[Tensor, "family neuron"]
    """The 99% point with permuted operands; NaN without permutations."""
    p: Float[Tensor, "family neuron"]
    """The share of the permuted scores that are as large; NaN without permutations."""
    untrained: Float[Tensor, " family"]
    """The 99% point over neurons of untrained models; NaN if there are none."""
    level: float = 0.05
    """The share of false discoveries."""

    @property
    def neurons(self) -> list[Neuron]:
        """All neurons, those of the first MLP first."""
        width = self.auc.shape[1] // len(self.mlps)
        return [Neuron(mlp.layer, index) for mlp in self.mlps for index in range(width)]

    def q_values(self) -> Float[Tensor, "family neuron"]:
        """`p` after Benjamini and Hochberg's control over all families and neurons."""
        return false_discovery_control(self.p.double()).float()

    def implements(self) -> Bool[Tensor, "family neuron"]:
        """Which neurons follow a rule of the family: the score exceeds both nulls' 99% points, and
        the false discoveries over all families and neurons are controlled.

        Raises:
            ValueError: nothing was permuted.
        """
        if bool(self.p.isnan().all()):
            raise ValueError("expected permutations, found none; call match_heuristics with some")
        above = self.auc > self.null
        above &= self.untrained.isnan()[:, None] | (self.auc > self.untrained[:, None])
        return above & (self.q_values() < self.level)

    def to_dataframe(self) -> "DataFrame":
        """One row per family and neuron. Without permutations no neuron follows a rule."""
        from pandas import DataFrame

        permuted = not bool(self.p.isnan().all())
        inside = self.implements() if permuted else torch.zeros_like(self.p, dtype=torch.bool)
        q = self.q_values() if permuted else self.p
        names = [str(neuron) for neuron in self.neurons]
        rows = [
            {
                "family": family,
                "neuron": name,
                "rule": self.rules[i][int(self.best[i, j])] if self.best[i, j] >= 0 else "",
                "auc": float(self.auc[i, j]),
                "null": float(self.null[i, j]),
                "untrained": float(self.untrained[i]),
                "p": float(self.p[i, j]),
                "q": float(q[i, j]),
                "implements": bool(inside[i, j]),
            }
            for i, family in enumerate(self.families)
            for j, name in enumerate(names)
        ]
        return DataFrame(rows)

    def to_arrays(self) -> Arrays:
        """The arrays for a file; `from_arrays` reads them."""
        tensors = ("auc", "best", "null", "p", "untrained")
        header = {
            "kind": "heuristic_matches",
            "mlps": [mlp.layer for mlp in self.mlps],
            "families": [*self.families],
            "rules": [[*names] for names in self.rules],
            "held_out": [*self.held_out],
            "level": self.level,
        }
        return Arrays({name: getattr(self, name) for name in tensors}, header)

    @classmethod
    def from_arrays(cls, arrays: Arrays) -> "HeuristicMatches":
        """Read `to_arrays` back. Raises ValueError for another kind of result."""
        arrays.require("heuristic_matches")
        header = arrays.header
        return cls(
            mlps=tuple(map(Mlp, header["mlps"])),
            families=tuple(header["families"]),
            rules=tuple(map(tuple, header["rules"])),
            held_out=tuple(header["held_out"]),
            level=header["level"],
            **arrays.tensors,
        )


def match_heuristics(
    maps: NeuronMaps,
    families: Mapping[str, Family] = HEURISTICS,
    *,
    null: Sequence[HeuristicMatches] = (),
    hold_out: float = 0.5,
    permutations: int = 40,
    seed: int = 0,
) -> HeuristicMatches:
    """Score the rules of each family for each neuron (after Nikankin et al., 2024; the nulls are
    not theirs).

    Args:
        maps: of `neuron_maps`.
        families: the rules.
        null: the matches of untrained models of the same architecture, with the same families.
        hold_out: the share of the values of A, and of B, that choose no rule.
        permutations: the number of random permutations of the operands' digits, each place for
            itself; 0: none, such as for an untrained model. The 99% point and the p-values pool the
            neurons: each neuron's scores are standardised by its own permutations.
        seed: the seed of the halves and of the permutations.

    Raises:
        ValueError: no family; a share that leaves one half empty; permutations below 0 or of 1;
            a null of other families; or maps that are not finite.
    """
    if not families:
        raise ValueError("expected families of rules, found none; take al.HEURISTICS")
    if not 0 < hold_out < 1:
        raise ValueError(f"expected hold_out between 0 and 1, found {hold_out}; say 0.5 for a half")
    if permutations < 0 or permutations == 1:
        raise ValueError(f"expected permutations of 0, or 2 or more, found {permutations}")
    for other in null:
        if other.families != tuple(families):
            raise ValueError(
                f"expected a null of the families {', '.join(families)}, found "
                f"{', '.join(other.families)}; match both with the same families"
            )
    flat = maps.flat()
    if not bool(flat.isfinite().all()):
        raise ValueError("expected finite maps, found NaN or infinity; make them of a sound model")
    generator = torch.Generator().manual_seed(seed)
    cells = _Cells.of(maps, hold_out, generator)
    grid = grid_of(maps)
    scored = _Scored.of(flat, cells, _selections(grid, families, cells))
    nan = torch.full_like(scored.auc, float("nan"))
    level, p = nan, nan.clone()
    if permutations:
        draws = []
        for _ in range(permutations):
            selections = _selections(_permuted(maps, grid, generator), families, cells)
            selections = [
                replaced.scored_as(own.held_out)
                for replaced, own in zip(selections, scored.selections, strict=True)
            ]
            draws.append(_Scored.of(flat, cells, selections, scored.ranks).auc)
        level, p = _pooled(scored.auc, torch.stack(draws))
    untrained = torch.full((len(families),), float("nan"))
    if null:
        pooled = torch.cat([other.auc for other in null], dim=1)
        untrained = torch.nanquantile(pooled, NULL_POINT, dim=1)
    return HeuristicMatches(
        mlps=maps.mlps,
        families=tuple(families),
        auc=scored.auc,
        rules=tuple(selection.names for selection in scored.selections),
        best=scored.best,
        held_out=tuple(selection.held_out for selection in scored.selections),
        null=level,
        p=p,
        untrained=untrained,
    )


def grid_of(maps: NeuronMaps) -> ProblemGrid:
    """The problems of the maps."""
    values, cells = torch.tensor(maps.operands), maps.cells
    a, b = torch.meshgrid(values, values, indexing="ij")
    return ProblemGrid(a[cells], b[cells], maps.results[cells])


@dataclass(frozen=True)
class _Cells:
    """The problems that choose rules, and those that score them."""

    choose: Bool[Tensor, " cell"]
    score: Bool[Tensor, " cell"]

    @classmethod
    def of(cls, maps: NeuronMaps, hold_out: float, generator: torch.Generator) -> "_Cells":
        n = len(maps.operands)
        n_held = round(hold_out * n)
        if not 0 < n_held < n:
            raise ValueError(
                f"expected hold_out to leave values in both parts, found {hold_out} of {n} operands"
            )
        held = []
        for _ in range(2):
            mask = torch.zeros(n, dtype=torch.bool)
            mask[torch.randperm(n, generator=generator)[:n_held]] = True
            held.append(mask)
        a, b = held[0][:, None], held[1][None]
        return cls((~a & ~b)[maps.cells], (a & b)[maps.cells])


@dataclass(frozen=True)
class _Selection:
    """The rules of a family that can be scored."""

    names: tuple[str, ...]
    chosen: Float[Tensor, "cell rule"]
    """1 where the rule selects the problem."""
    held_out: bool

    def scored_as(self, held_out: bool) -> "_Selection":
        """The same rules, scored as another selection is."""
        return _Selection(self.names, self.chosen, held_out)


def _selections(
    grid: ProblemGrid, families: Mapping[str, Family], cells: _Cells
) -> list[_Selection]:
    selections = []
    for family in families.values():
        rules = list(family(grid))
        names = tuple(name for name, _ in rules)
        chosen = torch.stack([rule for _, rule in rules], dim=1)
        usable = _usable(chosen[cells.choose]) & _usable(chosen[cells.score])
        selections.append(_Selection(names, chosen.float(), bool(usable.any())))
    return selections


def _usable(chosen: Bool[Tensor, "cell rule"], least: int = LEAST_CELLS) -> Bool[Tensor, " rule"]:
    n = chosen.sum(0)
    return (n >= least) & (n <= len(chosen) - least)


@dataclass(frozen=True)
class _Scored:
    """The best rule of each family and its score."""

    auc: Float[Tensor, "family neuron"]
    best: Int[Tensor, "family neuron"]
    selections: Sequence[_Selection]
    ranks: Mapping[str, Float[Tensor, "neuron cell"]]

    @classmethod
    def of(
        cls,
        flat: Float[Tensor, "neuron cell"],
        cells: _Cells,
        selections: Sequence[_Selection],
        ranks: Mapping[str, Tensor] | None = None,
    ) -> "_Scored":
        everything = torch.ones_like(cells.choose)
        parts = {"choose": cells.choose, "score": cells.score, "all": everything}
        if ranks is None:
            modes = {selection.held_out for selection in selections}
            names = [
                *(["choose", "score"] if True in modes else []),
                *(["all"] if False in modes else []),
            ]
            ranks = {name: _ranks(flat[:, parts[name]]) for name in names}
        scores, rules = [], []
        for selection in selections:
            names = ("choose", "score") if selection.held_out else ("all", "all")
            least = LEAST_CELLS if selection.held_out else 1
            chosen = [selection.chosen[parts[name]] for name in names]
            usable = _usable(chosen[0].bool(), least) & _usable(chosen[1].bool(), least)
            if not bool(usable.any()):
                scores.append(torch.full((len(flat),), 0.5))
                rules.append(torch.full((len(flat),), -1))
                continue
            fits = _auc(ranks[names[0]], chosen[0][:, usable]) - 0.5
            best = fits.abs().argmax(1)
            numbers = usable.nonzero().flatten()[best]
            sign = fits.gather(1, best[:, None])[:, 0].sign()
            if selection.held_out:
                fits = _auc(ranks[names[1]], chosen[1][:, usable]) - 0.5
            scores.append(0.5 + sign * fits.gather(1, best[:, None])[:, 0])
            rules.append(numbers)
        return cls(torch.stack(scores), torch.stack(rules), selections, ranks)


def _ranks(values: Float[Tensor, "neuron cell"]) -> Float[Tensor, "neuron cell"]:
    """The rank of each value among those of its neuron, from 1; equal values share theirs."""
    ordered = values.contiguous().sort(dim=1).values
    low = torch.searchsorted(ordered, values.contiguous())
    high = torch.searchsorted(ordered, values.contiguous(), right=True)
    return (low + high + 1).float() / 2


def _auc(
    ranks: Float[Tensor, "neuron cell"], chosen: Float[Tensor, "cell rule"]
) -> Float[Tensor, "neuron rule"]:
    """The probability that a selected problem has a larger value than another one."""
    n = chosen.sum(0)
    above = ranks @ chosen - n * (n + 1) / 2
    return above / (n * (len(chosen) - n))


def _permuted(maps: NeuronMaps, grid: ProblemGrid, generator: torch.Generator) -> ProblemGrid:
    """The grid with the digits of A, and of B, permuted at each place.

    C is what the operation makes of the permuted operands, rounded down.
    """
    a, b = (_with_other_digits(values, generator) for values in (grid.a, grid.b))
    value = OPERATIONS[maps.operation].value
    c = [int((value(x, y) or 0) // 1) for x, y in zip(a.tolist(), b.tolist(), strict=True)]
    return ProblemGrid(a, b, torch.tensor(c))


def _with_other_digits(
    values: Int[Tensor, " cell"], generator: torch.Generator
) -> Int[Tensor, " cell"]:
    changed = torch.zeros_like(values)
    for place in range(len(str(int(values.max())))):
        at_place = values // 10**place % 10
        levels = at_place.unique()
        others = levels[torch.randperm(len(levels), generator=generator)]
        changed += 10**place * others[torch.searchsorted(levels, at_place)]
    return changed


def _pooled(
    auc: Float[Tensor, "family neuron"], draws: Float[Tensor, "draw family neuron"]
) -> tuple[Float[Tensor, "family neuron"], Float[Tensor, "family neuron"]]:
    """The 99% point of each neuron's null, and p-values; standardised draws are pooled."""
    centre, spread = draws.mean(0), draws.std(0).clamp(min=1e-3)
    standard = ((draws - centre) / spread).transpose(0, 1).flatten(1).sort(dim=1).values
    z = (auc - centre) / spread
    points = standard[:, int(NULL_POINT * (standard.shape[1] - 1))]
    n_below = torch.searchsorted(standard, z.contiguous())
    p = (1 + standard.shape[1] - n_below).double() / (1 + standard.shape[1])
    return centre + points[:, None] * spread, p.float()
