"""A shipped run is the run, smaller."""

import json
from pathlib import Path

import pytest
from support.made_runs import make_run

from arith_lens.runs import load_run
from experiments import results
from laboratory.shipping import ship_runs


def test_a_shipped_run_reads_as_the_run_did(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = make_run(tmp_path / "results", "reference")
    ship_runs((run.path,), leave_out=(results.MAP.name("division"),), to=tmp_path / "shipped")
    copy = load_run(tmp_path / "shipped" / run.experiment / run.path.name)
    assert copy.names == tuple(name for name in run.names if name != results.MAP.name("division"))
    for name in copy.names:
        ours, theirs = (r.load(name) for r in (copy, run))
        assert ours.heads.per_pair.equal(theirs.heads.per_pair)
        assert copy.facts(name) == run.facts(name)
    assert copy.config == run.config and copy.manifest["provenance"] == run.manifest["provenance"]
    files = [path.name for path in (tmp_path / "shipped").rglob("*") if path.is_file()]
    assert {*files} == {"run.json", "result.json", "result.safetensors"}
    assert f"{copy.path}: 0." in capsys.readouterr().out
    ship_runs((run.path,), to=tmp_path / "shipped")  # in place of the first
    assert load_run(copy.path).names == run.names
    with pytest.raises(SystemExit, match="elsewhere"):
        ship_runs((copy.path,), to=tmp_path / "shipped")
    assert load_run(copy.path).names == run.names


def test_an_unfinished_or_damaged_run_is_not_shipped(tmp_path: Path) -> None:
    run = make_run(tmp_path / "results", "reference")
    file = run.folder(results.MAP.name("addition")) / "result.safetensors"
    whole = file.read_bytes()
    file.write_bytes(whole[:-1])
    with pytest.raises(SystemExit, match="damaged"):
        ship_runs((run.path,), to=tmp_path / "shipped")
    file.write_bytes(whole)
    manifest = json.loads((run.path / "run.json").read_text())
    (run.path / "run.json").write_text(json.dumps(manifest | {"status": "running"}))
    with pytest.raises(SystemExit, match="expected a finished run"):
        ship_runs((run.path,), to=tmp_path / "shipped")
