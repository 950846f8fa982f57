"""How faithful are orders of heads and MLPs, by CPR and CMD of the MIB benchmark?"""

import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import arith_lens as al
from arith_lens.components import Component, every_component, parse_component
from arith_lens.knockout import FRACTIONS, CircuitCurve, CircuitFile, halves, keep_each
from laboratory.rows import Row, write_rows

METRIC = "digit_contrast"
APPROXIMATE = ("atp", "eap_ig")


def orders(
    model: str = "smollm2-135m",
    greedy: tuple[str, ...] = (),
    draws: int = 20,
    csv: Path | None = None,
) -> None:
    """Order the heads and MLPs by several methods on one half of the sums, and judge on the other.

    What is left out gives the counterfactual's output at END.

    Args:
        model: a name, a folder or a GGUF file.
        greedy: heads that an audit of the model chose one by one, such as 20.8.
        draws: the number of random orders.
        csv: the file to write.
    """
    write_rows(_rows(al.load_model(model), greedy, draws), csv)


def _rows(model: al.HookedModel, greedy: Sequence[str], draws: int) -> Iterator[Row]:
    pairs = al.sample_pairs(
        model, "addition", templates="symbols", counterfactual="operands", shots=1
    )
    first, second = halves(pairs)
    named = dict(named_orders(model, first, greedy, draws))
    total = len(named["atp"])
    sizes = tuple(sorted({0, *(round(share * total) for share in FRACTIONS)}))
    sets = {f"{name}, {k}": order[:k] for name, order in named.items() for k in sizes}
    alone = keep_each(model, second, sets, metric=METRIC, positions="end").per_pair
    setting: Any = {"ablation": "counterfactual", "positions": "end", "means": "counterfactual"}
    for (name, order), values in zip(named.items(), alone.split(len(sizes), dim=1), strict=True):
        right, lead = values[0].bool(), values[-1]
        curve = CircuitCurve(
            lead, right, sizes, tuple(order), "keep_only", METRIC, **setting, **second.units
        )
        areas = {"CPR": curve.cpr, "CMD": curve.cmd}
        for measure, (low, high) in curve.intervals().items():
            number = {"value": areas[measure.upper()], "low": low, "high": high}
            about = {"model": model.name, "order": name, "measure": measure.upper()}
            yield about | number | {"n": len({*second.problem})}
        for size, share in zip(sizes, curve.faithfulness().tolist(), strict=True):
            yield {"model": model.name, "order": name, "measure": f"f, {size} kept", "value": share}


def named_orders(
    model: al.HookedModel, pairs: al.PromptPairs, greedy: Sequence[str], draws: int
) -> Iterator[tuple[str, list[Component]]]:
    """Each order of all heads and MLPs, the most helpful first, with its name."""
    everything = every_component(model.n_layers, model.n_heads)
    effects = al.path_patch(model, pairs, metric=METRIC, progress=False)
    exact = CircuitFile.of(model, effects, []).order()
    yield "exact", exact
    options: Any = {"paths": "total", "engine": "hooks", "metric": METRIC, "progress": False}
    total = al.path_patch(model, pairs, senders=everything, **options)
    yield "exact, all paths", CircuitFile.of(model, total, []).order()
    if chosen := [parse_component(head) for head in greedy]:
        yield "greedy, then exact", [*chosen, *(one for one in exact if one not in chosen)]
    for method in APPROXIMATE:
        scores = al.attribute(
            model, pairs, method=method, paths="total", metric=METRIC, progress=False
        )
        yield method, CircuitFile.of(model, scores, []).order()
    for seed in range(draws):
        yield f"random {seed}", random.Random(seed).sample(everything, len(everything))
