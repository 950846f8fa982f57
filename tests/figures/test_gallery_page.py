"""Each picture of docs/gallery.md has its fixed caption once; its finding has numbers of rows."""

import re
from pathlib import Path
from typing import Any

import pytest
from pandas import DataFrame

from figures import carry, probes, tuning
from figures.claims_glance import verdicts
from figures.gallery import GALLERY_MODELS, linked_charts
from figures.tables import circuit, effects, next_tokens
from figures.tables.table import from_csv, select, value
from figures.views.words import percent_text

ROOT = Path(__file__).parents[2]
GALLERY = ROOT / "figures" / "gallery"
PAGE = (ROOT / "docs" / "gallery.md").read_text(encoding="utf-8")
ONE, TWO = GALLERY_MODELS


@pytest.fixture(scope="module")
def charts() -> dict:
    return {chart.name: chart for chart in linked_charts(ROOT / "docs", GALLERY)}


def entries() -> dict[str, tuple[str, str]]:
    """The finding and the rest of the words below each picture of the page."""
    parts = re.split(r'<img alt="[^"]+" src="../figures/gallery/([\w-]+)\.png"[^>]*>', PAGE)
    texts = (re.split(r"\n## ", one)[0].split("**") for one in parts[2::2])
    return {
        name: (" ".join(bold.split()), " ".join(rest.split()))
        for name, (_, bold, rest) in zip(parts[1::2], texts, strict=True)
    }


def test_each_picture_has_its_caption_once_and_a_finding_of_one_sentence(charts: dict) -> None:
    shown = entries()
    assert len(shown) == PAGE.count("<img") > 5
    for name, (finding, rest) in shown.items():
        is_drawn = charts[name].caption not in rest
        assert is_drawn == (not name.startswith("circuit")), "a picture that has its caption"
        assert finding.endswith(".") and len(finding.split()) <= 35, name


@pytest.mark.parametrize("name", ["fig3", "fig4"])
def test_the_page_says_of_how_many_draws_random_heads_are(name: str) -> None:
    """A control of one draw would say so, too."""
    rows = from_csv((GALLERY / f"{name}.csv").read_text("utf-8"))
    random = rows[rows.spread.fillna("").str.match(r"range of \d+ (draws|orders|random)")]
    counts = {int(n) for n in random.n}
    assert len(counts) == 1
    assert f"Random heads: {counts.pop()} draws." in entries()[name][1]


def between(values: Any, form: str = ".0%") -> str:
    """`11% to 58%`: from the least to the greatest, once if they look the same."""
    texts = (format(one, f"z{form}").replace("-", "−") for one in (min(values), max(values)))
    return " to ".join(dict.fromkeys(texts))


def by_model(rows: DataFrame, **keys) -> list[DataFrame]:
    return [select(rows, model=model, **keys) for model in GALLERY_MODELS]


def of_circuit(rows: DataFrame) -> list[str]:
    keys = {"kind": "kept", "kept": "graph", "positions": "end", "measure": circuit.ACCURACY}
    kept = select(rows, model=ONE, counterfactual="operands", **keys)
    return [percent_text(kept.iloc[0])]


def of_maps(rows: DataFrame) -> list[str]:
    counts = [
        value(select(rows, operation=""), model=model, measure=effects.KEY_HEADS)
        for model in GALLERY_MODELS
    ]
    return [f"has {counts[0]:.0f} that", f"has {counts[1]:.0f}."]


def of_carry(rows: DataFrame) -> list[str]:
    texts = []
    for own in by_model(rows, kind="interchange", test="layers", variable="ones_carry"):
        layer = carry.chosen_layer(select(rows, model=own.model.iloc[0]))
        direction, shuffled = (
            select(own, layer=layer, space=space).iloc[0] for space in ("mean", "variable shuffled")
        )
        texts += [percent_text(direction), f"at layer {layer:.0f}", f"up to {shuffled.high:.0%}"]
    return texts


def of_exam(rows: DataFrame) -> list[str]:
    errors = select(rows, measure="largest error", paths=("via_mlps", "total"))
    worst, medians = (errors.groupby("method").value.agg(one) for one in ("max", "median"))
    assert worst.exact < 0.05 < worst.drop("exact").min(), "exact effects alone"
    assert round(medians.drop("exact").min(), 2) == round(medians.relp, 2)
    return [f"all {errors.model.nunique()} models", f"error of {medians.relp:.0%}"]


def of_knockouts(rows: DataFrame) -> list[str]:
    right = select(rows, measure="accuracy", components="heads", k=10)
    return [between(select(right, order=order).value) for order in ("effect", "random")]


def of_next_tokens(rows: DataFrame) -> list[str]:
    measures = (next_tokens.RIGHT, next_tokens.A_NUMBER)
    return [between(select(rows, measure=one, when="after").value) for one in measures]


def of_roles(rows: DataFrame) -> list[str]:
    counts = by_model(rows, measure="heads", kind="operand")
    return [between(own.value, ".0f") for own in counts]


def of_probes(rows: DataFrame) -> list[str]:
    return [
        f"up to {max(select(rows, measure='cosine', **one.where).value):.2f}"
        for chart in probes.SEVERAL_MODELS
        for one in chart.series[1:][::-1]
    ]


def of_tuning(rows: DataFrame) -> list[str]:
    texts = []
    for own in by_model(rows):
        changes = {key[0]: one for key, one in tuning._changes(own).items()}
        texts += [
            f"{100 * value(changes[one], group=tuning.GROUPS[0]):+.0f}".replace("-", "−")
            for one in ("precise", "full")
        ]
    return texts


def of_claims(rows: DataFrame) -> list[str]:
    known = [verdicts(rows, model) for model in GALLERY_MODELS]
    both = sum(all(one[claim] == "holds here" for one in known) for claim in known[0])
    return [f"Of {len(known[0])} claims", f"{both} hold in both"]


FINDINGS = {
    "circuit-of-addition": of_circuit,
    "fig12": of_maps,
    "carry": of_carry,
    "exam": of_exam,
    "fig3": of_knockouts,
    "fig4": of_next_tokens,
    "fig5": of_roles,
    "fig13": of_probes,
    "frontier": of_tuning,
    "claims": of_claims,
}


def test_every_finding_is_tied_to_rows() -> None:
    assert {*FINDINGS} == {*entries()}


@pytest.mark.parametrize("name", FINDINGS)
def test_the_numbers_of_a_finding_are_those_of_its_rows_in_their_order(
    name: str, charts: dict
) -> None:
    finding, _ = entries()[name]
    at = 0
    for text in FINDINGS[name](charts[name].numbers):
        assert text in finding[at:], f"{name}: expected {text!r}"
        at = finding.index(text, at) + len(text)
