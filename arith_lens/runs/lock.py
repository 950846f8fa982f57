"""One writer a folder: a lock that ends with its process, whatever ends the process."""

import json
import os
import socket
from pathlib import Path

from filelock import FileLock, Timeout

from arith_lens.runs.files import RunError, write
from arith_lens.runs.provenance import now

LOCK, HOLDER = ".lock", ".holder.json"


class FolderLock:
    """The right to write into a run folder. Readers need none.

    The operating system holds the lock (`.lock`), so that none outlives its process;
    `.holder.json` says who has it, and means nothing once the lock is free.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = FileLock(folder / LOCK, thread_local=False)

    @property
    def held(self) -> bool:
        """Whether this object has it."""
        return self._lock.is_locked

    def acquire(self) -> None:
        """Take it at once. Raises RunError, naming the holder, where another has it."""
        try:
            self._lock.acquire(timeout=0)
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
