"""The import strings of `questions.toml` lead to what they name, and commands to each other."""

from dataclasses import fields
from inspect import signature
from typing import Any, get_type_hints

import pytest

from experiments.catalogue import exhibits, exhibits_and_pages, experiments, imported
from experiments.questions import command_entries
from experiments.settings import Experiment
from laboratory.__main__ import COMMANDS as LABORATORY


@pytest.mark.parametrize("name", experiments())
def test_an_experiment_takes_the_settings_and_options_of_its_entry(name: str) -> None:
    command = experiments()[name]
    main, (settings, options) = command.load(), map(imported, command.takes)
    taken = {field.name for field in fields(options)}
    if isinstance(main, Experiment):
        assert (main.name, main.config) == (name, settings)
        assert main.figure == command.other
        assert taken == {*signature(main).parameters} - {"config"}
    else:
        first, *others = signature(main).parameters
        assert get_type_hints(main)[first] is settings
        assert taken == {*others}
    assert command.about.partition("\n")[0].endswith((".", "?", ")"))


@pytest.mark.parametrize("name", exhibits_and_pages())
def test_an_exhibit_takes_the_options_of_its_entry(name: str) -> None:
    command = exhibits_and_pages()[name]
    options: Any = imported(command.takes[0])
    assert get_type_hints(command.load())["options"] is options
    assert ("settings" in {field.name for field in fields(options)}) == bool(command.other)


def test_an_exhibit_names_its_experiment_and_an_experiment_its_first_exhibit() -> None:
    experiment_by_exhibit = {name: one.other for name, one in exhibits().items()}
    assert {*experiment_by_exhibit.values()} <= experiments().keys()
    for name, command in experiments().items():
        if command.other and name != "whole_study":
            assert experiment_by_exhibit[command.other] == name
    assert "[figures fig2]" in experiments()["which_heads"].sentence
    assert "[experiments which_heads]" in exhibits()["fig15"].sentence


@pytest.mark.parametrize("name", LABORATORY)
def test_a_command_of_the_laboratory_is_a_function_of_its_name(name: str) -> None:
    assert LABORATORY[name].load().__name__ == name


def test_a_wrong_import_string_would_be_seen() -> None:
    with pytest.raises(AttributeError):
        imported("figures.map_figures:fig3")
    assert "which_heads" not in command_entries("tool")
