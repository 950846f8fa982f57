"""A dry run needs no weights: config.json and the tokenizer are enough for every experiment."""

import shutil
from collections.abc import Callable
from dataclasses import fields
from importlib import import_module
from pathlib import Path

import pytest

import arith_lens as al
from arith_lens.model import HookedModel
from experiments import do_word_problems_use_them, what_tuning_changes, which_heads

EXPERIMENTS = (
    "are_they_needed",
    "do_powers_use_them",
    "do_word_problems_use_them",
    "how_precise",
    "like_a_computer",
    "what_comes_instead",
    "what_do_mlps_add",
    "what_the_calculation_does",
    "what_tuning_changes",
    "where_do_they_look",
    "which_heads",
    "which_mlps_carry_them",
    "which_paths",
)
"""Those that load a model to say what they would compute."""


@pytest.fixture(scope="module")
def without_weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The shipped model's folder, but for its weights."""
    shipped = Path(al.__file__).parent / "reference" / "reference"
    folder = tmp_path_factory.mktemp("dry") / "shape"
    shutil.copytree(shipped, folder, ignore=shutil.ignore_patterns("*.safetensors*"))
    return folder


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_a_dry_run_needs_no_weights(
    name: str,
    without_weights: Path,
    empty_models: Callable[..., HookedModel],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(what_tuning_changes, "tuned_models", lambda *_: [])
    monkeypatch.setattr(
        do_word_problems_use_them,
        "_word_problems",  # converting them takes seconds
        lambda model, _: al.sample_pairs(model, n=4, keep="all"),
    )
    experiment = import_module(f"experiments.{name}")
    for module in (which_heads, experiment):
        if hasattr(module, "empty_model"):
            monkeypatch.setattr(module, "empty_model", empty_models)
    small = {"n": 4} if "n" in {field.name for field in fields(experiment.Config)} else {}
    config = experiment.Config(model=str(without_weights), **small)
    experiment.main(config, root=tmp_path / "results", dry_run=True)
    assert capsys.readouterr().out.strip()
    assert not (tmp_path / "results").exists()
