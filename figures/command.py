"""Start an exhibit from the command line."""

from collections.abc import Callable
from typing import Any

import tyro

from experiments.command import robust_output


def command(main: Callable[..., Any], name: str, about: str | None) -> None:
    """Read the command line and run `main`.

    Args:
        main: the function of the exhibit.
        name: the name of its module.
        about: the module's docstring.
    """
    with robust_output():
        tyro.cli(main, prog=f"python -m figures {name}", description=about)
