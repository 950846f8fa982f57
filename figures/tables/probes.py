"""The table `probes`: what MLPs read and write at END, layer by layer, as cosines with W_U.

Keys: operation; site ("mlp_in" or "write"); token ("A", "A and B" for their mean, "C", "others
without C", … or a digit); less, the token whose cosine is subtracted in each pair, or ""; layer.
Rows of a single prompt have its text as the key prompt. Rows of the digit that a layer writes most
have the key digit_class ("C", "A", "B", "C±1" or "other").
"""

from collections.abc import Iterator, Mapping

import torch

from arith_lens.effects import Effects
from arith_lens.probes import DIGIT_CLASSES, PROBE_ROLES, case_study, curve_of, turning_layers
from arith_lens.runs import Run
from experiments import results
from figures.tables.number import PROBLEMS, Number
from figures.tables.table import (
    QuestionTable,
    Row,
    interval_numbers,
    n_problems,
    row,
    sample_rows,
)

SITES = ("mlp_in", "write")
TOKENS: Mapping[str, tuple[str, ...]] = {"mlp_in": ("A", "B"), "write": ("C",)}
"""The tokens that each site is about."""
OTHERS = {"mlp_in": PROBE_ROLES[4], "write": PROBE_ROLES[3]}
"""The other digits of each site, to compare with."""
SHAPES = {"mlp_in": "rise_and_fall", "write": "rise"}
COSINE, CASE_COSINE = "cosine", "cosine in one prompt"
POINTS = ("start", "inflection", "end")
"""The layers where a curve turns."""
NUMBERS = ("A", "B", "C")
WON, CHANCE = "share of pairs whose largest cosine is of this class", "share of the ten digits"
DISTINCT = "pairs whose A, B, C and C±1 differ"


def table(run: Run, /) -> QuestionTable:
    """All rows of a run of `what_do_mlps_add`. Raises RunError if it is damaged."""
    rows: list[Row] = []
    for operation in run.config["operations"]:
        rows += _sample(run, operation)
        for site in SITES:
            rows += site_rows(results.PROBE.load(run, operation, site), operation, site)
        rows += [*_case_rows(run, operation), *_winner_rows(run, operation)]
    return QuestionTable.of("probes", str(run.config["model"]), rows)


def site_table(run: Run, site: str) -> QuestionTable:
    """The rows of what MLPs read, or of what they write. Raises RunError if a run is damaged."""
    rows: list[Row] = []
    for operation in run.config["operations"]:
        rows += _sample(run, operation)
        rows += site_rows(results.PROBE.load(run, operation, site), operation, site)
    return QuestionTable.of("probes", str(run.config["model"]), rows)


def _sample(run: Run, operation: str) -> list[Row]:
    return sample_rows(results.PROBE.facts(run, operation, SITES[0]), operation=operation)


def main_token(site: str) -> str:
    """The token of a site's main curve: `A and B`, or `C`."""
    return " and ".join(TOKENS[site])


def site_rows(probe: Effects, operation: str, site: str) -> Iterator[Row]:
    """The curves of one site, as they are and less those of the other digits."""
    tokens = (probe.labels or {})["token"]
    main, others = {main_token(site): TOKENS[site]}, OTHERS[site]
    single = {token: (token,) for token in tokens}
    above = [(others, {t: (t,) for t in TOKENS[site]} | main)]
    if "C" not in TOKENS[site]:  # the answer in what MLPs read
        above.append((OTHERS[SITES[1]], {"C": ("C",)}))
    for less, curves in (("", single | main), *above):
        for token, parts in curves.items():
            curve = curve_of(probe, *parts, less=less or None)
            keys = {"operation": operation, "site": site, "token": token, "less": less}
            for layer, number in enumerate(interval_numbers(curve, "cosine")):
                yield row(COSINE, number, **keys, layer=layer)
            if token in main:
                yield from _turning_rows(curve, SHAPES[site], **keys)


def _turning_rows(curve: Effects, shape: str, **keys: str) -> Iterator[Row]:
    """The layers where a curve turns, as far as it does."""
    turning = turning_layers(curve, shape)
    n = n_problems(curve)
    for name, point, ends in zip(POINTS, turning.points, turning.intervals, strict=True):
        if point is not None:
            spread = PROBLEMS if ends else ""
            yield row(name, Number(point, *ends or (), spread=spread, n=n, unit="layers"), **keys)


def _case_rows(run: Run, operation: str) -> Iterator[Row]:
    """One prompt: its numbers, and the cosines of the ten digits with what each layer writes."""
    case = results.DIGIT_COSINES.facts(run, operation)["case"]
    keys = {"operation": operation, "prompt": case["text"]}
    for name in NUMBERS:
        yield row(name, Number(case[name.lower()], unit="count"), **keys)
    cosines, _ = case_study(results.DIGIT_COSINES.load(run, operation), case["pair"])
    for layer, of_digits in enumerate(cosines.tolist()):
        for digit, cosine in enumerate(of_digits):
            at = {"site": SITES[1], "token": str(digit), "layer": layer}
            yield row(CASE_COSINE, Number(cosine, unit="cosine"), **keys, **at)


def _winner_rows(run: Run, operation: str) -> Iterator[Row]:
    """How often the digit that a layer writes most is of each class, and how often by chance."""
    apart = torch.tensor(results.WINNERS.facts(run, operation)["distinct_classes"])
    yield row(DISTINCT, Number(int(apart.sum()), unit="count"), operation=operation)
    if not apart.any():
        return
    won, by_chance = (
        stored.load(run, operation).select(apart) for stored in (results.WINNERS, results.CHANCE)
    )
    shares = iter(interval_numbers(won, "share"))
    for layer in range(len(won.per_pair)):
        at = {"operation": operation, "site": SITES[1], "layer": layer}
        for name in DIGIT_CLASSES:
            yield row(WON, next(shares), **at, digit_class=name)
    for name, number in zip(DIGIT_CLASSES, interval_numbers(by_chance, "share"), strict=True):
        yield row(CHANCE, number, operation=operation, digit_class=name)
