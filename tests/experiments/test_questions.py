"""Every question has one key, and the list of questions fits the commands."""

from typing import Any

import pytest

from experiments import catalogue
from experiments import questions as listed
from experiments.__main__ import main
from experiments.catalogue import experiments
from experiments.questions import exhibit_entries, questions, study
from experiments.study import OF_COMPUTED_PROBLEMS, STUDY


def test_the_questions_are_those_of_the_commands() -> None:
    assert exhibit_entries().keys() == catalogue.exhibits().keys()
    for question, entry in exhibit_entries().values():
        assert question.title.endswith("?") and question.exhibit
        own = catalogue.exhibits()[entry.name].other
        assert question.experiment in (own, ""), entry.name
        assert entry.help, entry.name
    assert {one.experiment for one in questions().values()} - {""} <= experiments().keys()


def test_keys_are_not_names_of_other_things() -> None:
    for key, question in questions().items():
        own = {entry.name for entry in question.exhibit}
        assert key in own or key not in {*exhibit_entries(), *experiments()}, key


def test_the_study_is_what_the_questions_mark() -> None:
    assert [one.name for one in STUDY] == study() and len(study()) == len({*study()})
    assert {*OF_COMPUTED_PROBLEMS} <= {*study()}


def test_a_question_can_be_asked_by_its_key(capsys: Any) -> None:
    with pytest.raises(SystemExit) as end:
        main(["knockout", "--help"])
    assert end.value.code in (0, None) and "--controls" in capsys.readouterr().out


def test_a_misspelt_field_of_the_list_is_an_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    file = tmp_path / "questions.toml"
    file.write_text(listed.FILE.read_text().replace("minutes = 3", "minuts = 3"))
    monkeypatch.setattr(listed, "FILE", file)
    monkeypatch.setattr(listed, "_file", listed._file.__wrapped__)
    with pytest.raises(TypeError, match=r"found \['minuts'\] in explorer"):
        listed.sections.__wrapped__()
