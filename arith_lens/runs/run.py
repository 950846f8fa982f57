"""The run folder: open, save, load, find."""

import json
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from jaxtyping import Bool
from torch import Tensor

from arith_lens.arrays import Arrays, Storable
from arith_lens.effects import ComponentEffects
from arith_lens.runs.files import RunError, digest, digests, listed, plain, replace, write
from arith_lens.runs.provenance import SavedPairs, describe_model, describe_pairs, now, software
from arith_lens.runs.stored import from_bytes, to_bytes

FORMAT = 2
"""The layout of a run folder; others are refused."""

_COMPUTED = "pairs.computed"  # stands beside a result's own tensors


class Run:
    """One run folder. In a `with` block it notes how the experiment ended, and how long it took."""

    def __init__(
        self, path: Path, record: dict[str, Any], provenance: dict[str, Any] | None = None
    ) -> None:
        self.path = path
        self.record = record  # the contents of run.json
        self._provenance = provenance  # of what this process will save; None: as in the record
        self._started = time.monotonic()

    @property
    def experiment(self) -> str:
        return self.record["experiment"]

    @property
    def config(self) -> Mapping[str, Any]:
        """The experiment's configuration, as JSON keeps it (tuples are lists, paths are text)."""
        return self.record["config"]

    @property
    def names(self) -> tuple[str, ...]:
        """The results saved so far, in order."""
        return tuple(self.record["results"])

    @property
    def finished(self) -> bool:
        return self.record["status"] == "finished"

    def facts(self, name: str) -> Mapping[str, Any]:
        """What was noted beside a result: pairs, distinct references, what `save` was told."""
        return self._entry(name)["facts"]

    def save(
        self,
        name: str,
        result: Storable,
        *,
        pairs: SavedPairs | None = None,
        **facts: Any,
    ) -> None:
        """Write one result; a later one of the same name replaces it.

        Args:
            name: such as "addition"; letters, digits, `_`, `-`.
            result: ComponentEffects, Effects, or any other that has `to_arrays`.
            pairs: what the result is of; their digest, text, selection and `computed` are kept.
            facts: JSON values worth keeping beside it, such as the share of pairs the filter kept.

        Raises:
            RunError: the disk refuses. What was saved before stays.
        """
        if not name.replace("_", "").replace("-", "").isalnum():
            raise ValueError(
                f"expected a result's name of letters, digits, _ and -, found {name!r}"
            )
        arrays = result.to_arrays()
        tensors = dict(arrays.tensors)
        if pairs is not None and pairs.computed is not None:
            tensors[_COMPUTED] = pairs.computed
        files = {
            f"{name}.safetensors": to_bytes(Arrays(tensors, arrays.header)),
            f"{name}.csv": result.to_dataframe().to_csv(index=False).encode(),
        }
        for file, data in files.items():
            write(self.path / file, data)
        hashes = {file: digest(data) for file, data in files.items()}
        if pairs is not None:
            facts = {**describe_pairs(pairs), **facts}
            if pairs.reference_text is not None:
                prompts = self.path / f"{name}.pairs.jsonl"
                replace(prompts, pairs.to_jsonl)
                hashes[prompts.name] = digests([prompts])[0]
        self.record["provenance"] = self._provenance or self.record["provenance"]
        self.record["results"][name] = {
            "saved": now(),
            "versions": software()["versions"],
            "kind": arrays.header["kind"],
            "facts": plain(facts),
            "computation": plain(arrays.header.get("computation", {})),
            "sha256": hashes,
        }
        self._write_record()

    def load(self, name: str) -> ComponentEffects:
        """The effects of every component, from one result.

        Raises:
            RunError: there is no such result, its file was changed, or it is of another kind.
        """
        arrays = self.load_arrays(name)
        if (kind := arrays.header["kind"]) != "component_effects":
            raise RunError(
                f"expected effects of components in {name!r} of {self.path}, found a result of "
                f"kind {kind!r}; read it with the from_arrays of its class, from load_arrays"
            )
        return ComponentEffects.from_arrays(arrays)

    def load_arrays(self, name: str) -> Arrays:
        """One result of any kind, for the `from_arrays` of its class.

        Raises:
            RunError: there is no such result, or its file was changed.
        """
        arrays = from_bytes(self._read(name))
        tensors = {key: value for key, value in arrays.tensors.items() if key != _COMPUTED}
        return Arrays(tensors, arrays.header)

    def computed(self, name: str) -> Bool[Tensor, "pair"] | None:
        """Which pairs of a result have an answer that is neither operand; None if not known."""
        return from_bytes(self._read(name)).tensors.get(_COMPUTED)

    def __enter__(self) -> "Run":
        self._started = time.monotonic()
        self.record["status"] = "running"
        self._write_record()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.record["status"] = "finished" if kind is None else f"stopped by {kind.__name__}"
        self.record["wall_seconds"] += round(time.monotonic() - self._started, 3)
        self.record["ended"] = now()
        self._write_record()

    def _entry(self, name: str) -> dict[str, Any]:
        if name not in self.record["results"]:
            raise RunError(
                f"expected a result of {self.path} ({listed(self.names)}), found {name!r}"
            )
        return self.record["results"][name]

    def _read(self, name: str) -> bytes:
        path = self.path / f"{name}.safetensors"
        expected = self._entry(name)["sha256"].get(path.name)
        if not path.is_file() or digest(data := path.read_bytes()) != expected:
            raise RunError(
                f"{path} is {'damaged' if path.exists() else 'missing'}: it is not the file that "
                f"the run wrote. Delete {self.path} and run the experiment again."
            )
        return data

    def _write_record(self) -> None:
        text = json.dumps(self.record, indent=2, ensure_ascii=False) + "\n"
        write(self.path / "run.json", text.encode())


def open_run(
    experiment: str,
    config: Any,
    *,
    model: Any = None,
    inputs: Iterable[Path] = (),
    root: str | Path = "results",
) -> Run:
    """Open the run of this configuration, to be filled inside `with`.

    A run of the same configuration, model, inputs and version that is already there is continued:
    what it saved is still in `names`, so an experiment skips it. Its provenance stays that of the
    process that saved last; each result has its own versions, device, dtype and threads.

    Args:
        config: a dataclass or a mapping of plain values.
        model: its weights enter the key and the record, so that another checkpoint under the same
            name gets a folder of its own.
        inputs: files that the experiment reads; their contents enter the key.

    Raises:
        RunError: an input cannot be read; the folder of this key is damaged or of another version.
    """
    plain_config = plain(config)
    provenance = software() | {"model": describe_model(model), "inputs": digests(inputs)}
    path = Path(root) / experiment / _key(experiment, plain_config, provenance)
    if (path / "run.json").exists():
        return Run(path, load_run(path).record, provenance)
    record = {
        "arith_lens_run": FORMAT,
        "experiment": experiment,
        "config": plain_config,
        "status": "new",
        "started": now(),
        "wall_seconds": 0.0,
        "provenance": provenance,
        "results": {},
    }
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(f"cannot make {path}: {error}. Choose another root.") from error
    return Run(path, record)


def _key(experiment: str, config: Any, provenance: Mapping[str, Any]) -> str:
    """What must be the same for results to be the same, as twelve hexadecimal digits."""
    weights = provenance["model"].get("weights_sha256")
    version = provenance["versions"]["arith-lens"]
    identity = [experiment, FORMAT, version, config, weights, provenance["inputs"]]
    return digest(json.dumps(identity, sort_keys=True).encode())[:12]


def load_run(path: str | Path) -> Run:
    """Read a run folder (or its run.json).

    Raises:
        RunError: nothing there, not a run, damaged, or of another version.
    """
    folder = Path(path).parent if Path(path).name == "run.json" else Path(path)
    file = folder / "run.json"
    if not file.is_file():
        raise RunError(
            f"expected a run folder with a run.json, found none at {folder}. "
            "Give a folder results/<experiment>/<key>, or run the experiment first."
        )
    try:
        record = json.loads(file.read_bytes())
    except (OSError, ValueError) as error:
        raise RunError(f"{file} is damaged ({error}). Delete the folder and run again.") from error
    if not isinstance(record, dict) or "arith_lens_run" not in record:
        raise RunError(f"{file} was not written by arith_lens. Give a folder of results/.")
    if record["arith_lens_run"] != FORMAT:
        raise RunError(
            f"{folder} has format {record['arith_lens_run']}, this version reads {FORMAT}. "
            "Run the experiment again, or read it with the version in its provenance."
        )
    if lacking := _lacking(record):
        raise RunError(
            f"{file} is damaged: it lacks {listed(lacking)}, or they are of another kind. "
            "Delete it and run again."
        )
    return Run(folder, record)


def _lacking(record: Mapping[str, Any]) -> list[str]:
    """What a record should have and has not, or not as a run writes it."""
    kinds = {
        "experiment": str,
        "config": dict,
        "status": str,
        "wall_seconds": int | float,
        "provenance": dict,
        "results": dict,
    }
    lacking = [name for name, kind in kinds.items() if not isinstance(record.get(name), kind)]
    if "results" in lacking:
        return lacking
    parts = ("facts", "computation", "sha256")
    return lacking + [
        f"{part} of {name}"
        for name, entry in record["results"].items()
        for part in parts
        if not isinstance(entry, dict) or not isinstance(entry.get(part), dict)
    ]


def find_runs(
    experiment: str, *, model: str | None = None, root: str | Path = "results"
) -> list[Run]:
    """The finished runs of an experiment, newest first; of one model if it is named.

    Folders that cannot be read are passed over: `load_run` says what is wrong with one.
    """
    found = []
    for file in (Path(root) / experiment).glob("*/run.json"):
        try:
            run = load_run(file)
        except RunError:
            continue
        if run.finished and model in (None, run.config.get("model")):
            found.append(run)
    return sorted(found, key=lambda run: run.record.get("ended", ""), reverse=True)
