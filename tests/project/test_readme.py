"""What the README and docs/results.md show works as it stands, and is in the gallery's tables."""

import re
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
RESULTS = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
GALLERY = ROOT / "figures" / "gallery"
STUDIES = ROOT / "docs" / "studies"
MOST_WORDS = 700


def blocks(language: str) -> list[str]:
    """The code blocks of one language; "" for those without."""
    found = re.findall(r"^```(\w*)\n(.*?)^```$", README, flags=re.DOTALL | re.MULTILINE)
    return [text for name, text in found if name == language]


def test_the_example_prints_what_stands_below_it(capsys: pytest.CaptureFixture[str]) -> None:
    if not (ROOT / "arith_lens" / "reference" / "reference" / "config.json").exists():
        pytest.skip("the reference model is not there yet")
    (example,) = blocks("python")
    code, _, printed = example.rpartition("# ")
    exec(compile(code, "README.md", "exec"), {})
    assert capsys.readouterr().out == printed


def test_the_readme_is_short_and_begins_with_a_picture_and_a_command() -> None:
    assert len(README.split()) <= MOST_WORDS
    first_screen = README[: README.index("## What we found")]
    assert "make fig2 " in first_screen and "make test\n" in first_screen, "the two commands"
    assert first_screen.index("<img ") < first_screen.index("```bash")
    assert first_screen.index("```bash") < first_screen.index("```python")
    (python,) = blocks("python")
    assert len(python.splitlines()) == 6, "five lines and what they print"
    pictures = re.findall(r'<img src="([^"]+)"', README)
    assert pictures and all((ROOT / picture).is_file() for picture in pictures)


def test_the_tree_names_every_package() -> None:
    tree = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").partition("## Files")[2]
    packages = {file.parent.name for file in (ROOT / "arith_lens").glob("*/__init__.py")}
    assert {name for name in packages if f"{name}/" not in tree} == set()


def gallery_table(name: str) -> Any:
    """A committed table, with one row per number or, from an older drawing, a column per number.

    Rows of numbers become columns of those names, which the sentences below are made of.
    """
    table: Any = pd.read_csv(GALLERY / f"{name}.csv", keep_default_na=False, na_values=[""])
    return table if "measure" not in table else OLDER[name.rpartition("/")[2]](table)


def study_table(name: str) -> Any:
    """The rows of `reference` in the table of a finished study."""
    table: Any = pd.read_csv(STUDIES / f"{name}.csv", keep_default_na=False, na_values=[""])
    return table[table.model == "reference"]


def _map(table: Any) -> Any:
    """Effects of heads and MLPs with their intervals; `held` has the norm's scale held."""
    effects = table[(table.measure == "effect") & (table.operation != "mean")]
    component = effects["index"].notna().map({True: "head", False: "MLP"})
    columns = {"value": "mean", "low": "ci_low", "high": "ci_high", "index": "head"}
    return effects.drop(columns="component").assign(component=component).rename(columns=columns)


def _accuracy(table: Any) -> Any:
    columns = {"value": "accuracy"}
    return table[table.measure == "accuracy"].rename(columns=columns)


def _curves(table: Any) -> Any:
    """Figure 3: `random ` and `matched 10 ` are the means of their draws; `low` the lowest."""
    names = {"random": "random mean", "same layers": "matched 10 mean"}
    heads = _accuracy(table)
    heads = heads[heads.components == "heads"]
    return heads.assign(curve=heads.order.replace(names))


def _kept(table: Any) -> Any:
    columns = {"components": "among", "k": "size"}
    renamed = _accuracy(table).rename(columns=columns)
    return renamed.assign(positions=renamed.positions.replace({"END": "end"}))


def _tuning(table: Any) -> Any:
    """One row per setting and purpose: the changes at the rate that was chosen for it."""
    keys = ["method", "n_heads", "n_mlps"]
    every = table[(table.measure == "change of accuracy") & (table.task == "all")]
    lines = []
    for chosen in table[table.measure == "chosen rate"].itertuples():
        setting = (table[keys] == [chosen.method, chosen.n_heads, chosen.n_mlps]).all(axis=1)
        line = {"method": chosen.method, "mlps": chosen.n_mlps, "chosen_for": chosen.chosen_for}
        for one in every[setting.loc[every.index] & (every.rate == chosen.value)].itertuples():
            ends = (("change", one.value), ("low", one.low), ("high", one.high))
            line |= {f"{one.group.replace(' ', '_')}_{name}": number for name, number in ends}
        sizes = table[setting].set_index("measure").value
        line |= {"parameters": sizes["trained parameters"], "of": sizes["parameters of the model"]}
        lines.append(line)
    return pd.DataFrame(lines)


def _controls(table: Any) -> Any:
    """One row per group of tasks: the change without the strongest heads, and without controls."""
    lines = []
    for group in ("word problems", "generic tasks"):
        of_group = table[(table.group == group) & (table.task == "all")]
        before = of_group[of_group.measure == "accuracy before"].value.iloc[0]
        changes = of_group[of_group.measure == "change of accuracy"].set_index("knocked_out")
        line = {"task": f"all {group}", "before": before}
        one = changes.loc["strongest"]
        line |= {"strongest": before + one.value, "strongest_low": one.low}
        line["strongest_high"] = one.high
        for name, column in (("random", "random"), ("same layers", "matched")):
            one = changes.loc[name]
            line |= {f"{column}_mean": one.value, f"{column}_least": one.low}
            line[f"{column}_most"] = one.high
        lines.append(line)
    return pd.DataFrame(lines)


OLDER = {
    "fig2": _map,
    "fig3": _curves,
    "transfer": _controls,
    "table1": _tuning,
    "table5": _tuning,
}
"""How rows of numbers become columns."""


def words_of(text: str) -> str:
    """A text in one line."""
    return " ".join(text.split())


def _row(task: str, row: Any) -> str:
    """A task's row of the table of controls."""
    numbers = (row.strongest - row.before, row.strongest_low, row.strongest_high)
    numbers += (row.random_mean, row.random_least, row.random_most)
    numbers += (row.matched_mean, row.matched_least, row.matched_most)
    points = [f"{100 * value:+.1f}".replace("-", "−") for value in numbers]
    cells = "{} [{}, {}] | {} ({} to {}) | {} ({} to {})".format(*points)
    return f"| {task} ({row.before:.1%} before) | {cells} |"


OPERATIONS = ("addition", "subtraction", "multiplication", "division")


def _row_of_ten(title: str, fig3: Any, curves: str) -> str:
    """The accuracy without ten heads in each operation: the mean of some curves, and the lowest."""
    some = fig3[(fig3.k == 10) & fig3.curve.str.match(curves)].groupby("operation")
    mean, lowest = some.accuracy.mean(), some["low" if "low" in fig3 else "accuracy"].min()
    cells = (
        f"{mean[name]:.0%}" + f" ({lowest[name]:.0%})" * (curves != "effect") for name in OPERATIONS
    )
    return f"| {title} | {' | '.join(cells)} |"


def test_the_numbers_are_those_of_the_gallery() -> None:
    """Each sentence that holds a number, made anew from the committed tables."""
    tables: Any = (gallery_table(name) for name in ("fig2", "fig3", "transfer", "table1", "table5"))
    maps, fig3, transfer, table1, table5 = tables
    raw = study_table("sufficiency")
    sufficiency = _kept(raw)
    heads: Any = maps[maps.component == "head"]
    key: Any = heads[heads["mean"] < -0.05]
    tasks = transfer.set_index("task")
    columns = ["among", "positions", "kind", "order"]
    circuits = sufficiency[
        (sufficiency[columns] == ["heads", "end", "keep_only", "effect"]).all(axis=1)
    ]
    low = circuits[circuits.accuracy < 0.9].groupby("operation")["size"].max()
    enough = {
        name: circuits[(circuits.operation == name) & (circuits["size"] > size)]["size"].min()
        for name, size in low.items()
    }
    everywhere = sufficiency[
        (sufficiency[columns] == ["heads", "all", "keep_only", "effect"]).all(axis=1)
    ]
    low = everywhere[everywhere.accuracy < 0.9].groupby("operation")["size"].max()
    enough_everywhere = {
        name: everywhere[(everywhere.operation == name) & (everywhere["size"] > size)]["size"].min()
        for name, size in low.items()
    }

    def gain(method: str, n_mlps: int, group: str = "word_problems") -> str:
        keys = ["method", "mlps", "chosen_for"]
        (row,) = tuned[(tuned[keys] == [method, n_mlps, "mathematics"]).all(axis=1)].itertuples()
        return f"{100 * getattr(row, f'{group}_change'):.0f}".replace("-", "−")

    def kept(size: int) -> Any:
        return circuits[circuits["size"] == size].accuracy

    five = circuits[circuits["size"] == 5].rename(columns={"accuracy": "value"})
    five = five.sort_values("value")
    assert five.operation.iloc[[0, -1]].tolist() == ["addition", "division"]
    least, most, n = percent(five.iloc[:1]), percent(five.iloc[-1:]), five.n
    base = raw[raw.measure == "base rate: majority answer"].value.astype(float)
    problems, generic = tasks.loc["all word problems"], tasks.loc["all generic tasks"]
    tuned: Any = pd.concat([table1, table5[table5.mlps == 3]])
    sentences = [
        f"five of its {len(heads.groupby(['layer', 'head']))} heads are beyond -5% in some "
        f"operation, all in layers {int(key.layer.min())} to {int(key.layer.max())}",
        _row_of_ten("ten strongest", fig3, "effect"),
        _row_of_ten("ten random heads, mean of 20 draws (lowest)", fig3, "random "),
        _row_of_ten(
            "ten others of the same layers, mean of 20 draws (lowest)", fig3, "matched 10 "
        ),
        _row("unseen word problems", problems),
        _row("generic tasks", generic),
        f"the model answers {least} (+) to {most} (÷) correctly ({n.min():.0f} to {n.max():.0f} "
        "problems that did not choose the heads). The most frequent answer alone is right in "
        f"{100 * base.min():.0f} to {base.max():.0%} of them. With no head kept, the model answers "
        f"{100 * kept(0).min():.0f} to {kept(0).max():.0%}",
        f"the three strongest heads gain {gain('precise', 0)} points in word problems and all "
        f"weights {gain('full', 0)}; three random heads gain {gain('random', 0)}",
        "On other tasks they change by {}, {} and {} points".format(
            *(gain(method, 0, "generic_tasks") for method in ("precise", "full", "random"))
        ),
        f"+{gain('precise', 3)} and {gain('precise', 3, 'generic_tasks')} points",
    ]
    parameters = tuned[tuned.mlps == 3].parameters / tuned[tuned.mlps == 3].of
    assert parameters.round(2).unique().tolist() == [0.17], "a sixth"
    assert len(key.groupby(["layer", "head"])) == 5
    certain = key[key.ci_high < -0.05].groupby(["layer", "head"])
    assert len(certain) == 2, "for three of the five the 95% interval contains -5%"
    assert enough == {"addition": 14, "division": 19, "multiplication": 10, "subtraction": 14}
    whole = {"addition": 48, "division": 72, "multiplication": 72, "subtraction": 96}
    assert enough_everywhere == whole
    page = (STUDIES / "sufficiency.md").read_text("utf-8")
    accuracy = circuits.set_index(["operation", "size"]).accuracy
    lines = [
        f"| {name} | {accuracy[name, 5]:.0%} | {accuracy[name, 14]:.0%} | {enough[name]:.0f} | "
        f"{enough_everywhere[name]:.0f} |"
        for name in OPERATIONS
    ]
    assert [line for line in lines if line not in page] == []
    assert [one for one in sentences if one not in words_of(RESULTS)] == []


def percent(rows: Any) -> str:
    """The one number with its interval, in percent."""
    (one,) = rows.itertuples()
    return f"{one.value:.0%} [{100 * one.low:.0f}, {100 * one.high:.0f}]"


def test_the_findings_of_the_readme_are_rows_of_the_gallery() -> None:
    text = words_of(README)
    curves = gallery_table("fig3")
    ten = curves[(curves.k == 10) & (curves.operation == "addition")]
    strongest = percent(ten[ten.curve == "effect"].rename(columns={"accuracy": "value"}))
    random = ten[ten.curve.str.match("random ")].accuracy
    assert f"of 96 heads, {strongest} of one-digit additions are right" in text
    lowest = ten[ten.curve.str.match("random ")].low.min()
    assert f"without ten random ones {random.mean():.0%}, at least {lowest:.0%}" in text
    kept = _kept(study_table("sufficiency"))
    columns = ["among", "positions", "kind", "order", "size"]
    five = kept[(kept[columns] == ["heads", "end", "keep_only", "effect", 5]).all(axis=1)]
    assert len(five) == 4, "one row per operation"
    five = five.rename(columns={"accuracy": "value"}).sort_values("value")
    assert five.operation.iloc[[0, -1]].tolist() == ["addition", "division"]
    least, most = percent(five.iloc[:1]), percent(five.iloc[-1:])
    by_chance = kept[(kept[columns] == ["heads", "end", "keep_only", "random", 5]).all(axis=1)]
    random = f"{by_chance.accuracy.min():.0%} to {by_chance.accuracy.max():.0%}"
    words = f"with all MLPs, they answer {least} (+) to {most} (÷), random heads {random}"
    assert words in text and (five.high < 0.9).all(), "they do not suffice"
    lenses = study_table("lenses")
    keys = ["conclusion", "counterfactual", "metric"]
    card = lenses[(lenses[keys] == ["five_suffice", "operands", "relative_logit"]).all(axis=1)]
    card = card[card.operation != "all"].sort_values("value")
    assert card.operation.iloc[[0, -1]].tolist() == ["subtraction", "addition"]
    assert card.verdict.tolist() == ["not decided"] * 3 + ["holds"]
    words = f"five answer {percent(card.iloc[:1])} (−) to {card.value.iloc[-1]:.0%} (+)"
    assert words in text
    carry = pd.read_csv(GALLERY / "carry.csv")
    keys_of_carry = ["kind", "variable", "test", "space"]
    values_of_carry = ["interchange", "ones_carry", "layers", "mean"]
    direction = carry[(carry[keys_of_carry] == values_of_carry).all(axis=1)]
    best = direction.loc[direction.value.idxmax()]
    assert best.layer == 9
    of_best = percent(direction[direction.layer == 9])
    words = f"Taken in layer 9 from a two-digit sum with another carry, it turns {of_best} of"
    assert words in text
    of_layer: Any = carry[
        (carry.test == "layers") & (carry.variable == "ones_carry") & (carry.layer == 9)
    ]
    shuffled: Any = of_layer[of_layer.space == "variable shuffled"].iloc[0]
    assert shuffled.spread == "median and range of 30 shuffles"
    words = f"shuffled carries {shuffled.value:.0%} (median) to {shuffled.high:.0%}"
    assert f"30 directions fitted to {words}" in text
    largest: Any = of_layer[of_layer.space == "largest variance (no values)"].iloc[0]
    assert f"the first principal component turns {largest.value:.0%}" in text
    maps = gallery_table("fig2")
    mlps = maps[(maps.component != "head") & (maps.operation == "addition")]
    last = mlps[mlps.layer == mlps.layer.max()]["mean"].iloc[0]
    assert f"patching MLP 11 lowers C's logit by {-last:.0%}" in text
    tuned = gallery_table("table1").set_index(["chosen_for", "method"])
    precise = 100 * tuned.loc[("mathematics", "precise")]
    gained = [precise[f"word_problems_{end}"] for end in ("change", "low", "high")]
    lost = [-precise[f"generic_tasks_{end}"] for end in ("change", "high", "low")]
    words = (
        "three heads gain {:.0f} points [{:.0f}, {:.0f}] in word problems and lose "
        "{:.0f} [{:.0f}, {:.0f}] elsewhere"
    )
    assert words.format(*gained, *lost) in text
    beside = []
    for method in ("random", "full"):
        row = 100 * tuned.loc[("mathematics", method)]
        changes = row.word_problems_change, -row.generic_tasks_change
        beside.append("gain {:.0f} and lose {:.0f}".format(*changes))
    assert f"Random heads {beside[0]}; all weights {beside[1]}" in text
    audits = pd.read_csv(ROOT / "docs" / "studies" / "audits.csv")
    addition = audits.query("model == 'smollm2-135m' and task == 'addition'")
    everywhere = addition.query("lens == 'means at every token'")
    alone = everywhere.query("question == 'Do few suffice?'")
    without = everywhere.query("question == 'Are they needed?'")
    assert len(alone.heads.iloc[0].split()) == 4
    for sentence in (
        f"they alone answer {percent(alone)} of one-digit additions",
        f"other sets of four {alone.control_high.iloc[0]:.0%} at most",
        f"Without them {percent(without)} are right",
        f"without others {without.control_low.iloc[0]:.0%} at least",
    ):
        assert sentence in text
    qwen = audits[audits.model.str.startswith("qwen2.5-coder-0.5b")].query(
        "task == 'addition' and lens == 'means at every token' and question == 'Do few suffice?'"
    )
    assert f"In Qwen2.5-Coder-0.5B three of 336 answer {percent(qwen)}" in text
    assert len(qwen.heads.iloc[0].split()) == 3
    exchange = pd.read_csv(ROOT / "docs" / "studies" / "exchange.csv")
    together = exchange.query("changed == 'A and B' and heads == 'all'")
    assert f"they make {percent(together)} answer that sum" in text
    claims = pd.read_csv(GALLERY / "claims.csv")
    claims = claims.loc[claims["group"] != "all claims together"]
    verdicts = claims.drop_duplicates("claim").holds
    held, failed = ((verdicts == verdict).sum() for verdict in ("holds here", "does not hold here"))
    assert f"Of {len(verdicts)} claims of the paper, {held} hold and {failed} fail" in text


def test_the_first_picture_is_described_by_its_table() -> None:
    heads: Any = pd.read_csv(ROOT / "docs" / "studies" / "audit_heads.csv", dtype={"head": str})
    heads = heads.query("model == 'smollm2-135m' and task == 'addition'").set_index("head")
    operands = {"A": "operand a", "B": "operand b"}
    fetch = [heads.index[heads[column] > 0.5].item() for column in operands.values()]
    assert f"Heads {' and '.join(fetch)} of SmolLM2-135M look at the operands A and B" in README


def test_each_number_of_the_findings_links_its_table() -> None:
    findings = README.partition("## What we found")[2].partition("## What it can do")[0]
    lines = findings.split("\n- ")[1:]
    assert len(lines) == 6
    for line in lines:
        links = re.findall(r"\]\(((?:figures/gallery|docs/studies)/[^)]+\.csv)\)", line)
        assert links and all((ROOT / link).is_file() for link in links), line
