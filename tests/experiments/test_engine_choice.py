"""Experiments on a model that the sweep does not fit go on with hooks, and say so."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.families import EVERY

from arith_lens.runs import find_runs
from experiments import results, which_heads


@pytest.fixture(scope="module")
def bloom(tokenizer: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "bloom"
    EVERY["BLOOM"].make(len(tokenizer)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def test_which_heads_goes_on_with_hooks(
    bloom: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = which_heads.MapConfig(
        model=str(bloom),
        operations=("addition",),
        n=3,
        keep="all",
        metric="logit",
        templates=("addition/0",),
    )
    which_heads.main(config, root=tmp_path, dry_run=True)
    assert "once for each sender" in capsys.readouterr().out
    which_heads.main(config, root=tmp_path)
    said = capsys.readouterr().out
    assert "an MLP that takes" in said
    run = find_runs("which_heads", model=str(bloom), root=tmp_path)[0]
    assert results.MAP.load(run, "addition").computation["engine"] == "hooks"
    with pytest.raises(ValueError, match="an MLP that takes more than its input"):
        which_heads.main(replace(config, engine="sweep"), root=tmp_path / "other")
