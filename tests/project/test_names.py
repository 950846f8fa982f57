"""Names are nouns that say what a thing is."""

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import arith_lens

ROOT = Path(arith_lens.__file__).parents[1]
PARTICIPLES = {"asked", "told", "found", "given", "kept", "shown", "said", "there"}
"""Words that carry no type: of what is asked, or what was found, a name must say what it is."""
LEFT = {
    "arith_lens/answers/result.py": 1,
    "arith_lens/methods/certificate.py": 1,
    "experiments/approximations.py": 1,
    "experiments/parts.py": 1,
    "experiments/results.py": 1,
    "figures/claims/evidence.py": 1,
    "figures/predictions.py": 2,
    "figures/report.py": 1,
    "figures/tables/attention.py": 1,
}
"""How many such names a file has: fields and settings that stored runs have, and figures. These
numbers may only shrink."""


def defined_names(source: str) -> Iterator[str]:
    """The names that some code gives to variables, fields, arguments, functions and classes."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name) | ast.arg(arg=name):
                yield name
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield name


def test_no_name_is_a_participle_but_those_that_are_left() -> None:
    counts = {
        str(path.relative_to(ROOT)): n
        for package in ("arith_lens", "experiments", "figures", "laboratory")
        for path in (ROOT / package).rglob("*.py")
        if (n := sum(name.strip("_") in PARTICIPLES for name in defined_names(path.read_text())))
    }
    assert {file: n for file, n in counts.items() if n > LEFT.get(file, 0)} == {}


def test_a_participle_would_be_seen() -> None:
    source = "class A:\n    kept: int\ndef shown(said, *, file): found = self._told = file.given"
    names = Counter(name.strip("_") for name in defined_names(source))
    assert {*names} & PARTICIPLES == {"kept", "shown", "said", "found", "told"}


def test_each_class_of_settings_has_a_name_of_its_own() -> None:
    classes = Counter(
        node.name
        for package in ("experiments", "laboratory")
        for path in (ROOT / package).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef) and node.name.endswith(("Config", "Recipe"))
    )
    assert "Config" not in classes and max(classes.values()) == 1
