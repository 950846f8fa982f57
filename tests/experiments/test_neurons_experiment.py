"""What one neuron does, from the command's configuration to rows and cells."""

from pathlib import Path
from typing import Any

import pytest
import torch

import arith_lens as al
from arith_lens.runs import find_runs
from experiments import results
from experiments.neurons import TRAINED, NeuronConfig, largest_classes, main, ranked
from figures.exhibit import show
from figures.neurons import neurons
from figures.options import Options
from figures.tables import neurons as numbers
from figures.tables.table import from_csv, select


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Any:
    root = tmp_path_factory.mktemp("results")
    config = NeuronConfig(values=8, untrained=1, permutations=4, classes=2, draws=3, drawn=8)
    main(config, root=root)
    (run,) = find_runs("neurons", root=root)
    return run


def test_rows_are_what_the_results_say(run: Any, tmp_path: Path) -> None:
    show(neurons, Options(run=run.path, out=tmp_path, formats=()))
    (path,) = tmp_path.glob("*.csv")
    table: Any = from_csv(path.read_text(encoding="utf-8"))
    matches = results.HEURISTIC_MATCHES.load(run, TRAINED)
    share = select(table, measure=numbers.FOLLOW, family="range of C")["value"].iloc[0]
    row = matches.families.index("range of C")
    assert share == pytest.approx(float(matches.implements()[row].float().mean()), abs=1e-5)
    faithful: Any = select(table, measure=numbers.FAITHFUL)
    ends = faithful.groupby("ranking")["value"].agg(["first", "last"])
    assert (ends["first"] == 0).all() and (ends["last"] == 1).all()
    assert set(select(table, measure=numbers.PASS)["neurons"]) == {"trained", "untrained", "noise"}
    overlap = select(table, measure=numbers.OVERLAP)["value"].iloc[0]
    assert 0 <= overlap <= 1


def test_the_order_begins_with_the_neuron_that_helps_most(run: Any) -> None:
    effects = results.NEURON_EFFECTS.load(run, "addition", "via_mlps")
    order = ranked(effects)
    assert len({*order}) == effects.mean().numel()
    assert effects[order[0]].mean() == effects.mean().min()


def test_a_class_has_the_neurons_of_one_rule() -> None:
    families, width = ("range of A", "range of B"), 6
    auc = torch.full((2, width), 0.5)
    auc[0, :3] = 0.9
    nothing = torch.zeros(2, width)
    matches = al.HeuristicMatches(
        mlps=(al.Mlp(0),),
        families=families,
        auc=auc,
        rules=(("A from 1 to 2", "A from 3 to 4"), ("B from 1 to 2",)),
        best=torch.tensor([[0, 0, 1, 0, 0, 0], [0] * 6]),
        held_out=(True, True),
        null=nothing + 0.6,
        p=torch.where(auc > 0.6, 1e-4, 1.0),
        untrained=torch.tensor([0.6, 0.6]),
    )
    assert largest_classes(matches, 5) == {"A from 1 to 2": [al.Neuron(0, 0), al.Neuron(0, 1)]}
