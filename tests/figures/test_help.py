"""The lists of commands lead from an experiment to its exhibit, and back."""

from pathlib import Path

from experiments.catalogue import DEFINITION, EXHIBIT, experiments
from experiments.command import commands
from figures import catalogue as figures
from figures.catalogue import exhibit_functions, exhibits_and_pages


def test_an_exhibit_names_its_experiment_and_an_experiment_its_exhibit() -> None:
    exhibits = exhibit_functions()
    experiment_by_exhibit = {name: one.other for name, one in exhibits.items() if one.other}
    assert exhibits.keys() == experiment_by_exhibit.keys()
    assert {*experiment_by_exhibit.values()} <= experiments().keys()
    exhibit_by_experiment = {name: one.other for name, one in experiments().items() if one.other}
    for experiment, exhibit in exhibit_by_experiment.items():
        assert exhibit in exhibits_and_pages()
        assert experiment_by_exhibit.get(exhibit, experiment) == experiment
    assert {*experiment_by_exhibit.values()} == {*exhibit_by_experiment} - {"whole_study"}


def test_an_experiment_has_its_own_docstring_and_exhibit_or_its_modules(tmp_path: Path) -> None:
    (tmp_path / "maps.py").write_text(
        '"""All maps."""\n\nmain = Experiment(Config, compute, figure="map")\n\n'
        'direct = Experiment(\n    Config,\n    _plan(),\n)\n"""The direct effects.\n\nMore."""\n'
        'total = Experiment(Config)\n"""`figures/ladder.py` draws it."""\n'
    )
    (tmp_path / "__main__.py").write_text("def main():\n    pass\n")
    found = commands(tmp_path, DEFINITION, EXHIBIT)
    assert {name: one.other for name, one in found.items()} == {
        "maps": "map",
        "direct": "",
        "total": "ladder",
    }
    assert [one.variable for one in found.values()] == ["main", "direct", "total"]
    assert found["maps"].sentence == "All maps. [figures map]"
    assert found["direct"].about == "The direct effects.\n\nMore."


def test_an_exhibit_names_its_experiment_in_its_docstring_or_in_its_modules(tmp_path: Path) -> None:
    (tmp_path / "maps.py").write_text(
        '"""All maps. Reads a run of `experiments/which_heads.py`."""\n\n'
        "def exhibits(options: Options) -> list[Chart]:\n    pass\n\n"
        'def fig0(options: Options) -> list[Table]:\n    """Reads `experiments which_paths`."""\n'
    )
    (tmp_path / "drawings.py").write_text(
        'def fig1(options: Options) -> list[Chart]:\n    """Reads a run of experiments."""\n'
    )
    found = commands(tmp_path, figures.DEFINITION, figures.EXPERIMENT)
    assert {name: one.other for name, one in found.items()} == {
        "maps": "which_heads",
        "fig0": "which_paths",
        "fig1": "",
    }
