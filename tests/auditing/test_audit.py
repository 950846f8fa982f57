"""The audit: its shares by torch's own hooks, its verdicts where the truth is known, its faults."""

import inspect
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from oracles import Raw, logits_at_end

import arith_lens as al
from arith_lens.auditing import Audit, Measure, Verdict, auditing, measures, verdicts
from arith_lens.auditing.page import page_of
from arith_lens.auditing.verdicts import (
    FEW,
    LENS,
    NEED,
    ORIGIN,
    PARTS,
    QUESTIONS,
    READ,
    TASK,
    above,
    agreement,
    below,
    suffices,
)
from arith_lens.knockout import half_of_problems

COLUMNS = ["question", "lens", "verdict", "value", "low", "high", "control_low", "control_high"]


def own_answers(model: Any, n: int = 40) -> al.PromptPairs:
    """Random prompts of unequal lengths, of no template; right is what the model says."""
    hf = model.bridge.original_model
    generator = torch.Generator().manual_seed(3)
    width, vocab = 8, hf.config.vocab_size
    lengths = torch.tensor([8, 6, 7])[torch.arange(n) % 3]
    mask = torch.arange(width)[None] >= width - lengths[:, None]
    reference, other = torch.randint(3, vocab, (2, n, width), generator=generator)
    counterfactual = torch.where(torch.arange(width) >= width - 4, other, reference)
    counterfactual[:, -1] = reference[:, -1]
    answers = [logits_at_end(hf, tokens, mask).argmax(-1) for tokens in (reference, counterfactual)]
    return al.PromptPairs.from_tokens(
        reference, counterfactual, answers[0], mask, counterfactual_answer=answers[1]
    )


@pytest.fixture(scope="module")
def llama(make_hf: Any, tokenizer: Any) -> Any:
    """A random model with grouped queries."""
    hf = make_hf("llama", num_key_value_heads=2, num_hidden_layers=2, num_attention_heads=4)
    return al.load_model((hf, tokenizer))


@pytest.fixture(scope="module")
def audited(llama: Any) -> tuple[al.PromptPairs, Audit]:
    pairs = own_answers(llama)
    return pairs, al.audit(llama, pairs, draws=3, progress=False)


def by_hooks(
    model: Any, pairs: al.PromptPairs, heads: set[al.Head], others: al.PromptPairs | None = None
) -> float:
    """The share of right answers if these heads write their mean over counterfactuals at END."""
    raw = Raw(model.bridge.original_model, pairs)
    means = raw.z[1] if others is None else Raw(raw.hf, others).z[1]
    handles = []
    for layer in range(len(raw.layers)):

        def put(_: Any, args: Any, layer: int = layer) -> Any:
            z = args[0].clone()
            for head in heads:
                if head.layer == layer:
                    part = slice(head.index * raw.d_head, (head.index + 1) * raw.d_head)
                    z[:, -1, part] = means[layer][:, -1, part].mean(0)
            return (z, *args[1:])

        handles.append(raw._reads_z(layer).register_forward_pre_hook(put))
    answers = raw.run(pairs.reference, handles).argmax(-1)
    return float((answers == pairs.answer).float().mean())


def test_heads_alone_and_without_them_answer_as_often_as_with_torchs_hooks(
    llama: Any, audited: tuple[al.PromptPairs, Audit]
) -> None:
    pairs, audit = audited
    shown = pairs[~half_of_problems(pairs.problem)]
    every = {al.Head(layer, index) for layer in range(2) for index in range(4)}
    kept, without = (audit.first(question).measure.value for question in (FEW, NEED))
    assert kept == pytest.approx(by_hooks(llama, shown, every - {*audit.heads}))
    assert without == pytest.approx(by_hooks(llama, shown, {*audit.heads}))
    assert kept != pytest.approx(by_hooks(llama, pairs, every - {*audit.heads}), abs=1e-4)


def test_what_a_head_reads_is_its_own_where_heads_share_keys_and_values(
    llama: Any, audited: tuple[al.PromptPairs, Audit]
) -> None:
    pairs, audit = audited
    assert audit.reads is not None
    shown = pairs[~half_of_problems(pairs.problem)]
    asked: dict[str, Any] = {"senders": "together", "metric": "logit", "progress": False}
    heads = audit.heads[: auditing.MOST_READERS]
    own, shared = (
        al.edge_effects(llama, shown, heads, group=group, **asked).per_pair
        for group in ("head", "shared")
    )
    torch.testing.assert_close(audit.reads.per_pair, own)
    assert not torch.allclose(own, shared, atol=1e-4)


def test_means_over_more_prompts_are_those_of_torchs_hooks_and_what_they_cost_is_said(
    llama: Any,
) -> None:
    pairs, more = asked_twice(llama), own_answers(llama, 20)
    audit = al.audit(llama, pairs, means_over=more, draws=2, progress=False)
    shown = pairs[~half_of_problems(pairs.problem)]
    every = {al.Head(layer, index) for layer in range(2) for index in range(4)}
    table = audit.verdicts.set_index(["question", "lens"])
    for question, out in ((FEW, every - {*audit.heads}), (NEED, {*audit.heads})):
        row = table.loc[question, auditing.OTHERS]
        assert row.value == pytest.approx(by_hooks(llama, shown, out, more))
        assert row.value != pytest.approx(by_hooks(llama, shown, out), abs=1e-4)
    lost = table.loc[LENS, "means at END less another prompt's outputs at END"]
    means, resampled = (table.loc[FEW].value[lens] for lens in (auditing.MEANS, auditing.RESAMPLED))
    assert lost.value == pytest.approx(means - resampled) and lost.low <= lost.value <= lost.high
    assert table.loc[LENS, "strength under the same problem"].low < 1


def test_heads_are_chosen_on_the_first_half_alone(
    llama: Any, audited: tuple[al.PromptPairs, Audit]
) -> None:
    pairs, audit = audited
    raw = Raw(llama.bridge.original_model, pairs)
    inside = half_of_problems(pairs.problem)
    answers = torch.cat([pairs.answer, pairs.counterfactual_answer]).unique()

    def lead(logits: torch.Tensor) -> torch.Tensor:
        own = logits.gather(1, pairs.answer[:, None])[:, 0]
        others = logits[:, answers].sum(1) - own
        return own - others / (len(answers) - 1)

    effects = {
        head: (lead(raw.patched(head)) - lead(raw.logits[0]))
        for head in (al.Head(layer, index) for layer in range(2) for index in range(4))
    }
    first = sorted(effects, key=lambda head: float(effects[head][inside].mean()))
    assert list(audit.heads) == first[: len(audit.heads)]
    second = sorted(effects, key=lambda head: float(effects[head][~inside].mean()))
    assert first != second


def test_answers_arise_where_exchanged_streams_say_so(
    llama: Any, audited: tuple[al.PromptPairs, Audit]
) -> None:
    """The stream after the last layer decides; the exchanged MLP is that of torch's own hooks."""
    pairs, audit = audited
    assert audit.origin is not None and audit.mlp is not None
    asked = pairs[pairs.counterfactual_answer != pairs.answer]
    raw = Raw(llama.bridge.original_model, asked)
    mlp = raw.patched(audit.mlp, paths="total").argmax(-1) == asked.counterfactual_answer
    assert audit.origin.per_pair[2 + audit.mlp.layer, 0].bool().tolist() == mlp.tolist()
    assert audit.origin.per_pair[1, 0].mean() == 1
    assert not mlp.all()


def asked_twice(model: Any) -> al.PromptPairs:
    """Two problems of each answer, which two prompts ask each: what a random model says to random
    prompts decides which these are."""
    pairs = own_answers(model, 300)
    groups: dict[tuple[int, int], list[int]] = {}
    for row, key in enumerate(zip(pairs.answer.tolist(), pairs.lengths.tolist(), strict=True)):
        groups.setdefault(key, []).append(row)
    fours = [rows[:4] for rows in groups.values() if len(rows) > 3][:12]
    problem = tuple(f"{n} {i // 2}" for n in range(len(fours)) for i in range(4))
    return replace(pairs[[row for rows in fours for row in rows]], problem=problem)


def test_the_same_answer_is_that_of_another_problem_or_of_another_prompt(llama: Any) -> None:
    pairs = asked_twice(llama)
    rows, same = measures.other_prompts(pairs, 0, same_problem=False)
    again, restated = measures.other_prompts(pairs, 0, same_problem=True)
    assert [*rows] == [*again] == [*range(len(pairs))] and len(pairs) > 20
    asked = dict(zip(map(tuple, pairs.reference.tolist()), pairs.problem, strict=True))
    for own, prompt, other, twin in zip(
        pairs.problem,
        pairs.reference.tolist(),
        same.counterfactual.tolist(),
        restated.counterfactual.tolist(),
        strict=True,
    ):
        assert asked[tuple(other)].split()[0] == own.split()[0]
        assert asked[tuple(other)] != own == asked[tuple(twin)] and twin != prompt
    assert torch.equal(same.counterfactual_answer, pairs.answer)
    turned = torch.stack([pairs.reference[0].roll(shift) for shift in range(len(pairs))])
    whole = torch.ones_like(pairs.attention_mask)
    in_another_order = replace(
        pairs, reference=turned, attention_mask=whole, answer=pairs.answer * 0
    )
    assert not len(measures.other_prompts(in_another_order, 0, same_problem=False)[0])


def test_answers_that_stay_under_a_stream_of_the_same_answer_are_those_of_torchs_hooks(
    llama: Any,
) -> None:
    pairs = asked_twice(llama)
    _, same = measures.other_prompts(pairs, 0, same_problem=False)

    def stays(pairs: al.PromptPairs) -> float:
        raw = Raw(llama.bridge.original_model, pairs)
        streams: list[torch.Tensor] = []

        def keep(_: Any, __: Any, out: Any) -> None:
            streams.append(out[0] if isinstance(out, tuple) else out)

        def put(_: Any, __: Any, out: Any) -> Any:
            changed = (out[0] if isinstance(out, tuple) else out).clone()
            changed[:, -1] = streams[0][:, -1]
            return (changed, *out[1:]) if isinstance(out, tuple) else changed

        raw.run(pairs.counterfactual, [raw.layers[0].register_forward_hook(keep)])
        logits = raw.run(pairs.reference, [raw.layers[0].register_forward_hook(put)])
        return float((logits.argmax(-1) == pairs.answer).float().mean())

    measure = measures.unmoved(llama, pairs, same, 0)
    assert measure.value == pytest.approx(stays(same))
    assert measure.control_high == pytest.approx(stays(pairs))
    assert measures.unmoved(llama, pairs, same, 1).value == 1 != measure.value


def test_the_strength_of_heads_is_that_of_the_half_on_which_they_were_not_chosen() -> None:
    from arith_lens.auditing.measures import Scale
    from arith_lens.effects import HEAD_AXES, Effects

    inside = torch.arange(40) % 2 == 0
    units: Any = {"problem": tuple(map(str, range(40)))}
    own, other = torch.zeros(2, 1, 8, 40)
    own[0, :3], other[0, 3:6] = -2, -1
    other[0, 6][~inside] = -9  # not strong on the half on which heads are chosen
    effects = [Effects(part, HEAD_AXES, "logit", **units) for part in (own, other)]
    measure = measures.strength(effects[0], effects[1], inside, Scale(1, 8, 0, 2))
    assert measure == Measure(0.5, 0.5, 0.5, 1.0, 1.0, 20)
    noisy = Effects(other + torch.randn(other.shape), HEAD_AXES, "logit", **units)
    measure = measures.strength(effects[0], noisy, inside, Scale(1, 8, 0, 2))
    assert measure.low < measure.value < measure.high < 1


def test_every_question_has_a_verdict_and_the_first_row_is_of_the_first_lens(
    audited: tuple[al.PromptPairs, Audit],
) -> None:
    table = audited[1].verdicts
    assert [*table.columns] == [*COLUMNS, "n"]
    assert [*dict.fromkeys(table.question)] == [*QUESTIONS]
    assert {*table.verdict} <= {"holds", "fails", "open"}
    assert audited[1].to_dataframe().equals(table)


@pytest.fixture(scope="module")
def table() -> tuple[Any, Audit]:
    built = al.built_model("table", counterfactual="operands")
    return built, al.audit(built.model, built.pairs, draws=20, progress=False)


def test_the_circuit_of_a_built_model_suffices_and_is_needed(table: tuple[Any, Audit]) -> None:
    """A, the operator and B are copied by a head each; means mix + and -, so all three count."""
    built, audit = table
    assert {*audit.sufficient} == {*audit.needed} == {al.Head(0, 0), al.Head(0, 1), al.Head(0, 2)}
    assert audit.smallest == 3
    assert {question: audit.first(question).verdict for question in QUESTIONS[:5]} == dict.fromkeys(
        QUESTIONS[:5], "holds"
    )
    assert audit.first(FEW).measure.control_high < 0.5
    assert {*audit.sufficient} >= built.truth.heads
    reads = audit.readers().set_index("head")
    assert dict(reads.reads) == {"0.2": "operand b", "0.0": "operand a"}
    assert {*reads.input} == {"v"} and (reads.ci_low <= reads.effect).all()
    assert "0.2 reads B by its values" in audit.sentences()[READ]
    uncertain = audit.readers().assign(ci_high=0.1).itertuples()
    assert verdicts.reading(uncertain) == "", "an interval that holds 0 says nothing"


def test_of_one_operation_alone_the_operator_is_no_part(table: tuple[Any, Audit]) -> None:
    built, _ = table
    sums = built.pairs.filter([name == "addition" for name in built.pairs.operation])
    audit = al.audit(built.model, sums, draws=20, progress=False)
    assert {*audit.sufficient} == {al.Head(0, 0), al.Head(0, 2)} == built.truth.heads


def test_shuffled_answers_stop_the_audit_after_its_first_verdict(
    table: tuple[Any, Audit], monkeypatch: pytest.MonkeyPatch
) -> None:
    built, _ = table
    order = torch.randperm(len(built.pairs), generator=torch.Generator().manual_seed(1))
    shuffled = replace(built.pairs, answer=built.pairs.answer[order])
    monkeypatch.setattr(auditing, "path_patch", lambda *_, **__: pytest.fail("was measured"))
    audit = al.audit(built.model, shuffled, draws=20, progress=False)
    assert audit.first(TASK).verdict == "fails"
    assert {audit.first(question).verdict for question in QUESTIONS[1:]} == {"open"}
    assert audit.sufficient == audit.needed == () and audit.smallest is None
    assert "cannot do the task" in audit.sentences()[FEW]
    assert repr(audit).count("This is open") == 1 and all(one in repr(audit) for one in QUESTIONS)


def test_in_an_untrained_model_nothing_is_found() -> None:
    from arith_lens.neurons import untrained_model

    fresh = untrained_model(al.load_model("reference"))
    pairs = al.sample_pairs(fresh, n=40, counterfactual="operands", keep="all")
    audit = al.audit(fresh, pairs, draws=5, progress=False)
    assert audit.first(TASK).verdict == "fails" and audit.sufficient == ()
    assert "holds" not in {*audit.verdicts.verdict}


def test_what_cannot_be_measured_is_open_and_says_why(table: tuple[Any, Audit]) -> None:
    built, _ = table
    alone = al.audit(built.model, built.pairs[:1], draws=2, progress=False)
    assert {*alone.verdicts.verdict} <= {"open", "fails"}
    silent = replace(built.pairs, counterfactual_answer=torch.full_like(built.pairs.answer, -1))
    audit = al.audit(built.model, silent[:30], draws=2, progress=False)
    assert audit.first(ORIGIN).verdict == "open"
    assert "answer of their own" in audit.sentences()[ORIGIN]
    assert audit.first(FEW).verdict == "holds"


@pytest.mark.parametrize(
    ("pairs", "options", "message"),
    [
        ({}, {}, "expected pairs to audit, found none"),
        (slice(0, 0), {}, "expected pairs to audit, found none"),
        (slice(0, 9), {"draws": 1}, "expected draws of 2 or more, found 1"),
        (slice(0, 9), {"means_over": slice(0, 0)}, "expected pairs to audit, found none"),
    ],
)
def test_bad_arguments_are_refused(
    pairs: Any, options: dict[str, Any], message: str, table: tuple[Any, Audit]
) -> None:
    built, _ = table
    given = built.pairs[pairs] if isinstance(pairs, slice) else pairs
    if "means_over" in options:
        options = {"means_over": built.pairs[options["means_over"]]}
    with pytest.raises(ValueError, match=message):
        al.audit(built.model, given, **options)


def test_what_is_no_model_or_no_pairs_is_refused_by_its_kind(table: tuple[Any, Audit]) -> None:
    built, _ = table
    unchecked: Any = inspect.unwrap(al.audit)  # as outside of tests
    for model, pairs in (("reference", built.pairs), (built.model, None), (built.model, [1, 2])):
        with pytest.raises(TypeError, match="expected a model, then its pairs, found"):
            unchecked(model, pairs)


def test_the_example_of_the_audit_runs() -> None:
    import doctest

    (example,) = doctest.DocTestFinder(recurse=False).find(al.audit, "audit")
    assert doctest.DocTestRunner().run(example) == (0, 5)


def test_other_counterfactuals_are_lenses(table: tuple[Any, Audit]) -> None:
    built, _ = table
    operator = al.built_model("table", counterfactual="operator")
    lenses = {"operands": built.pairs, "operator": operator.pairs}
    audit = al.audit(built.model, lenses, draws=5, progress=False)
    rows = audit.verdicts[audit.verdicts.question == LENS].set_index("lens")
    assert {"verdicts", "heads by C's logit", "heads under operator"} < {*rows.index}
    own, _, other = audit.strongest.values()
    assert [*audit.strongest][::2] == ["heads under operands", "heads under operator"]
    assert {al.Head(0, 0), al.Head(0, 2)} < {*own} and other[0] == al.Head(0, 1)
    assert rows.value["heads under operator"] == pytest.approx(len({*own} & {*other}) / 3)
    nothing = next(one for one in audit.rows if one.lens == "heads under the same problem")
    assert nothing.verdict == "open" and "two prompts of one length" in nothing.reason


def test_a_stopped_audit_goes_on_from_what_is_stored(
    tmp_path: Path, table: tuple[Any, Audit], monkeypatch: pytest.MonkeyPatch
) -> None:
    built, expected = table

    def again() -> Audit:
        with al.open_run("audit", {}, model=built.model, root=tmp_path) as run:
            return al.audit(built.model, built.pairs, draws=20, run=run, progress=False)

    def stopped(*_: Any, **__: Any) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(auditing, "interchange", stopped)
        again()
    with monkeypatch.context() as patch:
        patch.setattr(auditing, "untrained_model", stopped)  # its effects are stored
        assert again().verdicts.equals(expected.verdicts)
        patch.setattr(auditing, "knock_out", stopped)
        assert repr(again()) == repr(expected)


def test_an_audit_is_saved_and_read_back(tmp_path: Path, table: tuple[Any, Audit]) -> None:
    import pandas as pd

    _, audit = table
    folder = audit.save(tmp_path / "audit")
    assert {path.name for path in folder.iterdir()} == {
        "audit.csv", "audit.html", "audit.safetensors"
    }  # fmt: skip
    read = Audit.load(folder)
    assert repr(read) == repr(audit) and read.verdicts.equals(audit.verdicts)
    assert read.effects is not None and audit.effects is not None
    assert torch.equal(read.effects.heads.per_pair, audit.effects.heads.per_pair)
    assert read.strongest == audit.strongest != {}
    of_csv = pd.read_csv(audit.save(tmp_path / "table.csv"), keep_default_na=True)
    assert [*of_csv.columns] == [*COLUMNS, "n"] and len(of_csv) == len(audit.verdicts)


def test_the_page_says_the_answer_first_and_needs_no_network(
    tmp_path: Path, table: tuple[Any, Audit]
) -> None:
    _, audit = table
    named = replace(audit, model="<b>mine</b>")
    text = named.page(tmp_path / "audit.html").read_text("utf-8")
    assert "<b>mine</b>" not in text and "&lt;b&gt;mine" in text
    places = [text.index(question) for question in QUESTIONS]
    assert places == sorted(places) and places[-1] < text.index("<h2>")
    assert "http://" not in text.replace("http://www.w3.org", "") and "https://" not in text
    assert "nan" not in text.lower().replace("nanum", "")
    assert "heads by C&#39;s logit: 0." in text
    assert "too few problems are asked by two prompts of one length" in text
    assert FEW in audit._repr_html_()


def test_a_path_whose_interval_holds_0_is_grey_and_the_page_says_so(
    table: tuple[Any, Audit], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, audit = table
    paths = audit.readers().assign(ci_low=-1.0, ci_high=-0.5)
    for n_open in (0, 1):
        paths.loc[paths.index[:n_open], "ci_high"] = 0.5
        monkeypatch.setattr(Audit, "readers", lambda _, paths=paths: paths)
        shown = page_of(audit).partition("What each head reads")[2].partition("Every number")[0]
        assert shown.count('<tr class="open">') == n_open < len(paths)
        assert ("Grey: the interval holds 0" in shown) == bool(n_open)


def test_the_page_says_beside_a_verdict_how_many_lenses_agree_and_their_worst(
    table: tuple[Any, Audit],
) -> None:
    _, audit = table
    few = [Verdict(FEW, lens, "holds", Measure(1.0, 0.9, 1.0, 0.1, 0.2, 9)) for lens in ("a", "b")]
    few += [Verdict(FEW, "c", "fails", Measure(0.67)), Verdict(FEW, "d", "fails", Measure(0.33))]
    need = [Verdict(NEED, "a", "holds", Measure(0.2)), Verdict(NEED, "b", "open", Measure(0.7))]
    task = Verdict(TASK, "all prompts", "holds", Measure(1.0, 0.9, 1.0, 0.1, 0.2, 36))
    kept = [one for one in audit.rows if one.question in (PARTS, READ, ORIGIN)]
    depends = Verdict(LENS, "verdicts", "holds", Measure(0.5, n=4))
    mixed = replace(audit, rows=(task, *kept, *few, *need, depends), heads=(al.Head(0, 1),))
    page = page_of(mixed, "sums")
    cells = {
        question: page.partition(f"{question}</th>")[2].partition("</tr>")[0]
        for question in QUESTIONS
    }
    assert "●●○○ <b>in 2 of 4 lenses</b>" in cells[FEW], "a mark for each lens"
    assert "● a, b; ○ c, d; 33% in the worst" in cells[FEW] and "<td>Yes (a): " in cells[FEW]
    assert cells[FEW].count('fill="none"') == 2, "a ring for each other lens"
    assert "<b>in 1 of 2 lenses (1 open)</b>" in cells[NEED]
    assert "● a; ◐ b; 70% in the worst" in cells[NEED], "the answers that stay right"
    assert "● <b>holds</b>" in cells[TASK] and "lenses" not in cells[TASK]
    finding = "(0.1) is needed in 1 of 2 tests (1 open); alone it is enough in 2 of 4.</b>"
    tests = "<br>Needed: with a; open with b. Enough alone: with a, b; not with c, d."
    assert f"{finding}{tests}" in page.partition(TASK)[0], "the finding is first"
    two = replace(
        mixed, heads=(al.Head(0, 1), al.Head(0, 0)), rows=(task, *kept, *few[:2], need[1], depends)
    )
    few_of = f"Two of {mixed.n_heads} heads (0.1, 0.0) are needed in 0 of 1 tests (1 open); "
    assert few_of in page_of(two)
    assert "alone they are enough in all 2.</b>" in page_of(two)
    assert "chosen on one half alone" in page.partition("means over all\nproblems")[2]
    assert "One of 96 heads (0.1) is " in page_of(replace(mixed, n_heads=96))
    cannot = replace(task, verdict="fails")
    assert "Needed: " not in page_of(replace(mixed, rows=(cannot, *mixed.rows[1:])))
    assert "<b>yes</b>" in cells[LENS] and "●" not in cells[LENS], "no mark of success"
    assert "Open: 1 of 8." in cells[LENS]
    assert "2 of 4 verdicts are alike; no control" in cells[LENS] and "<svg" not in cells[LENS]
    assert f"<title>Audit: {audit.model}, sums, 36 problems</title>" in page
    svg = page.partition('role="img" aria-label="The map')[2].partition("</svg>")[0]
    assert "prefers-color-scheme:dark" in svg and "#15181e" in svg, "in the dark's own colours"
    assert "via_mlps" not in svg and "digit_contrast" not in svg
    (frame,) = re.findall(r"\.(s\d+){[^}]*stroke:#1f2430[^}]*}", svg.partition("@media")[0])
    assert svg.count(f'class="{frame}"') == 1, "a frame for the one head"
    assert ">0.1</text>" in svg and ">0.2</text>" not in svg, "and its name"
    assert page.index(">0</span><span>100%") < page.index(FEW), "one axis, on the first strip"
    rows = page.partition("Every number")[2]
    assert re.findall(r"<span>(.*?)</span>", rows) == [*QUESTIONS], "each question once"
    assert "100%<small>[90%, 100%]</small>" in rows and "10% to 20%" in rows


RULES = {
    (above, (0.9, 0.8, 1.0, 0.1, 0.7)): "holds",
    (above, (0.9, 0.6, 1.0, 0.1, 0.7)): "open",
    (above, (0.7, 0.6, 0.8, 0.1, 0.7)): "fails",
    (below, (0.2, 0.1, 0.3, 0.4, 0.9)): "holds",
    (below, (0.2, 0.1, 0.5, 0.4, 0.9)): "open",
    (below, (0.5, 0.4, 0.6, 0.4, 0.9)): "fails",
    (below, (float("nan"), 0.4, 0.6, 0.4, 0.9)): "open",
}


@pytest.mark.parametrize("case", RULES)
def test_a_claim_holds_if_its_interval_is_beyond_every_control(case: Any) -> None:
    rule, numbers = case
    assert rule(Measure(*numbers, n=9)) == RULES[case]


def test_a_control_that_is_a_share_counts_with_its_interval() -> None:
    """One wrong answer of eleven, where other heads leave none wrong, shows nothing."""
    lost = Measure(0.91, 0.56, 0.99, 1.0, 1.0, 11, control_least=0.69, control_most=1.0)
    assert below(lost) == "open" and below(replace(lost, control_least=1.0)) == "holds"
    assert below(replace(lost, value=0.3, high=0.6)) == "holds"
    reached = Measure(0.9, 0.6, 0.99, 0.1, 0.4, 11, control_least=0.0, control_most=0.7)
    assert above(reached) == "open" and above(replace(reached, low=0.75)) == "holds"


def test_heads_suffice_if_they_reach_enough_on_both_halves() -> None:
    good = Measure(0.95, 0.85, 0.99, 0.1, 0.4, 9)
    assert suffices(good, reached=True) == "holds"
    assert suffices(good, reached=False) == "open"
    assert suffices(replace(good, high=0.89), reached=True) == "fails"
    assert suffices(replace(good, control_high=0.96), reached=True) == "fails"


def test_a_verdict_depends_on_the_lens_if_another_lens_says_the_opposite() -> None:
    def of(*pairs: tuple[str, str]) -> str:
        return agreement(LENS, [Verdict(one, "", verdict) for one, verdict in pairs]).verdict

    same = (FEW, "holds"), (FEW, "holds"), (NEED, "fails"), (NEED, "fails")
    assert of(*same) == "fails"
    assert of(*same, (FEW, "open")) == "open"
    assert of(*same, (FEW, "open"), (NEED, "holds")) == "holds"
    assert of((FEW, "holds"), (FEW, "fails"), (FEW, "holds"), (NEED, "holds")) == "holds"
    assert of((PARTS, "holds"), (FEW, "holds"), (FEW, "fails"), (NEED, "holds")) == "holds"
    assert of((FEW, "holds"), (NEED, "fails"), (PARTS, "open"), (READ, "holds")) == "open"


def test_every_verdict_has_its_sentence() -> None:
    names = {"few": 3, "n_heads": 8, "size": 3, "heads": "0.1", "place": "layer 0"}
    names |= {"reads": "", "beyond": ""}
    for question in QUESTIONS:
        for verdict in ("holds", "fails", "open"):
            row = Verdict(question, "at END", verdict, Measure(0.5, 0.4, 0.6, 0.1, 0.2, 9))
            text = verdicts.sentence(row, **names)  # pyright: ignore[reportArgumentType]
            assert text.endswith(".") and "{" not in text
            assert ("(at END)" in text) == (question in (FEW, NEED)), (
                "where the others are replaced"
            )


def test_the_answer_on_lenses_says_what_its_verdict_does_not_count() -> None:
    same = [Verdict(FEW, lens, "holds") for lens in ("a", "b")]
    assert verdicts.beyond(same) == ""
    arises = [Verdict(ORIGIN, verdict, verdict) for verdict in ("fails", "open")]
    other = Verdict(LENS, "heads under operator", "holds")
    text = verdicts.beyond([*same, Verdict(NEED, "a", "open"), *arises, other])
    assert "Open: 1 of 3." in text
    assert "Also changed: “heads under operator”." in text
    assert "changes under 1 of 1." in text
    gain = verdicts.beyond([*same, Verdict(LENS, auditing.GAIN, "holds")])
    assert "“means at END” against “another prompt's outputs at END”" in gain


def test_one_head_is_spoken_of_as_one_and_a_token_without_a_role_by_its_position() -> None:
    names = {"few": 1, "n_heads": 270, "size": 1, "heads": "23.4", "place": "", "reads": "",
             "beyond": ""}  # fmt: skip
    measure = Measure(0.9, 0.6, 1.0, 0.1, 0.2, 6)
    texts: dict[str, str] = {}
    for question in (PARTS, FEW, NEED):
        row = Verdict(question, "at END", "open", measure)
        texts[question] = verdicts.sentence(row, **names)  # pyright: ignore[reportArgumentType]
    assert texts[PARTS].startswith("The strongest of 270 heads has 90%")
    assert texts[FEW].startswith("The strongest of 270 heads keeps 90%")
    assert texts[NEED].startswith("Without this head (at END) 90%")
    path = SimpleNamespace(reads="3", input="v")
    assert verdicts.read_by(path) == "token 3 by its values"
    assert verdicts.read_by(SimpleNamespace(reads="operand b", input="k")) == "B by its keys"


def test_a_gain_is_said_in_points_and_equal_controls_once() -> None:
    names = {"few": 3, "n_heads": 8, "size": 3, "heads": "0.1", "place": "layer 0"}
    names |= {"reads": "", "beyond": ""}
    measure = Measure(0.33, -0.26, 0.8, 0.17, 0.17, 6)
    gain, few = (
        verdicts.sentence(Verdict(question, "at END", "open", measure), **names)  # pyright: ignore[reportArgumentType]
        for question in (ORIGIN, FEW)
    )
    assert "33 points [−26, 80] more" in gain and "%" not in gain
    assert "other sets of this size 17% each" in few


def test_an_interval_is_around_its_number_and_few_is_at_most_five_percent() -> None:
    from arith_lens.auditing.measures import Scale, concentration
    from arith_lens.effects import HEAD_AXES, Effects

    noise = torch.randn(30, 9, 40, generator=torch.Generator().manual_seed(0))
    noise[20, 8] -= 10
    effects = Effects(noise, HEAD_AXES, "logit", problem=tuple(map(str, range(40))))
    scale = Scale(30, 9, seed=0, draws=5)
    inside = torch.arange(40) % 2 == 0
    measure = concentration(effects, inside, scale, 5)
    mean = noise[..., ~inside].mean(-1).clamp(max=0)
    first = noise[..., inside].mean(-1).flatten().argsort()[:13]
    assert scale.few == 13 and Scale(1, 8, 0, 5).few == 3 and Scale(1, 4, 0, 5).few == 2
    assert measure.value == pytest.approx(float(mean.flatten()[first].sum() / mean.sum()), rel=1e-4)
    assert measure.low < measure.value < measure.high


def test_heads_that_replace_one_another_are_found_by_growing() -> None:
    """Two heads copy A and either suffices, so each alone has no effect."""
    built = al.built_model("redundant", counterfactual="operands")
    audit = al.audit(built.model, built.pairs, draws=5, progress=False)
    assert audit.effects is not None
    copies = [audit.effects.heads[one].mean() for one in ("0.0", "0.6")]
    assert min(map(float, copies)) > float(audit.effects.heads["0.2"].mean()) / 2
    assert audit.smallest is None or audit.smallest > audit.few
    assert audit.first(FEW).verdict == "holds" and len(audit.sufficient) <= 3
    assert {al.Head(0, 1), al.Head(0, 2)} < {*audit.sufficient}
