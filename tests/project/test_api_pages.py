"""Every public name says what it is, and has its place on the API pages."""

import inspect
import re
from operator import attrgetter
from pathlib import Path

import pytest

import arith_lens as al

NAMES = [name for name in al._NAMES if not inspect.ismodule(getattr(al, name))]


@pytest.mark.parametrize("name", NAMES)
def test_public_names_have_docstrings_of_their_own(name: str) -> None:
    thing = getattr(al, name)
    said = inspect.getdoc(thing) or ""
    assert said and not said.startswith(f"{name}("), "a dataclass's made-up docstring is none"
    members = vars(thing).items() if inspect.isclass(thing) else ()
    silent = [
        member
        for member, value in members
        if not member.startswith("_")
        and (inspect.isfunction(value) or isinstance(value, property))
        and not inspect.getdoc(getattr(thing, member))
    ]
    assert silent == []


def names_by_task() -> dict[str, list[str]]:
    """The names in each section of docs/api.md."""
    text = (Path(__file__).parents[2] / "docs" / "api.md").read_text("utf-8")
    _, *sections = text.split("\n## ")
    return {
        section.partition("\n")[0]: [
            name
            for row in re.findall(r"^\| .* \| (`.*`) \|$", section, re.MULTILINE)
            for name in re.findall(r"`([\w.]+)`", row)
        ]
        for section in sections
    }


def test_every_public_name_has_exactly_one_task() -> None:
    tasks = names_by_task()
    for other in ("Which one to take", "Activations"):
        del tasks[other]
    listed = [name for names in tasks.values() for name in names]
    assert sorted(name.rpartition(".")[2] for name in listed) == sorted(NAMES)
    assert {name for name in listed if "." not in name} == {*al.__all__}
    for name in listed:
        assert attrgetter(name)(al) is getattr(al, name.rpartition(".")[2])
    assert all(tasks.values()) and len(tasks) == 12


def test_a_public_name_that_is_spelled_wrong_gets_the_nearest_one() -> None:
    with pytest.raises(AttributeError, match="no attribute 'path_pach'; did you mean 'path_patch'"):
        getattr(al, "path_pach")  # noqa: B009
    with pytest.raises(AttributeError, match="no attribute 'zzzzzz'; docs/api"):
        getattr(al, "zzzzzz")  # noqa: B009
    assert not hasattr(al, "path_pach") and hasattr(al, "path_patch")
