"""From the experiment of attention to Figures 5, 7 and 16, on a small scale."""

import re
from collections.abc import Sequence
from itertools import product
from pathlib import Path

import pytest
from support.drawings import unpacked, written

from arith_lens import plotting
from arith_lens.runs import Run, find_runs
from experiments import results
from experiments.parts import where_do_they_look
from figures.attention import KINDS, fig5, fig7, fig16
from figures.collection import name_of
from figures.exhibit import MakesExhibits, one_chart, show
from figures.options import Options
from figures.tables.attention import EFFECT, WEIGHT
from figures.tables.table import from_csv, keys_of, records, select, value

GALLERY = Path(__file__).parents[2] / "figures" / "gallery"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    root = tmp_path_factory.mktemp("results")
    config = where_do_they_look.config(operations=("addition", "division"), n=45, top=6)
    where_do_they_look(config, root=root)
    (run,) = find_runs("where_do_they_look", root=root)
    return run


def test_the_report_names_kinds_and_the_control(
    run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    where_do_they_look.report(run)
    said = capsys.readouterr().out
    assert "addition: 45 distinct" in said and "; key heads: 5.5" in said
    lines = {line.split()[0]: line for line in said.splitlines() if line.startswith("  ")}
    assert " operand " in lines["5.5"] and "operator" in lines["3.4"]
    assert "others at random" in said
    assert "division: 45 distinct" in said and "; key heads: none" in said


def test_figure_5_shows_each_kind_of_heads(run: Run, tmp_path: Path) -> None:
    show(fig5, Options(run=run.path, out=tmp_path, formats=()))
    table = from_csv(written(tmp_path, "fig5.csv").read_text(encoding="utf-8"))
    assert {"operand", "operator", "random"} <= {*table["kind"]}
    (effect,) = records(select(table, operation="addition", head="5.5", measure=EFFECT))
    assert (effect.kind, effect.key_head) == ("operand", "yes")
    weights = select(table, operation="addition", kind="operand", measure=WEIGHT)
    first = select(weights, head="5.5").set_index("role").value
    assert first["operand a"] + first["operand b"] > 0.8
    assert first.sum() == pytest.approx(1, abs=1e-4)
    heads = [head for head in keys_of(weights, "head") if head != "mean"]
    on_a = [value(weights, head=head, role="operand a") for head in heads]
    assert value(weights, head="mean", role="operand a") == pytest.approx(sum(on_a) / len(on_a))
    n_heads = value(table, operation="addition", kind="operand", measure="heads")
    assert n_heads == len(heads)
    random = select(table, kind="random", measure=WEIGHT)
    by_head = random[random["head"] != "mean"].pivot_table("value", ["operation", "head"], "role")
    page = unpacked(written(tmp_path, "fig5.html").read_text(encoding="utf-8"))
    assert "<b>5.5</b>" in page
    (chart,) = fig5(Options(run=run.path))
    cells = next(one for one in chart.figure.data if one.type == "bar")
    cells = {name: number for name, number in cells.customdata}
    own = by_head.loc["addition"]
    named = ["BOS", "operand a", "operator", "operand b"]
    rest = 100 * own.drop(columns=named).sum(axis=1)
    assert cells["largest, rest"] == pytest.approx(rest.max()), "no sum of maxima"
    assert rest.max() < 100 * own.drop(columns=named).max().sum()
    total = sum(cells[f"5.5, {name}"] for name in ("1st", "A", "+", "B", "rest"))
    assert total == pytest.approx(100, abs=1e-3), "weights have columns"


def test_the_page_has_the_number_of_heads_of_each_kind_as_the_picture_marks_them() -> None:
    counts: dict[str, list[str]] = {kind: [] for kind in ("operand", "operator", "other")}
    tables = [
        from_csv((GALLERY / folder / "fig5.csv").read_text(encoding="utf-8"))
        for folder in ("", "reference-mistral")
    ]
    for table, kind in product(tables, counts):
        of_kind = select(table, measure="heads", kind=kind).value
        counts[kind].append(", ".join(f"{one:.0f}" for one in of_kind))
    page = (GALLERY.parents[1] / "docs" / "attention.md").read_text(encoding="utf-8")
    shown = "operand heads of the ten strongest (+ − × ÷)"
    assert f"| {shown} | {' | '.join(counts['operand'])} |" in page
    assert f"| operator heads | {' | '.join(counts['operator'])} |" in page
    others = sorted(counts["other"][1].split(", "))
    words = {"3": "three", "6": "six"}
    assert f"{words[others[0]]} to {words[others[-1]]} are neither" in page
    figure = one_chart(
        [
            fig5(Options(model=model, root=GALLERY))[0]
            for model in ("reference", "reference-mistral")
        ]
    ).figure
    axes = [figure.layout[f"yaxis{number}"] for number in ("", *range(2, 9))]
    for kind, name in KINDS.items():
        below = [_heads_below(axis.ticktext, name) for axis in axes]
        assert [", ".join(below[:4]), ", ".join(below[4:])] == counts[kind]


def _heads_below(names: Sequence[str], kind: str) -> str:
    """How many rows stand below the one that names a kind of heads, up to the next one."""
    starts = [*(i for i, one in enumerate(names) if ":" in one and "span" in one), len(names)]
    at = [i for i in starts[:-1] if f">{kind}<" in names[i]]
    return str(starts[starts.index(at[0]) + 1] - at[0] - 1) if at else "0"


@pytest.mark.parametrize(
    ("figure", "result", "n_prompts"), [(fig7, "formats", 4), (fig16, "words", 2)]
)
def test_figures_7_and_16_show_every_prompt(
    run: Run, tmp_path: Path, figure: MakesExhibits, result: str, n_prompts: int
) -> None:
    options = Options(run=run.path, out=tmp_path, formats=())
    show(figure, options)
    name = name_of(figure)
    patterns = results.PATTERNS.load(run, result)
    assert len(patterns.prompts) == n_prompts
    views = unpacked(written(tmp_path, f"{name}.html").read_text(encoding="utf-8"))
    assert views.count("CircuitsVis.AttentionHeads") == n_prompts
    table = from_csv(written(tmp_path, f"{name}.csv").read_text(encoding="utf-8"))
    weights = select(table, measure=WEIGHT)
    assert len(weights) == len(patterns.heads) * sum(map(len, patterns.tokens))
    prompt, head = patterns.prompts[0], patterns.heads[0]
    from_end = select(weights, prompt=prompt, head=head)
    assert from_end.position.tolist() == [*range(len(patterns.tokens[0]))]
    assert from_end.value.tolist() == pytest.approx(patterns.weights[0][0, -1].tolist(), abs=1e-5)
    of_words = select(table, prompt=prompt, head=head, measure="weight of the word")
    assert (
        {"END", "apples"} <= {*of_words.token} if figure is fig7 else {"plus"} <= {*of_words.token}
    )
    assert of_words.value.sum() == pytest.approx(1, abs=1e-4)
    digits = select(table, head=head, measure="weight of all digits")
    by_prompt = [value(digits, prompt=prompt) for prompt in patterns.prompts]
    (mean,) = records(select(digits, prompt="mean"))
    assert mean.value == pytest.approx(sum(by_prompt) / n_prompts, abs=1e-5)
    assert (mean.low, mean.high) == (min(by_prompt), max(by_prompt))


def test_operator_heads_look_at_the_operators_word(run: Run) -> None:
    patterns = results.PATTERNS.load(run, "words")
    assert patterns.prompts[0].startswith("8 plus 2") and "3.4" in patterns.heads
    row = patterns.weights[0][patterns.heads.index("3.4"), -1]
    looked_at = patterns.tokens[0][int(row.argmax())]
    assert looked_at in ("▁p", "l", "us") and float(row.max()) > 0.5


def test_a_long_prompt_on_a_phone_is_cut_evenly_and_has_one_letter(run: Run) -> None:
    (chart,) = fig7(Options(run=run.path))
    assert chart.redraw is not None
    with plotting.drawn_for("column"):
        figure = chart.redraw()
    texts = [one.text for one in figure.layout.annotations]
    titles = [text for text in texts if re.match("<b>[a-z]</b>", text)]
    assert [title[3] for title in titles] == [*"abcd"]
    assert all(len(re.sub("<[^>]*>", "", title)) * 5.5 < figure.layout.width for title in titles)
    ends = [axis.range[1] - axis.range[0] for axis in figure.select_xaxes() if axis.range]
    assert len(ends) > 4 and min(ends) > 3, "no column stands alone"
