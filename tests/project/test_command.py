"""The command of the installed package: what it does, and one line for what a user can mend."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from arith_lens import auditing
from arith_lens.__main__ import main
from arith_lens.model import weights


def test_models_are_listed_and_a_wrong_name_is_one_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(weights.CACHE, str(tmp_path))
    assert main(["models"]) == 0
    assert {"reference", "smollm2-135m"} <= {
        line.partition(":")[0] for line in capsys.readouterr().out.splitlines()
    }
    for arguments, words in (
        (["models", "get", "smol"], "expected one of smollm2-135m"),
        (["models", "get"], "expected a name after get"),
        (["audit", "smollm2-135m"], "arith-lens models get smollm2-135m"),
        (["audit", "reference", "--operation", "addtion"], "addtion"),
        (["audit", "reference", "--pairs", str(tmp_path / "none.jsonl")], "none.jsonl"),
    ):
        assert main(arguments) == 1
        said = capsys.readouterr().err.strip().splitlines()[-1]
        assert words in said and "Traceback" not in said


def test_an_audit_is_written_where_it_is_told(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[Any] = []

    def stub(model: Any, pairs: Any, **options: Any) -> Any:
        calls.append((model.name, [*pairs], options["draws"], options["run"] is not None))
        return SimpleNamespace(save=lambda folder: folder)

    monkeypatch.setattr(auditing, "audit", stub)
    out = tmp_path / "mine"
    assert main(["audit", "reference", "--draws", "7", "--out", str(out)]) == 0
    assert calls == [("reference", ["operands", "operator"], 7, True)]
    assert str(out / "reference-addition" / "audit.html") in capsys.readouterr().out

    def stopped(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(auditing, "audit", stopped)
    assert main(["audit", "reference", "--out", str(out)]) == 130
