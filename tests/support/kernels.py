"""Kernels of notebooks that have the libraries already: forks, as `children` makes them."""

import gc
import os
import signal
from collections.abc import Sequence
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
        arguments = list(command[command.index("ipykernel_launcher") + 1 :])
        process = children.start(_run_kernel, arguments, env, cwd, there)
        assert here.poll(LONGEST_START), "no kernel began"
    return Kernel(process)


def _run_kernel(arguments: list[str], environment: dict[str, str], cwd: str, ready: Connection):
    from ipykernel.kernelapp import launch_new_instance

    os.setsid()  # jupyter_client signals a kernel's whole group
    gc.freeze()
    os.environ.update(environment)
    os.chdir(cwd)
    ready.send("ready")
    launch_new_instance(argv=arguments)
