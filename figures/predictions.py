"""Five of the predictions for a pretrained model, each with its measured outcome.

Reads runs of `experiments/which_counterfactual.py`, `experiments/do_they_suffice.py` and
`experiments/where_do_they_look.py` of one model, and prints a table. Each prediction has a
condition on a number (docs/gemma.md). It holds if the number's whole 95% interval over problems
meets the condition, and does not hold if none of it does.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from jaxtyping import Float
from pandas import DataFrame

from arith_lens.effects import ComponentEffects, Effects
from arith_lens.operations import OPERATIONS
from arith_lens.pairs import Role
from arith_lens.runs import Run
from arith_lens.statistics import resampled_means
from experiments import results
from figures import counterfactuals
from figures.command import command
from figures.common import Options, chosen_run
from figures.exhibit import Table, command_for

N_RESAMPLES = 500
TOP = 10
PRIMARY = "operands"
"""The counterfactual on which the predictions rest."""
EARLY, MIDDLE = 1 / 3, (1 / 3, 2 / 3)
"""Shares of the layers: those before the middle, and the middle."""
FEW = 0.05
"""A share of the heads that is few."""
READ = (str(Role.OPERAND_A), str(Role.OPERAND_B), str(Role.OPERATOR))


@dataclass(frozen=True)
class Outcome:
    """A number that a prediction is about, with its interval."""

    prediction: str
    """Its number and what it says."""
    of: str
    """The operation, or two of them."""
    quantity: str
    value: float
    low: float
    high: float
    condition: str
    """The condition in words."""
    meets: Callable[[float], bool]
    """The condition. It must be an interval of numbers."""

    @property
    def verdict(self) -> str:
        """What the interval says: both of its ends, and the number, must agree."""
        ends = {self.meets(end) for end in (self.low, self.value, self.high)}
        return "not decided" if len(ends) > 1 else "holds" if ends == {True} else "does not hold"


def exhibits(options: Options) -> list[Table]:
    """The outcomes of a model's runs. Raises RunError if a run is missing."""
    maps_run, kept_run, looks_run = (
        chosen_run(options, name)
        for name in ("which_counterfactual", "do_they_suffice", "where_do_they_look")
    )
    maps = counterfactuals.loaded(maps_run, counterfactuals.ROWS)
    outcomes = [
        *few_heads(kept_run),
        *shared(maps),
        *middle_layers(maps),
        *readers(looks_run),
        *norm_parts(maps),
    ]
    return [
        Table(
            name="predictions",
            title=f"Predictions and outcomes, {maps_run.config['model']}",
            look="Which of the paper's statements hold in a model that others trained. A "
            "prediction that fails is a result.",
            notes=notes(maps_run),
            runs=(maps_run, kept_run, looks_run),
            numbers=DataFrame(map(record, outcomes)),
            cells=DataFrame(map(cells, outcomes)),
        )
    ]


def few_heads(run: Run) -> Iterator[Outcome]:
    """P1: how faithful the model is with the strongest 5% of the heads kept at END."""
    for operation in run.config["operations"]:
        curve = results.CIRCUIT.load(run, operation, "heads", "end", "keep_only", "effect")
        most = FEW * len(curve.order)
        at = max(i for i, size in enumerate(curve.sizes) if size <= most)
        drawn = _resampled(curve.effects())[len(curve.sizes) :]
        faithful = (drawn[at] - drawn[0]) / (drawn[-1] - drawn[0])
        value = float(curve.faithfulness()[at])
        yield _outcome(
            "P1: few heads suffice",
            operation,
            f"faithfulness with {curve.sizes[at]} of {len(curve.order)} heads",
            value,
            faithful,
            "at least 0.8",
            lambda share: share >= 0.8,
        )


def shared(maps: Mapping[str, Mapping[str, ComponentEffects]]) -> Iterator[Outcome]:
    """P2: the share of the ten strongest heads that two operations have in common."""
    for kind in (PRIMARY, "operator"):
        drawn = {name: _resampled(kinds[kind].heads) for name, kinds in maps.items()}
        means = {name: _means(kinds[kind].heads) for name, kinds in maps.items()}
        for a, b in combinations(maps, 2):
            both = zip(drawn[a].T, drawn[b].T, strict=True)
            yield _outcome(
                "P2: operations share heads",
                f"{a}, {b}",
                f"strongest {TOP} in common, {kind} changed",
                _in_common(means[a], means[b]),
                np.array([_in_common(*draws) for draws in both]),
                "above one half",
                lambda share: share > 0.5,
            )


def middle_layers(maps: Mapping[str, Mapping[str, ComponentEffects]]) -> Iterator[Outcome]:
    """P3: where the negative effects of the heads are."""
    for operation, kinds in maps.items():
        heads = kinds[PRIMARY].heads
        n_layers, n_heads = heads.per_pair.shape[:2]
        layers = np.repeat(np.arange(n_layers), n_heads)
        first, last = (share * n_layers for share in MIDDLE)
        for quantity, weights, condition, meets in (
            (
                "effect-weighted mean layer",
                layers,
                f"between {first:.0f} and {last:.0f} of {n_layers}",
                lambda layer, first=first, last=last: first <= layer <= last,
            ),
            (
                f"share of the effect below layer {EARLY * n_layers:.0f}",
                (layers < EARLY * n_layers).astype(float),
                "below 0.05",
                lambda share: share < 0.05,
            ),
        ):
            yield _outcome(
                "P3: the heads stand in middle layers",
                operation,
                quantity,
                _weighted(_means(heads), weights),
                np.array([_weighted(draw, weights) for draw in _resampled(heads).T]),
                condition,
                meets,
            )


def readers(run: Run) -> Iterator[Outcome]:
    """P4: the share of the strongest heads' attention that goes to the problem's A, B, operator."""
    for operation in run.config["operations"]:
        looks = results.ROLE_ATTENTION.load(run, operation)
        roles = (looks.labels or {})["role"]
        read = np.isin(roles, READ)
        free = np.array([role != str(Role.BOS) for role in roles])

        def share(weights: np.ndarray, read: np.ndarray = read, free: np.ndarray = free) -> float:
            of_roles = weights.reshape(-1, len(read))
            return float(of_roles[:, read].sum() / of_roles[:, free].sum())

        yield _outcome(
            "P4: the strongest heads read operands and operator",
            operation,
            "share of the attention outside BOS",
            share(_means(looks)),
            np.array([share(draw) for draw in _resampled(looks).T]),
            "at least one half",
            lambda part: part >= 0.5,
        )


def norm_parts(maps: Mapping[str, Mapping[str, ComponentEffects]]) -> Iterator[Outcome]:
    """P5, second half: the part of the late MLPs' effects through the final norm's scale."""
    for operation, kinds in maps.items():
        effects = kinds[PRIMARY]
        late = max(head.layer for head in effects.heads.top(TOP) if hasattr(head, "index"))
        whole, part = (
            _resampled(some)[late:].sum(0) for some in (effects.mlps, effects.mlps.by_norm_scale())
        )
        value = float(effects.mlps.by_norm_scale().mean()[late:].sum())
        yield _outcome(
            "P5: MLPs after the heads calculate (the norm's part)",
            operation,
            f"part through the norm's scale, MLPs from layer {late}",
            value / float(effects.mlps.mean()[late:].sum()),
            part / whole,
            "size below one quarter",
            lambda share: abs(share) < 0.25,
        )


def _outcome(
    prediction: str,
    of: str,
    quantity: str,
    value: float,
    draws: Float[np.ndarray, " resample"],
    condition: str,
    meets: Callable[[float], bool],
) -> Outcome:
    low, high = np.nanquantile(draws, [0.025, 0.975])
    return Outcome(prediction, of, quantity, value, float(low), float(high), condition, meets)


def _means(effects: Effects) -> Float[np.ndarray, " cell"]:
    return effects.mean().flatten().double().numpy()


def _resampled(effects: Effects) -> Float[np.ndarray, "cell resample"]:
    return resampled_means(effects.sample(), slice(None), N_RESAMPLES, 0).numpy()


def _in_common(a: Float[np.ndarray, " head"], b: Float[np.ndarray, " head"]) -> float:
    strongest = [{*np.argsort(values)[:TOP].tolist()} for values in (a, b)]
    return len(strongest[0] & strongest[1]) / TOP


def _weighted(means: Float[np.ndarray, " head"], values: Float[np.ndarray, " head"]) -> float:
    """The mean of `values`, weighted by how much each head takes away."""
    size = np.clip(-means, 0, None)
    return float((size * values).sum() / size.sum())


def record(outcome: Outcome) -> dict[str, object]:
    """A row for a program."""
    return {
        "prediction": outcome.prediction,
        "of": outcome.of,
        "quantity": outcome.quantity,
        "value": outcome.value,
        "low": outcome.low,
        "high": outcome.high,
        "condition": outcome.condition,
        "verdict": outcome.verdict,
    }


def cells(outcome: Outcome) -> dict[str, str]:
    """A row for a reader."""
    signs = " ".join(OPERATIONS[name].sign for name in outcome.of.split(", "))
    return {
        "prediction": outcome.prediction,
        "of": signs,
        "quantity": outcome.quantity,
        "measured": f"{outcome.value:.2f} [{outcome.low:.2f}, {outcome.high:.2f}]",
        "holds if": outcome.condition,
        "verdict": outcome.verdict,
    }


def notes(run: Run) -> list[str]:
    """How the numbers were made."""
    config = run.config
    examples = f"{config['shots']} examples, {config['exemplar_sets']} sets"
    return [
        f"Model: {config['model']}; {examples}; {config['metric']}. P2, P3 and P5 rest on the "
        "counterfactual with other operands (P2 also on another operator), P1 and P4 on the "
        "paper's, with a symbol without meaning.",
        "Brackets: 95% intervals over problems and sets of examples.",
    ]


main = command_for(exhibits)

if __name__ == "__main__":
    command(main, "predictions", __doc__)
