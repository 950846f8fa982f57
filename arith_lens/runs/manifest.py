"""The manifest of a run (`run.json`), the lock of its folder, and the class of each result."""

import json
import os
import socket
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from arith_lens.arrays import Arrays
from arith_lens.runs.files import RunError, listed, write
from arith_lens.runs.provenance import now

RUN_FORMAT = 3
"""The version of the layout of a run folder; folders of other versions are refused."""

RUN_FILE = "run.json"


def new_manifest(
    experiment: str, config: Mapping[str, Any], provenance: Mapping[str, Any]
) -> dict[str, Any]:
    """The manifest of a run in which nothing has been computed."""
    return {
        "arith_lens_run": RUN_FORMAT,
        "experiment": experiment,
        "config": config,
        "status": "new",
        "started": now(),
        "wall_seconds": 0.0,
        "provenance": provenance,
        "results": {},
        "unfinished": {},
    }


def key_parts(manifest: Mapping[str, Any]) -> list[Any]:
    """What must be the same for two runs to be the same: experiment, format, version,
    configuration, and the digests of the model's weights, its configuration and the input files."""
    version = manifest["provenance"]["versions"]["arith-lens"]
    return [manifest["experiment"], RUN_FORMAT, version, manifest["config"], *inputs_of(manifest)]


def inputs_of(manifest: Mapping[str, Any]) -> list[Any]:
    """Digests of the model and of the files that the experiment reads."""
    provenance = manifest["provenance"]
    model = provenance.get("model") or {}
    digests = [model.get("weights_sha256"), model.get("configuration_sha256")]
    return [*digests, provenance.get("inputs") or []]


def write_manifest(folder: Path, manifest: Mapping[str, Any]) -> None:
    """Write run.json. Raises RunError if that fails; the earlier manifest then stays."""
    text = json.dumps(manifest, indent=2, ensure_ascii=False) + "\n"
    write(folder / RUN_FILE, text.encode())


def read_manifest(folder: Path) -> dict[str, Any]:
    """Read run.json.

    Raises:
        RunError: there is no run, or it is damaged or of another version.
    """
    file = folder / RUN_FILE
    if not file.is_file():
        raise RunError(
            f"expected a run folder with a run.json, found none at {folder}. "
            "Give a folder results/<experiment>/<key>, or run the experiment first."
        )
    try:
        manifest = json.loads(file.read_bytes())
    except (OSError, ValueError) as error:
        raise RunError(f"{file} is damaged ({error}). Delete the folder and run again.") from error
    if not isinstance(manifest, dict) or "arith_lens_run" not in manifest:
        raise RunError(f"{file} was not written by arith_lens. Give a folder of results/.")
    if manifest["arith_lens_run"] != RUN_FORMAT:
        raise RunError(
            f"{folder} has format {manifest['arith_lens_run']}, this version reads {RUN_FORMAT}. "
            "Delete that folder and run the experiment again, or read it with the version in its "
            "provenance."
        )
    if lacking := _lacking(manifest):
        raise RunError(
            f"{file} is damaged: it lacks {listed(lacking)}, or they are of another kind. "
            "Delete it and run again."
        )
    return manifest


def _lacking(manifest: Mapping[str, Any]) -> list[str]:
    """The entries that a manifest lacks, or that are of another type than a run writes."""
    kinds = {
        "experiment": str,
        "config": dict,
        "status": str,
        "wall_seconds": int | float,
        "provenance": dict,
        "results": dict,
        "unfinished": dict,
    }
    lacking = [name for name, kind in kinds.items() if not isinstance(manifest.get(name), kind)]
    if "results" in lacking:
        return lacking
    parts = {"identity": str, "kind": str, "facts": dict}
    return lacking + [
        f"{part} of {name}"
        for name, entry in manifest["results"].items()
        for part, kind in parts.items()
        if not isinstance(entry, dict) or not isinstance(entry.get(part), kind)
    ]


LOCK, HOLDER = ".lock", ".holder.json"


class FolderLock:
    """The lock that a process needs to write into the folder of a run or a result.

    Readers need none.

    The operating system holds the lock (`.lock`), so it ends with its process. `.holder.json` says
    which process has it, and has no meaning once the lock is free.
    """

    def __init__(self, folder: Path, *, patience: float = 0.0) -> None:
        self._folder = folder
        self._patience = patience  # seconds to wait for the lock
        self._lock = FileLock(folder / LOCK, thread_local=False)

    @property
    def held(self) -> bool:
        """Whether this object has the lock."""
        return self._lock.is_locked

    def acquire(self) -> None:
        """Take the lock.

        Raises:
            RunError: another process has it, which the message names; or the disk refuses.
        """
        try:
            self._lock.acquire(timeout=self._patience)
        except Timeout as error:
            raise RunError(
                f"expected {self._folder} for this process alone, found it open in "
                f"{self._holder()}. Wait for that one or stop it (what it finished is kept), or "
                "give another root or configuration; reading the run is possible meanwhile."
            ) from error
        except OSError as error:
            raise RunError(
                f"cannot lock {self._folder / LOCK}: {error.strerror or error}. Free some space, "
                "remove what stands there, or choose a root that can be written."
            ) from error
        try:
            write(self._folder / HOLDER, json.dumps(_myself()).encode())
        except BaseException:
            self._lock.release()
            raise

    def release(self) -> None:
        (self._folder / HOLDER).unlink(missing_ok=True)
        self._lock.release()

    def _holder(self) -> str:
        try:
            holder = json.loads((self._folder / HOLDER).read_bytes())
            return f"process {holder['pid']} on {holder['host']} since {holder['since']}"
        except (OSError, ValueError, KeyError, TypeError):
            return "another process, which has not said its name"


def _myself() -> dict[str, str | int]:
    return {"pid": os.getpid(), "host": socket.gethostname(), "since": now()}


RESULT_CLASSES = {
    "answers": ("answers", "Answers"),
    "attention_patterns": ("attention", "Patterns"),
    "before_after": ("effects", "BeforeAfter"),
    "circuit_curve": ("knockout", "CircuitCurve"),
    "component_effects": ("effects", "ComponentEffects"),
    "effects": ("effects", "Effects"),
    "evaluation": ("evaluation", "EvaluationResult"),
    "exploration": ("exploration", "Exploration"),
    "greedy_mask": ("knockout", "GreedyMask"),
    "knockout_curve": ("knockout", "KnockoutCurve"),
    "knockout_curves": ("knockout", "KnockoutCurves"),
    "mediation": ("mediation", "Mediation"),
    "next_tokens": ("next_tokens", "NextTokens"),
    "outcomes": ("knockout", "Outcomes"),
}
"""For each kind of result: the module within arith_lens, and the class in it."""


def read_result(arrays: Arrays) -> Any:
    """The result in `arrays`, as an object of its class.

    Raises:
        RunError: no class of this package has this kind.
    """
    kind = arrays.header["kind"]
    if kind not in RESULT_CLASSES:
        raise RunError(
            f"expected a result of a kind among {listed(RESULT_CLASSES)}, found a result of kind "
            f"{kind!r}; read it with the from_arrays of its class, from load_arrays"
        )
    module, name = RESULT_CLASSES[kind]
    return getattr(import_module(f"arith_lens.{module}"), name).from_arrays(arrays)
