"""Runs come back bit for bit, say where they come from, and refuse what they did not write."""

import dataclasses
import hashlib
import json
import platform
import shutil
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from support.fresh import FreshPython

from arith_lens.arrays import Arrays, joined_arrays
from arith_lens.effects import ComponentEffects, Effects
from arith_lens.runs import Run, RunError, find_runs, load_run, open_run
from arith_lens.statistics import Units


@dataclasses.dataclass(frozen=True)
class Config:
    model: str = "toy"
    operations: tuple[str, ...] = ("addition",)
    n: int | None = None
    pairs: Path | None = None


class MadePairs:
    """The least that a run asks of pairs."""

    reference = torch.arange(24).reshape(6, 4)
    counterfactual = reference + 1
    answer = torch.arange(6)
    counterfactual_answer = torch.full((6,), -1)
    attention_mask = torch.ones(6, 4, dtype=torch.bool)
    computed = torch.tensor([True, False, True, True, False, True])
    reference_text = ("2 + 3 = ",) * 6
    n_distinct = 3
    counterparts = None
    selection = None
    units = Units(template=None, cluster=None, problem=None)

    def to_jsonl(self, path: str | Path) -> None:
        Path(path).write_text('{"reference": "2 + 3 = "}\n')


@pytest.fixture
def effects() -> ComponentEffects:
    generator = torch.Generator().manual_seed(0)
    shared = {
        "metric": "relative_logit",
        "paths": "via_mlps",
        "template": ("addition/0", "addition/0", "addition/2") * 2,
        "cluster": torch.tensor([0, 0, 1, 1, 2, 2]),
    }
    heads = torch.randn(3, 2, 6, generator=generator) / 10
    heads[1, 1, 2] = torch.nan
    return ComponentEffects(
        heads=Effects(heads, axes=("layer", "head"), **shared),
        mlps=Effects(torch.randn(3, 6, generator=generator), axes=("layer",), **shared),
        logit=torch.rand(6, generator=generator) + 5,
        n_left_out=1,
        computation={"engine": "sweep", "shard": 64},
    )


@pytest.fixture
def run(tmp_path: Path, effects: ComponentEffects) -> Run:
    with open_run("which_heads", Config(), root=tmp_path) as run:
        run.save("addition", effects, pairs=MadePairs(), kept_share=0.9)
    return run


def test_effects_come_back_bit_for_bit(run: Run, effects: ComponentEffects) -> None:
    again = load_run(run.path).load("addition")
    for part in ("heads", "mlps"):
        ours, theirs = getattr(effects, part), getattr(again, part)
        assert torch.equal(ours.per_pair.nan_to_num(9), theirs.per_pair.nan_to_num(9))
        assert torch.equal(ours.per_pair.isnan(), theirs.per_pair.isnan())
        assert torch.equal(ours.cluster, theirs.cluster)
        for name in ("axes", "metric", "paths", "template"):
            assert getattr(ours, name) == getattr(theirs, name)
    assert torch.equal(again.logit, effects.logit)
    assert (again.n_left_out, again.computation) == (1, effects.computation)


def test_effects_without_templates_and_clusters_come_back_without(
    tmp_path: Path, effects: ComponentEffects
) -> None:
    heads = dataclasses.replace(effects.heads, template=None, cluster=None)
    with open_run("bare", {}, root=tmp_path) as run:
        run.save("tokens", dataclasses.replace(effects, heads=heads))
    assert run.load("tokens").heads.template is None
    assert run.load("tokens").heads.cluster is None
    assert run.computed("tokens") is None


def test_a_run_says_what_it_is_and_where_it_comes_from(run: Run) -> None:
    manifest = json.loads((run.path / "run.json").read_text())
    assert manifest["config"] == {
        "model": "toy",
        "operations": ["addition"],
        "n": None,
        "pairs": None,
    }
    assert manifest["status"] == "finished"
    assert manifest["wall_seconds"] > 0
    assert manifest["provenance"]["versions"]["torch"] == torch.__version__
    assert manifest["provenance"]["threads"] == torch.get_num_threads()
    facts = manifest["results"]["addition"]["facts"]
    assert (facts["pairs"], facts["distinct"], facts["kept_share"]) == (6, 3, 0.9)
    assert len(facts["data_sha256"]) == 64
    computed = run.computed("addition")
    assert computed is not None
    assert torch.equal(computed, MadePairs.computed)
    assert (run.folder("addition") / "result.pairs.jsonl").read_text().startswith('{"reference"')


def test_every_file_has_its_digest_in_the_manifest(run: Run) -> None:
    folder = run.folder("addition")
    kept = json.loads((folder / "result.json").read_text())["sha256"]
    files = {path.name: path for path in folder.glob("result.*") if path.suffix != ".json"}
    found = {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in files.items()}
    assert found == kept


def test_opening_a_run_again_does_not_claim_what_others_computed(
    tmp_path: Path, run: Run, effects: ComponentEffects
) -> None:
    _edit(run.path, lambda manifest: manifest["provenance"].update(python="3.99"))
    with open_run("which_heads", Config(), root=tmp_path) as again:
        pass
    assert load_run(run.path).manifest["provenance"]["python"] == "3.99"
    with again:
        again.save("division", effects)
    manifest = load_run(run.path).manifest
    assert manifest["provenance"]["python"] == platform.python_version()
    entry = json.loads((again.folder("division") / "result.json").read_text())
    assert entry["versions"]["torch"] == torch.__version__


def test_the_table_has_a_row_for_each_component(run: Run, effects: ComponentEffects) -> None:
    table = pd.read_csv(run.folder("addition") / "result.csv")
    assert len(table) == 3 * 2 + 3
    mlp = table[table["head"].isna() & (table["layer"] == 2)]
    assert mlp["mean"].item() == pytest.approx(effects.mlps.mean()[2].item(), abs=1e-6)


def test_another_configuration_gets_another_folder_and_the_same_one_continues(
    tmp_path: Path, run: Run
) -> None:
    assert open_run("which_heads", Config(n=3), root=tmp_path).path != run.path
    again = open_run("which_heads", Config(), root=tmp_path)
    assert again.path == run.path
    assert again.names == ("addition",)


def test_an_input_that_changed_gets_another_folder(tmp_path: Path) -> None:
    file = tmp_path / "mine.jsonl"
    paths = []
    for contents in ("a", "b", "a"):
        file.write_text(contents)
        paths.append(open_run("which_heads", Config(), inputs=[file], root=tmp_path).path)
    assert paths[0] == paths[2] != paths[1]
    with pytest.raises(RunError, match="expected to read"):
        open_run("which_heads", Config(), inputs=[tmp_path / "nothing"], root=tmp_path)


def test_numbers_of_numpy_and_torch_are_numbers_in_the_manifest(
    tmp_path: Path, effects: ComponentEffects
) -> None:
    with open_run("numbers", {}, root=tmp_path) as run:
        run.save("addition", effects, a=torch.tensor(2.5), b=effects.logit.numpy().argmax())
    facts = load_run(run.path).facts("addition")
    assert (facts["a"], facts["b"]) == (2.5, int(effects.logit.argmax()))


def test_an_experiment_that_fails_keeps_what_it_saved(
    tmp_path: Path, effects: ComponentEffects
) -> None:
    with pytest.raises(KeyboardInterrupt), open_run("stopped", {}, root=tmp_path) as run:
        run.save("addition", effects)
        raise KeyboardInterrupt
    again = load_run(run.path)
    assert not again.finished
    assert again.manifest["status"] == "stopped by KeyboardInterrupt"
    assert torch.equal(again.load("addition").logit, effects.logit)
    assert find_runs("stopped", root=tmp_path) == []


def test_runs_are_found_newest_first_and_by_model(tmp_path: Path) -> None:
    opened = []
    for model in ("a", "b", "a"):
        with open_run("which_heads", Config(model=model, n=len(opened)), root=tmp_path) as run:
            opened.append(run.path)
    assert [run.path for run in find_runs("which_heads", root=tmp_path)] == opened[::-1]
    found = find_runs("which_heads", model="a", root=tmp_path)
    assert [run.path for run in found] == [opened[2], opened[0]]


def test_a_folder_that_cannot_be_read_is_passed_over_aloud(tmp_path: Path) -> None:
    for number in range(2):
        with open_run("which_heads", Config(model="a", n=number), root=tmp_path) as run:
            pass
    (run.path / "run.json").write_text("{", encoding="utf-8")
    with pytest.warns(UserWarning, match=f"passed over: .*{run.path.name}.*damaged"):
        found = find_runs("which_heads", root=tmp_path)
    assert len(found) == 1 and found[0].path != run.path


def test_no_temporary_file_is_left(run: Run) -> None:
    assert sorted(path.name for path in run.path.iterdir()) == [".lock", "run.json"]
    assert sorted(path.name for path in run.folder("addition").iterdir()) == [
        ".lock",
        "identity.json",
        "result.csv",
        "result.json",
        "result.pairs.jsonl",
        "result.safetensors",
    ]


def _spoil_effects(folder: Path) -> None:
    path = load_run(folder).folder("addition") / "result.safetensors"
    data = bytearray(path.read_bytes())
    data[-3] ^= 1
    path.write_bytes(data)


def _lose_effects(folder: Path) -> None:
    (load_run(folder).folder("addition") / "result.safetensors").unlink()


def _lose_result(folder: Path) -> None:
    shutil.rmtree(load_run(folder).folder("addition"))


def _cut_manifest(folder: Path) -> None:
    path = folder / "run.json"
    path.write_text(path.read_text()[:-40])


def _drop_results(folder: Path) -> None:
    _edit(folder, lambda manifest: manifest.pop("results"))


def _scramble_results(folder: Path) -> None:
    _edit(folder, lambda manifest: manifest.update(results=["addition"]))


def _drop_digests(folder: Path) -> None:
    _edit_result(folder, lambda entry: entry.pop("sha256"))


def _forget_the_file(folder: Path) -> None:
    _edit_result(folder, lambda entry: entry["sha256"].clear())


def _mix_up_results(folder: Path) -> None:
    _edit_result(folder, lambda entry: entry.update(identity="0" * 64))


def _drop_identity(folder: Path) -> None:
    _edit(folder, lambda manifest: manifest["results"]["addition"].pop("identity"))


def _drop_time(folder: Path) -> None:
    _edit(folder, lambda manifest: manifest.pop("wall_seconds"))


def _raise_format(folder: Path) -> None:
    _edit(folder, lambda manifest: manifest.update(arith_lens_run=99))


def _make_foreign(folder: Path) -> None:
    (folder / "run.json").write_text('{"lr": 0.1}')


def _lose_manifest(folder: Path) -> None:
    (folder / "run.json").unlink()


def _leave_by_identity(folder: Path) -> None:
    _edit(folder, lambda manifest: manifest["results"]["addition"].update(identity="../../x"))


def _leave_by_unfinished(folder: Path) -> None:
    _edit(folder, lambda manifest: manifest["unfinished"].update(division="../../../x"))


def _leave_by_result(folder: Path) -> None:
    _edit(
        folder,
        lambda manifest: manifest["results"].update({"../x": manifest["results"]["addition"]}),
    )


def _leave_by_experiment(folder: Path) -> None:
    _edit(folder, lambda manifest: manifest.update(experiment="../x"))


def _leave_by_file(folder: Path) -> None:
    _edit_result(folder, lambda entry: entry["sha256"].update({"../../../x.csv": "0" * 64}))


def _leave_by_generation(folder: Path) -> None:
    _edit_result(folder, lambda entry: entry.update(generation=-3))


def _digest_of_another_kind(folder: Path) -> None:
    _edit_result(folder, lambda entry: entry["sha256"].update({"result.csv": ["0" * 64]}))


def _nest(folder: Path, file: str, levels: int) -> None:
    (folder / file).write_text('{"a":' * levels + "1" + "}" * levels)


def _nest_manifest(folder: Path) -> None:
    _nest(folder, "run.json", 100_000)


def _nest_configuration(folder: Path) -> None:
    nested: dict[str, Any] = {}
    for _ in range(300):
        nested = {"a": nested}
    _edit(folder, lambda manifest: manifest.update(config=nested))


def _nest_result(folder: Path) -> None:
    _nest(load_run(folder).folder("addition"), "result.json", 100_000)


def _edit(folder: Path, change) -> None:
    _edit_file(folder / "run.json", change)


def _edit_result(folder: Path, change) -> None:
    _edit_file(load_run(folder).folder("addition") / "result.json", change)


def _edit_file(file: Path, change) -> None:
    contents = json.loads(file.read_text())
    change(contents)
    file.write_text(json.dumps(contents))


@pytest.mark.parametrize(
    ("harm", "complaint"),
    [
        (_spoil_effects, "found another"),
        (_lose_effects, "found none"),
        (_cut_manifest, "damaged"),
        (_drop_results, "expected results in"),
        (_scramble_results, "expected results in"),
        (_lose_result, "expected a stored result"),
        (_drop_digests, "lacks sha256"),
        (_mix_up_results, "entry of another result"),
        (_drop_identity, "expected identity of addition"),
        (_forget_the_file, "found another"),
        (_drop_time, "expected wall_seconds"),
        (_raise_format, "found 99"),
        (_make_foreign, "that arith_lens has written, found another"),
        (_lose_manifest, "expected a run folder"),
        (_leave_by_identity, "a digest as the identity of addition"),
        (_leave_by_unfinished, "a digest as the identity of division"),
        (_leave_by_result, r"in place of '\.\./x'"),
        (_leave_by_experiment, r"in place of '\.\./x'"),
        (_leave_by_file, r"'\.\./\.\./\.\./x\.csv', which are no files of this result"),
        (_leave_by_generation, "no files of this result"),
        (_digest_of_another_kind, "'result.csv', which are no files of this result"),
        (_nest_manifest, "damaged .*levels"),
        (_nest_configuration, "damaged .*levels"),
        (_nest_result, "damaged: .*levels"),
    ],
)
def test_what_the_run_did_not_write_is_refused(run: Run, harm, complaint: str) -> None:
    load_run(run.path).load("addition")
    harm(run.path)
    with pytest.raises(RunError, match=complaint):
        load_run(run.path).load("addition")


def test_an_unknown_result_is_named_beside_those_there_are(run: Run) -> None:
    with pytest.raises(RunError, match=r"addition.*found 'division'"):
        run.load("division")


def test_a_name_cannot_leave_the_folder(run: Run, effects: ComponentEffects) -> None:
    with pytest.raises(ValueError, match="letters, digits"):
        run.save("../other", effects)


def test_a_configuration_that_json_cannot_keep_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="Tensor"):
        open_run("x", {"n": torch.zeros(2)}, root=tmp_path)


def test_a_full_disk_harms_nothing_that_was_saved(
    run: Run, effects: ComponentEffects, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: Path, target: Path) -> None:
        raise OSError(28, "No space left on device")

    file = run.folder("addition") / "result.safetensors"
    before = file.read_bytes()
    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", refuse)
        with pytest.raises(RunError, match="No space left"):
            run.save("addition", effects)
    assert file.read_bytes() == before
    assert [path.name for path in run.path.glob(".*")] == [".lock"]


def test_reading_a_run_imports_no_model_library(fresh_python: FreshPython) -> None:
    modules = fresh_python.after["reading a run"].modules
    assert "arith_lens.runs" in modules
    assert not {"transformer_lens", "transformers", "plotly"} & modules


def test_effects_alone_come_back_with_their_labels(
    tmp_path: Path, effects: ComponentEffects
) -> None:
    labels = {"head": ("12.22", "13.11"), "role": ("operand a", "END", "other")}
    attention = dataclasses.replace(
        effects.heads, axes=("role", "head"), labels=labels, metric="attention", paths=None
    )
    with open_run("attention", {}, root=tmp_path) as run:
        run.save("addition", attention, pairs=MadePairs())
    again = Effects.from_arrays(load_run(run.path).load_arrays("addition"))
    assert torch.equal(again.per_pair.nan_to_num(9), attention.per_pair.nan_to_num(9))
    assert again.labels == labels
    assert (again.axes, again.template) == (attention.axes, attention.template)
    assert "operand a" in (run.folder("addition") / "result.csv").read_text()
    assert isinstance(run.load("addition"), Effects)
    with pytest.raises(ValueError, match="expected arrays of kind 'component_effects'"):
        ComponentEffects.from_arrays(run.load_arrays("addition"))


@dataclasses.dataclass(frozen=True)
class Curve:
    """A result of another kind: numbers of its own beside effects."""

    accuracy: torch.Tensor
    effects: Effects

    def to_arrays(self) -> Arrays:
        parts = {"effects": self.effects.to_arrays()}
        return joined_arrays("curve", parts, {"accuracy": self.accuracy}, {"order": ["1.1"]})

    @classmethod
    def from_arrays(cls, arrays: Arrays) -> "Curve":
        arrays.require("curve")
        return cls(arrays.tensors["accuracy"], Effects.from_arrays(arrays.part("effects")))

    def to_dataframe(self) -> pd.DataFrame:
        return pd.DataFrame({"accuracy": self.accuracy.numpy()})


def test_a_result_of_any_kind_is_kept(tmp_path: Path, effects: ComponentEffects) -> None:
    curve = Curve(torch.tensor([1.0, 0.5, 0.25], dtype=torch.float64), effects.mlps)
    with open_run("curves", {}, root=tmp_path) as run:
        run.save("addition", curve, pairs=MadePairs(), seeds=[0, 1])
    arrays = load_run(run.path).load_arrays("addition")
    assert "pairs.computed" not in arrays.tensors
    again = Curve.from_arrays(arrays)
    assert torch.equal(again.accuracy, curve.accuracy)
    assert torch.equal(again.effects.per_pair, effects.mlps.per_pair)
    assert (run.folder("addition") / "result.csv").read_text() == "accuracy\n1.0\n0.5\n0.25\n"
    computed = run.computed("addition")
    assert computed is not None
    assert torch.equal(computed, MadePairs.computed)
