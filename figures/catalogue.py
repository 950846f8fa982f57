"""The list of exhibits and pages, which reads their files and imports none of them."""

import re
from dataclasses import replace
from functools import cache
from pathlib import Path

from experiments.command import Command, commands

FOLDER = Path(__file__).parent
DEFINITION = re.compile(
    r"^(?:def (main)\(|from \S+ import (main)\b"
    r"|def ([a-z]\w*)\([^)]*\) -> list\[(?:Chart|Table|Interactive|Exhibit)\]:)",
    re.MULTILINE,
)
"""A page, or a public function that makes exhibits."""
EXPERIMENT = re.compile(r"`experiments[/ ](\w+)")
"""How an exhibit names its experiment."""


def _order(name: str) -> tuple[str, int]:
    """Figure 12 comes after Figure 2."""
    letters = name.rstrip("0123456789")
    return letters, int(name[len(letters) :] or 0)


@cache
def exhibits_and_pages() -> dict[str, Command]:
    """Every command by name; that of a page is a function `main`."""
    by_name = commands(FOLDER, DEFINITION, EXPERIMENT)
    return {name: by_name[name] for name in sorted(by_name, key=_order)}


def exhibit_functions() -> dict[str, Command]:
    """The functions that make exhibits, by their command."""
    return {name: one for name, one in exhibits_and_pages().items() if one.variable != "main"}


def table_functions() -> dict[str, Command]:
    """What `python -m figures table` prints: the exhibits, and the list of the paper's claims."""
    claims = exhibits_and_pages()["claims"]
    module = f"{claims.module.rpartition('.')[0]}.checking"
    return exhibit_functions() | {"claims": replace(claims, module=module, variable="exhibits")}
