"""Runs are listed, show themselves, and give every result back as what it was."""

import ast
import importlib
import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch

import arith_lens as al
from arith_lens.arrays import Arrays, Storable
from arith_lens.effects import BeforeAfter
from arith_lens.model import HookedModel
from arith_lens.next_tokens import next_tokens
from arith_lens.runs import RunError, open_run
from arith_lens.runs.files import plain_value
from arith_lens.runs.manifest import RESULT_CLASSES

QUIET: dict[str, Any] = {"progress": False}


class Count:
    """A result of a class of somebody else's."""

    def to_arrays(self) -> Arrays:
        return Arrays({"n": torch.ones(1)}, {"kind": "count"})

    def to_dataframe(self) -> pd.DataFrame:
        return pd.DataFrame({"n": [1]})


@pytest.fixture(scope="module")
def results(llama: HookedModel) -> dict[str, Storable]:
    """One of each kind that is made without a trained model."""
    pairs = al.sample_pairs(llama, "addition", n=4, keep="all", templates=["addition/0"])
    effects = al.path_patch(llama, pairs, metric="logit", certify=False, **QUIET)
    curve = al.knockout_curve(llama, pairs, ["0.1", "1.2"], ks=[1, 2], **QUIET)
    from arith_lens.attention import patterns_of
    from arith_lens.knockout.curves import KnockoutCurves

    return {
        "component_effects": effects,
        "effects": al.attention_by_role(llama, pairs, "0.1"),
        "before_after": BeforeAfter(effects, effects),
        "knockout_curve": curve,
        "knockout_curves": KnockoutCurves({"order": curve}),
        "outcomes": al.knock_out(llama, pairs, "0.1", **QUIET),
        "mediation": al.mediators(llama, pairs, "0.1", metric="logit", certify=False, **QUIET),
        "next_tokens": next_tokens(llama, "3 plus 5 = "),
        "attention_patterns": patterns_of(llama, "3 plus 5 = ", "0.1"),
    }


def same(one: Arrays, other: Arrays) -> bool:
    return plain_value(one.header) == plain_value(other.header) and all(
        torch.equal(one.tensors[name].nan_to_num(9), other.tensors[name].nan_to_num(9))
        for name in {*one.tensors, *other.tensors}
    )


def test_every_result_loads_as_what_it_was(results: dict[str, Storable], tmp_path: Path) -> None:
    with open_run("kinds", {}, root=tmp_path) as run:
        for kind, result in results.items():
            run.save(kind, result)
    again = al.load_run(run.path)
    for kind, result in results.items():
        loaded = again.load(kind)
        assert type(loaded) is type(result)
        assert again.load_arrays(kind).header["kind"] == kind
        assert same(loaded.to_arrays(), again.load_arrays(kind))


READERS = ("require", "read_back")
"""Functions whose first argument is the kind of what they read."""


def called_name(node: ast.Call) -> str:
    return ast.unparse(node.func).rpartition(".")[2]


def test_every_kind_that_the_package_writes_is_known() -> None:
    """Read from the sources: what calls one of `READERS` is a class with from_arrays."""
    package = Path(al.__file__).parent
    written = set()
    for path in package.rglob("*.py"):
        source = path.read_text(encoding="utf-8")
        constants = {
            node.targets[0].id: node.value.value
            for node in ast.parse(source).body
            if isinstance(node, ast.Assign)
            and isinstance(node.targets[0], ast.Name)
            and isinstance(node.value, ast.Constant)
        }
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Call) and node.args and called_name(node) in READERS:
                kind = node.args[0]
                if isinstance(kind, ast.Constant):
                    written.add(kind.value)
                elif isinstance(kind, ast.Name) and kind.id in constants:
                    written.add(constants[kind.id])  # else `read_back` passes its argument on
    assert written == set(RESULT_CLASSES)
    for module, name in RESULT_CLASSES.values():
        assert hasattr(
            getattr(importlib.import_module(f"arith_lens.{module}"), name), "from_arrays"
        )


def test_a_kind_of_somebody_else_is_read_as_arrays(tmp_path: Path) -> None:
    with open_run("kinds", {}, root=tmp_path) as run:
        run.save("n", Count())
    with pytest.raises(RunError, match=r"found a result of kind 'count'; .*load_arrays"):
        run.load("n")
    assert run.load_arrays("n").tensors["n"].item() == 1


def test_runs_are_listed_newest_first(llama: HookedModel, tmp_path: Path) -> None:
    assert al.run_table(tmp_path).empty
    with open_run("first", {"n": 1}, model=llama, root=tmp_path) as first:
        first.save("a", Count())
        first.save("b", Count())
    with pytest.raises(ZeroDivisionError), open_run("second", {"model": "mine"}, root=tmp_path):
        _ = 1 / 0
    for name, ended in (("first", "2026-01-01T00:00:00"), ("second", "2026-01-02T00:00:00")):
        (path,) = (tmp_path / name).glob("*/run.json")
        manifest = al.load_run(path).manifest | {"ended": ended}
        path.write_text(json.dumps(manifest), encoding="utf-8")
    table = al.run_table(tmp_path)
    assert list(table.columns) == [
        "experiment",
        "model",
        "status",
        "when",
        "results",
        "unfinished",
        "path",
    ]
    assert table["experiment"].tolist() == ["second", "first"]
    assert table["model"].tolist() == ["mine", llama.name]
    assert table["status"].tolist() == ["stopped by ZeroDivisionError", "finished"]
    assert table["results"].tolist() == ["", "a, b"]
    assert al.load_run(table["path"].tolist()[1]).names == ("a", "b")


def test_a_run_that_cannot_be_read_is_left_out_with_a_warning(tmp_path: Path) -> None:
    with open_run("x", {}, root=tmp_path) as run:
        run.save("n", Count())
    (run.path / "run.json").write_text("{")
    with pytest.warns(UserWarning, match=r"left out: .*damaged"):
        assert al.run_table(tmp_path).empty


def test_a_run_shows_what_it_is(tmp_path: Path) -> None:
    with open_run("x", {"model": "mine"}, root=tmp_path) as run:
        run.save("n", Count())
    assert repr(run) == f"Run(x, model mine, finished, results: n, path: {run.path})"


@pytest.mark.parametrize("name", ["../../x", "a/b", "", ".", "..", "a b"])
def test_a_name_that_could_leave_the_root_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"expected an experiment's name of letters"):
        open_run(name, {}, root=tmp_path / "results")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("error", "saved", "said"),
    [
        (ValueError("no such data"), False, "nothing yet."),
        (ValueError("no such data"), True, "n. Run the same again once this error is mended to"),
        (MemoryError("full"), True, "n. Run the same again to go on from there."),
        (RunError("disk full"), True, "n. Run the same again to go on from there."),
    ],
    ids=repr,
)
def test_to_run_again_is_advised_where_it_helps(
    error: Exception, saved: bool, said: str, tmp_path: Path
) -> None:
    with pytest.raises(type(error)) as ended, open_run("x", {}, root=tmp_path) as run:
        if saved:
            run.save("n", Count())
        raise error
    (note,) = ended.value.__notes__
    assert note.startswith(f"kept in {run.path}: {said}")
    assert ("Run the same" in note) == saved
