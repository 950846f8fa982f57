"""The tables of docs/studies/attribution.md are views of shipped rows."""

from pathlib import Path
from typing import Any

import pandas as pd

ROOT = Path(__file__).parents[2]
METHODS_PAGE = (ROOT / "docs" / "attribution.md").read_text("utf-8")
PAGE = (ROOT / "docs" / "studies" / "attribution.md").read_text("utf-8")
STUDIES = ROOT / "docs" / "studies"
SCORES = STUDIES / "authors_scores.csv"


def rows_of(model: str, paths: str = "via_mlps") -> Any:
    """The rows of a model in the table of the ladder, without the means over operations."""
    table: Any = pd.read_csv(STUDIES / "ladder.csv", keep_default_na=False)
    return table[(table.model == model) & (table.paths == paths) & (table.operation != "mean")]


def grades(table: Any, method: str, part: str) -> str:
    """The correlations of a method, one per operation."""
    own = table[(table.method == method) & (table.components == part)]
    values = own[own.measure == "pearson"].value.astype(float)
    return " ".join(f"{value:.2f}".replace("-0.00", "0.00").replace("-", "−") for value in values)


def cost(table: Any, method: str) -> float:
    """Processor milliseconds per pair, the mean over operations."""
    own = table[(table.method == method) & (table.measure == "processor milliseconds per pair")]
    return float(own.value.astype(float).mean())


def ladder() -> list[str]:
    """The lines of the page's table of `reference`: times, and correlations with heads frozen."""
    tables = [rows_of("reference", paths) for paths in ("via_mlps", "total")]
    lines = []
    for method in filter(None, tables[0].method.unique()):
        costs = ", ".join(f"{cost(table, method):,.0f}" for table in tables)
        parts = [grades(tables[0], method, part) for part in ("heads", "MLPs")]
        name = "exact" if method == "exact" else f"`{method}`"
        lines.append(f"| {name} | {costs} | {' | '.join(parts)} |")
    return lines


def test_the_correlations_are_those_of_the_ladder() -> None:
    lines = ladder()
    assert len(lines) == 9
    assert [line for line in lines if line not in PAGE] == []
    assert any(line.replace("0.9", "0.1") not in PAGE for line in lines), "the test can fail"


def test_the_sentences_about_other_models_are_those_of_their_ladders() -> None:
    def correlations(model: str, part: str) -> Any:
        table = rows_of(model)
        own = table[(table.components == part) & (table.measure == "pearson")]
        return own.assign(value=own.value.astype(float)).groupby("method").value

    words = " ".join(PAGE.split())
    assert "`atp` is below −0.8 for MLPs in every operation" in words
    mlps = correlations("reference-mistral", "MLPs")
    assert mlps.max()["atp"] < -0.8
    assert mlps.min().idxmax() == "ig_activations" and "is the best for MLPs" in words


def test_the_sentence_on_time_is_that_of_the_ladder() -> None:
    counts = set()
    for model in ("reference", "reference-mistral"):
        for paths in ("via_mlps", "total"):
            rows = rows_of(model, paths)
            costs = rows[rows.measure == "processor milliseconds per pair"]
            table = costs.astype({"value": float}).pivot(
                index="operation", columns="method", values="value"
            )
            others = table.drop(columns="exact")
            side = others.gt if paths == "via_mlps" else others.lt
            counts.add((paths, int(side(table.exact, axis=0).all().sum()), others.shape[1]))
    assert counts == {("via_mlps", 8, 8), ("total", 7, 8)}
    words = " ".join(PAGE.split())
    assert "With other heads frozen, all 8 approximations take more time than exact" in words
    assert "with all paths, 7 of 8 take less" in words


LENS_ROWS = {
    "MLPs: `atp`": "atp_sign",
    "MLPs: `relp`": "relp_mlps",
    "heads: `atp`": "atp_heads",
    "heads: `relp`": "relp_heads",
}
"""The conclusion whose number a row of the table of lenses has."""
LENS_COLUMNS = [
    (cf, m) for cf in ("word", "operands") for m in ("relative_logit", "digit_contrast")
]


def lens_line(title: str, rows: Any) -> str:
    """A row of the table of lenses: the four operations under each lens."""
    cells = [title]
    for counterfactual, metric in LENS_COLUMNS:
        under = (rows.counterfactual == counterfactual) & (rows.metric == metric)
        texts = [f"{value:.2f}" for value in rows[under].value.astype(float)]
        assert len(texts) == 4, "one per operation"
        short = (text if "1." in text else text.replace("0.", ".") for text in texts)
        cells.append(" ".join(short).replace("-.00", ".00").replace("-", "−"))
    return f"| {' | '.join(cells)} |"


def test_the_grades_under_other_lenses_are_those_of_their_tables() -> None:
    folder = ROOT / "figures" / "gallery"
    lenses: Any = pd.read_csv(STUDIES / "lenses.csv", keep_default_na=False)
    lenses = lenses[(lenses.model == "reference") & (lenses.operation != "all")]
    paths: Any = pd.read_csv(folder / "circuit_paths.csv", keep_default_na=False, low_memory=False)
    paths = paths[(paths.measure == "pearson") & (paths.via == "direct")]
    lines = [
        *(lens_line(title, lenses[lenses.conclusion == key]) for title, key in LENS_ROWS.items()),
        *(lens_line(f"edges: `{name}`", paths[paths.method == name]) for name in ("eap", "eap_ig")),
    ]
    assert [line for line in lines if line not in PAGE] == []


def test_the_page_lists_all_methods() -> None:
    from arith_lens.attribution import ATTRIBUTION_METHODS

    table = METHODS_PAGE.partition("| method | gradient |")[2].partition("\n\n")[0]
    assert [line.split("`")[1] for line in table.splitlines()[2:]] == [*ATTRIBUTION_METHODS]
    assert f"computes {len(ATTRIBUTION_METHODS)} approximations" in " ".join(METHODS_PAGE.split())


def power(value: float) -> str:
    """Two digits, or one digit and a power of ten."""
    text = f"{value:.2g}" if value >= 0.01 else f"{value:.0e}"
    return text.replace("e-0", "e−").replace("e-", "e−")


def authors_line(one: Any) -> str:
    """A line of the table of other people's code."""
    change = f", {one.change}" if one.change else ""
    begin = f"| `{one.method}` | {one.code}{change} ({one.version}) |"
    if one.missing:
        return f"{begin} not run: {one.missing.partition(' (')[0]} | | |"
    parts = []
    for part in ("heads", "mlps"):
        difference, largest = (
            float(getattr(one, f"{part}_{name}")) for name in ("difference", "largest")
        )
        parts.append(f"{power(difference)} of {power(largest)}")
    return f"{begin} {' | '.join(parts)} | {float(one.their_seconds) / float(one.seconds):.1f} |"


def test_the_table_of_other_peoples_code_is_that_of_its_scores() -> None:
    table: Any = pd.read_csv(SCORES, keep_default_na=False)
    lines = [authors_line(one) for one in table.itertuples()]
    page = SCORES.with_name("authors.md").read_text("utf-8")
    rows = [line for line in page.splitlines() if line.startswith("| `")]
    assert len(rows) >= 8 and f"All {len(lines)} comparisons" in page
    assert [row for row in rows if row not in lines] == []
    assert rows[0].replace(" of ", " in ") not in lines, "the test can fail"


NAMES = {
    "exact": "exact, other heads frozen",
    "exact, all paths": "exact, all paths",
    "greedy, then exact": "greedy",
    "atp": "`atp` (EAP)",
    "eap_ig": "`eap_ig`",
}
"""The orders of SmolLM2's parts, and the rows of the page's table."""


def test_mibs_measures_on_smollm2_are_rows_of_their_table() -> None:
    table: Any = pd.read_csv(STUDIES / "orders.csv").set_index(["order", "measure"])

    def number(order: str, measure: str) -> str:
        one = table.loc[order, measure]
        return f"{one.value:.2f} [{one.low:.2f}, {one.high:.2f}]"

    for order, name in NAMES.items():
        assert f"| {name} | {number(order, 'CPR')} | {number(order, 'CMD')} |" in PAGE
    rows = table[table.index.get_level_values(0).str.startswith("random")].value
    by = {measure: rows.xs(measure, level="measure") for measure in ("CPR", "CMD")}
    cells = [f"{values.min():.2f} to {values.max():.2f}" for values in by.values()]
    assert f"| 20 random | {' | '.join(cells)} |" in PAGE and len(by["CMD"]) == 20
    words, cmd = " ".join(PAGE.split()), {order: table.loc[order, "CMD"].value for order in NAMES}
    assert f"first 15 of 300 parts keep {table.loc['exact', 'f, 15 kept'].value:.0%} of" in words
    holds = {
        "K1": max(cmd.values()) < by["CMD"].min(),
        "K2": cmd["exact, all paths"] <= cmd["eap_ig"] + 0.02,
        "K3": cmd["eap_ig"] <= cmd["atp"] + 0.02,
        "K5": min(cmd.values()) < 0.16,
    }
    assert "K1, K2, K3 and K5 hold; K4 is not computed" in words and all(holds.values())
