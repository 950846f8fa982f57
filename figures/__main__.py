"""Draw one exhibit: `python -m figures <exhibit> [options]`."""

import re
from collections.abc import Callable
from inspect import cleandoc
from pathlib import Path
from typing import Any

import tyro

from experiments.command import (
    commands,
    experiment_of,
    imported,
    named_command,
    robust_output,
)
from figures.exhibit import command_for

FOLDER = Path(__file__).parent
MAKES_EXHIBITS = re.compile(
    r"^def ([a-z]\w*)\([^)]*\) -> list\[(?:Chart|Table|Interactive|Exhibit)\]:", re.MULTILINE
)
"""A public function that makes exhibits."""


def _order(name: str) -> tuple[str, int]:
    """Figure 12 comes after Figure 2."""
    letters = name.rstrip("0123456789")
    return letters, int(name[len(letters) :] or 0)


def exhibit_functions() -> dict[str, tuple[str, str, str]]:
    """The functions that make exhibits: module, name and first sentence, by their command.

    The command of `exhibits` is its module's name. Another function is a command of its own. The
    experiment whose run it shows follows the sentence in brackets.
    """
    functions: dict[str, tuple[str, str, str]] = {}
    for file in FOLDER.glob("*.py"):
        source = file.read_text(encoding="utf-8")
        for part in MAKES_EXHIBITS.finditer(source):
            of_module = part[1] == "exhibits"
            of_source, of_part = map(_docstring, (source, source[part.end() :]))
            sentence = (of_source if of_module else of_part).partition("\n")[0]
            if experiment := experiment_of(of_part) or experiment_of(of_source):
                sentence += f" [experiments {experiment}]"
            functions[file.stem if of_module else part[1]] = file.stem, part[1], sentence
    return functions


def _docstring(source: str) -> str:
    """The first docstring in some code."""
    return source.partition('"""')[2].partition('"""')[0]


def main() -> None:
    """Start the exhibit that the first argument names."""
    functions, pages = exhibit_functions(), commands(FOLDER)
    by_name = pages | {name: sentence for name, (_, _, sentence) in functions.items()}
    sentences = {name: by_name[name] for name in sorted(by_name, key=_order)}
    usage = (
        "python -m figures <exhibit> [options]; each has --help\n"
        "In brackets: the experiment whose run it shows."
    )
    if (name := named_command(sentences, "an exhibit", usage)) is None:
        return
    if name not in functions:
        module = imported(FOLDER, name)
        command(module.main, name, module.__doc__)
        return
    file, function, _ = functions[name]
    module = imported(FOLDER, file)
    exhibits = getattr(module, function)
    about = module.__doc__ if function == "exhibits" else cleandoc(exhibits.__doc__ or "")
    command(command_for(exhibits), name, (about or "").partition("\n\nRaises:")[0])


def command(main: Callable[..., Any], name: str, about: str | None) -> None:
    """Read the command line and run the function of an exhibit."""
    with robust_output():
        tyro.cli(main, prog=f"python -m figures {name}", description=about)


if __name__ == "__main__":
    main()
