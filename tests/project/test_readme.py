"""What the README shows works as it stands."""

import re
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

ROOT = Path(__file__).parents[2]
METHODS = ("full", "precise")
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    """The code blocks of one language; "" for those without."""
    found = re.findall(r"^```(\w*)\n(.*?)^```$", README, flags=re.DOTALL | re.MULTILINE)
    return [text for name, text in found if name == language]


def test_the_example_runs_as_it_stands(capsys: pytest.CaptureFixture[str]) -> None:
    if not (ROOT / "arith_lens" / "reference" / "reference" / "config.json").exists():
        pytest.skip("the reference model is not there yet")
    (example,) = blocks("python")
    exec(compile(example, "README.md", "exec"), {})
    printed = capsys.readouterr().out
    percent = r"[-+]\d+\.\d%"
    line = rf"^\d+\.\d+ {percent} \({percent} to {percent}\)$"
    assert re.search(line, printed, flags=re.MULTILINE)
    assert "key heads: " in printed


def test_the_tree_names_every_module() -> None:
    (tree,) = blocks("")
    modules = {
        path.name
        for path in (ROOT / "arith_lens").iterdir()
        if path.name not in ("__init__.py", "__init__.pyi", "__pycache__", "py.typed")
    }
    assert {name for name in modules if name not in tree} == set()


def words_of(text: str) -> str:
    """A text in one line."""
    return " ".join(text.split())


def _row(task: str, row: Any) -> str:
    """A task's row of the table of controls."""
    change, low, high, random, matched = (
        f"{100 * value:+.1f}".replace("-", "−")
        for value in (row.strongest - row.before, row.strongest_low, row.strongest_high,
                      row.random_mean, row.matched_mean)
    )  # fmt: skip
    return f"| {task} ({row.before:.1%} before) | {change} [{low}, {high}] | {random} | {matched} |"


def test_the_numbers_are_those_of_the_gallery() -> None:
    """Each sentence that holds a number, made anew from the committed tables."""
    gallery = ROOT / "figures" / "gallery"
    tables: Any = (
        pd.read_csv(gallery / f"{name}.csv")
        for name in ("fig2", "fig3", "sufficiency", "transfer", "table1", "table5")
    )
    maps, fig3, sufficiency, transfer, table1, table5 = tables
    heads: Any = maps[maps.component == "head"]
    key: Any = heads[heads["mean"] < -0.05]
    addition = fig3[fig3.operation == "addition"].set_index(["curve", "k"]).accuracy
    effect = fig3[(fig3.curve == "effect") & (fig3.k == 4)].set_index("operation").accuracy
    without_four = 100 - 100 * effect
    controls = addition[addition.index.get_level_values("k") == 4]
    names = controls.index.get_level_values("curve")
    lost = [100 * (1 - controls[names.str.startswith(k)].mean()) for k in ("random", "matched 4")]
    tasks = transfer.set_index("task")
    columns = ["among", "positions", "kind", "order"]
    circuits = sufficiency[
        (sufficiency[columns] == ["heads", "end", "keep_only", "effect"]).all(axis=1)
    ]
    low = circuits[circuits.accuracy < 0.9].groupby("operation")["size"].max()
    enough = [circuits[(circuits.operation == name) & (circuits["size"] > size)]["size"].min()
              for name, size in low.items()]  # fmt: skip
    everywhere = sufficiency[
        (sufficiency[columns] == ["heads", "all", "keep_only", "effect"]).all(axis=1)
    ]
    low = everywhere[everywhere.accuracy < 0.9].groupby("operation")["size"].max()
    enough_everywhere = [
        everywhere[(everywhere.operation == name) & (everywhere["size"] > size)]["size"].min()
        for name, size in low.items()
    ]

    def kept(size: int) -> Any:
        return circuits[circuits["size"] == size].accuracy

    problems, generic = tasks.loc["all word problems"], tasks.loc["all generic tasks"]
    table1, table5 = (table.set_index("chosen_for") for table in (table1, table5))
    rates = {name: table1.loc[name].set_index("method") for name in ("mathematics", "little_loss")}
    beside = table5.loc["mathematics"].set_index("mlps").loc[3]

    def points(row: Any, task: str) -> str:
        return f"{abs(100 * row[f'{task}_change']):.0f}"

    def counted(number: str) -> str:
        return f"{number} point{'s' * (number != '1')}"

    gains, losses = (
        {(rate, name): points(rates[rate].loc[name], task) for rate in rates for name in METHODS}
        for task in ("word_problems", "generic_tasks")
    )
    sentences = [
        f"Five of its {len(heads.groupby(['layer', 'head']))} heads are beyond -5% in some "
        f"operation, all in layers {int(key.layer.min())} to {int(key.layer.max())}",
        f"Without eight of 96 heads the accuracy in addition falls from "
        f"{addition['effect', 0]:.0%} to {addition['effect', 8]:.0%}; without four it falls by "
        f"{100 - 100 * addition['effect', 4]:.0f} points ({without_four['subtraction']:.0f} in "
        f"subtraction, {without_four['multiplication']:.0f} in multiplication, "
        f"{without_four['division']:.0f} in division)",
        f"four others of the same layers, cost {max(lost):.1f} points or less on average",
        _row("unseen word problems", problems),
        _row("generic tasks", generic),
        f"the model answers {100 * kept(5).min():.0f} to {kept(5).max():.0%} correctly",
        f"with no head kept, {100 * kept(0).min():.0f} to {kept(0).max():.0%}",
        f"three heads gain {gains['mathematics', 'precise']} points in word problems and full "
        f"tuning gains {gains['mathematics', 'full']}. On generic tasks they lose "
        f"{losses['mathematics', 'precise']} and {losses['mathematics', 'full']}",
        f"three heads gain {counted(gains['little_loss', 'precise'])} and full tuning gains "
        f"{gains['little_loss', 'full']}",
        f"gain {points(beside, 'word_problems')} points and lose {points(beside, 'generic_tasks')}",
    ]
    assert len(key.groupby(["layer", "head"])) == 5
    assert [min(enough), max(enough)] == [10, 19], "ten to nineteen heads"
    assert [min(enough_everywhere), max(enough_everywhere)] == [48, 96], "48 to 96 heads"
    assert [one for one in sentences if one not in words_of(README)] == []
