"""Kernels of notebooks that have the libraries already: forks, as `children` makes them."""

import gc
import multiprocessing
import os
import signal
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from typing import Any

from support import children

LONGEST_START = 60
"""Seconds that a kernel may take to begin."""


class Kernel:
    """A kernel's process, with what jupyter_client asks of a `subprocess.Popen`."""

    stdin = stdout = stderr = None

    def __init__(self, process: Any) -> None:
        self.process, self.pid = process, process.pid

    @property
    def returncode(self) -> int | None:
        return self.process.exitcode

    def poll(self) -> int | None:
        return self.returncode

    def wait(self, timeout: float | None = None) -> int | None:
        self.process.join(timeout)
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def start_kernel(command: Sequence[str], *, env: dict[str, str], cwd: str, **_: Any) -> Kernel:
    """What `jupyter_client.launcher.launch_kernel` does with a kernel's command."""
    here, there = children.pipe(duplex=False)
    with here, there:
        process = children.start(_run_kernel, _arguments(command), env, cwd, there)
        assert here.poll(LONGEST_START), "no kernel began"
    return Kernel(process)


def waiting_kernel() -> Callable[..., Kernel]:
    """What `launch_kernel` does, once: the kernel is a fork of this process as it is now."""
    fork = multiprocessing.get_context("fork")
    commands, sender = fork.Pipe(duplex=False)
    ready, done = fork.Pipe(duplex=False)
    process = fork.Process(target=_run_next, args=(commands, done))
    process.start()

    def start(command: Sequence[str], *, env: dict[str, str], cwd: str, **_: Any) -> Kernel:
        sender.send((_arguments(command), env, cwd))
        assert ready.poll(LONGEST_START), "no kernel began"
        return Kernel(process)

    return start


def _run_next(commands: Connection, done: Connection) -> None:
    arguments, environment, cwd = commands.recv()
    _run_kernel(arguments, environment, cwd, done)


def _arguments(command: Sequence[str]) -> list[str]:
    return list(command[command.index("ipykernel_launcher") + 1 :])


def _run_kernel(arguments: list[str], environment: dict[str, str], cwd: str, ready: Connection):
    from ipykernel.kernelapp import launch_new_instance

    os.setsid()  # jupyter_client signals a kernel's whole group
    gc.freeze()
    os.environ.update(environment)
    os.chdir(cwd)
    ready.send("ready")
    launch_new_instance(argv=arguments)
