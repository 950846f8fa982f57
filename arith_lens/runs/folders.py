"""Run folders: open one to fill it, load one to read it, find those there are."""

import json
import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from arith_lens.runs.files import RunError, check_name, digest, digests, make_folder, plain
from arith_lens.runs.provenance import describe_model, software
from arith_lens.runs.record import FILE, inputs_of, key_parts, new_record, read_record
from arith_lens.runs.run import Run
from arith_lens.runs.store import FOLDER as STORE


def open_run(
    experiment: str,
    config: Any,
    *,
    model: Any = None,
    inputs: Iterable[Path] = (),
    root: str | Path = "results",
    again: bool = False,
) -> Run:
    """Open the run of this configuration, to be filled inside `with`.

    A run of the same configuration, model, inputs and version that is already there is continued:
    what it saved is still in `names`, so an experiment skips it, and methods that are given the run
    go on after the last shard that an earlier process finished. Its provenance stays that of the
    process that saved last; each result has its own versions, device, dtype and threads.

    Args:
        experiment: its name, and that of the folder of its runs: letters, digits, `_`, `-`.
        config: a dataclass or a mapping of plain values.
        model: its weights and its configuration enter the key and the record, so that another
            checkpoint under the same name gets a folder of its own.
        inputs: files that the experiment reads; their contents enter the key.
        again: compute anew what is saved; each old result stays until its new one is complete.

    Raises:
        ValueError: a name that could leave the root.
        RunError: an input cannot be read; the folder of this key is damaged, of another version, or
            holds another run. Entering `with` raises it where another process has the folder open.
    """
    check_name(experiment, "an experiment's name")
    if experiment == STORE:
        raise ValueError(
            f"expected another name of an experiment than {STORE!r}, where results are"
        )
    plain_config = plain(config)
    provenance = software() | {"model": describe_model(model), "inputs": digests(inputs)}
    fresh = new_record(experiment, plain_config, provenance)
    path = Path(root) / experiment / run_key(fresh)
    if (path / FILE).exists():
        record = read_record(path)
        _refuse_other(path, record, fresh)
        return Run(path, record, provenance, again=again)
    make_folder(path)
    return Run(path, fresh, provenance, again=again)


def load_run(path: str | Path) -> Run:
    """Read a run folder (or its run.json).

    Raises:
        RunError: nothing there, not a run, damaged, or of another version.
    """
    folder = Path(path).parent if Path(path).name == FILE else Path(path)
    return Run(folder, read_record(folder))


def find_runs(
    experiment: str, *, model: str | None = None, root: str | Path = "results"
) -> list[Run]:
    """The finished runs of an experiment, newest first; of one model if it is named.

    Folders that cannot be read are passed over with a warning that says why.
    """
    found = []
    for file in (Path(root) / experiment).glob(f"*/{FILE}"):
        try:
            run = load_run(file)
        except RunError as error:
            warnings.warn(f"a run is passed over: {error}", stacklevel=2)
            continue
        if run.finished and model in (None, run.config.get("model")):
            found.append(run)
    return sorted(found, key=lambda run: run.record.get("ended", ""), reverse=True)


def run_key(record: Mapping[str, Any]) -> str:
    """The name of the folder of a run with this record: twelve hexadecimal digits."""
    return digest(json.dumps(key_parts(record), sort_keys=True).encode())[:12]


def _refuse_other(path: Path, record: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
    """Raise RunError for a folder under this key's name that some other run was put in."""
    parts = [[one["experiment"], one["config"], *inputs_of(one)] for one in (expected, record)]
    model = ("weights of the model", "configuration of the model")
    names = ("experiment", "configuration", *model, "input files")
    other = [
        name
        for name, *values in zip(names, *parts, strict=True)
        if len({json.dumps(value, sort_keys=True) for value in values}) > 1
    ]
    if other:
        raise RunError(
            f"expected the run of this configuration in {path}, found one with another "
            f"{', another '.join(other)}. Move that folder away, or choose another root."
        )
