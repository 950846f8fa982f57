"""The explorer's tables are the numbers of the methods that they name, at once or by click."""

import asyncio
import re
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.families import SWEPT
from torch.utils.flop_counter import FlopCounterMode

import arith_lens as al
from arith_lens.arrays import Arrays
from arith_lens.effects import effect_tables
from arith_lens.exploration import (
    MAP_SETTINGS,
    Exploration,
    ExplorerServer,
    cost,
    explored,
    exploring,
    finished,
    head_parts,
    page_flops,
    sample_rows,
    selections,
)
from arith_lens.exploration.exploring import _check_others, patched
from arith_lens.exploration.graph_tables import (
    N_EDGES,
    N_PAGE_HEADS,
    N_PAGE_MLPS,
    receivers_of,
)
from arith_lens.exploration.tables import problem_rows, random_sets
from arith_lens.explorer_page import CODE, TABLES, Explorer, packed, unpacked
from arith_lens.model import HookedModel
from arith_lens.next_tokens import next_tokens
from arith_lens.views import EXPLORER_FILES, bundle

pytestmark = [
    pytest.mark.usefixtures("rough_intervals"),
    pytest.mark.filterwarnings(
        "ignore:expected logits of the answer of at least"
    ),  # a random model has such logits
]
HOSTILE = "</script><script>document.title='PWNED'</script><img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def pairs(llama: HookedModel) -> al.PromptPairs:
    templates = ["addition/1", "addition/2"]
    return al.sample_pairs(llama, "addition", n=12, keep="all", templates=templates)


@pytest.fixture(scope="module")
def counted(llama: HookedModel, pairs: al.PromptPairs) -> tuple[Exploration, int, int]:
    """All tables, the FLOPs that torch counts meanwhile, and the estimate."""
    with pytest.MonkeyPatch.context() as patched, FlopCounterMode(display=False) as counter:
        patched.setattr("arith_lens.exploration.cost.N_STRONGEST", 2)
        one = explored(llama, pairs, setup="import arith_lens as al", progress=False)
        return one, counter.get_total_flops(), page_flops(llama, pairs)


@pytest.fixture(scope="module")
def exploration(counted: tuple[Exploration, int, int]) -> Exploration:
    return counted[0]


def test_the_estimate_of_a_page_is_near_what_torch_counts(
    counted: tuple[Exploration, int, int], llama: HookedModel, pairs: al.PromptPairs
) -> None:
    _, flops, estimate = counted
    assert flops / 4 < estimate < 4 * flops
    assert al.plan(llama, pairs).flops * len(MAP_SETTINGS) < flops / 4, "maps are the least of it"


def test_each_part_of_a_page_begins_with_its_name_in_words_and_the_time_that_is_left(
    llama: HookedModel, pairs: al.PromptPairs, capsys: pytest.CaptureFixture[str]
) -> None:
    flops = {"maps": 10, "stream": 30, "edges": 60}
    for ago, part, words in ((100, "stream", "15 min"), (40, "edges", "60 s")):
        begin = cost.countdown(flops, ["stream", "attention", "edges"], time.monotonic() - ago)
        begin(part)
        assert capsys.readouterr().out.endswith(f"{cost.STEPS[part]}, about {words} left\n")
    cost.countdown({"maps": 1, "edges": 90}, ["edges"], time.monotonic())("edges")
    assert capsys.readouterr().out == f"  1 of 1: {cost.STEPS['edges']}\n", "too early to tell"
    parts = exploring._all_parts(llama, pairs, sample_rows(pairs), [al.Head(1, 2)])
    assert {*parts, "edges"} == {*cost.STEPS} >= {*cost.step_flops(llama, pairs)} - {"maps"}


def test_every_table_is_there_and_described(exploration: Exploration) -> None:
    assert {*exploration.tables} == {*TABLES} and exploration.facts["missing"] == {}
    sets = exploration.tables["sets"]
    parts = {*exploration.tables["effects"]["component"]}
    pairs = [*combinations([part for part in parts if part.startswith("MLP")], 2)]
    assert len(sets) == 2 * (4 + len(parts) - 2 + len(pairs)), (
        "all sets of two heads, each other part alone, and every two MLPs"
    )
    controls: Any = exploration.tables["controls"]
    assert len(controls.query("kind == 'knock_out' and n_heads == 0 and n_mlps == 2")) == 10
    assert all(len(table) for table in exploration.tables.values())


def test_map_and_units_are_path_patching(
    llama: HookedModel, pairs: al.PromptPairs, exploration: Exploration
) -> None:
    effects = al.path_patch(llama, pairs, progress=False)
    map_ = exploration.tables["effects"].query("paths == 'via_mlps' & metric == 'relative_logit'")
    means = torch.cat([effects.heads.mean().flatten(), effects.mlps.mean()])
    assert torch.allclose(torch.tensor(map_["mean"].to_numpy()), means)
    assert list(map_["component"])[-1] == "MLP 2"
    where = "unit == 'template' & name == 'addition/1' & component == '1.2' & paths == 'via_mlps'"
    row = exploration.tables["units"].query(where + " & metric == 'relative_logit'")
    rows = torch.tensor([name == "addition/1" for name in pairs.template or ()])
    assert row["mean"].item() == pytest.approx(float(effects.heads.per_pair[1, 2, rows].nanmean()))


def test_a_map_in_batches_is_the_map(
    llama: HookedModel, pairs: al.PromptPairs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("arith_lens.exploration.exploring.BATCH", 5)
    steps = patched(llama, pairs, "direct", "logit")
    done = [next(steps)]
    effects = finished(steps)
    whole = al.path_patch(llama, pairs, paths="direct", metric="logit", progress=False)
    assert done == [0.0]
    assert torch.allclose(effects.heads.per_pair, whole.heads.per_pair, atol=1e-5)


def test_heads_are_read_by_the_methods(
    llama: HookedModel, pairs: al.PromptPairs, exploration: Exploration
) -> None:
    looks = al.attention_by_role(llama, pairs, "1.2")
    table = exploration.tables["attention"].query("component == '1.2'")
    assert torch.allclose(torch.tensor(table["mean"].to_numpy()), looks.mean()[0])
    sample = sample_rows(pairs)
    probe = al.head_probe(llama, pairs[sample], "1.2", tokens="digits")
    digits = exploration.tables["digits"].query("component == '1.2' & prompt == 3")
    assert digits["logit"].tolist() == pytest.approx(probe.per_pair[0, :, 3].tolist(), abs=0.01)
    shares = al.composition(llama, pairs[sample], "1.2").to_dataframe()
    row = exploration.tables["inputs"].query("component == '1.2' & input == 'v'").iloc[0]
    match = shares[(shares["input"] == "v") & (shares["sender"] == row["sender"])]
    assert row["mean"] == pytest.approx(match["mean"].item(), rel=1e-4)
    neurons = al.neuron_effects(llama, pairs[sample], 1).mean()[0]
    strongest = exploration.tables["neurons"].query("component == 'MLP 1'")
    assert abs(strongest["mean"].iloc[0]) == pytest.approx(float(neurons.abs().max()), rel=1e-3)


def test_the_graph_has_the_strongest_measured_edges(
    llama: HookedModel, pairs: al.PromptPairs, exploration: Exploration
) -> None:
    rows, shown = problem_rows(pairs), sample_rows(pairs)
    receivers = receivers_of(al.path_patch(llama, pairs, progress=False), N_PAGE_HEADS, N_PAGE_MLPS)
    edges = al.edge_effects(llama, pairs[rows], receivers, positions="each", progress=False)
    measured: Any = edges.to_dataframe()
    known = measured.dropna(subset=["mean"])
    table = exploration.tables["edges"]
    assert len(table) == min(len(known), N_EDGES) and set(table["measured"]) == {len(known)}
    excludes_zero = (table["ci_low"] > 0) | (table["ci_high"] < 0)
    assert table["certain"].tolist() == excludes_zero.tolist()
    for _, part in table.groupby("certain"):
        assert part["mean"].abs().is_monotonic_decreasing
    assert table["certain"].is_monotonic_decreasing, "those whose interval excludes 0 come first"
    columns = ["receiver", "input", "sender", "role", "mean"]
    expected = known.assign(role=known["role"].astype(str))[columns]
    both = table[columns].merge(expected, how="left", on=columns[:-1])
    assert both["mean_x"].tolist() == pytest.approx(both["mean_y"].tolist())
    one = table.iloc[7]
    singles = exploration.tables["prompt_edges"].query(
        "receiver == @one.receiver & input == @one.input"
        " & sender == @one.sender & role == @one.role"
    )
    labels = {name: list(map(str, values)) for name, values in (edges.labels or {}).items()}
    assert edges.axes == ("receiver", "input", "sender", "role")
    place = [labels[axis].index(one[axis]) for axis in edges.axes]
    by_hand = [edges.per_pair[(*place, rows.tolist().index(row))] for row in shown.tolist()]
    assert singles["value"].tolist() == pytest.approx([float(x) for x in by_hand], nan_ok=True)
    assert len(singles["value"].dropna())
    assert singles["prompt"].tolist() == list(range(len(shown)))


def test_effects_are_known_with_the_norms_scale_held_and_on_single_prompts(
    llama: HookedModel, pairs: al.PromptPairs, exploration: Exploration
) -> None:
    effects = al.path_patch(llama, pairs, progress=False)
    held = exploration.tables["held"].query("paths == 'via_mlps' & metric == 'relative_logit'")
    mlp = held[held["component"] == "MLP 1"].iloc[0]
    assert mlp["mean"] == pytest.approx(float(effects.mlps.without_norm_scale().mean()[1]))
    assert mlp["mean"] != pytest.approx(float(effects.mlps.mean()[1]))
    singles = exploration.tables["prompt_effects"]
    rows = sample_rows(pairs).tolist()
    for name, part in (("1.2", effects.heads.per_pair[1, 2]), ("MLP 1", effects.mlps.per_pair[1])):
        values = singles[singles["component"] == name]["value"].tolist()
        assert values == pytest.approx(part[rows].tolist(), abs=1e-5, nan_ok=True)
        assert any(value == value for value in values), "some prompts have an effect"


def test_the_graph_of_a_typed_prompt_has_positions_and_no_intervals(llama: HookedModel) -> None:
    live = ExplorerServer(llama, {})
    own = {"reference": "3 plus 5 equals to ", "counterfactual": "4 plus 2 equals to "}
    ((name, (facts, tables)),) = finished(
        live.respond({"kind": "prompt", **own, "answer": "8"})
    ).items()
    edges: Any = tables["edges"]
    assert facts["missing"] == {} and 0 < len(edges) <= N_EDGES and edges["ci_low"].isna().all()
    assert edges["certain"].all()
    last = int(live.sets[name].lengths[0]) - 1
    positions = {int(role) for role in edges["role"] if role != "END"}
    assert positions <= set(range(last)) and "END" in set(edges["role"]), "the last token is END"
    assert {*tables["patterns"]["query"]} == {last}, "where END looks is known, too"
    said = next_tokens(llama, own["reference"], k=1)
    assert facts["note"].startswith(f"The model says “{said.pieces[0][0].strip()}” here, not 8. ")
    right = {"kind": "prompt", **own, "answer": said.pieces[0][0].strip()}
    (((facts, _)),) = finished(live.respond(right)).values()
    assert facts["note"].startswith("One pair")
    again = finished(live.respond({"kind": "edges", "set": name}))
    assert again[name][1]["edges"]["mean"].tolist() == pytest.approx(edges["mean"].tolist())


def test_selections_are_knockouts(llama: HookedModel, pairs: al.PromptPairs) -> None:
    chosen = al.Head(1, 2), al.Head(0, 1)
    rows = torch.arange(len(pairs))
    for kind, outcomes in (
        ("knock_out", al.knock_out(llama, pairs, chosen, progress=False)),
        ("keep_only", al.keep_only(llama, pairs, chosen, positions="end", progress=False)),
    ):
        tables = finished(selections(llama, pairs, rows, rows, [chosen], kind))
        answers, (row,) = tables["answers"], tables["sets"].to_dict("records")
        expected = outcomes.probability.tolist()
        assert answers["probability"].tolist() == pytest.approx(expected, abs=1e-3)
        assert answers["correct"].tolist() == outcomes.correct.tolist()
        assert row["members"] == "0.1,1.2" and row["accuracy"] == pytest.approx(
            outcomes.accuracy(), abs=1e-4
        )
    none = finished(selections(llama, pairs, rows, rows, [()], "knock_out"))
    assert none["answers"]["probability"].tolist() != answers["probability"].tolist()


def test_heads_that_are_kept_alone_leave_mlps_as_they_are_beside_a_set_with_mlps(
    llama: HookedModel, pairs: al.PromptPairs
) -> None:
    heads, mixed = (al.Head(1, 2),), (al.Head(1, 2), al.Mlp(0))
    rows = torch.arange(len(pairs))
    both: Any = finished(selections(llama, pairs, rows, rows, [heads, mixed], "keep_only"))
    options: Any = {"positions": "end", "progress": False}
    for members, among in ((heads, "heads"), (mixed, "all")):
        own = al.keep_only(llama, pairs, members, among=among, **options)
        name = "1.2" if members is heads else "MLP 0,1.2"
        found = both["answers"].query(f"members == '{name}'")["probability"]
        assert found.tolist() == pytest.approx(own.probability.tolist(), abs=1e-3)


def test_a_selection_is_knocked_out_at_all_tokens_and_kept_at_end(make_model: Any) -> None:
    """A model with large weights, so that the other positions give clearly other answers."""
    sharp = make_model("llama", initializer_range=0.3)
    pairs = al.sample_pairs(sharp, "addition", n=12, keep="all", templates=["addition/1"])
    with torch.no_grad():
        logits = sharp(pairs.reference, attention_mask=pairs.attention_mask)
    pairs = replace(pairs, answer=logits[:, -1].argmax(-1))
    chosen, rows = (al.Head(1, 2), al.Head(0, 1)), torch.arange(len(pairs))
    for kind, method, positions in (
        ("knock_out", al.knock_out, ("all", "end")),
        ("keep_only", al.keep_only, ("end", "all")),
    ):
        own, other = (
            method(sharp, pairs, chosen, positions=where, progress=False) for where in positions
        )
        answers = finished(selections(sharp, pairs, rows, rows, [chosen], kind))["answers"]
        found = torch.tensor(answers["probability"].to_numpy()).float()
        assert (found - own.probability).abs().max() < 2e-3
        assert (found - other.probability).abs().max() > 2e-2


def test_a_sample_keeps_the_means_of_all_pairs(llama: HookedModel, pairs: al.PromptPairs) -> None:
    chosen = (al.Head(1, 2),)
    few = torch.tensor([4, 1])
    tables = finished(selections(llama, pairs, few, few, [chosen], "knock_out"))
    whole = al.knock_out(llama, pairs, chosen, progress=False).probability[few]
    assert tables["answers"]["probability"].tolist() == pytest.approx(whole.tolist(), abs=1e-3)


def test_every_problem_is_answered_and_the_prompts_that_are_shown_are_among_them(
    llama: HookedModel, pairs: al.PromptPairs, exploration: Exploration
) -> None:
    two_wordings = al.sample_pairs(
        llama, "addition", keep="all", templates=["addition/1", "addition/2"]
    )
    rows, shown = problem_rows(two_wordings), sample_rows(two_wordings)
    problems = [two_wordings.problem[row] for row in rows.tolist()]
    assert sorted(problems) == sorted({*two_wordings.problem}) and len(problems) == 36
    assert len(shown) == 24 and {*shown.tolist()} < {*rows.tolist()}
    wordings = [(two_wordings.template or ())[row] for row in shown.tolist()]
    assert 8 <= wordings.count("addition/1") <= 16, "both wordings are shown"
    assert {*exploration.tables["sets"]["n_pairs"]} == {len({*pairs.problem})}


def test_the_control_of_a_knockout_is_as_many_random_heads(
    llama: HookedModel, pairs: al.PromptPairs
) -> None:
    everywhere, chosen = torch.arange(len(pairs)), (al.Head(1, 2), al.Head(0, 1), al.Mlp(0))
    drawn = random_sets(llama, 2, 1)
    assert len({frozenset(one) for one in drawn}) > 5
    assert all([type(part) for part in one] == [al.Head, al.Head, al.Mlp] for one in drawn)
    tables = finished(
        selections(llama, pairs, everywhere, everywhere, [chosen], "knock_out", drawn)
    )
    controls: Any = tables["controls"]
    assert controls["draw"].tolist() == [*range(10)] and {*controls["n_heads"]} == {2}
    third = al.knock_out(llama, pairs, drawn[3], progress=False)
    assert controls["accuracy"][3] == pytest.approx(third.accuracy(), abs=1e-4)
    assert controls["probability"][3] == pytest.approx(float(third.probability.mean()), abs=1e-3)
    assert len(tables["sets"]) == 1, "random sets have no rows of their own"


def test_what_feeds_a_head_and_what_no_part_explains_sum_to_its_whole_change(
    llama: HookedModel, pairs: al.PromptPairs, exploration: Exploration
) -> None:
    inputs: Any = exploration.tables["inputs"]
    table = inputs.query("component == '2.1'")
    assert table["mean"].sum() == pytest.approx(1, abs=1e-4)
    (left,) = table.query("sender == 'not explained'").to_dict("records")
    few = pairs[sample_rows(pairs)]
    shares = al.composition(llama, few, "2.1").per_pair
    by_hand: dict[str, list[float]] = {}
    for pair, wording in enumerate(few.template or ()):
        by_hand.setdefault(wording, []).append(1 - float(shares[..., pair].nansum()))
    means = [sum(some) / len(some) for some in by_hand.values()]
    assert left["mean"] == pytest.approx(sum(means) / len(means), abs=1e-4)
    assert left["ci_low"] < left["mean"] < left["ci_high"]
    assert not inputs.query("sender == 'all others'").empty


def test_wordings_are_shown_with_a_and_b(exploration: Exploration) -> None:
    assert exploration.facts["wordings"]["addition/1"] == "A plus B equals to"


def test_a_saved_page_has_every_part_unless_the_map_alone_is_wanted(
    llama: HookedModel,
    pairs: al.PromptPairs,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("arith_lens.exploration.cost.N_STRONGEST", 2)
    view = al.explore(llama, pairs, progress=False)
    assert [*view.sets] == ["addition"], "a single set has the name of its operation"
    page = view.save(tmp_path / "page.html").read_text("utf-8")
    small = view.save(tmp_path / "map.html", maps_only=True).read_text("utf-8")

    def tables(text: str) -> set[str]:
        (packed_tables,) = re.findall(r'getElementById\("explorer"\), "([^"]*)"', text)
        (one,) = unpacked(packed_tables)["sets"]
        return {*one["tables"]}

    assert tables(page) == {*TABLES} > tables(small)


def test_another_model_stands_beside_it_on_the_same_prompts(
    llama: HookedModel, mistral: HookedModel, pairs: al.PromptPairs
) -> None:
    view = al.explore(llama, {"addition": pairs}, compare={"other": mistral}, progress=False)
    first, second = view.sets
    assert first == f"addition, {llama.name}" and second == "addition, other"
    (facts, own), (_, others) = view.sets[first], view.sets[second]
    assert facts["beside"] == second and len(own["edges"]) and len(others["edges"])
    for model, tables in ((llama, own), (mistral, others)):
        by_hand = al.path_patch(model, pairs, progress=False).heads.mean().flatten()
        means = tables["effects"].query("head >= 0")["mean"].to_numpy()
        assert torch.allclose(torch.tensor(means), by_hand)
    assert own["prompts"].equals(others["prompts"]) and not own["effects"].equals(others["effects"])
    assert view.respond is not None
    request = {"kind": "component", "component": "1.2", "set": second}
    _, tables = finished(view.respond(request))[second]
    looks = al.attention_by_role(mistral, pairs, "1.2").mean()[0]
    assert torch.allclose(torch.tensor(tables["attention"]["mean"].to_numpy()), looks)


def test_what_cannot_be_compared_is_refused(
    llama: HookedModel, pairs: al.PromptPairs, monkeypatch: pytest.MonkeyPatch
) -> None:
    for compare in ("reference-mistral", {"other": "reference-mistral"}, [llama]):
        with pytest.raises(TypeError, match="expected compare as a dictionary of models by name"):
            _check_others("one", compare, [pairs], llama)
    with pytest.raises(ValueError, match=f"expected other names than {llama.name}"):
        al.explore(llama, pairs, compare={llama.name: llama}, progress=False)
    names = iter(({1: "3"}, {1: "plus"}))
    monkeypatch.setattr("arith_lens.exploration.exploring.pieces", lambda *_: next(names))
    with pytest.raises(ValueError, match="found that other has other tokens"):
        al.explore(llama, pairs, compare={"other": llama}, progress=False)


def test_experts_are_shown_without_neurons(tokenizer: Any) -> None:
    model = al.load_model((SWEPT["Mixtral"].make(len(tokenizer)), tokenizer))
    pairs = al.sample_pairs(model, "addition", n=3, keep="all", templates=["addition/1"])
    request = {"kind": "component", "component": "MLP 1", "set": "pairs"}
    facts, tables = finished(ExplorerServer(model, {"pairs": pairs}).respond(request))["pairs"]
    assert list(facts["missing"]) == ["neurons"] and "W_out" in facts["missing"]["neurons"]
    assert {*tables} == {"numbers", "digits"}


def test_a_predicted_token_that_the_tokenizer_lacks_has_its_number(
    make_hf: Callable[..., Any], tokenizer: Any
) -> None:
    hf = make_hf(vocab_size=len(tokenizer) + 8)
    hf.lm_head.weight.data[len(tokenizer) :] *= 8
    padded = al.load_model((hf, tokenizer))
    some = al.sample_pairs(padded, "addition", n=9, keep="all", templates=["addition/1"])
    rows = torch.arange(len(some))
    answers = finished(selections(padded, some, rows, rows, [()], "knock_out"))["answers"]
    logits = padded(some.reference, attention_mask=some.attention_mask)[:, -1]
    expected = [
        f"[id {token}]" if token >= len(tokenizer) else None for token in logits.argmax(-1).tolist()
    ]
    assert any(expected), "the test must be able to fail"
    for name, text in zip(answers["token_1"], expected, strict=True):
        assert text is None or name == text


OWN = [
    {"reference": "The answer is", "counterfactual": "The story is", "answer": " The"},
    {"reference": "The sum is", "counterfactual": "The story is", "answer": " of"},
]
"""Prompts of one's own: no template, no operands, answers that are no digits."""


def test_prompts_of_ones_own_are_explored_and_what_they_lack_is_said(llama: HookedModel) -> None:
    own = al.PromptPairs.from_rows(OWN, llama)
    with pytest.MonkeyPatch.context() as patched_module:
        patched_module.setattr("arith_lens.exploration.cost.N_STRONGEST", 2)
        one = explored(llama, own, settings=MAP_SETTINGS[1:], progress=False)
    assert {*one.tables["effects"]["metric"]} == {"relative_logit", "digit_contrast"}
    answers = one.facts["candidates"]
    assert answers == own.answer.unique().tolist() and not one.facts["note"]
    lead = al.path_patch(llama, own, metric="digit_contrast", candidates=answers, progress=False)
    table: Any = one.tables["effects"].query("metric == 'digit_contrast' and component == '1.2'")
    assert table["mean"].item() == pytest.approx(float(lead.heads.mean()[1, 2]))
    asked = {"kind": "map", "set": "own", "paths": "via_mlps", "metric": "digit_contrast"}
    facts_and_tables = finished(ExplorerServer(llama, {"own": own}).respond(asked))["own"]
    clicked: Any = facts_and_tables[1]["effects"].query("component == '1.2'")
    assert clicked["mean"].item() == pytest.approx(table["mean"].item(), abs=1e-6)
    same = explored(llama, own[:1], settings=MAP_SETTINGS[1:], maps_only=True, progress=False)
    assert "All prompts have one answer" in same.facts["note"]
    assert {*one.facts["missing"]} == {"attention", "edges"}
    assert "the keys template ('addition/0'), a and b" in one.facts["missing"]["attention"]
    assert not any(name.startswith("cosine") for name in one.tables["neurons"])
    assert {"patterns", "inputs", "mediation", "neurons", "sets"} <= {*one.tables}


def test_what_is_written_is_shown_as_answers_where_there_are_no_digits(
    make_model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("arith_lens.exploration.parts.N_ANSWERS", 2)
    model = make_model("mistral")
    rows = [*OWN, {**OWN[1], "reference": "The story is", "counterfactual": "The sum is"}]
    own = al.PromptPairs.from_rows(rows, model)
    own = replace(own, answer=own.answer.where(torch.arange(3) < 2, own.reference[2, -1]))
    live = ExplorerServer(model, {"own": own})
    for component in ("1.2", "MLP 1"):
        request = {"kind": "component", "set": "own", "component": component}
        facts, tables = finished(live.respond(request))["own"]
        assert not {"numbers", "digits"} & {*facts["missing"]}
        means: Any = tables["numbers"].set_index("token")["mean"]
        best: Any = tables["digits"]
        by_hand = []
        for pair, c in enumerate(own.answer.tolist()):
            others = [token for token in own.answer_tokens if token != c]
            added = al.logit_attribution(model, own, [c, *others])
            place = (added.labels or {})["component"].index(component)
            values = added.per_pair[place, :, pair]
            by_hand.append((float(values[0]), float(values[1:].mean())))
            rows = best.query(f"prompt == {pair}")
            largest = [float(values[0]), float(values[1:].max())]
            assert rows["logit"].tolist() == pytest.approx(largest, abs=0.006)
            assert rows["digit"].iloc[0] == model.tokenizer.decode([c]).strip()
        answer, other = np.mean(by_hand, axis=0)
        assert means["C"] == pytest.approx(answer, abs=1e-5)
        assert means["other answers"] == pytest.approx(other, abs=1e-5)
        assert abs(answer - other) > 1e-3, "the test must be able to fail"


def test_prompts_without_roles_show_what_is_written_as_digits(llama: HookedModel) -> None:
    keys = ("reference", "counterfactual", "answer")
    rows = [("3 plus 5 is ", "3 void 5 is ", "8"), ("2 plus 4 is ", "2 void 4 is ", "6")]
    own = al.PromptPairs.from_rows([dict(zip(keys, row, strict=True)) for row in rows], llama)
    for component, parts in (("1.2", {"attention", "numbers"}), ("MLP 1", {"numbers"})):
        live = ExplorerServer(llama, {"own": own})
        request = {"kind": "component", "set": "own", "component": component}
        facts, tables = finished(live.respond(request))["own"]
        assert {*facts["missing"]} == parts and "a and b" in facts["missing"]["numbers"]
        digits: Any = tables["digits"].query("read == 'write'")
        assert {*digits["prompt"]} == {0, 1} and {*digits["digit"]} == {*range(10)}


def test_what_a_model_or_prompts_do_not_allow_is_said(
    llama: HookedModel, pairs: al.PromptPairs
) -> None:
    bare = al.PromptPairs.from_tokens(
        pairs.reference, pairs.counterfactual, pairs.answer, pairs.attention_mask
    )
    live = ExplorerServer(llama, {"bare": bare})
    request = {"kind": "component", "set": "bare", "component": "1.2"}
    facts, tables = finished(live.respond(request))["bare"]
    assert {"attention", "patterns", "numbers", "digits"} == {*facts["missing"]}
    assert "bare tokens" in facts["missing"]["patterns"] and {*tables} == {"inputs", "mediation"}


def test_files_keep_it_and_the_packed_page_has_its_numbers(exploration: Exploration) -> None:
    again = Exploration.from_arrays(exploration.to_arrays())
    for name, table in exploration.tables.items():
        for column in table:
            assert again.tables[name][column].tolist() == pytest.approx(
                table[column].tolist(), nan_ok=True
            )
    (one,) = unpacked(packed({"a": (exploration.facts, exploration.tables)}))["sets"]
    column = one["tables"]["effects"]["mean"]
    assert column == pytest.approx(exploration.tables["effects"]["mean"].tolist(), rel=1e-3)
    with pytest.raises(ValueError, match="kind 'exploration'"):
        Exploration.from_arrays(Arrays({}, {"kind": "effects"}))


def test_the_copied_code_computes_the_table(
    llama: HookedModel, pairs: al.PromptPairs, exploration: Exploration
) -> None:
    rows = exploration.facts["rows"]
    choice = {
        "component": "1.2",
        "paths": '"via_mlps"',
        "metric": '"relative_logit"',
        "reference": repr((pairs.reference_text or ("",))[0]),
        "rows": repr(rows),
        "edge_rows": repr(exploration.facts["edge_rows"]),
        "stream_rows": repr(exploration.facts["stream_rows"]),
        "read": "write",
        "layer": "1",
        "members": '["1.2"]',
        "candidates": "[5, 6]",
        "among": "heads",
        "receivers": '["1.2"]',
    }
    mlp = {"neurons": "MLP 1"}
    for key, template in CODE.items():
        text = template
        for name, value in (choice | {"component": mlp.get(key, "1.2")}).items():
            text = text.replace(f"{{{name}}}", value)
        scope: dict[str, Any] = {"al": al, "model": llama, "pairs": pairs}
        exec(text, scope)
        assert len(scope["table"]) > 0 and "{" not in text, key


def test_clicks_compute_in_steps_and_own_prompts_make_a_set(
    llama: HookedModel, pairs: al.PromptPairs
) -> None:
    live = ExplorerServer(llama, {"pairs": pairs})
    own = {"reference": "3 plus 5 equals to ", "counterfactual": "3 void 5 equals to "}
    new = finished(live.respond({"kind": "prompt", **own, "answer": "8"}))
    ((name, (facts, tables)),) = new.items()
    assert name == "own prompt 1" and name in live.sets and "One pair" in facts["note"]
    effects: Any = tables["effects"]
    assert effects["ci_low"].isna().all() and effects["mean"].notna().any()
    ask = {"kind": "selection", "set": name, "selection": "knock_out", "members": ["1.2"]}
    ((_, (_, tables)),) = finished(live.respond(ask)).items()
    assert tables["answers"]["prompt"].tolist() == [0, 0]
    with pytest.raises(ValueError, match="token"):
        finished(live.respond({"kind": "prompt", **own, "reference": "3 plus 5 = ", "answer": "8"}))


def test_the_widget_answers_shows_progress_and_can_be_cancelled(
    llama: HookedModel, pairs: al.PromptPairs
) -> None:
    pytest.importorskip("anywidget")
    live = ExplorerServer(llama, {"pairs": pairs})
    effects = al.path_patch(llama, pairs, progress=False)
    widget = Explorer({"pairs": ({}, effect_tables(effects))}, respond=live.respond).widget()
    sent: list[dict[str, Any]] = []
    widget.send = lambda message: sent.append(message)
    request = {"kind": "component", "set": "pairs", "component": "1.2"}

    async def talk() -> None:
        widget._receive({"id": 1, **request})
        widget._receive({"id": 2, **request})
        await asyncio.sleep(0)
        widget._receive({"cancel": 2})
        widget._receive({"id": 3, "kind": "component", "set": "pairs", "component": "9.9"})
        while widget._tasks:
            await asyncio.sleep(0.01)

    asyncio.run(talk())
    by_id = {n: [message for message in sent if message["id"] == n] for n in (1, 2, 3)}
    progress = [message["progress"] for message in by_id[1][:-1]]
    assert progress == sorted(progress) and len(progress) == len(head_parts(
        llama, pairs, sample_rows(pairs), [al.Head(1, 2)], []
    ))  # fmt: skip
    assert "state" in by_id[1][-1] and by_id[2][-1] == {"id": 2, "cancelled": True}
    assert "IndexError" in by_id[3][-1]["error"]
    assert len(widget.tables["pairs"]["attention"]) == 6


def test_effects_show_themselves_without_a_model(llama: HookedModel, pairs: al.PromptPairs) -> None:
    view = al.path_patch(llama, pairs, progress=False).explore()
    page = view.to_html()
    assert "ArithLensExplorer.mount(" in page and "default-src 'none'" in page
    assert "<title>Map of effects</title>" in page
    assert len(page) < 5e6 and "export default" not in page


def test_tokens_are_data(exploration: Exploration) -> None:
    tables = {name: table.copy() for name, table in exploration.tables.items()}
    tables["tokens"]["token"] = HOSTILE
    page = Explorer({HOSTILE: (exploration.facts, tables)}, title=HOSTILE).to_html()
    assert "<script>document" not in page and "<img" not in page


def test_each_script_of_the_page_imports_what_it_uses_from_those_before_it() -> None:
    folder = Path(al.__file__).parent / "explorer_page"
    returned: dict[str, set[str]] = {}
    assert {path.name for path in folder.glob("*.js")} == {*EXPLORER_FILES}
    for name in EXPLORER_FILES:
        text = (folder / name).read_text("utf-8")
        imported: set[str] = set()
        for names, module in re.findall(r"const \{ ([^}]*) \} = (ArithLens\w+);", text):
            assert {*names.split(", ")} <= returned[module], f"{module} comes before {name}"
            imported |= {*names.split(", ")}
        own = text.partition("const { ")[2]
        assert all(len(re.findall(rf"\b{word}\b", own)) > 1 for word in imported), name
        known = {word for words in returned.values() for word in words} - imported
        defined = {*re.findall(r"(?:const|class|function|let) (\w+)", text)}
        assert not {word for word in known - defined if re.search(rf"(?<![\w.]){word}\(", text)}
        (module,) = re.findall(r"^const (\w+) = \(\(\) => \{", text, re.MULTILINE)
        (values,) = re.findall(r"^  return \{ ([^}]*) \};", text, re.MULTILINE)
        returned[module] = {*values.split(", ")}


def test_the_page_says_only_what_is_true_of_it() -> None:
    page = bundle("explorer-code")
    assert "Black frame" not in page, "it is false in the dark theme"
    assert page.count("Darker") == page.count('=== "dark" ? "Lighter" : "Darker"')
    assert "This page does not have it" not in page and "not computed here" not in page


def test_the_pages_map_and_knockouts_are_made_from_rows(exploration: Exploration) -> None:
    from pandas.testing import assert_frame_equal

    from figures.tables.explorer import PAGE_TABLES, page_table, table_rows
    from figures.tables.table import QuestionTable, read_back

    by_name = {name: exploration.tables[name] for name in PAGE_TABLES}
    rows = [
        row
        for prompts in ("addition", "division")
        for name, frame in by_name.items()
        for row in table_rows(name, frame, prompts)
    ]
    again = read_back(QuestionTable.of("explorer", "a model", rows))
    for name, frame in by_name.items():
        page = page_table(again, name, "division")
        assert len(page) == len(frame) and {*page.columns} == {*frame.columns}
        page = page.reindex(columns=frame.columns)
        assert_frame_equal(page, frame, check_dtype=False, rtol=1e-5)
    other = page_table(again.assign(value=again.value + 1), "effects", "division")
    assert not np.allclose(other["mean"], exploration.tables["effects"]["mean"])
