"""One run folder: results that are saved, loaded and replaced whole, and shards on the way."""

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

from jaxtyping import Bool
from torch import Tensor

from arith_lens.arrays import Arrays, Storable
from arith_lens.runs.files import RunError, listed, plain
from arith_lens.runs.keeping import kept_line, remove_replaced, tidy
from arith_lens.runs.kinds import read_result
from arith_lens.runs.lock import FolderLock
from arith_lens.runs.processes import PartDone, Processes, processes
from arith_lens.runs.provenance import SavedPairs, decides, describe_pairs, now, software
from arith_lens.runs.record import FILE, read_record, write_record
from arith_lens.runs.results import COMPUTED, check_name, read_file, stem_of, write_files
from arith_lens.runs.shards import Shards, identity_digest, shard_folders
from arith_lens.runs.stored import from_bytes


class Run:
    """One run folder. In a `with` block no other process may write to it, methods keep shards in
    it, and it notes how the experiment ended and how long it took."""

    def __init__(
        self,
        path: Path,
        record: dict[str, Any],
        provenance: dict[str, Any] | None = None,
        *,
        again: bool = False,
    ) -> None:
        self.path = path
        self.record = record  # the contents of run.json
        self._provenance = provenance  # of what this process will save; None: as in the record
        self._again = again
        self._lock = FolderLock(path)
        self._started = time.monotonic()
        self._team = Processes()
        self._open = False

    @property
    def experiment(self) -> str:
        return self.record["experiment"]

    @property
    def config(self) -> Mapping[str, Any]:
        """The experiment's configuration, as JSON keeps it (tuples are lists, paths are text)."""
        return self.record["config"]

    @property
    def model(self) -> str:
        """The model's name; empty where the run was opened without a model."""
        model = self.record["provenance"].get("model") or {}
        return str(model.get("name") or self.config.get("model") or "")

    @property
    def names(self) -> tuple[str, ...]:
        """The results saved so far, in order."""
        return tuple(self.record["results"])

    @property
    def finished(self) -> bool:
        return self.record["status"] == "finished"

    def __repr__(self) -> str:
        model = f", model {self.model}" if self.model else ""
        names = ", ".join(self.names) or "none"
        return (
            f"Run({self.experiment}{model}, {self.record['status']}, results: {names}, "
            f"path: {self.path})"
        )

    def facts(self, name: str) -> Mapping[str, Any]:
        """What was noted beside a result: pairs, distinct references, what `save` was told."""
        return self._entry(name)["facts"]

    def save(
        self,
        name: str,
        result: Storable | Callable[[], Storable],
        *,
        pairs: SavedPairs | None = None,
        identity: Mapping[str, Any] | None = None,
        **facts: Any,
    ) -> None:
        """Write one result and remove its shards; a later one of the same name replaces it.

        Of several processes that opened the run together, all call this and the first one writes.

        Args:
            name: such as "addition"; letters, digits, `_`, `-`.
            result: ComponentEffects, Effects, or any other that has `to_arrays`; or a function that
                gives it, which the first process alone calls.
            pairs: what the result is of; their digest, text, selection and `computed` are kept.
            identity: what decided its numbers (see `identity`), so that `has` knows it again.
            facts: JSON values worth keeping beside it, such as the seeds of a control.

        Raises:
            RunError: the disk refuses, or another process has the folder open. What was saved
                before stays, an earlier result of the same name too.
        """
        check_name(name)
        if pairs is not None:
            facts = {**describe_pairs(pairs), **facts}
        if not self._team.leads:
            self._follow()
            return
        whole = result if isinstance(result, Storable) else result()
        header = whole.to_arrays().header
        entry = {
            "saved": now(),
            "versions": software()["versions"],
            "kind": header["kind"],
            "facts": plain(facts),
            "computation": plain(header.get("computation", {})),
            "identity": None if identity is None else identity_digest(identity),
        }
        with self._writing():
            results = self.record["results"]
            entry["generation"] = results.get(name, {}).get("generation", 0) + 1
            entry["shard_folders"] = [folder.name for folder in shard_folders(self.path, name)]
            entry["sha256"] = write_files(self.path, stem_of(name, entry), whole, pairs)
            self._write_record(
                provenance=self._provenance or self.record["provenance"],
                results={**results, name: entry},
            )
            remove_replaced(self.path, name, entry)
        self._team.wait()

    def load(self, name: str) -> Any:
        """One result, as the class that wrote it: ComponentEffects, KnockoutCurves, Answers, ...

        Raises:
            RunError: there is no such result, its file was changed, or it is of a kind that no
                class of this package writes (`load_arrays` reads it).
        """
        return read_result(self.load_arrays(name))

    def load_arrays(self, name: str) -> Arrays:
        """One result of any kind, for the `from_arrays` of its class.

        Raises:
            RunError: there is no such result, or its file was changed.
        """
        arrays = from_bytes(self._read(name))
        tensors = {key: value for key, value in arrays.tensors.items() if key != COMPUTED}
        return Arrays(tensors, arrays.header)

    def computed(self, name: str) -> Bool[Tensor, "pair"] | None:
        """Which pairs of a result have an answer that is neither operand; None if not known."""
        return from_bytes(self._read(name)).tensors.get(COMPUTED)

    def identity(self, model: Any, pairs: SavedPairs | None, **question: Any) -> dict[str, Any]:
        """What decides the numbers of a computation: equal ones give equal bits.

        The model's weights, buffers, configuration, active hooks, dtype, device and kernels, the
        pairs' tokens and labels, threads, versions, and the question: JSON values that a method
        adds; without pairs they say what the data are. Reads each weight once.

        Raises:
            RunError: the run was opened with another model, or with another configuration of it;
                a hook is in place that cannot be known again.
        """
        identity = decides(model, pairs, **question)
        opened_with = (self._provenance or self.record["provenance"]).get("model") or {}
        for part in ("weights", "configuration"):
            digest = f"{part}_sha256"
            expected, found = opened_with.get(digest), identity["model"][digest]
            if expected not in (None, found):
                raise RunError(
                    f"expected the model that {self.path} was opened with "
                    f"({opened_with.get('name')}, {part} {expected[:12]}), found one with {part} "
                    f"{found[:12]}; open a run with model= for each model, after every change of it"
                )
        return identity

    def has(self, name: str, identity: Mapping[str, Any]) -> bool:
        """Whether a result is saved that the same computation gave. Never where the run was opened
        to compute again."""
        entry = self.record["results"].get(name, {})
        return not self._again and entry.get("identity") == identity_digest(identity)

    def shards(self, name: str, identity: Mapping[str, Any]) -> Shards:
        """The parts of the result `name` that are finished, to load and to add to.

        Raises:
            RunError: the run is not open.
        """
        if not self._open:
            raise RunError(
                f"expected an open run, found {self.path} not opened; write "
                "`with open_run(...) as run:` around the computation"
            )
        return self._shards(name, identity)

    def __enter__(self) -> "Run":
        self._team = processes()
        self._started = time.monotonic()
        if self._team.leads:
            self._take()
            try:
                self._write_record(status="running")
            except BaseException:
                self._lock.release()
                raise
            self._team.wait()
        else:
            self._follow()
        self._open = True
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._open = False
        if not self._team.leads:
            return
        try:
            seconds = self.record["wall_seconds"] + round(time.monotonic() - self._started, 3)
            self._write_record(status=self._status(kind), wall_seconds=seconds, ended=now())
        except RunError:
            if error is None:
                raise
        finally:
            self._lock.release()
        if isinstance(error, KeyboardInterrupt):
            print(kept_line(self.path, self.names, error), file=sys.stderr)
        elif error is not None:
            error.add_note(kept_line(self.path, self.names, error))

    def _status(self, kind: type[BaseException] | None) -> str:
        if kind is not None and not issubclass(kind, PartDone):
            return f"stopped by {kind.__name__}"
        return str(self._team) if self._team.apart else "finished"

    def _follow(self) -> None:
        """Wait until the first process has written the record, and read it."""
        self._team.wait()
        self.record = read_record(self.path)

    def _take(self) -> None:
        """Lock the folder and look at it again: another process may have written since."""
        self._lock.acquire()
        try:
            if (self.path / FILE).exists():
                self.record = read_record(self.path)
            tidy(self.path, self.record["results"])
        except BaseException:
            self._lock.release()
            raise

    @contextmanager
    def collecting(self, **facts: Any) -> Iterator[dict[str, Any]]:
        """The entries of results, to add some whose files are in place; written at the end."""
        with self._writing():
            results = dict(self.record["results"])
            yield results
            self._write_record(results=results, **facts)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Hold the folder; within `with run` it is held already."""
        if self._lock.held:
            yield
            return
        self._take()
        try:
            yield
        finally:
            self._lock.release()

    def _entry(self, name: str) -> dict[str, Any]:
        if name not in self.record["results"]:
            raise RunError(
                f"expected a result of {self.path} ({listed(self.names)}), found {name!r}"
            )
        return self.record["results"][name]

    def _shards(self, name: str, identity: Mapping[str, Any]) -> Shards:
        if self._again and name in self.names:  # not the parts of what is to be replaced
            identity = {**identity, "replaces": self._entry(name)["saved"]}
        return Shards(self.path, name, identity)

    def _read(self, name: str) -> bytes:
        entry = self._entry(name)
        try:
            return read_file(self.path, name, entry)
        except RunError:
            if not (self.path / FILE).is_file() or self._lock.held:
                raise
            self.record = read_record(self.path)  # a writer may have replaced it since
            return read_file(self.path, name, self._entry(name))

    def _write_record(self, **changes: Any) -> None:
        """Change the record, on disk first."""
        record = {**self.record, **changes}
        write_record(self.path, record)
        self.record = record
