"""The notebooks: their sources run from top to bottom, and what is stored is of these sources."""

import os
import re
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from support.kernels import start_kernel

from arith_lens.plotting import browser_path
from notebooks.generate import NOTEBOOKS_FOLDER, converted, environment, executed, sources

for needed in ("jupytext", "nbclient", "ipykernel"):
    if find_spec(needed) is None:  # imported in the tests alone, as it takes seconds
        pytest.skip(f"{needed} is not installed: pip install -e '.[dev]'", allow_module_level=True)

LAUNCH = "jupyter_client.provisioning.local_provisioner.launch_kernel"
NAMES = [source.stem for source in sources()]
SOURCES = pytest.mark.parametrize("source", sources(), ids=NAMES)


def cells(notebook: Any) -> list[tuple[str, str]]:
    return [(cell.cell_type, cell.source) for cell in notebook.cells]


def printed(notebook: Any) -> str:
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    return "\n".join(o.text for o in outputs if o.output_type == "stream" and o.name == "stdout")


def test_there_are_the_tutorial_and_your_own_task() -> None:
    assert NAMES == ["tutorial", "your_own_task"]


# What a notebook takes too long over, and what it is shortened to.
SHORTER = {"N = 24": "N = 18"}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Both notebooks, executed on the shipped model, as where no other was downloaded.

    The tutorial runs without a browser, the other with the machine's.
    """
    no_models = str(tmp_path_factory.mktemp("cache"))
    browsers = {"tutorial": "none", "your_own_task": browser_path() or "none"}
    folder = tmp_path_factory.mktemp("desk") / "notebooks"
    shutil.copytree(
        NOTEBOOKS_FOLDER, folder, ignore=shutil.ignore_patterns("*.ipynb", "__pycache__")
    )
    executions = {}
    for source in sources():
        text = source.read_text("utf-8")
        for old, new in SHORTER.items():
            text = text.replace(old, new)
        shorter = folder / source.name
        shorter.write_text(text, "utf-8")
        forked = patch(LAUNCH, start_kernel)
        settings = {"BROWSER_PATH": browsers[source.stem], "ARITH_LENS_CACHE": no_models}
        with forked, patch.dict(os.environ, settings):
            executions[source.stem] = executed(shorter, timeout=300)
    return executions


@SOURCES
def test_a_source_runs_from_top_to_bottom_and_every_picture_comes(
    source: Path, runs: dict[str, Any]
) -> None:
    shown = [
        output.data
        for cell in runs[source.stem].cells
        for output in cell.get("outputs", [])
        if "data" in output
    ]
    drawn = [data for data in shown if "application/vnd.plotly.v1+json" in data]
    assert len(drawn) >= 2 and sum("svg+xml" in data.get("text/html", "") for data in shown) >= 1
    with_png = source.stem == "your_own_task" and browser_path() is not None
    assert ["image/png" in data for data in drawn] == [with_png] * len(drawn)
    for cell in runs[source.stem].cells:
        for output in cell.get("outputs", []):
            assert output.output_type != "error"


def test_the_tutorial_is_about_the_pretrained_model_and_without_it_about_the_shipped_one(
    runs: dict[str, Any],
) -> None:
    import nbformat

    stored: Any = nbformat.read(NOTEBOOKS_FOLDER / "tutorial.ipynb", as_version=4)
    begins = [printed(one).splitlines()[0].split(":")[0] for one in (stored, runs["tutorial"])]
    assert begins == ["smollm2-135m", "reference"]


def test_knockout_in_the_tutorial_costs_more_than_its_controls(runs: dict[str, Any]) -> None:
    """The story that the text tells is the one that the cells print."""
    after = re.findall(r"^ *([\w ]+): 100\.0% to ([\d.]+)%", printed(runs["tutorial"]), re.M)
    left = {name: float(share) for name, share in after}
    assert len(left) == 7
    assert left.pop("by effect") < min(left.values())


def test_the_tutorial_ends_with_a_circuit(runs: dict[str, Any]) -> None:
    text = printed(runs["tutorial"])
    n_certain, n_tested = map(int, re.findall(r"^(\d+) of (\d+) edges have an", text, re.M)[0])
    n_small = int(re.findall(r"^(\d+) edges have 80%", text, re.M)[0])
    assert 3 <= n_small < n_certain < n_tested
    edges = re.findall(r"^(.+) → (.+): (-?[\d.]+) \[(-?[\d.]+), (-?[\d.]+)\] logits$", text, re.M)
    sizes = [abs(float(mean)) for _, _, mean, _, _ in edges]
    assert len(sizes) == 3 and sizes == sorted(sizes, reverse=True)
    assert all(float(low) <= float(mean) <= float(high) for _, _, mean, low, high in edges)


def test_the_task_shows_both_errors_and_other_heads_than_additions(runs: dict[str, Any]) -> None:
    text = printed(runs["your_own_task"])
    assert "Give its first token, ' T', as the answer" in text
    assert "expected prompts of one length under reference, found 15 and 17" in text
    after = re.findall(r"^ *([\w, ]+): 100\.0% to ([\d.]+)%", text, re.M)
    left = {name: float(share) for name, share in after}
    assert left["letters, by effect"] < left["sums, the same"]
    assert "the file is this, line for line: True" in text


@SOURCES
def test_a_stored_notebook_is_of_its_source_small_and_names_no_machine(source: Path) -> None:
    import nbformat

    path = source.with_suffix(".ipynb")
    stored: Any = nbformat.read(path, as_version=4)
    assert cells(stored) == cells(converted(source)), "run: make notebooks"
    assert "jupytext" not in stored.metadata, "a paired notebook takes its inputs from the source"
    assert path.stat().st_size < 1_200_000
    counts = [cell.execution_count for cell in stored.cells if cell.cell_type == "code"]
    assert counts == [*range(1, len(counts) + 1)]
    outputs = [output for cell in stored.cells for output in cell.get("outputs", [])]
    assert not [output for output in outputs if output.get("name") == "stderr"]
    pictures = [o.data for o in outputs if "application/vnd.plotly.v1+json" in o.get("data", {})]
    assert pictures and all("image/png" in data for data in pictures)
    text = path.read_text(encoding="utf-8")
    assert not re.search(r"site-packages|/home/|/root/|/tmp/", text)


def parts(value: Any, key: str = "") -> set[tuple[str, str]]:
    """What a picture is drawn with, whatever its numbers are: kinds of marks, names, colours."""
    if isinstance(value, dict):
        return {(key, "")}.union(*(parts(one, name) for name, one in value.items()))
    if isinstance(value, list):
        return set().union(*(parts(one, key) for one in value))
    is_drawn = key in ("type", "mode", "family") or re.match("#|rgb", str(value))
    return {(key, str(value) if is_drawn else "")}


MOST_COLOURS = 12
"""A picture with more has shades that say how large a number is."""


def pictures(notebook: Any) -> list[set[tuple[str, str]]]:
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    plots = [output.get("data", {}).get("application/vnd.plotly.v1+json") for output in outputs]
    drawn = [parts(plot["data"]) | parts(plot["layout"]) for plot in plots if plot]
    for picture in drawn:
        colours = {part for part in picture if part[1] and part[0] in ("color", "fillcolor")}
        picture -= colours if len(colours) > MOST_COLOURS else set()
    return drawn


@SOURCES
def test_stored_pictures_are_those_that_the_code_draws(source: Path, runs: dict[str, Any]) -> None:
    """The run has fewer prompts, so numbers differ, and names of heads."""
    import nbformat

    stored = pictures(nbformat.read(source.with_suffix(".ipynb"), as_version=4))
    drawn = pictures(runs[source.stem])
    for before, now in zip(stored, drawn, strict=True):
        assert sorted(before ^ now) == [], "run: make notebooks"
        assert parts({"gridcolor": "#123456"}) - before, "another colour would be seen"


def test_a_run_needs_neither_a_browser_nor_a_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BROWSER_PATH", "none")
    settings = environment(str(tmp_path))
    assert settings["PLOTLY_RENDERER"] == "plotly_mimetype"
    for name in ("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR"):
        assert settings[name] == str(tmp_path)
    monkeypatch.setenv("BROWSER_PATH", sys.executable)  # any program
    assert environment(str(tmp_path))["PLOTLY_RENDERER"] == "plotly_mimetype+png"


def test_a_changed_source_would_be_seen(tmp_path: Path) -> None:
    source = NOTEBOOKS_FOLDER / "tutorial.py"
    changed = tmp_path / "tutorial.py"
    changed.write_text(source.read_text().replace("N = 24", "N = 23"))
    assert cells(converted(changed)) != cells(converted(source))


def test_a_cell_that_fails_is_an_error_with_its_traceback(tmp_path: Path) -> None:
    """In a kernel that is a Python of its own."""
    from nbclient.exceptions import CellExecutionError

    source = tmp_path / "broken.py"
    source.write_text("# %%\nimport arith_lens as al\n\n# %%\nal.Head(-1, 0)\n")
    with pytest.raises(CellExecutionError, match="counted from 0, found -1"):
        executed(source)
