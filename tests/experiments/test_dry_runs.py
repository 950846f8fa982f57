"""A dry run needs no weights: config.json and the tokenizer are enough for every experiment."""

import shutil
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

import arith_lens as al
from arith_lens.model import HookedModel
from arith_lens.path_patching import cost
from experiments import other_prompts, settings
from experiments.catalogue import experiments
from experiments.questions import command_entries
from experiments.rehearsal import SMALL, in_small
from experiments.selection import LARGEST_OPERAND

EXPERIMENTS = sorted(command_entries("experiment"))
"""Of tools a dry run, where there is one, plans from the settings alone."""
SHIPPED = Path(al.__file__).parent / "reference" / "reference"


@pytest.fixture(scope="module")
def folder_of_7b(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """LLaMA2-7B's shape and the shipped tokenizer, without weights: 26 GB in float32."""
    from transformers import LlamaConfig

    folder = tmp_path_factory.mktemp("dry") / "llama-7b"
    ignored = shutil.ignore_patterns("*.safetensors*", "config.json")
    shutil.copytree(SHIPPED, folder, ignore=ignored)
    size: dict[str, Any] = {"hidden_size": 4096, "intermediate_size": 11_008}
    depth: dict[str, Any] = {"num_hidden_layers": 32, "num_attention_heads": 32}
    special: dict[str, Any] = {"vocab_size": 640, "bos_token_id": 1, "eos_token_id": 2}
    LlamaConfig(**size, **depth, **special, architectures=["LlamaForCausalLM"]).save_pretrained(
        folder
    )
    return folder


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_a_dry_run_needs_no_weights(
    name: str,
    folder_of_7b: Path,
    empty_models: Callable[..., HookedModel],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert not [*folder_of_7b.glob("*.safetensors")]
    monkeypatch.setattr(
        other_prompts,
        "_word_problems",  # converting them takes seconds
        lambda model, _: al.sample_pairs(model, n=4, keep="all"),
    )
    monkeypatch.setattr(settings, "empty_model", empty_models)
    for number in ("ROWS", "REPEATS"):  # products of this width take seconds
        monkeypatch.setattr(cost, number, 1)
    monkeypatch.setitem(LARGEST_OPERAND, "multiplication", 12)  # more numbers take seconds
    monkeypatch.setitem(LARGEST_OPERAND, "division", 40)
    command = experiments()[name]
    experiment = command.load()
    config_class = command.settings
    names = {field.name for field in fields(config_class)}
    small: dict[str, Any] = {"n": 4} if "n" in names else {}
    config = config_class(model=str(folder_of_7b), **small)
    experiment(config, root=tmp_path / "results", dry_run=True)
    assert capsys.readouterr().out.strip()
    assert not (tmp_path / "results").exists()


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_a_rehearsal_is_small(name: str) -> None:
    config = experiments()[name].settings()
    small = in_small(config)
    assert getattr(small, "model", "reference") == "reference"
    for setting, most in SMALL.items():
        value = getattr(small, setting, None)
        assert not isinstance(value, int) or value <= most
    assert small != config or vars(config).keys() <= {"model", "dtype", "device"}


def test_a_rehearsal_plans_then_runs_all_in_small_and_leaves_nothing(
    folder_of_7b: Path,
    empty_models: Callable[..., HookedModel],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(settings, "empty_model", empty_models)
    monkeypatch.chdir(tmp_path)
    command = experiments()["what_comes_instead"]
    experiment, config = command.load(), command.settings(model=str(folder_of_7b), n=4)
    experiment(config, root=tmp_path / "results", rehearse=True)
    printed = capsys.readouterr().out
    assert "300 prompts" in printed and "the model's weights: 2.59e+10 bytes" in printed
    assert "nothing is stored" in printed and "saved in" not in printed
    assert not [*tmp_path.iterdir()]

    def broken(run: Any, model: Any, config: Any) -> None:
        raise ValueError("expected another option")

    with pytest.raises(ValueError, match="another option"):
        replace(experiment, compute=broken)(config, root=tmp_path / "results", rehearse=True)
    assert not [*tmp_path.iterdir()]
