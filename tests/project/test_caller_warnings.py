"""Warnings point to the caller's line."""

import ast
from inspect import unwrap
from pathlib import Path
from typing import Any

import pytest

import arith_lens
from arith_lens.caller_warnings import warn_caller

PACKAGE = Path(arith_lens.__file__).parent


@pytest.mark.parametrize("depth", [0, 1, 3])
def test_a_warning_points_to_the_line_that_called_the_package(depth: int) -> None:
    inside: dict[str, Any] = {"__name__": "arith_lens.fake", "warn_caller": unwrap(warn_caller)}
    exec(compile(SOURCE, "inside.py", "exec"), inside)
    with pytest.warns(UserWarning, match="found something") as caught:
        inside["method"](depth)
    assert caught[0].filename == __file__
    line = Path(__file__).read_text(encoding="utf-8").splitlines()[caught[0].lineno - 1]
    assert line.strip() == 'inside["method"](depth)'


SOURCE = """
import torch

@torch.no_grad()
def method(depth):
    if depth:
        return method(depth - 1)
    warn_caller("expected nothing, found something; do nothing")
"""


def test_every_warning_of_the_package_is_given_so() -> None:
    calls = [
        path.name
        for path in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("warnings.warn", "warn")
    ]
    assert calls == ["caller_warnings.py"]
