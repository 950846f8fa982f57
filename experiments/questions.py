"""The questions of `questions.toml`, by key: what is computed, drawn, listed and explained."""

import tomllib
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any, Literal

FILE = Path(__file__).with_suffix(".toml")


@dataclass(frozen=True)
class ExhibitEntry:
    """One figure or table that answers a question."""

    name: str
    """Its command."""
    options: str | None = None
    """The variable of the Makefile that has its options; None without a generic target."""
    arguments: str = ""
    """More arguments of the experiment, in make."""
    help: str = ""
    """Its line in `make help`."""
    minutes: int | None = None
    """How long it takes on `reference` with two cores, roughly."""
    own_prompts: bool = False
    """Whether it applies to a file of prompts."""
    compares_models: bool = False
    """Whether it shows several models together."""
    gallery: Literal["each model", "once", "numbers", "linked"] = "each model"
    picture: str = ""
    """The exhibit in whose picture the gallery draws its numbers too."""
    shows: tuple[str, ...] = ()
    """The names of what the gallery's page shows, if it is not the exhibit of this name alone."""
    models: tuple[str, ...] = ()
    """The models of the gallery's page, if they are not the two reference models."""

    @property
    def target(self) -> str:
        """Its target of make."""
        return self.name.replace("_", "-")


@dataclass(frozen=True)
class Question:
    """A question, under one key."""

    key: str
    title: str
    exhibit: tuple[ExhibitEntry, ...]
    """The first one is what the key draws."""
    experiment: str = ""
    """Empty if its exhibits read no run, or runs of several experiments."""
    study: int = 0
    """The stage in which `whole_study` computes it, 1 or 2; 0 if it does not."""


@dataclass(frozen=True)
class SectionEntry:
    """Questions that belong together."""

    key: str
    title: str
    method: str
    """How they are answered."""
    question: tuple[Question, ...]


@cache
def sections() -> tuple[SectionEntry, ...]:
    """All questions, by section, in order."""
    with FILE.open("rb") as file:
        entries = tomllib.load(file)["section"]
    return tuple(_entry(SectionEntry, entry) for entry in entries)


def _entry(kind: type[Any], values: dict[str, Any]) -> Any:
    """An entry of the file. Raises TypeError for a field that the kind does not have."""
    inner = {"question": Question, "exhibit": ExhibitEntry}
    known = {field.name for field in fields(kind)}
    if unknown := values.keys() - known:
        raise TypeError(
            f"expected fields of {kind.__name__} among {sorted(known)}, found {sorted(unknown)} in "
            f"{values.get('key') or values.get('name')}; correct {FILE.name}"
        )
    return kind(
        **{
            name: tuple(_entry(inner[name], one) for one in value)
            if name in inner
            else tuple(value)
            if isinstance(value, list)
            else value
            for name, value in values.items()
        }
    )


def questions() -> dict[str, Question]:
    """All questions by key, in order."""
    return {one.key: one for section in sections() for one in section.question}


def exhibit_entries() -> dict[str, tuple[Question, ExhibitEntry]]:
    """Each exhibit with its question, by the exhibit's command, in order."""
    return {entry.name: (one, entry) for one in questions().values() for entry in one.exhibit}


def study() -> list[str]:
    """The experiments that `whole_study` computes, in order."""
    marked = [one for one in questions().values() if one.study]
    return [one.experiment for one in sorted(marked, key=lambda one: one.study)]
