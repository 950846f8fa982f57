"""Child processes that have the libraries already: those that are killed, and torchrun's.

A fresh Python takes six seconds of processor time to import PyTorch, Transformers and
TransformerLens. These are forks of one server process, which has imported them and does nothing
else, so that no thread of its own is lost in a fork.
"""

import gc
import multiprocessing
import os
import runpy
import signal
import sys
import warnings
from collections.abc import Callable
from contextlib import chdir
from multiprocessing import forkserver
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
PRELOADED = [
    "transformer_lens.model_bridge",
    "transformers.models.llama.modeling_llama",
    "transformers.models.mistral.modeling_mistral",
    "arith_lens.path_patching",
]

context = multiprocessing.get_context("forkserver")
context.set_forkserver_preload(PRELOADED)


def start(call: Callable[..., Any], *arguments: Any) -> Any:
    """A process that calls the function; both must be of modules that it can import."""
    with chdir(ROOT):
        forkserver.ensure_running()
    process = context.Process(target=call, args=arguments)
    process.start()
    return process


pipe = context.Pipe


class Script:
    """A script that runs in a child process, or in several that torchrun's agent starts.

    Args:
        source: the script's text, or the name of a module that is run by `-m`
        arguments: what stands behind it on the command line
        output: where it prints to; a file
        n: how many processes
        restarts: how often the agent starts them anew
        environment: variables besides those of this process
    """

    def __init__(
        self,
        source: str,
        *arguments: str,
        output: Path,
        n: int = 0,
        restarts: int = 0,
        **environment: str,
    ) -> None:
        self.output = output
        variables = {"OMP_NUM_THREADS": "1", **environment}
        self.process = start(_enter, output, variables, (n, restarts), source, arguments)

    def wait(self, timeout: float = 300) -> int:
        """Its exit status; negative where a signal ended it."""
        self.process.join(timeout)
        assert self.process.exitcode is not None, f"no end after {timeout} s: {self.printed}"
        return self.process.exitcode

    @property
    def printed(self) -> str:
        return self.output.read_text("utf-8")


def _enter(
    output: Path,
    environment: dict[str, str],
    agent: tuple[int, int],
    source: str,
    arguments: tuple[str, ...],
) -> None:
    import torch

    with output.open("ab", buffering=0) as file:
        for stream in (1, 2):
            os.dup2(file.fileno(), stream)
    os.environ.update(environment)
    gc.freeze()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    if agent[0]:
        _agent(*agent, source, arguments)
    else:
        _run(source, arguments)


def _agent(n: int, restarts: int, source: str, arguments: tuple[str, ...]) -> None:
    """What `torchrun --standalone --nproc_per_node=n` does, its workers forked."""
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=n,
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",
        max_restarts=restarts,
        start_method="fork",
    )
    elastic_launch(config, _worker)(source, arguments)


def _worker(source: str, arguments: tuple[str, ...]) -> None:
    """Run the script as torchrun's workers do: a signal of the agent ends it at once."""
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)  # a fork inherits the agent's handlers
    signal.signal(signal.SIGINT, signal.default_int_handler)
    _run(source, arguments)


def _run(source: str, arguments: tuple[str, ...]) -> None:
    sys.argv = ["script", *arguments]
    if source.isidentifier() or "\n" not in source:
        runpy.run_module(source, run_name="__main__", alter_sys=True)
    else:
        exec(compile(source, "script", "exec"), {"__name__": "__main__"})
