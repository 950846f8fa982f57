"""From a command's configuration to a saved run, its figure and its table, on a small scale."""

import csv
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from support.drawings import unpacked, written

import arith_lens as al
from arith_lens.operations import FOUR
from arith_lens.path_patching.engines import SweepEngine
from arith_lens.runs import find_runs
from experiments import are_they_needed, other_prompts, results
from experiments.benchmarks import what_else_breaks
from experiments.configs.shared import PooledSampleSettings
from experiments.next_tokens import first_tokens, right_share, what_comes_instead
from experiments.other_prompts import do_powers_use_them, do_word_problems_use_them
from experiments.parts import where_do_they_look
from experiments.settings import (
    Experiment,
    operation_maps,
    operation_pairs,
    pooled,
    pooled_map,
    pooled_samples,
)
from experiments.which_heads import main as which_heads
from figures import next_tokens
from figures.exhibit import MakesExhibits, options_of, show
from figures.knockout import fig3
from figures.options import Options, TableOptions
from figures.shared_heads import table3, table4
from figures.tables import word_problems
from figures.tables.answers import BEFORE, CHANGE, PLACE, RELATIVE_CHANGE
from figures.tables.next_tokens import EFFECT
from figures.tables.table import from_csv, records, select, value
from figures.tasks import transfer

UNCHANGED_ANSWERS = pytest.mark.filterwarnings(
    "ignore:expected counterfactuals that change the answer"
)
"""For most powers and word problems, the small model gives the same answer without the calculation.
The experiments warn of this, and the tables are made."""


@dataclass
class SharedStudy:
    """Experiments that share a root, and so a store; and every sweep that they make."""

    root: Path
    sweeps: Counter[tuple[str, ...]] = field(default_factory=Counter)


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedStudy]:
    study = SharedStudy(tmp_path_factory.mktemp("study"))
    sweep = SweepEngine.__call__

    def counting(self: SweepEngine, pairs: al.PromptPairs, foil: Any) -> torch.Tensor:
        tokens = pairs.reference.masked_fill(~pairs.attention_mask, -1).tolist()
        study.sweeps[str(tokens), *self.names] += 1
        return sweep(self, pairs, foil)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(SweepEngine, "__call__", counting)
        yield study


@pytest.fixture(scope="module")
def reference_model() -> al.HookedModel:
    return al.load_model("reference")


def rows(path: Path, key: str) -> dict[str, dict[str, str]]:
    """A table's rows by one of its columns."""
    with path.open(newline="") as file:
        return {row[key]: row for row in csv.DictReader(file)}


NEEDED_CONFIG = are_they_needed.KnockoutConfig(
    operations=("addition",), n=18, most=6, controls=2, candidates=4, masked=2
)


def test_figure_3_from_its_experiment(
    study: SharedStudy,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    reference_model: al.HookedModel,
) -> None:
    are_they_needed.main(NEEDED_CONFIG, root=study.root)
    report = capsys.readouterr().out
    assert "without 2 heads" in report and "heads): 100.0% to" in report
    assert "iterative masking chooses" in report and " 2 MLPs: 100.0% to" in report
    (run,) = find_runs("are_they_needed", root=study.root)
    curves = results.KNOCKOUT_CURVES.load(run, "addition")
    ks = (1, 2, 4, 6)
    controls = [[f"random {s}", *(f"matched {k} {s}" for k in ks)] for s in range(2)]
    mlps = ["MLPs", "MLPs random 0", "MLPs random 1"]
    heads = ["effect", "END", "resample", *controls[0], *controls[1], "iterative"]
    assert [*curves] == [*heads, *mlps]
    assert curves["resample"].ablation == "resample" and curves["effect"].ablation == "mean"
    means = results.MAP.load(run, "addition").mlps.mean()
    assert [mlp.layer for mlp in curves["MLPs"].order] == means.argsort().tolist()
    assert sorted(curves["MLPs random 1"].order) == sorted(curves["MLPs"].order)
    ((_, pairs),) = operation_pairs(reference_model, NEEDED_CONFIG)
    one = al.knock_out(reference_model, pairs, curves["MLPs"].order[:2])
    assert torch.equal(one.correct, curves["MLPs"].at(2).correct)
    effect = curves["effect"]
    assert effect.accuracy()[0] == 1.0
    assert effect.accuracy()[-1] < 0.5 < min(c.accuracy()[-1] for c in curves.starting("matched"))
    for k in ks:
        strongest, matched = effect.order[:k], curves.starting(f"matched {k} ")
        draws = results.controls_at(curves, k)
        assert (len(draws["random"]), len(draws["matched"])) == (2, 2) == (len(matched),) * 2
        for outcomes in draws["matched"]:
            heads = outcomes.components
            assert not {*strongest} & {*heads} and len({*heads}) == k
            assert [head.layer for head in heads] == [head.layer for head in strongest]
    show(fig3, Options(root=study.root, out=tmp_path, formats=()))
    table = from_csv(written(tmp_path, "fig3.csv").read_text())
    shown = select(table, operation="addition", order="effect", components="heads")
    right = select(shown, measure="accuracy")
    assert right.k.tolist() == [*effect.ks]
    assert right.value.tolist() == pytest.approx(effect.accuracy().tolist(), abs=1e-5)
    controls = select(table, order="random", components="heads", measure="accuracy", k=2)
    by_draw = [float(curves[f"random {s}"].at(2).accuracy()) for s in range(2)]
    (control,) = records(controls)
    assert (control.value, control.spread) == (
        pytest.approx(sum(by_draw) / 2, abs=1e-5),
        "range of 2 draws",
    )
    assert (control.low, control.high) == pytest.approx((min(by_draw), max(by_draw)), abs=1e-5)
    page = unpacked(written(tmp_path, "fig3.html").read_text())
    assert "strongest" in page and "random" in page


def test_a_saved_operation_is_not_computed_twice(study: SharedStudy) -> None:
    are_they_needed.main(NEEDED_CONFIG, root=study.root)
    (run,) = find_runs("are_they_needed", root=study.root)
    file = run.folder(results.KNOCKOUT_CURVES.name("addition")) / "result.safetensors"
    saved = file.stat().st_mtime_ns
    are_they_needed.main(NEEDED_CONFIG, root=study.root)
    assert file.stat().st_mtime_ns == saved


def test_figure_4_from_its_experiment(
    study: SharedStudy, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = what_comes_instead.config(prompts=5, n=18, heads=10)
    what_comes_instead(config, root=study.root)
    (run,) = find_runs("what_comes_instead", root=study.root)
    before, after = (right_share(run, "integers", when) for when in ("before", "after"))
    assert before > 0.8 > 0.5 > after
    show(next_tokens.fig4, Options(root=study.root, out=tmp_path, formats=()))
    table = from_csv(written(tmp_path, "fig4.csv").read_text())
    shares = select(table, kind="integers", measure="likeliest token is right")
    assert value(shares, when="before") == pytest.approx(before)
    assert value(shares, when="after") == pytest.approx(after)
    shown = select(table, kind="integers", measure="probability")
    assert shown["rank"].tolist() == 2 * [1, 2, 3, 4, 5]
    first = select(shown, when="before", rank=1)
    assert first.token.tolist() == first.answer.tolist()
    tokens = results.NEXT_TOKENS.load(run, "integers", "after")
    row = tokens.prompts.index(first.prompt.item())
    without = select(shown, when="after").value.tolist()
    assert without == pytest.approx(tokens.probabilities[row].tolist(), abs=1e-5)
    assert len(select(table, measure=EFFECT)) == 10
    assert "strongest heads out" in unpacked(written(tmp_path, "fig4.html").read_text())


def test_answers_begin_with_a_token_of_their_own(reference_model: al.HookedModel) -> None:
    tokenizer = reference_model.tokenizer
    questions = [("281 + 135 = ", "416"), ("4.2 plus 2.5 equals to ", "6.7")]
    found = first_tokens(reference_model, questions)
    assert tokenizer.convert_ids_to_tokens(found) == ["4", "6"]
    with pytest.raises(ValueError, match="to begin with a token of its own"):
        first_tokens(reference_model, [("281 + 135 = ", "")])


@UNCHANGED_ANSWERS
def test_table_3_from_its_experiment(
    study: SharedStudy,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    whole = al.sample_pairs

    def some(model: al.HookedModel, operation: str, **options: Any) -> al.PromptPairs:
        options["n"] = 18 if operation in FOUR else None
        return whole(model, operation, **options)

    monkeypatch.setattr(al, "sample_pairs", some)
    do_powers_use_them(do_powers_use_them.config(controls=1, draws=1), root=study.root)
    show(table3, TableOptions(root=study.root, out=tmp_path))
    printed = capsys.readouterr().out
    assert "{A} to the power" in printed
    table = from_csv(written(tmp_path, "table3.csv").read_text())
    assert select(table, measure="references").value.tolist() == [20, 20]
    matched = select(table, measure=RELATIVE_CHANGE, knocked_out="same layers")
    assert len(matched) == 2 and (matched.value <= 0).all()
    assert select(table, measure=BEFORE).value.tolist() == [1, 1]
    (run,) = find_runs("do_powers_use_them", root=study.root)
    maps = results.MAP.load(run, "exponentiation-0")
    key = al.key_heads(maps)
    heads = select(table, measure="effect", wording="{A} ^ {B} = ")
    assert heads.component.tolist() == [*map(str, key)]
    means = [float(maps.heads.mean()[head.layer, head.index]) for head in key]
    assert heads.value.tolist() == pytest.approx(means, rel=1e-5)
    assert (heads.low <= heads.value).all() and (heads.value <= heads.high).all()
    assert "<table" in written(tmp_path, "table3.html").read_text()


@UNCHANGED_ANSWERS
def test_table_4_from_its_experiment(
    study: SharedStudy,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    whole = other_prompts.world_pairs

    def some(model: al.HookedModel, *, seed: int) -> tuple:
        pairs, report = whole(model, "groups", split="validation", seed=seed)
        return pairs[:24], report

    monkeypatch.setattr(other_prompts, "world_pairs", some)
    config = do_word_problems_use_them.config(n=18, controls=1, heads=4, most=72)
    do_word_problems_use_them(config, root=study.root)
    printed = capsys.readouterr().out
    assert "answered with C too" in printed and " of 18 are answered right" in printed, "n of them"
    (run,) = find_runs("do_word_problems_use_them", root=study.root)
    looks = results.CLASS_ATTENTION.load(run, "generated")
    assert looks.mean().sum(-1).tolist() == pytest.approx([1.0] * len(looks.mean()), abs=1e-5)
    show(table4, TableOptions(root=study.root, out=tmp_path))
    table = from_csv(written(tmp_path, "table4.csv").read_text())
    places = select(table, measure=PLACE)
    heads = {
        name: {*select(places, knocked_out=title).component}
        for name, title in word_problems.SETS.items()
    }
    assert heads["overlap"] == heads["generated"] & heads["word_problems"]
    assert value(table, measure=BEFORE, prompts="generated prompts") == 1
    draws = {data: results.control_outcomes(run, data) for data in ("generated", "word_problems")}
    for data, kinds in draws.items():
        ours = {*map(str, kinds["matched"][0].components)}
        assert len(ours) == 4 and not ours & heads[data]
        of_draws = {"knocked_out": "same layers", "prompts": word_problems.PROMPTS[data]}
        assert value(table, measure=RELATIVE_CHANGE, **of_draws) <= 0
    described = from_csv(written(tmp_path, "table4_heads.csv").read_text())
    effects = select(described, measure="effect", prompts="word problems")
    assert len(effects) == len(looks.mean()) and effects.low.notna().all()
    weights = select(described, measure="attention from END", prompts="generated prompts")
    assert weights.value.tolist() == pytest.approx(looks.mean().flatten().tolist(), abs=1e-5)


def test_transfer_from_its_experiment(
    study: SharedStudy, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = what_else_breaks.config(n=18, controls=1, limit=3, control_limit=2)
    what_else_breaks(config, root=study.root)
    (run,) = find_runs("what_else_breaks", root=study.root)
    before = results.ANSWERS.load(run, "none")
    for kind, (same, (after,)) in results.control_answers(run).items():
        assert Counter(same.task) == {task: 2 for task in before.task}, kind
        assert same.expected == after.expected
        heads = results.ANSWERS.facts(run, f"{kind}-0")["heads"]
        strongest = results.ANSWERS.facts(run, "strongest")["heads"]
        assert len({*heads}) == len(strongest) == 10
        if kind == "matched":
            assert not {*heads} & {*strongest}
            layers = [[name.split(".")[0] for name in names] for names in (heads, strongest)]
            assert layers[0] == layers[1]
    show(transfer, TableOptions(root=study.root, out=tmp_path))
    table = from_csv(written(tmp_path, "transfer.csv").read_text())
    words, generic = records(select(table, measure=BEFORE, task="all"))
    assert (words.group, words.n) == ("word problems", 12)
    assert (generic.group, generic.n) == ("generic tasks", 15)
    assert 0.8 < generic.value <= generic.high <= 1
    changes = select(table, measure=CHANGE, task="all")
    assert {*select(changes, knocked_out="strongest").spread} == {"95% over questions"}
    assert {*select(changes, knocked_out="same layers").spread} == {"range of 1 draws"}
    (lost,) = records(select(changes, knocked_out="strongest", group="word problems"))
    assert -words.value - 1e-6 <= lost.low
    assert "MMLU" in capsys.readouterr().out


def test_a_study_sweeps_each_map_once(study: SharedStudy, reference_model: al.HookedModel) -> None:
    """Whichever experiment needs the map of an operation first computes it, for all."""
    before = dict(study.sweeps)
    experiments: list[Experiment[Any]] = [which_heads, where_do_they_look]
    for experiment in experiments:
        config = experiment.config(operations=("addition", "division"), n=18)
        experiment(config, root=study.root)
    assert {*study.sweeps.values()} == {1}
    new = [names for names in study.sweeps if names not in before]
    n_components = reference_model.n_layers * (reference_model.n_heads + 1)
    maps = [names for names in new if len(names) == 1 + n_components]
    assert len(maps) <= 2
    assert len(new) == len(maps)
    run = find_runs("which_heads", root=study.root)[0]
    again = al.open_run("other", {}, model=reference_model, root=study.root, again=True)
    pairs = al.sample_pairs(reference_model, "division", n=18)
    with again:
        al.path_patch(reference_model, pairs, run=again)
    assert max(study.sweeps.values()) == 2
    first = results.MAP.load(run, "division")
    second = again.load("division")
    assert first.heads.per_pair.equal(second.heads.per_pair)


def test_the_mean_over_operations_weighs_each_alike(
    study: SharedStudy, reference_model: al.HookedModel
) -> None:
    samples = pooled_samples(reference_model, PooledSampleSettings(n=18))
    pairs = pooled(samples)
    assert len({*(pairs.template or ())}) == 36
    with al.open_run("pooled", {}, model=reference_model, root=study.root) as run:
        effects = pooled_map(run, samples, operation_maps(run, reference_model, samples))
    together = effects.heads
    alone = [together.select(slice(start, start + 18)).mean() for start in range(0, len(pairs), 18)]
    expected = torch.stack(alone).mean(0)
    assert together.mean().flatten().tolist() == pytest.approx(
        expected.flatten().tolist(), abs=1e-6
    )
    directly = al.path_patch(reference_model, pairs, progress=False)
    torch.testing.assert_close(together.per_pair, directly.heads.per_pair, atol=1e-5, rtol=1e-3)
    assert together.template == pairs.template and together.cluster is not None
    n_clusters = len({*zip(together.template or (), together.cluster.tolist(), strict=True)})
    assert n_clusters == pairs.n_distinct


@pytest.mark.parametrize(
    "experiment",
    [are_they_needed.main, what_comes_instead, do_powers_use_them, what_else_breaks],
    ids=lambda experiment: experiment.name,
)
def test_a_dry_run_computes_nothing(
    experiment: Experiment[Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    experiment(experiment.config(), root=tmp_path, dry_run=True)
    assert capsys.readouterr().out.strip()
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize(
    "exhibits",
    [fig3, next_tokens.fig4, table3, table4, transfer],
)
def test_a_missing_run_is_named_with_its_cure(exhibits: MakesExhibits, tmp_path: Path) -> None:
    options = options_of(exhibits)
    with pytest.raises(SystemExit, match=r"Make one: python -m experiments \w+ --model reference"):
        show(exhibits, options(root=tmp_path, out=tmp_path))


def test_named_heads_are_knocked_out_first_and_means_are_chosen(tmp_path: Path) -> None:
    few = {"most": 2, "controls": 1, "candidates": 0, "mlps": False, "second_ablation": None}
    config = replace(NEEDED_CONFIG, heads=("1.2", "0.3"), means="all_tokens", **few)
    are_they_needed.main(config, root=tmp_path)
    (run,) = find_runs("are_they_needed", root=tmp_path)
    curves = results.KNOCKOUT_CURVES.load(run, "addition")
    assert [str(head) for head in curves["effect"].order[:2]] == ["1.2", "0.3"]
    (matched,) = curves.starting("matched 2 ")
    assert [head.layer for head in matched.order] == [1, 0] and matched.order[0] != al.Head(1, 2)
    assert {curve.means for curve in curves.values()} == {"all_tokens"}
