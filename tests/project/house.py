"""Counts of the whole project, as one table: `python tests/project/house.py`.

A change that makes the project lighter shows it here: the table before, and the table after.
"""

import ast
import hashlib
import re
import subprocess
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[2]
FRAME = {"exhibit", "common", "collection", "report", "gallery", "catalogue", "explorer"}
"""Modules of `figures` that serve all exhibits, beside the verdicts and findings on them."""
NO_EXHIBIT = FRAME | {"__main__", "__init__", "verdicts", "drawings", "findings"}
TEXTS = ("str", "list[str]", "Iterator[str]", "tuple[str, ...]", "Sequence[str]", "str | None")
RETURN_TEXTS = {*TEXTS, "dict[str, str]", "Mapping[str, str]"}
PINNED_WORDS = 5
"""A text of an assertion with so many words is a sentence."""


def tracked(pattern: str = "") -> list[Path]:
    """The files of the repository that are there, of this pattern of git's."""
    command = ["git", "ls-files", *([pattern] * bool(pattern))]
    names = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [path for name in names.splitlines() if (path := ROOT / name).is_file()]


def text_of(path: Path) -> str:
    """The text of a file."""
    return path.read_text(encoding="utf-8")


def lines(paths: list[Path]) -> int:
    """The lines of some files."""
    return sum(text_of(path).count("\n") for path in paths)


def functions(paths: list[Path]) -> list[ast.FunctionDef]:
    """The functions that some modules define, without methods and inner functions."""
    bodies = [ast.parse(text_of(path)).body for path in paths]
    return [one for body in bodies for one in body if isinstance(one, ast.FunctionDef)]


def pinned_sentences(paths: list[Path]) -> int:
    """The sentences that assertions of some tests have word for word."""
    asserts = [
        node
        for path in paths
        for node in ast.walk(ast.parse(text_of(path)))
        if isinstance(node, ast.Assert)
    ]
    texts = [one.value for a in asserts for one in ast.walk(a) if isinstance(one, ast.Constant)]
    return sum(isinstance(text, str) and len(text.split()) >= PINNED_WORDS for text in texts)


def identical(paths: list[Path]) -> int:
    """The groups of files with the same bytes."""
    copies = Counter(hashlib.sha256(path.read_bytes()).hexdigest() for path in paths)
    return sum(count > 1 for count in copies.values())


def counts() -> dict[str, int]:
    """The counts by name."""
    import arith_lens

    python = [path for path in tracked("*.py") if path.relative_to(ROOT).parts[0] != "tests"]
    exhibits = [one for one in (ROOT / "figures").glob("*.py") if one.stem not in NO_EXHIBIT]
    tests = [one for name in ("figures", "experiments") for one in tracked(f"tests/{name}/*.py")]
    makefile = text_of(ROOT / "Makefile")
    return {
        "lines of Python outside tests": lines(python),
        "tracked files": len(tracked()),
        "functions in figures that return sentences": sum(
            one.returns is not None and ast.unparse(one.returns) in RETURN_TEXTS
            for one in functions(exhibits)
        ),
        "lines of exhibit modules (figures/*.py without its frame)": lines(exhibits),
        "lines of figures/*.py": lines([*(ROOT / "figures").glob("*.py")]),
        "groups of identical shipped CSVs": identical(tracked("figures/gallery/*.csv")),
        "exec in code": sum(
            isinstance(node, ast.Call) and ast.unparse(node.func) == "exec"
            for path in python
            for node in ast.walk(ast.parse(text_of(path)))
        ),
        "awk in the Makefile": len(re.findall(r"\bawk\b", makefile)),
        "lines of the Makefile": makefile.count("\n"),
        "names at the root": len(arith_lens.__all__),
        "pinned sentences in tests/figures and tests/experiments": pinned_sentences(tests),
        "words in docs": sum(len(text_of(path).split()) for path in tracked("docs/*.md")),
        "public functions with an example": sum(
            not one.name.startswith("_") and ">>>" in (ast.get_docstring(one) or "")
            for one in functions(tracked("arith_lens/*.py"))
        ),
    }


if __name__ == "__main__":
    for name, count in counts().items():
        print(f"{count:8,}  {name}")
