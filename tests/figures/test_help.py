"""The lists of commands lead from an experiment to its exhibit, and back."""

import re

from experiments.command import commands, exhibit_of, experiment_of
from figures.__main__ import FOLDER, exhibit_functions

WITHOUT_ONE_EXPERIMENT = {"fig1", "fig11", "predictions"}
"""Exhibits that show no run, or runs of several experiments."""


def test_an_exhibit_names_its_experiment_and_an_experiment_its_exhibit() -> None:
    experiments = commands(FOLDER.parent / "experiments")
    exhibits = {name: sentence for name, (_, _, sentence) in exhibit_functions().items()}
    experiment_by_exhibit = {
        name: match[1]
        for name, sentence in exhibits.items()
        if (match := re.search(r" \[experiments (\w+)\]$", sentence))
    }
    assert exhibits.keys() - experiment_by_exhibit.keys() == WITHOUT_ONE_EXPERIMENT
    assert {*experiment_by_exhibit.values()} <= experiments.keys()
    exhibit_by_experiment = {
        name: match[1]
        for name, sentence in experiments.items()
        if (match := re.search(r" \[figures (\w+)\]$", sentence))
    }
    pages = commands(FOLDER)
    for experiment, exhibit in exhibit_by_experiment.items():
        assert exhibit in exhibits or exhibit in pages
        assert experiment_by_exhibit.get(exhibit, experiment) == experiment
    assert {*experiment_by_exhibit.values()} == {*exhibit_by_experiment} - {
        *("whole_study", "are_they_specific", "which_word_problems")
    }


def test_a_text_without_a_name_gives_none() -> None:
    assert exhibit_of('main = Experiment(Config, compute, _plan, figure="ladder")') == "ladder"
    assert exhibit_of("main = Experiment(Config, compute, _plan)") == ""
    assert experiment_of("Reads a run of `experiments/which_heads.py`.") == "which_heads"
    assert experiment_of("Reads a run of experiments.") == ""
