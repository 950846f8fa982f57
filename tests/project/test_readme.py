"""What the README shows works as it stands."""

import re
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

ROOT = Path(__file__).parents[2]
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


def test_the_numbers_are_those_of_the_gallery() -> None:
    """Each sentence that holds a number, made anew from the committed tables."""
    gallery = ROOT / "figures" / "gallery"
    maps, fig3, transfer, table1, table5 = (
        pd.read_csv(gallery / f"{name}.csv")
        for name in ("fig2", "fig3", "transfer", "table1", "table5")
    )
    heads: Any = maps[maps.component == "head"]
    key: Any = heads[heads["mean"] < -0.05]
    addition = fig3[fig3.operation == "addition"].set_index(["curve", "k"]).accuracy
    matched = addition[addition.index.get_level_values("curve").str.startswith("matched")]
    tasks = transfer.set_index("task")
    problems, generic = tasks.loc["all word problems"], tasks.loc["all generic tasks"]
    full, three = (table1[table1.method == name].iloc[0] for name in ("full", "precise"))
    both = table5[table5.mlps == 3].iloc[0]
    points = [
        f"{abs(100 * row[f'{task}_change']):.0f}"
        for row in (full, three, both)
        for task in ("word_problems", "generic_tasks")
    ]
    sentences = [
        f"Five of its {len(heads.groupby(['layer', 'head']))} heads are beyond -5% in some "
        f"operation, all in layers {int(key.layer.min())} to {int(key.layer.max())}",
        f"Without six of 96 heads the accuracy in addition falls from "
        f"{addition['effect', 0]:.0%} to {addition['effect', 6]:.0%}",
        f"Without ten heads the accuracy in unseen word problems falls from "
        f"{problems.before:.0%} to {problems.strongest:.0%}, and in generic tasks only from "
        f"{generic.before:.1%} to {generic.strongest:.1%}",
        f"three heads gain {points[2]} points in word problems and full tuning gains "
        f"{points[0]}. Both lose {points[3]} points on generic tasks",
        f"gain {points[4]} points and lose {points[5]}",
    ]
    assert points[1] == points[3], "both lose as much"
    assert len(key.groupby(["layer", "head"])) == 5
    assert (matched[matched.index.get_level_values("k") == 6] > 0.995).all(), "stays above 99.5%"
    assert [one for one in sentences if one not in words_of(README)] == []
