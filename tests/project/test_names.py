"""Names are nouns that say what a thing is."""

import ast
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import arith_lens

ROOT = Path(arith_lens.__file__).parents[1]
PARTICIPLES = {"asked", "told", "found", "given", "kept", "shown", "said", "there"}
"""Words that carry no type: of what is asked, or what was found, a name must say what it is."""
LEFT = {"arith_lens": 2, "experiments": 3, "figures": 16, "laboratory": 0}
"""How many such names a package has: fields and settings that stored runs have, and figures. These
numbers may only shrink."""

RENAMED = {
    "Beginning", "CONTINUED", "Carriers", "Chosen", "Drawn", "FUSED", "Goal", "Lacking", "Live",
    "Measured", "Place", "Reading", "Room", "Sparing", "TreeWalk", "asked", "baskets",
    "conveyed", "frees", "hand_on", "home_of", "is_lost", "misfit_of", "noted", "of_each", 
    "one_voice", "own_tokens", "parts_said", "plainly", "said_plainly", "sealed", "second_runs",
    "sent", "stand_ins", "unsealed", "work_alone",
}  # fmt: skip
"""Earlier names. Each has a noun in its place that says what it is."""
RENAMED_IN_FIGURES = {"look"}
"""The words of an exhibit are its caption."""
PICTURES = {"drawn_for", "drawn_on", "drawn_exhibits"}
"""What is drawn is a picture; problems, pairs and heads are sampled."""


def defined_names(source: str) -> Iterator[str]:
    """The names that some code gives to variables, fields, arguments, functions and classes."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name) | ast.arg(arg=name):
                yield name
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield name


def test_no_name_is_a_participle_but_those_that_are_left() -> None:
    for package, limit in LEFT.items():
        names = names_of(package)
        participles = [f"{file}: {name}" for file, name in names if name.strip("_") in PARTICIPLES]
        assert len(participles) <= limit, participles


def test_a_participle_would_be_seen() -> None:
    source = "class A:\n    kept: int\ndef shown(said, *, file): found = self._told = file.given"
    names = Counter(name.strip("_") for name in defined_names(source))
    assert {*names} & PARTICIPLES == {"kept", "shown", "said", "found", "told"}


@cache
def names_of(package: str) -> list[tuple[str, str]]:
    """The file and the name of each definition of a package."""
    return [
        (str(path.relative_to(ROOT)), name)
        for path in sorted((ROOT / package).rglob("*.py"))
        for name in defined_names(path.read_text(encoding="utf-8"))
    ]


def test_no_earlier_name_is_back() -> None:
    for package in LEFT:
        earlier = RENAMED | (RENAMED_IN_FIGURES if package == "figures" else set())
        names = names_of(package)
        back = [f"{file}: {name}" for file, name in names if name.strip("_") in earlier]
        assert not back, back
        drawn = {name.strip("_") for _, name in names if name.strip("_").startswith("drawn_")}
        assert drawn <= PICTURES, f"{drawn - PICTURES}: what is sampled is called sampled_…"


def test_an_earlier_name_would_be_seen() -> None:
    names = {name.strip("_") for name in defined_names("def _of_each(sent): drawn_pairs = sent")}
    assert names & RENAMED == {"of_each", "sent"} and "drawn_pairs" in names - PICTURES


def test_each_class_of_settings_has_a_name_of_its_own() -> None:
    classes = Counter(
        node.name
        for package in ("experiments", "laboratory")
        for path in (ROOT / package).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef) and node.name.endswith(("Config", "Recipe"))
    )
    assert "Config" not in classes and max(classes.values()) == 1
