"""What the README shows works as it stands."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
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
        if path.name not in ("__init__.py", "__pycache__", "py.typed")
    }
    assert {name for name in modules if name not in tree} == set()
