"""Five of the predictions for a pretrained model, each with its measured outcome.

Reads runs of `experiments/which_counterfactual.py`, `experiments/do_they_suffice.py` and
`experiments/where_do_they_look.py` of one model, and prints a table. Each prediction has a
condition on a number (docs/gemma.md). It holds if the number's whole 95% interval over problems
meets the condition, and does not hold if none of it does.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from jaxtyping import Float
from pandas import DataFrame

from arith_lens.effects import ComponentEffects
from arith_lens.operations import OPERATIONS
from arith_lens.pairs import Role
from arith_lens.runs import Run
from experiments import results
from figures import counterfactuals
from figures.common import Options, chosen_run
from figures.counterfactuals import TOP, cell_means, in_common, resampled_cells
from figures.exhibit import Table, command_for

PRIMARY = "operands"
"""The counterfactual on which the predictions rest."""
EARLY, MIDDLE = 1 / 3, (1 / 3, 2 / 3)
"""Shares of the layers: those before the middle, and the middle."""
FEW = 0.05
"""A share of the heads that is few."""
LEAST_RIGHT, LEAST_PROBLEMS = 0.6, 20
"""What an operation needs to take part."""
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
    least: float
    most: float
    """The condition: the range in which the number must lie."""

    @property
    def verdict(self) -> str:
        """Holds if the whole interval lies in the range, does not hold if none of it does."""
        if self.least <= self.low and self.high <= self.most:
            return "holds"
        return "does not hold" if self.high < self.least or self.low > self.most else "not decided"


def exhibits(options: Options) -> list[Table]:
    """The outcomes of a model's runs. Raises RunError if a run is missing."""
    maps_run, kept_run, looks_run = (
        chosen_run(options, name)
        for name in ("which_counterfactual", "do_they_suffice", "where_do_they_look")
    )
    accuracy = {name: accuracy_of(maps_run, name) for name in maps_run.config["operations"]}
    passing = [name for name in accuracy if passes(maps_run, name)]
    maps = counterfactuals.loaded(maps_run, counterfactuals.ROWS, passing)
    outcomes = [
        *few_heads(kept_run, [name for name in passing if name in kept_run.config["operations"]]),
        *shared(maps),
        *middle_layers(maps),
        *readers(looks_run, [name for name in passing if name in looks_run.config["operations"]]),
        *norm_parts(maps),
    ]
    return [
        Table(
            name="predictions",
            title=f"Predictions and outcomes, {maps_run.config['model']}",
            look="The predictions of the study of Gemma 3 270M, with its thresholds, on this model."
            " They were written for that study; much was already known of the shipped models.",
            notes=notes(maps_run, accuracy, passing),
            runs=(maps_run, kept_run, looks_run),
            numbers=DataFrame(map(record, outcomes)),
            cells=DataFrame(map(cells, outcomes)),
        )
    ]


def accuracy_of(run: Run, operation: str) -> float:
    """The share of the drawn prompts that the model answers right; 1 if none was filtered."""
    selection = results.COUNTERFACTUAL_MAP.facts(run, operation, PRIMARY)["selection"]
    return 1.0 if selection is None else selection["n_kept"] / selection["n_drawn"]


def passes(run: Run, operation: str) -> bool:
    """Whether an operation takes part: enough prompts are right, and enough problems are left."""
    facts = results.COUNTERFACTUAL_MAP.facts(run, operation, PRIMARY)
    enough = (facts.get("problems") or 0) >= LEAST_PROBLEMS
    return enough and accuracy_of(run, operation) >= LEAST_RIGHT


def few_heads(run: Run, operations: Sequence[str]) -> Iterator[Outcome]:
    """P1: how faithful the model is with the strongest heads kept at END.

    The curves are read at the sizes next to 5% of the heads, below and above.
    """
    for operation in operations:
        curve = results.CIRCUIT.load(run, operation, "heads", "end", "keep_only", "effect")
        most = FEW * len(curve.order)
        below = max(i for i, size in enumerate(curve.sizes) if size <= most)
        drawn = resampled_cells(curve.effects())[len(curve.sizes) :]
        for at in (below, below + 1):
            yield _outcome(
                "P1: few heads suffice",
                operation,
                f"faithfulness with {curve.sizes[at]} of {len(curve.order)} heads",
                float(curve.faithfulness()[at]),
                (drawn[at] - drawn[0]) / (drawn[-1] - drawn[0]),
                "at least 0.8",
                (0.8, np.inf),
            )


def shared(maps: Mapping[str, Mapping[str, ComponentEffects]]) -> Iterator[Outcome]:
    """P2: the share of the ten strongest heads that two operations have in common."""
    for kind in (PRIMARY, "operator"):
        drawn = {name: resampled_cells(kinds[kind].heads) for name, kinds in maps.items()}
        means = {name: cell_means(kinds[kind].heads) for name, kinds in maps.items()}
        for a, b in combinations(maps, 2):
            both = zip(drawn[a].T, drawn[b].T, strict=True)
            yield _outcome(
                "P2: operations share heads",
                f"{a}, {b}",
                f"strongest {TOP} in common, {kind} changed",
                in_common(means[a], means[b]),
                np.array([in_common(*draws) for draws in both]),
                "above one half",
                (np.nextafter(0.5, 1), 1.0),
            )


def middle_layers(maps: Mapping[str, Mapping[str, ComponentEffects]]) -> Iterator[Outcome]:
    """P3: where the negative effects of the heads are."""
    for operation, kinds in maps.items():
        heads = kinds[PRIMARY].heads
        n_layers, n_heads = heads.per_pair.shape[:2]
        layers = np.repeat(np.arange(n_layers), n_heads)
        first, last = (share * n_layers for share in MIDDLE)
        for quantity, weights, condition, bounds in (
            (
                "effect-weighted mean layer",
                layers,
                f"between {first:.0f} and {last:.0f} of {n_layers}",
                (first, last),
            ),
            (
                f"share of the effect below layer {EARLY * n_layers:.0f}",
                (layers < EARLY * n_layers).astype(float),
                "below 0.05",
                (0.0, 0.05),
            ),
        ):
            yield _outcome(
                "P3: the heads stand in middle layers",
                operation,
                quantity,
                _weighted(cell_means(heads), weights),
                np.array([_weighted(draw, weights) for draw in resampled_cells(heads).T]),
                condition,
                bounds,
            )


def readers(run: Run, operations: Sequence[str]) -> Iterator[Outcome]:
    """P4: the share of the strongest heads' attention that goes to the problem's A, B, operator."""
    for operation in operations:
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
            share(cell_means(looks)),
            np.array([share(draw) for draw in resampled_cells(looks).T]),
            "at least one half",
            (0.5, 1.0),
        )


def norm_parts(maps: Mapping[str, Mapping[str, ComponentEffects]]) -> Iterator[Outcome]:
    """P5, second half: the part of the late MLPs' effects through the final norm's scale."""
    for operation, kinds in maps.items():
        effects = kinds[PRIMARY]
        late = max(head.layer for head in effects.heads.top(TOP) if hasattr(head, "index"))
        by_scale = effects.mlps.by_norm_scale()
        whole, part = (resampled_cells(some)[late:].sum(0) for some in (effects.mlps, by_scale))
        value = float(by_scale.mean()[late:].sum())
        yield _outcome(
            "P5: MLPs after the heads calculate (the norm's part)",
            operation,
            f"part through the norm's scale, MLPs from layer {late}",
            value / float(effects.mlps.mean()[late:].sum()),
            part / whole,
            "between -0.25 and 0.25",
            (-0.25, 0.25),
        )


def _outcome(
    prediction: str,
    of: str,
    quantity: str,
    value: float,
    draws: Float[np.ndarray, " resample"],
    condition: str,
    bounds: tuple[float, float],
) -> Outcome:
    low, high = map(float, np.quantile(draws, [0.025, 0.975]))
    return Outcome(prediction, of, quantity, value, low, high, condition, *bounds)


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
        "measured": f"{_shown(outcome.value)} [{_shown(outcome.low)}, {_shown(outcome.high)}]",
        "holds if": outcome.condition,
        "verdict": outcome.verdict,
    }


def _shown(value: float) -> str:
    return f"{round(value, 2) + 0.0:.2f}"  # no -0.00


def notes(run: Run, accuracy: Mapping[str, float], passing: Sequence[str]) -> list[str]:
    """How the numbers were made, and which operations take part."""
    config = run.config
    examples = f"{config.get('shots', 0)} examples, {config.get('exemplar_sets', 1)} sets"
    right = ", ".join(
        f"{name} {share:.0%}" + ("" if name in passing else " (does not take part)")
        for name, share in accuracy.items()
    )
    return [
        f"Model: {config['model']}; {examples}; {config['metric']}. P2, P3 and P5 rest on the "
        "counterfactual with other operands (P2 also on another operator), P1 and P4 on the "
        "paper's, with a symbol without meaning.",
        f"Answered right: {right}. An operation takes part with {LEAST_RIGHT:.0%} and "
        f"{LEAST_PROBLEMS} problems.",
        "Brackets: 95% intervals over problems and sets of examples.",
    ]


main = command_for(exhibits)
