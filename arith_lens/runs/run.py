"""One run folder: its results, its manifest, and the shards of unfinished results."""

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

from jaxtyping import Bool
from torch import Tensor

from arith_lens.arrays import Arrays, Storable
from arith_lens.runs.files import (
    RunError,
    check_name,
    folder_locked,
    listed,
    now,
    plain_value,
    refuse_links,
    remove_partials,
)
from arith_lens.runs.manifest import (
    RUN_FILE,
    SavedPairs,
    describe_pairs,
    identity_of,
    key_parts,
    method_identity,
    read_manifest,
    read_result,
    write_manifest,
)
from arith_lens.runs.processes import Processes, processes
from arith_lens.runs.shards import PartDone, Shards, identity_digest
from arith_lens.runs.store import COMPUTED_TENSOR, Store, without_pairs


class Run:
    """One run folder.

    In a `with` block, no other process can write to it, methods store shards, and the manifest gets
    the outcome of the experiment and its time.
    """

    def __init__(
        self,
        path: Path,
        manifest: dict[str, Any],
        provenance: dict[str, Any] | None = None,
        *,
        again: bool = False,
    ) -> None:
        self.path = path
        self.manifest = manifest  # the contents of run.json
        self._provenance = provenance  # written with what this process saves; None: the manifest's
        self._again = again
        self._locked = False
        self._blocks: list[ExitStack] = []  # of the `with` blocks; the outermost has the lock
        self._started = time.monotonic()
        self.team = Processes()  # that fill the run together, while it is open
        self._open = False
        self.store = Store(path.parent.parent)
        self._saved: set[str] = set()  # by this process: `again` does not apply to these

    @property
    def experiment(self) -> str:
        return self.manifest["experiment"]

    @property
    def config(self) -> Mapping[str, Any]:
        """The experiment's configuration in JSON's types (tuples are lists, paths are text)."""
        return self.manifest["config"]

    @property
    def model(self) -> str:
        """The model's name; empty if the run was opened without a model."""
        model = self.manifest["provenance"].get("model") or {}
        return str(model.get("name") or self.config.get("model") or "")

    @property
    def names(self) -> tuple[str, ...]:
        """The results saved so far, in order."""
        return tuple(self.manifest["results"])

    def names_of(self, kind: str) -> tuple[str, ...]:
        """The results of one kind, such as "answers", in order."""
        results = self.manifest["results"].items()
        return tuple(name for name, entry in results if entry["kind"] == kind)

    @property
    def finished(self) -> bool:
        return self.manifest["status"] == "finished"

    @property
    def complete(self) -> bool:
        """Whether the run is finished and the store has every result that it refers to."""
        keys = [entry["identity"] for entry in self.manifest["results"].values()]
        return self.finished and all(self.store.entry(key) is not None for key in keys)

    def __repr__(self) -> str:
        model = f", model {self.model}" if self.model else ""
        names = ", ".join(self.names) or "none"
        return (
            f"Run({self.experiment}{model}, {self.manifest['status']}, results: {names}, "
            f"path: {self.path})"
        )

    def facts(self, name: str) -> Mapping[str, Any]:
        """Facts about a result: pairs, distinct references, and the `facts` of `save`."""
        return self._entry(name)["facts"]

    def folder(self, name: str) -> Path:
        """The folder of `result.safetensors`, `result.csv` and `result.pairs.jsonl`."""
        return self.store.folder_of(self._entry(name)["identity"])

    def save(
        self,
        name: str,
        result: Storable | Callable[[], Storable],
        *,
        pairs: SavedPairs | None = None,
        identity: Mapping[str, Any] | None = None,
        **facts: Any,
    ) -> None:
        """Store a result and refer to it by a name. A later result of this name replaces it.

        If several processes opened the run together, all must call this, and the first one writes.

        Args:
            name: the result's name, such as "addition": letters, digits, `_`, `-`.
            result: an Effects, ComponentEffects or other object with `to_arrays`; or a function
                that returns one, which only the first process calls.
            pairs: the pairs that the result is about. Their digest, text, selection and `computed`
                are stored.
            identity: what decided its numbers (see `identity`). Every run that needs the same
                result then uses this one. None: the result belongs to this run and name.
            facts: further JSON values to store, such as the seeds of a control.

        Raises:
            RunError: the file cannot be written, or another process has the folder open. Everything
                saved before stays, also an earlier result of the same name.
        """
        check_name(name)
        if self.team.leads:
            storable = result if isinstance(result, Storable) else result()
            if identity is None:
                identity = {"run": key_parts(self.manifest), "result": name}
            with self.writing():
                entry = self.store.save(identity, storable, pairs)
                self._saved.add(entry["identity"])
                self._refer(name, entry, pairs, facts)
        self._meet()

    def stored(self, identity: Mapping[str, Any]) -> Arrays | None:
        """The arrays of this computation's result, whichever run it was computed for.

        Returns:
            None if there is no such result, or if the run was opened with `again=True`.
        """
        key = identity_digest(identity)
        again = self._again and key not in self._saved
        is_stored = not again and self.store.entry(key) is not None
        return without_pairs(self.store.load(key)) if self.team.agree(is_stored) else None

    def refer(
        self,
        name: str,
        identity: Mapping[str, Any],
        *,
        pairs: SavedPairs | None = None,
        **facts: Any,
    ) -> None:
        """Give a stored result a name in this run. `pairs` and `facts` are as in `save`."""
        check_name(name)
        if self.team.leads:
            entry = self.store.entry(identity_digest(identity))
            assert entry is not None, "call refer() only for a stored result"
            with self.writing():
                self._refer(name, entry, pairs, facts)
        self._meet()

    def compute(
        self,
        name: str,
        method: Callable[..., Storable],
        model: Any,
        pairs: SavedPairs,
        *,
        facts: Callable[[Any], Mapping[str, Any]] | Mapping[str, Any] | None = None,
        **settings: Any,
    ) -> Any:
        """Call `method(model, pairs, **settings)` and store its result, or read the stored result.

        Args:
            name: the name of the result in this run.
            method: a function of this package, such as `mlp_probe`, or of your own. Your own one is
                recognised by its code, the values that it holds, and the functions and global
                values that it refers to.
            model: the first argument of the method.
            pairs: its second argument.
            facts: JSON values to store with the result, or a function that makes them from it.
            settings: numbers, texts and components. They are part of the identity.

        Returns:
            The result, as an object of its class.

        Raises:
            RunError: as in `identity`; or your method refers to something that nobody could
                recognise next time, such as an open file.
        """
        identity = self.identity(model, pairs, **method_identity(method), settings=settings)
        arrays = self.stored(identity)
        result = method(model, pairs, **settings) if arrays is None else read_result(arrays)
        values = facts(result) if callable(facts) else facts or {}
        if arrays is None:
            self.save(name, result, pairs=pairs, identity=identity, **values)
        else:
            self.refer(name, identity, pairs=pairs, **values)
        return result

    def load(self, name: str) -> Any:
        """One result, as an object of its class: ComponentEffects, KnockoutCurves, Answers, ...

        Raises:
            RunError: there is no such result; its file was changed; or no class of this package
                has its kind (`load_arrays` can read it).
        """
        return read_result(self.load_arrays(name))

    def load_arrays(self, name: str) -> Arrays:
        """One result of any kind, for the `from_arrays` of its class.

        Raises:
            RunError: there is no such result, or its file was changed.
        """
        return without_pairs(self.store.load(self._entry(name)["identity"]))

    def computed(self, name: str) -> Bool[Tensor, " pair"] | None:
        """Which pairs of a result have an answer that is neither operand; None if unknown."""
        return self.store.load(self._entry(name)["identity"]).tensors.get(COMPUTED_TENSOR)

    def identity(self, model: Any, pairs: SavedPairs | None, **question: Any) -> dict[str, Any]:
        """Everything that decides the numbers of a computation. Equal identities give equal bits.

        It contains the model's weights, buffers, configuration, active hooks, dtype, device and
        kernels, the tokens and labels of the pairs, the threads and the versions. Each weight is
        read once.

        Args:
            model: the model that computes.
            pairs: the data; None if `question` says what the data are.
            question: the method and its settings, as JSON values.

        Raises:
            RunError: the run was opened with another model, or with another configuration of it;
                or an active hook cannot be recognised again.
        """
        identity = identity_of(model, pairs, **question)
        opened_with = (self._provenance or self.manifest["provenance"]).get("model") or {}
        current = _model_digests(identity["model"])
        for part, digest in _model_digests(opened_with).items():
            if digest not in (None, current[part]):
                raise RunError(
                    f"expected the model that {self.path} was opened with "
                    f"({opened_with.get('name')}, {part} {digest[:12]}), found one with {part} "
                    f"{current[part][:12]}; open a run with model= for each model, after every "
                    "change of it"
                )
        return identity

    def shards(self, name: str, identity: Mapping[str, Any], **part: Any) -> Shards:
        """The finished shards of a result, to read and to add to.

        Args:
            part: names one part of the computation, if several parts have shards.

        Raises:
            RunError: the run is not open.
        """
        if not self._open:
            raise RunError(
                f"expected an open run, found {self.path} not opened; write "
                "`with open_run(...) as run:` around the computation"
            )
        key = identity_digest(identity)
        if self.team.leads and self.manifest["unfinished"].get(name) != key:
            self.write_manifest(unfinished={**self.manifest["unfinished"], name: key})
        stored = self.store.entry(key)
        if stored and key not in self._saved:  # the shards of the replaced result are not used
            part = {**part, "replaces": stored["saved"]}
        return self.store.shards(identity, part)

    def __enter__(self) -> "Run":
        if not self._blocks:
            self.team = processes()
        self._started = time.monotonic()
        with ExitStack() as block:
            if self.team.leads:
                block.enter_context(self.writing())
                self.write_manifest(status="running")
            self._meet()
            self._blocks.append(block.pop_all())
        self._open = True
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._open = False
        block = self._blocks.pop()
        try:
            with block:
                if self.team.leads:
                    seconds = round(time.monotonic() - self._started, 3)
                    seconds += self.manifest["wall_seconds"]
                    self.write_manifest(
                        status=self._status(kind), wall_seconds=seconds, ended=now()
                    )
            if not self._blocks:
                self.team.leave()
        except RunError:
            if error is None:
                raise
        if not self.team.leads:
            return
        if isinstance(error, KeyboardInterrupt):
            print(self._saved_message(error), file=sys.stderr)
        elif error is not None:
            error.add_note(self._saved_message(error))

    def _saved_message(self, error: BaseException) -> str:
        """The message after an interruption: what was saved, and how to continue."""
        parts = [f"{count} shards of {name}" for name, count in self.unfinished().items()]
        if not (self.names or parts):
            return f"kept in {self.path}: nothing yet."
        saved = " and ".join([listed(self.names), *parts] if self.names else parts)
        ends = isinstance(error, KeyboardInterrupt | MemoryError | RunError | SystemExit)
        when = "" if ends else " once this error is mended"
        return f"kept in {self.path}: {saved}. Run the same again{when} to go on from there."

    def _status(self, kind: type[BaseException] | None) -> str:
        if kind is not None and not issubclass(kind, PartDone):
            return f"stopped by {kind.__name__}"
        return str(self.team) if self.team.apart else "finished"

    def _meet(self) -> None:
        """Wait for the other processes, and read what the first one has written."""
        self.team.wait()
        if not self.team.leads:
            self.manifest = read_manifest(self.path)

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Lock the folder, unless it is locked by an outer `with run`.

        The manifest is read again: another process may have written since.
        """
        if self._locked:
            yield
            return
        refuse_links(self.path)
        with folder_locked(self.path):
            if (self.path / RUN_FILE).exists():
                self.manifest = read_manifest(self.path)
            remove_partials(self.path)
            self._locked = True
            try:
                yield
            finally:
                self._locked = False

    def unfinished(self) -> dict[str, int]:
        """The number of finished shards of each unfinished result."""
        counts = {
            name: self.store.count_shards(key) for name, key in self.manifest["unfinished"].items()
        }
        return {name: count for name, count in sorted(counts.items()) if count}

    def _entry(self, name: str) -> dict[str, Any]:
        if name not in self.manifest["results"]:
            raise RunError(
                f"expected a result of {self.path} ({listed(self.names)}), found {name!r}"
            )
        return self.manifest["results"][name]

    def _refer(
        self,
        name: str,
        entry: Mapping[str, Any],
        pairs: SavedPairs | None,
        facts: Mapping[str, Any],
    ) -> None:
        """Write a stored result's name into the manifest. The folder must be locked."""
        values = plain_value({**(describe_pairs(pairs) if pairs is not None else {}), **facts})
        reference = {"identity": entry["identity"], "kind": entry["kind"], "facts": values}
        begun = self.manifest["unfinished"].items()
        self.write_manifest(
            provenance=self._provenance or self.manifest["provenance"],
            results={**self.manifest["results"], name: reference},
            unfinished={other: key for other, key in begun if other != name},
        )

    def write_manifest(self, **changes: Any) -> None:
        """Change the manifest, on disk first."""
        manifest = {**self.manifest, **changes}
        write_manifest(self.path, manifest)
        self.manifest = manifest


def _model_digests(described: Mapping[str, Any]) -> dict[str, Any]:
    """The digests by which a run tells models apart, by the words of an error."""
    return {part: described.get(f"{part}_sha256") for part in ("weights", "configuration")}
