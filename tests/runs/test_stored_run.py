"""A finished run is found without its model, as long as the model's files are the same."""

import os
from functools import partial
from pathlib import Path
from typing import Any

from arith_lens.model import files_state
from arith_lens.runs import open_run, stored_run


def test_a_finished_run_is_found_without_its_model(model: Any, tmp_path: Path) -> None:
    prompts, config = tmp_path / "mine.jsonl", {"a": 1}
    prompts.write_text("one")
    more = {"files": "state", "inputs": [prompts], "root": tmp_path}
    find = partial(stored_run, "x", device=str(model.device), **more)
    assert find(config) is None
    with open_run("x", config, model=model, **more) as run:
        assert find(config) is None, "it is not finished"
    found = find(config)
    assert found is not None and found.path == run.path
    assert find({"a": 2}) is None
    for other in ({"files": "another"}, {"files": None}, {"device": "cuda:7"}, {"inputs": []}):
        assert find(config, **other) is None, other
    prompts.write_text("two")
    assert find(config) is None


def test_the_state_of_files_changes_with_each_of_them(tmp_path: Path) -> None:
    for name in ("config.json", "model.safetensors"):
        (tmp_path / name).write_text("a")
    states = [files_state(tmp_path)]
    assert files_state(str(tmp_path)) == states[0]
    os.utime(tmp_path / "config.json", ns=(1, 1))
    states.append(files_state(tmp_path))
    (tmp_path / "model.safetensors").write_text("ab")
    states.append(files_state(tmp_path))
    (tmp_path / "tokenizer.json").write_text("a")
    states += [files_state(tmp_path), files_state("reference"), files_state("reference-mistral")]
    assert len({*states}) == len(states) and None not in states
    assert files_state("someone/on-the-hub") is None
