"""Claims are measured from runs, decided by their stated rule, and never pass on nothing."""

import shlex
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from support.drawings import written
from support.made_claims import N_HEADS, N_LAYERS, Verdicts, effects, which_heads, which_paths

from arith_lens.effects import Effects
from arith_lens.operations import FOUR
from arith_lens.runs import find_runs
from arith_lens.runs.manifest import write_manifest
from experiments import results
from experiments.selection import TRAININGS_FOLDER
from figures.claims import CLAIMS, Verdict, check_claims, page, verdict_table
from figures.claims import checking as figure
from figures.claims.checking import REPEATED, verdict_on
from figures.claims.claim import Measurement
from figures.claims.evidence import Evidence
from figures.claims.multiplicity import TOGETHER
from figures.common import sample_size
from figures.gallery import CLAIMS_MODELS
from figures.tables.number import Number
from figures.tables.resampled import resampled_number
from figures.tables.table import from_csv, read_back, select
from figures.verdicts import Finding, Within, holm, judge

ROOT = Path(__file__).parents[2]
GALLERY = ROOT / "figures" / "gallery"
MIDDLE = {(4, 6): -0.15, (5, 1): -0.08}


def test_every_claim_says_what_it_needs_to_say() -> None:
    keys = [claim.key for claim in CLAIMS]
    assert len(keys) == len({*keys})
    for claim in CLAIMS:
        assert claim.statement.endswith(".") and claim.rule.endswith("."), claim.key
        assert claim.section and claim.paper and claim.experiments, claim.key
        assert claim.bounds.bounds, claim.key
    (repeated,) = (claim for claim in CLAIMS if claim.group == "models")
    assert ", ".join(REPEATED) in repeated.rule and {*REPEATED} <= {*keys}
    assert repeated.bounds.above == len(REPEATED) - 1


def test_without_runs_nothing_is_measured_and_each_says_how(tmp_path: Path) -> None:
    found = check_claims("my model", roots=(tmp_path,))
    assert {verdict.judgement for verdict in found} == {"not measured"}
    for verdict in found:
        words = shlex.split(verdict.command)
        assert words[:3] == ["python", "-m", "experiments"]
        assert words[3] in verdict.claim.experiments
        assert words[words.index("--model") + 1] == "my model"
        assert verdict.why and not verdict.measured and not verdict.findings


def test_few_heads_in_the_middle_hold_and_are_counted_right(tmp_path: Path) -> None:
    run = which_heads(tmp_path, MIDDLE)
    found = Verdicts(tmp_path)
    for key in ("strongest_head", "few_key_heads", "middle_layers"):
        assert found[key].judgement == "holds here", found[key]
        assert run.path in found[key].runs
    by_hand = results.MAP.load(run, "addition").heads.per_pair.double().numpy()
    strata = np.arange(by_hand.shape[-1]) % 3
    mean = np.mean([by_hand[..., strata == s].mean(-1) for s in range(3)], axis=0)
    assert found["strongest_head"].findings[0].label == "addition (head 4.6)"
    strongest = found["strongest_head"].findings[0].number
    assert strongest.value == pytest.approx(mean[4, 6])
    ends = results.MAP.load(run, "addition").heads["4.6"].ci()
    assert (strongest.low, strongest.high) == tuple(ends.tolist())
    assert strongest.low < strongest.value < strongest.high  # pyright: ignore
    assert found["few_key_heads"].findings[0].number.value == 2 / (N_LAYERS * N_HEADS)


def test_a_model_that_cannot_do_larger_problems_is_judged_on_one_digit_ones(tmp_path: Path) -> None:
    run = which_heads(tmp_path, MIDDLE)
    (larger,) = (one for one in find_runs("which_heads", root=tmp_path) if one.path != run.path)
    shutil.rmtree(larger.path)
    for computed, judgement in ((True, "not measured"), (False, "holds here")):
        found = check_claims("made", roots=(tmp_path,), computed=computed)
        assert {one.claim.key: one.judgement for one in found}["strongest_head"] == judgement


def test_many_heads_at_the_ends_do_not_hold(tmp_path: Path) -> None:
    which_heads(tmp_path, {(layer, head): -0.1 for layer in (0, 11) for head in range(4)})
    found = Verdicts(tmp_path)
    assert (
        found["few_key_heads"].judgement == found["middle_layers"].judgement == "does not hold here"
    )
    assert found["middle_layers"].findings[0].number.value == 0


def test_without_key_heads_claims_about_them_are_not_measured(tmp_path: Path) -> None:
    run = which_heads(tmp_path, {(4, 6): -0.03})
    found = Verdicts(tmp_path)
    assert found["strongest_head"].judgement == "does not hold here"
    for key in ("few_key_heads", "middle_layers"):
        assert found[key].judgement == "not measured"
        assert "none of addition," in found[key].why and "has key heads" in found[key].why
        assert run.path in found[key].runs


def test_an_operation_without_key_heads_is_named(tmp_path: Path) -> None:
    which_heads(tmp_path, {name: MIDDLE if name != "division" else {} for name in FOUR})
    few = Verdicts(tmp_path)["few_key_heads"]
    assert few.judgement == "holds here" and few.measured.endswith("-5%): division.")
    *of_operations, in_any = few.findings
    assert [number.label for number in of_operations] == [*FOUR[:3]]
    assert "any" in in_any.label and in_any.rule is None


def test_an_interval_across_the_threshold_decides_nothing(tmp_path: Path) -> None:
    which_heads(tmp_path, {(4, 6): -0.051}, noise=0.02)
    assert Verdicts(tmp_path)["strongest_head"].judgement == "not decided"


def test_one_operation_that_is_far_outside_refutes_a_claim(tmp_path: Path) -> None:
    ends = {(layer, head): -0.1 for layer in (0, 11) for head in range(4)}
    which_heads(tmp_path, {name: MIDDLE if name != "division" else ends for name in FOUR})
    found = Verdicts(tmp_path)["middle_layers"]
    assert found.judgement == "does not hold here"
    assert [decided for _, decided in found.judged_findings] == ["holds here"] * 3 + [
        "does not hold here"
    ]
    table = read_back(verdict_table("made", [found]))
    assert (table.p_within[:3] <= 0.05).all() and table.p_outside[3] <= 0.05 / 4
    assert table.number_holds.tolist() == ["holds here"] * 3 + ["does not hold here"]
    assert {*table.holds} == {"does not hold here"}


def estimated(
    label: str, statistic: Callable[..., float], made: Effects, *, rule: Within
) -> Finding:
    """A finding from a statistic of effects."""
    number = resampled_number(statistic, made)
    assert number
    return Finding(label, number, rule)


def test_errors_count_problems_and_not_their_wordings() -> None:
    """Six problems in three wordings, with one value per problem: six numbers, not eighteen."""
    prompts = effects({(4, 6): -0.1}, noise=0.0).heads
    problem = torch.arange(18) // 3
    prompts.per_pair[4, 6] += torch.linspace(-0.05, 0.05, 6)[problem]
    problems = replace(prompts, problem=tuple(f"{i} + 1" for i in problem.tolist()))
    narrow, wide = (
        estimated("x", lambda heads: float(heads[4, 6]), one, rule=Within(below=-0.08))
        for one in (prompts, problems)
    )
    assert wide.p_within > narrow.p_within
    lengths = [one.number.high - one.number.low for one in (wide, narrow)]  # pyright: ignore
    assert lengths[0] > 1.4 * lengths[1]


def test_a_run_that_does_not_know_its_problems_is_named(tmp_path: Path) -> None:
    which_heads(tmp_path, MIDDLE)
    (note,) = figure.prompts_note([Verdicts(tmp_path)["few_key_heads"]])
    assert "which_heads are over prompts" in note


def test_the_size_of_a_sample_in_words() -> None:
    assert sample_size({"distinct": 324, "problems": 36}) == "324 references of 36 problems"
    assert sample_size({"distinct": 1, "problems": 1}) == "1 reference of 1 problem"
    assert sample_size({"distinct": 20, "problems": None}) == sample_size({"distinct": 20})
    assert sample_size({"distinct": 20}) == "20 references" and sample_size({}) == ""


def test_a_damaged_run_is_not_measured_and_says_why(tmp_path: Path) -> None:
    run = which_heads(tmp_path, MIDDLE)
    (run.folder(results.MAP.name("addition")) / "result.safetensors").write_bytes(
        b"not what was written"
    )
    found = Verdicts(tmp_path)["few_key_heads"]
    assert found.judgement == "not measured" and "damaged" in found.why
    assert found.command.endswith("--again")


def test_a_run_of_another_question_is_passed_over(tmp_path: Path) -> None:
    which_heads(tmp_path, MIDDLE, paths="total")
    found = Verdicts(tmp_path)["few_key_heads"]
    assert found.judgement == "not measured" and "paths total" in found.why


@pytest.mark.parametrize(
    "other", [{"n": 9}, {"operands": [1, 5]}, {"operations": ["addition"]}, {"pairs": "x.jsonl"}]
)
def test_a_try_out_counts_for_no_claim(tmp_path: Path, other: dict) -> None:
    which_heads(tmp_path, MIDDLE, **other)
    found = Verdicts(tmp_path)["few_key_heads"]
    assert found.judgement == "not measured" and f"has {next(iter(other))} " in found.why


def test_an_error_of_the_program_is_no_missing_measurement(tmp_path: Path) -> None:
    def fails(evidence: Evidence, rule: Within) -> Measurement:
        raise ValueError("a mistake")

    with pytest.raises(ValueError, match="a mistake"):
        verdict_on(replace(CLAIMS[0], measure=fails), Evidence("made", [tmp_path]))


def test_a_model_without_runs_has_no_page_of_claims(tmp_path: Path) -> None:
    options = figure.ClaimsOptions("nope", (tmp_path,), tmp_path / "out")
    with pytest.raises(
        SystemExit, match=r"a finished run of nope under .*which_heads, found none. Make one: "
    ):
        figure.main(options)
    assert not (tmp_path / "out").exists()


def test_the_first_root_that_has_a_run_wins(tmp_path: Path) -> None:
    which_heads(tmp_path / "a", {})
    second = which_heads(tmp_path / "b", MIDDLE)
    roots = [tmp_path / "none", tmp_path / "b", tmp_path / "a"]
    found = check_claims("made", roots=roots)
    assert found[0].judgement == "holds here" and second.path in found[0].runs


def test_no_root_is_an_error() -> None:
    with pytest.raises(ValueError, match="expected folders that hold runs"):
        check_claims("made", roots=())


def finding(
    value: float,
    low: float | None = None,
    high: float | None = None,
    rule: Within | None = None,
    **of: Any,
) -> Finding:
    """A finding from the number, the ends of its interval, and more fields of the number."""
    return Finding("x", Number(value, low, high, unit="relative", **of), rule)


def decided_between(value: float, low: float | None, high: float | None) -> str:
    """The verdict on one number between -0.02 and 0.02 if its claim holds."""
    return judge([finding(value, low, high, rule=Within(above=-0.02, below=0.02))])


def test_a_number_is_tested_in_both_directions() -> None:
    assert decided_between(0.0, -0.01, 0.01) == "holds here"
    assert decided_between(0.0, -0.03, 0.01) == "not decided"
    assert decided_between(0.05, 0.021, 0.09) == "does not hold here"
    assert decided_between(0.01, None, None) == "holds here"
    assert decided_between(0.02, None, None) == "does not hold here"
    assert decided_between(-0.03, None, None) == "does not hold here"


def test_the_p_value_of_an_interval_is_that_of_its_normal_or_t_distribution() -> None:
    half = 1.959964
    number = finding(2.0, 2 - half, 2 + half, rule=Within(above=0))
    assert number.p_within == pytest.approx(0.02275, abs=1e-5)  # two standard errors
    assert number.p_outside == pytest.approx(1 - 0.02275, abs=1e-5)
    few = finding(2.0, 2 - 4.302653, 2 + 4.302653, rule=Within(above=0), freedom=2)
    assert few.p_within == pytest.approx(0.09175, abs=1e-5)  # of t with 2 degrees of freedom
    lopsided = finding(2.0, 2 - half, 2 + 3 * half, rule=Within(below=5))
    assert lopsided.p_within == pytest.approx(0.15866, abs=1e-5)  # one standard error upwards
    twice = finding(2.0, 2 - half, 2 + half, rule=Within(above=-0.0, below=4))
    assert twice.p_within == pytest.approx(0.02275, abs=1e-5)  # the larger of two, equal here
    beyond = finding(6.0, 6 - half, 6 + half, rule=Within(above=0, below=4))
    assert beyond.p_outside == pytest.approx(2 * 0.02275, abs=1e-5)  # either side counts


def test_the_p_value_of_resamples_is_their_share_on_the_wrong_side() -> None:
    draws = (-1.0, 0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0)
    number = finding(3.0, -1.0, 7.0, rule=Within(above=0), resamples=draws)
    assert number.p_within == 3 / 10  # -1, the bound itself, and one more
    assert number.p_outside == 8 / 10
    sure = finding(3.0, 1.0, 7.0, rule=Within(above=0), resamples=draws[2:])
    assert (sure.p_within, sure.p_outside) == (1 / 8, 1.0)


def test_holms_correction_is_the_textbooks() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.5, 0.5]) == [1.0, 1.0] and holm([]) == []


def test_a_claim_that_is_false_in_one_of_four_operations_by_much_does_not_hold() -> None:
    good = finding(0.9, 0.8, 1.0, rule=Within(above=0.5))
    bad = finding(0.2, 0.1, 0.3, rule=Within(above=0.5))
    borderline = finding(0.55, 0.45, 0.65, rule=Within(above=0.5))
    slightly = finding(0.4, 0.31, 0.49, rule=Within(above=0.5))
    assert judge([good] * 4) == "holds here"
    assert judge([good, bad, good, good]) == "does not hold here"
    assert judge([borderline] * 4) == judge([good, borderline, good, good]) == "not decided"
    assert judge([slightly]) == "does not hold here", "alone, without a correction"
    assert judge([slightly, good, good, good]) == "not decided"


def test_at_its_bounds_a_claim_is_refuted_or_confirmed_in_one_of_twenty_cases(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Four operations, each number truly at its bound, of 30 problems each."""
    monkeypatch.setattr("figures.tables.resampled.N_RESAMPLES", 200)
    rng, n_cases, n_pairs = np.random.default_rng(0), 200, 30
    verdicts, uncorrected = [], 0
    for _ in range(n_cases):
        numbers = []
        for name in FOUR:
            values = torch.as_tensor(rng.normal(0.5, 0.2, n_pairs))[None]
            problems = tuple(f"{i} + 1" for i in range(n_pairs))
            made = Effects(values, ("x",), "share", problem=problems)
            rule = Within(above=0.5)
            numbers.append(estimated(name, lambda means: float(means[0]), made, rule=rule))
        verdicts.append(judge(numbers))
        uncorrected += min(number.p_outside for number in numbers) <= 0.05
    by_chance = 0.05 * n_cases + 2 * (0.05 * 0.95 * n_cases) ** 0.5  # two errors of a simulation
    assert verdicts.count("does not hold here") <= by_chance
    assert verdicts.count("holds here") <= by_chance
    assert uncorrected > 0.15 * n_cases > by_chance


def test_one_number_that_fails_fails_the_claim() -> None:
    good, bad = (finding(value, rule=Within(above=0)) for value in (1.0, -1.0))
    open_ = finding(1.0, -1.0, 2.0, rule=Within(above=0))
    assert Measurement((good, good)).judgement == "holds here"
    assert Measurement((good, open_)).judgement == "not decided"
    assert Measurement((good, open_, bad)).judgement == "does not hold here"
    with pytest.raises(ValueError, match="a number with a rule"):
        Measurement((finding(1.0),))
    with pytest.raises(ValueError, match="found NaN"):
        finding(float("nan"))


def test_the_list_is_printed_and_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    which_heads(tmp_path / "results", MIDDLE, model="<b>made</b>")
    options = figure.ClaimsOptions("<b>made</b>", (tmp_path / "results",), tmp_path / "out")
    figure.main(options)
    page = written(tmp_path / "out", "claims.html").read_text()
    assert "<b>made" not in page and "fewer than 5%" in page
    printed = capsys.readouterr().out
    assert "few_key_heads: HOLDS HERE" in printed and "via_mlps: NOT MEASURED" in printed
    assert "holds here (" in page
    assert max(map(len, printed.split("\n"))) < 1000
    assert "few_key_heads" in written(tmp_path / "out", "claims.csv").read_text()


def test_what_is_not_measured_is_counted_with_the_commands_and_the_time(tmp_path: Path) -> None:
    which_heads(tmp_path, MIDDLE, model="made")
    verdicts = check_claims("made", roots=(tmp_path,))
    missing = [verdict for verdict in verdicts if verdict.command]
    first, *commands = figure.missing_note(verdicts)
    assert first.startswith(f"{len(missing)} of 44 claims")
    assert "make report MODEL=" in first and "an hour" in first
    assert {line.partition(" (")[0] for line in commands} == {v.command for v in missing}
    counts = [int(line.rpartition(": ")[2].rstrip(")")) for line in commands]
    assert sum(counts) == len(missing) and counts == sorted(counts, reverse=True)
    assert figure.missing_note([v for v in verdicts if not v.command]) == []
    rows = read_back(figure.with_multiplicity("nope", verdicts))
    assert figure.notes(rows, verdicts)[-len(commands) - 1 :] == [first, *commands]


def test_the_shipped_models_committed_map_gives_the_numbers_that_the_docs_tell(
    tmp_path: Path,
) -> None:
    """Of the gallery's means alone, so without intervals: every pair has the mean."""
    table = pd.read_csv(ROOT / "figures" / "gallery" / "fig2.csv").query("measure == 'effect'")
    table = table[~table["component"].str.startswith("MLP") & table["operation"].isin(FOUR)]
    planted: dict[str, dict[tuple[int, int], float]] = {name: {} for name in FOUR}
    columns = (table[name].tolist() for name in ("operation", "layer", "index", "value"))
    for name, layer, head, mean in zip(*columns, strict=True):
        planted[name][int(layer), int(head)] = float(mean)
    which_heads(tmp_path, planted, noise=0.0)
    found = Verdicts(tmp_path)
    few, strongest = found["few_key_heads"], found["strongest_head"]
    by_hand = {name: sum(m < -0.05 for m in means.values()) / 96 for name, means in planted.items()}
    *of_operations, in_any = few.findings
    assert {n.label: n.number.value for n in of_operations} == {
        k: v for k, v in by_hand.items() if v
    }
    some = {place for means in planted.values() for place, m in means.items() if m < -0.05}
    assert in_any.number.value == pytest.approx(len(some) / 96)
    assert few.judgement == "holds here" and "division" in few.measured
    assert [number.label for number in strongest.findings] == [
        "addition (head 5.5)",
        "subtraction (head 5.2)",
        "multiplication (head 5.5)",
        "division (head 5.5)",
    ]
    assert strongest.judgement == "does not hold here"  # division's is weaker than 5%
    assert strongest.findings[1].number.value == pytest.approx(min(planted["subtraction"].values()))


def test_runs_of_another_checkpoint_under_the_same_name_are_passed_over(tmp_path: Path) -> None:
    for run, weights in (
        (which_heads(tmp_path, MIDDLE), "a"),
        (which_paths(tmp_path, 0.0, -0.1), "b"),
    ):
        run.manifest["provenance"]["model"] = {"weights_sha256": weights}
        write_manifest(run.path, run.manifest)
    found = Verdicts(tmp_path)
    assert found["few_key_heads"].judgement == "holds here"
    assert (
        found["via_mlps"].judgement == "not measured" and "other weights" in found["via_mlps"].why
    )
    assert Verdicts(tmp_path)["via_mlps"].judgement == "holds here"  # the first that is asked for


def test_another_training_of_the_recipe_is_no_other_model(tmp_path: Path) -> None:
    which_heads(tmp_path, MIDDLE)
    which_heads(tmp_path, MIDDLE, model="other")
    which_heads(tmp_path, MIDDLE, model=str(TRAININGS_FOLDER / "made-1" / "final"))
    evidence = Evidence("made", (tmp_path,))
    assert evidence.another().model == "other"


def test_the_page_of_claims_has_the_number_that_decides(tmp_path: Path) -> None:
    which_heads(tmp_path, MIDDLE)
    found = Verdicts(tmp_path)
    verdicts = [found["few_key_heads"], found["via_mlps"]]
    rows = read_back(verdict_table("made", verdicts))
    assert page.deciding_cell(rows, "few_key_heads").startswith("● 2.1% [")
    assert page.deciding_cell(rows, "via_mlps") == "·"
    last = page.counts({"made": rows}).splitlines()[-1]
    assert last.split("|")[2:6] == [" 1 ", " 0 ", " 0 ", " 1 "]
    worse = rows.assign(holds="does not hold here")
    ruled = worse.number_holds != ""
    worse.loc[ruled, "p_outside"] = [0.5, 0.01, 0.5, 0.5][: int(ruled.sum())]
    assert "(−)" in page.deciding_cell(worse, "few_key_heads")


def test_among_equal_p_values_the_number_that_is_least_within_decides() -> None:
    findings = [
        Finding(name, Number(value, 0.8, 1.0), Within(above=0.5))
        for name, value in (("far", 0.99), ("near", 0.81), ("middle", 0.9))
    ]
    holds = Verdict(CLAIMS[0], "holds here", tuple(findings))
    rows = read_back(verdict_table("made", [holds])).assign(p_within=0.01, p_outside=0.01)
    assert "(near)" in page.deciding_cell(rows, CLAIMS[0].key)
    rows["holds"] = "does not hold here"
    rows["above"], rows["below"] = -np.inf, 0.7
    assert "(far)" in page.deciding_cell(rows, CLAIMS[0].key)


def test_a_claim_without_a_run_keeps_its_earlier_verdict(tmp_path: Path) -> None:
    which_heads(tmp_path, MIDDLE)
    every = [verdict_on(claim, Evidence("made", [tmp_path])) for claim in CLAIMS]
    measured = read_back(figure.with_multiplicity("made", every))
    nothing = read_back(
        figure.with_multiplicity("made", check_claims("made", roots=(tmp_path / "n",)))
    )
    kept = figure.with_earlier(nothing, measured)
    key = "few_key_heads"
    assert select(kept, claim=key).value.tolist() == select(measured, claim=key).value.tolist()
    assert (
        select(kept, claim=TOGETHER).value.tolist()
        == select(measured, claim=TOGETHER).value.tolist()
    )
    measured.loc[measured.claim == key, "value"] = 9.0
    again = figure.with_earlier(read_back(figure.with_multiplicity("made", every)), measured)
    assert 9.0 not in select(again, claim=key).value.tolist()


def test_the_documented_verdicts_are_those_of_the_gallery(tmp_path: Path) -> None:
    """The page's tables, made anew from the shipped tables, and its sentences."""
    documented = ROOT / "docs" / "claims.md"
    text = documented.read_text(encoding="utf-8")
    folders = {model: GALLERY / model for model in CLAIMS_MODELS} | {"reference": GALLERY}
    tables = {
        model: from_csv((folder / "claims.csv").read_text("utf-8"))
        for model, folder in folders.items()
    }
    assert next(iter(tables)) == "smollm2-135m"
    copy = tmp_path / "claims.md"
    copy.write_text(text, encoding="utf-8")
    page.write_page(copy, tables, CLAIMS)
    assert copy.read_text("utf-8") == text
    page.write_page(copy, {"reference": tables["reference"]}, CLAIMS)
    alone = "● 57.9% [53.6, 68.2] (×)"  # if both models' numbers are of ×, this stands once
    assert alone in copy.read_text("utf-8") and alone not in text
    pretrained, *shipped = tables.values()
    holds = [dict(zip(one.claim, one.holds, strict=True)) for one in shipped]
    both = sum(all(one[claim.key] == "holds here" for one in holds) for claim in CLAIMS)
    assert f"{both} of which hold in both" in text
    known = select(pretrained, claim="strongest_head").dropna(subset=["above"])
    assert len(known) == 4 and known.value.min() > -0.05
    needed = [select(table, claim="key_heads_needed") for table in shipped]
    ten = [one[one.measure.str.endswith("(10 strongest heads)")].value for one in needed]
    lost = [-x for values in ten for x in values]
    words = f"falls by {100 * min(lost):.0f} to {max(lost):.0%} in both shipped models"
    assert words in " ".join(text.split())


def test_the_interval_of_a_share_ends_at_all_and_its_test_stays_the_same() -> None:
    rule = Within(above=0.5)
    whole, share = (
        Finding("layers", Number(0.9, 0.6, 1.2, unit=unit), rule) for unit in ("relative", "share")
    )
    assert share.number.ends == (0.6, 1.0) and str(share) == "layers 90.0% [60.0, 100.0]"
    assert whole.number.ends == (0.6, 1.2) and "120.0" in str(whole)
    assert (share.p_within, share.p_outside) == (whole.p_within, whole.p_outside)
    assert Number(3, unit="count", possible=(0, 9)).ends == (None, None)
    assert Number(0.4, 0.2, 0.6, possible=(-0.5, 0.5)).ends == (0.2, 0.5)


def test_every_claim_has_few_words_of_its_own_for_a_column() -> None:
    words = [claim.short for claim in CLAIMS]
    assert len({*words}) == len(words) and max(map(len, words)) <= 48
