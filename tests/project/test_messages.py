"""Errors and warnings of the library say what was expected, what was found, and what to do."""

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

import arith_lens

PACKAGE = Path(arith_lens.__file__).parent
DEFINITIONS = (ast.FunctionDef, ast.ClassDef)
WARNINGS = ("warn_caller", "warnings.warn")
OTHER_FORMS = {
    "IndexError(index)": "what ends a loop over a sequence",
    "PartDone": "no error: the part of one process is complete",
    "RunError(str(error))": "the message of another error, in another class",
    "ValueError(f'{path}: {error}')": "the message of another error, with the file's path",
    "ValueError(f'{where}: {error}')": "the message of another error, with its line",
    "ValueError(message)": "the message of another error, with the lines of all such rows",
    "RuntimeError": "in the process that draws; `save_pictures` makes a sentence of it",
    "UnsupportedTrunk": "the end of a sentence, which `trunk_of` completes",
    "warnings.warn(message": "the callers of `warn_caller` give the message",
}
"""Errors without these words, by how they begin, and why."""


def texts(node: ast.AST) -> Iterator[str]:
    """The texts of some code, without docstrings."""
    statements = {id(part.value) for part in ast.walk(node) if isinstance(part, ast.Expr)}
    for part in ast.walk(node):
        if isinstance(part, ast.Constant) and id(part) not in statements:
            yield str(part.value)


def message(node: ast.AST, values: Mapping[str, list[ast.AST]], depth: int = 3) -> str:
    """The texts of some code, and of the functions and classes of its module that it calls.

    Args:
        node: makes an error, or warns; where it has no sentence, its variables are followed.
        values: what the names of variables, functions and classes stand for.
        depth: how often.
    """
    calls = [part for part in ast.walk(node) if isinstance(part, ast.Call)]
    parts = [*texts(node)]
    names = {ast.unparse(call.func).removeprefix("self.") for call in calls}
    if not any(" " in part for part in parts):
        names |= {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
    for value in [value for name in names if depth for value in values.get(name, [])]:
        parts.append(message(value, values, depth - 1))
    return " ".join(parts)


def vague_messages(source: str) -> list[str]:
    """The errors and warnings of a module that lack "expected" or "found", as code."""
    module = ast.parse(source)
    definitions = [node for node in ast.walk(module) if isinstance(node, DEFINITIONS)]
    vague = []
    for function in definitions:
        values: dict[str, list[ast.AST]] = {node.name: [node] for node in definitions}
        values.pop(function.name)
        nodes = [*ast.walk(function)]
        for node in nodes:
            if isinstance(node, ast.Assign):
                for target in node.targets:
                    values.setdefault(ast.unparse(target), []).append(node.value)
        for node in nodes:
            call = node.exc if isinstance(node, ast.Raise) else node
            if not isinstance(call, ast.Call):
                continue
            if isinstance(node, ast.Raise) or ast.unparse(call.func) in WARNINGS:
                _, _, after = message(call, values).partition("expected ")
                if "found" not in after:
                    vague.append(ast.unparse(call))
    return vague


def test_a_message_says_what_was_expected_and_what_was_found() -> None:
    vague = {
        f"{path.relative_to(PACKAGE)}: {code}": code
        for path in PACKAGE.rglob("*.py")
        for code in vague_messages(path.read_text(encoding="utf-8"))
    }
    forms = tuple(OTHER_FORMS)
    assert [place for place, code in vague.items() if not code.startswith(forms)] == []
    assert not [form for form in forms if not any(code.startswith(form) for code in vague.values())]


@pytest.mark.parametrize(
    "source, is_vague",
    [
        ('def f():\n    raise ValueError("no such file")', True),
        ('def f():\n    raise ValueError(f"expected a file, found {1}; give one")', False),
        ('def f():\n    raise ValueError("found no file, which was expected ")', True),
        ('def f():\n    why = "expected a file"\n    raise ValueError(why)', True),
        ('def f():\n    raise ValueError(g())\ndef g():\n    return "expected 1, found 2"', False),
        ('def f():\n    warn_caller("slow")', True),
        ('def f():\n    raise g()\ndef g():\n    """expected 1, found 2"""\n    return E()', True),
    ],
)
def test_a_vague_message_would_be_seen(source: str, is_vague: bool) -> None:
    assert bool(vague_messages(source)) == is_vague
