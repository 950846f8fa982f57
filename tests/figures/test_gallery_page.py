"""Nine cards of docs/gallery.md: a picture, one sentence tied to its rows, the rest folded."""

import os
import re
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pandas import DataFrame, concat

from figures import carry, few_heads, tuning
from figures.claims_glance import verdicts
from figures.exhibit import (
    findings_in,
    named_for_files,
    options_of,
    page_texts,
    write_exhibit,
)
from figures.few_heads import LENSES, MEANS
from figures.gallery import GALLERY_MODELS, linked_charts
from figures.knockout import fig3
from figures.map_figures import fig2
from figures.probes import fig6
from figures.tables import circuit, effects
from figures.tables.attention import RANDOM, WEIGHT
from figures.tables.base_rates import MAJORITY
from figures.tables.table import from_csv, select, value
from figures.tuning_tables import table1
from figures.views.words import percent_text

ROOT = Path(__file__).parents[2]
GALLERY = ROOT / "figures" / "gallery"
PAGE = re.sub(r"<!--.*?-->", "", (ROOT / "docs" / "gallery.md").read_text(encoding="utf-8"))
ONE, TWO = GALLERY_MODELS


@pytest.fixture(scope="module")
def charts() -> dict:
    return {chart.name: chart for chart in linked_charts(ROOT / "docs", GALLERY)}


CARDS = re.compile(r'<img alt="[^"]+" src="../figures/gallery/([\w-]+)\.\w+"[^>]*>')


def entries() -> dict[str, tuple[str, str]]:
    """The finding and the folded words of each card."""
    parts = CARDS.split(PAGE)
    texts = (re.split(r"\n## ", one)[0].split("**") for one in parts[2::2])
    return {
        name: (" ".join(bold.split()), " ".join(rest.split()))
        for name, (_, bold, rest) in zip(parts[1::2], texts, strict=True)
    }


def test_there_are_nine_cards_of_one_short_sentence_with_one_share_at_most() -> None:
    cards = entries()
    assert [*cards] == [
        *("few_heads", "fig11", "fig12", "fig3", "circuit-of-addition", "carry", "exam"),
        *("fig5", "claims"),
    ]
    assert len(cards) == PAGE.count("<img") == PAGE.count("<details>") == 9
    for name, (finding, rest) in cards.items():
        words = re.sub(r"MLP \d+", "MLP", finding).partition("(")[0]  # a name is one word
        assert finding[-1] in ".?" and len(words.split()) <= 15, name
        assert len(re.findall(r"\d+%", words)) <= 1, "and its control"
        visible, folded, _ = rest.partition("<details>")
        assert len(visible.split()) <= 20 and folded and rest.endswith("</details>"), "folded"
        assert re.search(r"`make [\w-]+[ `]", rest) and ".csv)" in rest, "its command, its numbers"


def test_a_card_repeats_no_caption_that_its_picture_has(charts: dict) -> None:
    for name, chart in charts.items():
        if name in entries():
            is_drawn = chart.caption not in entries()[name][1]
            assert is_drawn == (not name.startswith("circuit")), "a picture that has its caption"


@pytest.mark.parametrize("name", ["fig3"])
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


def of_few_heads(_: None) -> list[str]:
    rows = from_csv((ROOT / "docs/studies/audits.csv").read_text("utf-8"))
    keys = {"model": "smollm2-135m", "task": "addition", "question": "Do few suffice?"}
    few, tasks, prompt = (
        select(rows, lens=lens, **keys).iloc[0] for lens in (MEANS, *[*LENSES][2:])
    )
    assert len(few.heads.split()) == 4
    model = f"(SmolLM2-135M, n = {few.n:.0f})"
    return ["Four", f"{few.value:.0%}", model, percent_text(tasks), percent_text(prompt)]


def of_circuit(rows: DataFrame) -> list[str]:
    keys = {"kind": "kept", "kept": "graph", "measure": circuit.ACCURACY}
    own = select(rows, model=ONE, counterfactual="operands", **keys)
    at_end, everywhere = (select(own, positions=one).iloc[0] for one in ("end", "all"))
    random = select(rows, model=ONE, **keys | {"kept": "random", "positions": "end"}).iloc[0]
    most = f"random paths at most {random.high:.0%}"
    assert at_end.value < 0.5, "does not suffice"
    return [f"alone they answer {at_end.value:.0%}", percent_text(at_end), most,
            percent_text(everywhere)]  # fmt: skip


def of_maps(rows: DataFrame) -> list[str]:
    counts = [
        value(select(rows, operation=""), model=model, measure=effects.KEY_HEADS)
        for model in GALLERY_MODELS
    ]
    shown = rows[(rows.measure == effects.EFFECT) & (rows.operation != "mean")]
    n_keys = shown.role.eq(effects.KEY_ROLE).groupby([shown.model, shown.operation]).sum()
    late, last = (
        DataFrame(rows[rows.operation.isin(shown.operation) & (rows.component == f"MLP {layer}")])
        for layer in (10, 11)
    )
    held = [select(one, measure=effects.HELD) for one in (late, last)]
    late = concat([select(late, measure=effects.EFFECT), held[0]])
    assert n_keys.max() == 3 and n_keys[ONE, "division"] == 0 and counts[0] == 5
    assert len(late) == 2 * len(n_keys) == 16 and late.high.max() < -0.05
    free = select(last, measure=effects.EFFECT)
    assert free.high.max() < 0 < held[1].value.min(), "through the norm"
    assert (held[1].low < 0).sum() == 3 and len(held[1]) == 8, "does not help"
    return [
        "At most three key heads per operation; MLP 10 matters, MLP 11 helps only via the norm",
        f"({held[1].value.min():+.0%} to {held[1].value.max():+.0%})",
        f"has {counts[0]:.0f} key heads, none in division, `reference-mistral` {counts[1]:.0f}. ",
    ]


def of_carry(rows: DataFrame) -> list[str]:
    texts = []
    keys = {"kind": "interchange", "layer": 9, "variable": "ones_carry", "model": ONE}
    tests = {"large_sums": "mean", "three_digits": "mean", "layers": "largest variance (no values)"}
    *further, component = [
        percent_text(select(rows, test=test, space=space, **keys).iloc[0])
        for test, space in tests.items()
    ]
    for own in by_model(rows, kind="interchange", test="layers", variable="ones_carry"):
        layer = carry.chosen_layer(select(rows, model=own.model.iloc[0]))
        direction, shuffled = (
            select(own, layer=layer, space=space).iloc[0] for space in ("mean", "variable shuffled")
        )
        texts += [percent_text(direction), f"at layer {layer:.0f}", f"at best {shuffled.high:.0%}"]
    title = f"{texts[0].partition(' ')[0]} of `reference`'s sums below 100"
    return [title, texts[2], *further, *texts[:2], component, *texts[3:]]


def of_exam(rows: DataFrame) -> list[str]:
    errors = select(rows, measure="largest error", paths=("via_mlps", "total"))
    worst, medians = (errors.groupby("method").value.agg(one) for one in ("max", "median"))
    assert worst.exact < 0.05 < worst.drop("exact").min(), "exact effects alone"
    best = medians.drop("exact").round(4)
    assert {*best[best == best.min()].index} == {"relp", "attn_lrp", "gim"}
    assert worst.relp == worst.attn_lrp == worst.gim
    of_three = errors[errors.method.isin([*best.index[best == best.min()]])]
    differ = of_three.groupby(["model", "paths"]).value.agg(np.ptp) > 0.01
    assert differ.groupby("model").any().sum() == 2
    return [
        f"RelP, AttnLRP and GIM err by {medians.relp:.0%} (median), by {worst.relp:.0%} at worst",
        f"Over {errors.model.nunique()} models; in two the three methods differ.",
    ]


def of_knockouts(rows: DataFrame) -> list[str]:
    right = select(rows, measure="accuracy", components="heads", k=10)
    strongest, random = (select(right, order=order) for order in ("effect", "random"))
    rates = select(rows, measure=MAJORITY).groupby(["model", "operation"]).value.first()
    texts = ["`reference` does not measurably beat chance"]
    for own, others in zip(by_model(strongest), by_model(random), strict=True):
        keys = zip(own.model, own.operation, strict=True)
        rate = rates.loc[[*keys]].to_numpy()
        assert (own.low < rate).all() == (own.model.iloc[0] == ONE)
        most, least = own.value.argmax(), own.value.min()
        texts += [f"{least:.0%} (+)", percent_text(own.iloc[most]), f"chance {rate[most]:.0%}"]
        texts += [between(others.value), f"in the worst draw {min(others.low):.0%}"]
    return texts


def of_roles(rows: DataFrame) -> list[str]:
    counts = by_model(rows, measure="heads", kind="operand")
    weights = select(rows, measure=WEIGHT, kind=RANDOM)
    keys = ["model", "operation", "head"]
    random = weights.pivot_table("value", keys, "role")
    seen = random["operand a"] + random["operand b"]
    assert len(seen) > 80 and (seen < 0.5 * (1 - random.BOS)).all(), "no random one"
    one, two = (between(own.value, ".0f") for own in counts)
    assert one == "3 to 7"
    ten = [n for n in random.groupby(keys[:2]).size() if n == 10 + 1]  # and their mean
    assert len(ten) == 8
    return ["ten strongest heads, three to seven mostly see A or B (random: none)", f": {two}. "]


def of_claims(rows: DataFrame) -> list[str]:
    known = [verdicts(rows, model) for model in GALLERY_MODELS]
    both = sum(all(one[claim] == "holds here" for one in known) for claim in known[0])
    assert both == 8
    return [f"Of the paper's {len(known[0])} claims, eight hold in both"]


def of_probes(rows: DataFrame) -> list[str]:
    last = select(rows, measure="cosine", layer=rows.layer.max(), site="mlp_in")
    operands, answer = (
        select(last, token=token, less=less).set_index(["model", "operation"])
        for token, less in (("A and B", "others without A, B, C"), ("C", "others without C"))
    )
    assert len(answer) == 8 and (answer.low > operands.high).all()
    of_one = (value(one.loc[[(ONE, "addition")]]) for one in (answer, operands))
    return ["reads C more than A and B", "in addition {:.2f} against {:.2f}".format(*of_one)]


def of_tuning(rows: DataFrame) -> list[str]:
    changes = tuning._changes(select(rows, model=ONE), "little_loss")
    methods = {key[0]: one for key, one in changes.items() if key[1:] in ((3, 0), (0, 0))}
    gains = [100 * value(methods[name], group="word problems") for name in ("full", "precise")]
    best = tuning._changes(select(rows, model=ONE))
    lost = [-100 * value(one, group="generic tasks") for one in best.values()]
    three, random = sorted(lost)[:3], max(lost)
    return [
        f"tuning three heads gains {gains[1]:.1f} points",
        f"tuning all weights {gains[0]:.0f} (`reference`)",
        f"{three[0]:.0f} to {three[2]:.0f} elsewhere, random heads {random:.0f}",
    ]


def of_audits(rows: DataFrame) -> list[str]:
    counts = rows[(rows.verdict == "holds") & (rows.value >= 0.9)].lens.value_counts()
    assert [counts[lens] for lens in LENSES] == [8, 6, 2, 1]
    return [f"8 of {len(select(rows, lens=MEANS))} tasks of five models", "tests in at most 2"]


SHOWN_OF_ONE = ("fig3", "fig5")
FINDINGS = {
    "few_heads": of_few_heads,
    "fig12": of_maps,
    "fig3": of_knockouts,
    "circuit-of-addition": of_circuit,
    "carry": of_carry,
    "exam": of_exam,
    "fig5": of_roles,
    "claims": of_claims,
}
ON_OTHER_PAGES = {
    "fig13": ("probes.md", of_probes),
    "frontier": ("studies/tuning.md", of_tuning),
    "atlas": ("pretrained.md", of_audits),
}


def test_every_card_but_the_drawing_of_the_method_is_tied_to_rows() -> None:
    assert {*entries()} - {*FINDINGS} == {"fig11"}


@pytest.mark.parametrize("name", FINDINGS)
def test_the_numbers_of_a_card_are_those_of_its_rows_in_their_order(
    name: str, charts: dict
) -> None:
    text, at = " ".join(entries()[name]), 0
    rows = charts[name].numbers if name in charts else None
    if name in SHOWN_OF_ONE:  # the card is about both models, too
        files = (GALLERY / folder / f"{name}.csv" for folder in ("", TWO))
        rows = concat([from_csv(file.read_text("utf-8")) for file in files])
    for part in FINDINGS[name](rows):
        assert part in text[at:], f"{name}: expected {part!r}"
        at = text.index(part, at) + len(part)


@pytest.mark.parametrize("name", ON_OTHER_PAGES)
def test_the_bold_sentence_below_a_picture_of_another_page_is_that_of_its_rows(
    name: str, charts: dict
) -> None:
    page, parts = ON_OTHER_PAGES[name]
    below = (ROOT / "docs" / page).read_text("utf-8").partition(f'/{name}.svg"></picture>')[2]
    bold, rest = below.split("**")[1:3]
    assert all(part in bold + rest for part in parts(charts[name].numbers))


def test_the_title_of_each_picture_is_the_bold_sentence_below_it(
    charts: dict, tmp_path: Path
) -> None:
    """The old pictures asked a question there."""
    findings = {name: bold.strip(".").replace("`", "") for name, (bold, _) in entries().items()}
    for name, chart in charts.items():
        assert chart.title == findings.get(name, chart.title)
        assert name in findings or (name in ON_OTHER_PAGES and not chart.title.endswith("?"))
    page = '<img src="/gallery/atlas.svg"></picture>\n\n{}Text.'
    (tmp_path / "docs").mkdir()
    for text, title in (("**`A` [is](b)\nB.** ", "A is B"), ("", few_heads.atlas().title)):
        (tmp_path / "docs" / "a.md").write_text(page.format(text), "utf-8")
        assert [one.title for one in linked_charts(tmp_path / "docs", GALLERY)] == [title]


HEADED = {"fig2": fig2, "fig3": fig3, "fig6": fig6, "table1": table1}


@pytest.mark.parametrize("command", HEADED)
def test_a_page_of_shipped_tables_is_headed_by_what_people_wrote_of_them(
    command: str, tmp_path: Path
) -> None:
    """Another model's page has the topic there. A relative folder is the same tables."""
    known = findings_in(page_texts(ROOT / "docs"))
    for model, root in ((ONE, Path(os.path.relpath(GALLERY))), (TWO, GALLERY)):
        for exhibit in HEADED[command](options_of(HEADED[command])(model=model, root=root)):
            named = named_for_files(exhibit)
            page = write_exhibit(named, tmp_path, formats=())[1].read_text("utf-8")
            heading = unescape(page.partition("<h1>")[2].partition("</h1>")[0])
            assert heading == (known[exhibit.name] if model == ONE else exhibit.title)
            assert ('<p class="under">' in page) == (model == ONE), "its topic"


def test_the_heading_of_figure_6_holds_in_the_operation_that_it_shows() -> None:
    rows = select(from_csv((GALLERY / "fig6.csv").read_text("utf-8")), operation="addition")
    last = select(rows, measure="cosine", site="mlp_in", less="", layer=rows.layer.max())
    answer, operands = (value(last, token=token) for token in ("C", "A and B"))
    texts = page_texts(ROOT / "docs")
    assert findings_in(texts)["fig6"] == "The last MLP of reference reads C more than A and B"
    assert f"as in Figure 6: {answer:.2f} and {operands:.2f})" in texts and answer > operands


def test_four_random_mlps_cost_more_than_the_four_strongest_in_multiplication() -> None:
    rows = from_csv((GALLERY / "fig3.csv").read_text("utf-8"))
    keys = {"measure": "accuracy", "components": "MLPs", "k": 4, "operation": "multiplication"}
    assert value(rows, order="random", **keys) < value(rows, order="effect", **keys)
