"""The experiment from the command's configuration to a saved run and its picture."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from support.drawings import written

import arith_lens as al
from arith_lens.model import empty_model
from arith_lens.paper import paper_model
from arith_lens.runs import RunError, find_runs
from experiments import results
from experiments.configs.shared import SampleSettings
from experiments.settings import operation_pairs
from experiments.which_heads import MapConfig, _print_paper, _print_table, main, sampled_pairs
from figures.exhibit import show
from figures.map_figures import fig2
from figures.options import Options


@pytest.fixture
def config(checkpoint: Path) -> MapConfig:
    return MapConfig(
        model=str(checkpoint), operations=("addition", "division"), n=12, keep="all", metric="logit"
    )


def test_a_run_is_saved_reported_and_drawn(
    config: MapConfig, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(config, root=tmp_path)
    report = " ".join(capsys.readouterr().out.split())
    for part in (
        "addition: 12 different prompts, 12 pairs",
        "division:",
        "left out of 12 pairs: 0 answered wrong (0.0%)",
        "95% interval",
        "not copied copied difference",
        "no key heads: the threshold (-5%) is for relative_logit, and the metric of this run is ",
    ):
        assert part in report
    (run,) = find_runs("which_heads", root=tmp_path)
    assert run.names == ("effects-addition", "effects-division")
    assert results.MAP.load(run, "addition").heads.per_pair.shape == (3, 4, 12)
    record = json.loads((run.path / "run.json").read_text())
    assert record["provenance"]["model"]["attn_implementation"]
    assert len(record["provenance"]["model"]["weights_sha256"]) == 64
    show(fig2, Options(run=run.path, out=tmp_path / "out", formats=()))
    assert written(tmp_path / "out", "fig2.html").exists()


def test_key_heads_are_reported_with_intervals_and_q_values(
    capsys: pytest.CaptureFixture[str],
) -> None:
    draw = torch.Generator().manual_seed(0)
    values = 0.01 * torch.randn(2, 3, 40, generator=draw)
    values[1, 2] -= torch.linspace(0.1, 0.3, 40)  # the first half are computed
    common: dict[str, Any] = {"metric": "relative_logit", "cluster": torch.arange(40)}
    heads = al.Effects(values, ("layer", "head"), **common)
    effects = al.ComponentEffects(
        heads, al.Effects(values[:, 0], ("layer",), **common), values[0, 0]
    )
    _print_table(effects, torch.arange(40) < 20)
    header, row = capsys.readouterr().out.splitlines()
    assert header.split()[-4:] == ["not", "copied", "copied", "difference"]
    low, high = heads.ci()[:, 1, 2]
    assert row.split()[:2] == ["1.2", f"{heads.mean()[1, 2]:+.1%}"]
    assert f"{low:+.1%} to {high:+.1%}" in row
    assert f"{effects.q_values()[0][1, 2]:.1g}" in row and effects.q_values()[0][1, 2] < 1e-9
    side = al.contrast(heads, torch.arange(40) < 20).iloc[-1]
    assert f"{side['difference']:+.1%} ({side['ci_low']:+.1%} to {side['ci_high']:+.1%})" in row


def test_the_effects_are_those_of_path_patch(config: MapConfig, tmp_path: Path) -> None:
    main(config, root=tmp_path)
    model = al.load_model(config.model)
    pairs = al.sample_pairs(model, "addition", n=12, keep="all")
    expected = al.path_patch(model, pairs, metric="logit")
    actual = results.MAP.load(find_runs("which_heads", root=tmp_path)[0], "addition")
    torch.testing.assert_close(actual.heads.per_pair, expected.heads.per_pair)


def test_a_finished_run_is_not_computed_again(
    config: MapConfig,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture,
) -> None:
    main(config, root=tmp_path)
    capsys.readouterr()

    def refuse(*args: Any, **options: Any) -> None:
        raise AssertionError("computed again")

    monkeypatch.setattr(al, "path_patch", refuse)
    main(config, root=tmp_path)
    assert "saved before" in capsys.readouterr().out
    with pytest.raises(AssertionError, match="computed again"):
        main(config, root=tmp_path, again=True)


def test_a_dry_run_prints_the_cost_and_saves_nothing(
    config: MapConfig, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(config, root=tmp_path, dry_run=True)
    assert "to sweep" in capsys.readouterr().out
    main(replace(config, paths="total"), root=tmp_path, dry_run=True)
    assert "once for each sender" in capsys.readouterr().out
    assert not list(tmp_path.iterdir())


def test_the_papers_findings_are_printed_for_its_models(capsys: pytest.CaptureFixture[str]) -> None:
    _print_paper(paper_model("meta-llama/Llama-2-7b-hf"), ["addition", "exponentiation"])
    printed = capsys.readouterr().out
    assert "12.22 -14.0%, 13.11, " in printed and "exponentiation): 11.8, 12.22, " in printed
    assert "layers 12 to 17; MLPs 0 to 16" in printed
    _print_paper(paper_model("mistralai/Mistral-7B-v0.1"), ["addition"])
    _print_paper(None, ["addition"])
    assert capsys.readouterr().out == ""


def of_own_prompts(config: MapConfig, file: Path) -> MapConfig:
    """The settings with a file of prompts, and with none of the templates."""
    return MapConfig(model=config.model, keep=config.keep, metric=config.metric, pairs=file)


def test_own_prompts_are_read_from_jsonl(config: MapConfig, tmp_path: Path) -> None:
    file = tmp_path / "mine.jsonl"
    row = {
        "reference": "2 plus 3 equals to ",
        "counterfactual": "2 void 3 equals to ",
        "answer": "5",
    }
    file.write_text(json.dumps(row) + "\n" + json.dumps(row | {"answer": "6"}) + "\n")
    main(of_own_prompts(config, file), root=tmp_path / "results")
    (run,) = find_runs("which_heads", root=tmp_path / "results")
    assert run.names == ("effects-pairs",)
    assert results.MAP.facts(run, "pairs")["pairs"] == 2


def test_the_prompts_are_those_asked_for(llama: Any) -> None:
    config = MapConfig(
        operations=("addition",), operands=(10, 12), answer_token="last", n=6, keep="all",
        templates=("addition/1",), counterfactual="operands",
    )  # fmt: skip
    ((name, pairs),) = sampled_pairs(llama, config)
    assert name == "addition" and set(pairs.template or ()) == {"addition/1"}
    assert pairs.operands is not None and {10, 11, 12} >= set(pairs.operands.flatten().tolist())
    assert all(text.endswith("equals to 2") for text in pairs.reference_text or ())
    everything = MapConfig(operations=("division",), templates=("all",), keep="all")
    ((_, pairs),) = sampled_pairs(llama, everything)
    assert len(set(pairs.template or ())) == 9


def test_a_users_mistake_ends_with_its_message_alone(config: MapConfig, tmp_path: Path) -> None:
    broken = tmp_path / "mine.jsonl"
    broken.write_text("{oops")
    for mistaken, said in (
        (replace(config, model=str(tmp_path / "nowhere")), "found nothing at"),
        (replace(config, n=10**6), r"expected --n \(N= of make\) of at most 729 in addition"),
        (of_own_prompts(config, broken), "mine.jsonl"),
        (of_own_prompts(config, tmp_path / "none.jsonl"), "none.jsonl"),
        (replace(config, keep="correct"), "0.0%"),
    ):
        with pytest.raises((SystemExit, RunError), match=said):
            main(mistaken, root=tmp_path)


@pytest.mark.parametrize(
    "settings, message",
    [
        ({"operations": ()}, "expected operations, each of them once, found none"),
        ({"operations": ("addition", "addition")}, "found addition addition; name some of add"),
        ({"operands": (1, 10**6)}, "found 1,000,000,000,000 problems"),
    ],
    ids=str,
)
@pytest.mark.parametrize("dry_run", [False, True])
def test_a_sample_that_cannot_be_drawn_is_refused_before_a_model_is_loaded(
    settings: dict[str, Any], message: str, dry_run: bool, tmp_path: Path
) -> None:
    config = MapConfig(model="no/such-model", **settings)
    with pytest.raises(SystemExit, match=rf"^ValueError: .*{message}"):
        main(config, root=tmp_path, dry_run=dry_run)


def test_a_table_of_ones_own_pairs_is_read(
    checkpoint: Path, tokenizer: Any, tmp_path: Path
) -> None:
    pairs = al.sample_pairs(tokenizer, "addition", n=4, keep="all")
    pairs.to_csv(tmp_path / "good.csv")
    config = MapConfig(model=str(checkpoint), pairs=tmp_path / "good.csv", keep="all")
    ((_, read),) = sampled_pairs(al.load_model(config.model), config)
    assert read.reference_text == pairs.reference_text


def test_computed_problems_of_one_digit_and_a_number_of_them() -> None:
    model = empty_model("reference")
    config = SampleSettings(n=20, problems="computed", operations=("subtraction",))
    ((_, pairs),) = operation_pairs(model, config, keep="all")
    assert len(pairs) == 20 and pairs.computed is not None and bool(pairs.computed.all())
    assert pairs.operands is not None
    a, b = pairs.operands.unbind(-1)
    assert not bool(((a - b == b) | (a == b)).any()) and int(pairs.operands.max()) <= 9
    ((_, again),) = operation_pairs(model, config, keep="all")
    assert again.reference_text == pairs.reference_text
