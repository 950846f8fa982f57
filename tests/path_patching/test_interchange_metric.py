"""Interchange in many families, against raw Transformers: is the other problem's answer given?"""

from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from oracles import Raw, effect, make_pairs
from support.families import SWEPT
from torch import Tensor
from torch.testing import assert_close

import arith_lens as al
from arith_lens.attribution import attribute
from arith_lens.components import Head, Mlp, every_head
from arith_lens.knockout import circuit_curve, keep_only, knock_out
from arith_lens.model import load_model
from arith_lens.pairs import PromptPairs
from arith_lens.path_patching import path_patch

SENDERS: list[Head | Mlp] = [Head(0, 1), Head(1, 2), Mlp(0), Mlp(1)]
SMALL = pytest.mark.filterwarnings("ignore:expected counterfactual prompts that change")
"""Random models change some answers by less than 0.1."""
FAMILIES = ("Qwen3", "Gemma 2", "Gemma 3", "Pythia", "Cohere")


def with_other_answers(pairs: PromptPairs, logits: Tensor) -> PromptPairs:
    """C' is the likeliest token of these logits that is not C."""
    first, second = logits.topk(2).indices.unbind(-1)
    other = torch.where(first == pairs.answer, second, first)
    return replace(pairs, counterfactual_answer=other)


def over_answer(logits: Tensor, pairs: PromptPairs) -> Tensor:
    rows = torch.arange(len(pairs))
    return logits[rows, pairs.counterfactual_answer] - logits[rows, pairs.answer]


COMPUTATIONS = [("via_mlps", "sweep"), ("direct", "sweep"), ("total", "hooks")]


@SMALL
@pytest.mark.parametrize("name", FAMILIES)
def test_interchange_is_exact(name: str, tokenizer: Any) -> None:
    """Grouped queries, norms after attention and MLP, soft caps, parallel blocks, scaled logits;
    padded prompts, and one prompt alone."""
    hf = SWEPT[name].make(len(tokenizer))
    plain = [make_pairs(hf, lengths) for lengths in ((9, 6, 8, 7), (7,))]
    raws = [Raw(hf, pairs, SWEPT[name].places) for pairs in plain]
    patched = {
        (i, sender, paths): raw.patched(sender, paths)
        for i, raw in enumerate(raws)
        for sender in SENDERS
        for paths, _ in COMPUTATIONS
    }
    model = load_model((hf, tokenizer))
    moved = []
    for i, raw in enumerate(raws):
        for paths, engine in COMPUTATIONS:
            pairs = with_other_answers(plain[i], patched[i, Mlp(1), paths])
            of_sender = {sender: patched[i, sender, paths] for sender in SENDERS}
            options: dict[str, Any] = {"senders": SENDERS, "paths": paths, "engine": engine}
            moved += compare(model, pairs, raw, of_sender, options)
    assert max(moved) > 1e-2, "the test must be able to fail"


def compare(
    model: Any, pairs: PromptPairs, raw: Raw, patched: dict[Any, Tensor], options: dict[str, Any]
) -> list[float]:
    """Check both metrics; return the largest change by each sender."""
    shares = path_patch(model, pairs, metric="interchange", **options)
    answers = path_patch(model, pairs, metric="answers_other", **options)
    origin, counterfactual = (over_answer(logits, pairs) for logits in raw.logits)
    whole = counterfactual - origin
    moved = []
    for sender, logits in patched.items():
        change = over_answer(logits, pairs) - origin
        right = (change / whole).masked_fill(whole.abs() < 0.1, torch.nan)
        allowed = 20 * raw.tolerance / float(whole.abs().clamp(min=0.1).min())
        assert_close(effect(shares, sender), right, atol=allowed, rtol=1e-3, equal_nan=True)
        said, before = (run.argmax(-1) for run in (logits, raw.logits[0]))
        turned = (said == pairs.counterfactual_answer).float()
        turned -= (before == pairs.counterfactual_answer).float()
        assert_close(effect(answers, sender), turned)
        moved.append(float(change.abs().max()))
    return moved


def test_pairs_without_another_answer_are_left_out_with_a_warning(llama: Any) -> None:
    pairs = make_pairs(llama)
    with pytest.warns(UserWarning, match="found none in 5 of 5 pairs, which are left out"):
        result = path_patch(llama, pairs, senders=[Mlp(1)], metric="interchange")
    assert result.mlps.per_pair[1].isnan().all() and result.n_left_out == 5


@pytest.mark.parametrize("family", ["llama", "mistral"])
def test_a_set_of_components_may_carry_the_other_answer(
    family: str, make_hf: Any, make_model: Any
) -> None:
    """Two heads and an MLP get their outputs on the pair's own counterfactual at END."""
    raw = Raw(make_hf(family), make_pairs(make_hf(family)))
    out = {0: [1], 2: [0, 3]}
    handles = [
        raw._reads_z(layer).register_forward_pre_hook(
            partial(raw._put_z, layer=layer, heads=heads, frozen=False)
        )
        for layer, heads in out.items()
    ]
    handles.append(raw._mlp(1).register_forward_hook(partial(raw._put_mlp, layer=1, run=1)))
    said = raw.run(raw.pairs.reference, handles).argmax(-1)
    assert (said != raw.logits[0].argmax(-1)).any()
    other = said.clone()
    other[0], other[1] = -1, (said[1] + 1) % raw.hf.config.vocab_size
    pairs = replace(raw.pairs, counterfactual_answer=other)
    model = make_model(family)
    chosen = [*(Head(layer, head) for layer, heads in out.items() for head in heads), Mlp(1)]
    options: dict[str, Any] = {"ablation": "counterfactual", "positions": "end"}
    outcomes = knock_out(model, pairs, chosen, **options)
    right = torch.tensor([torch.nan, 0.0, 1.0, 1.0, 1.0])
    right[other == pairs.answer] = torch.nan
    assert_close(outcomes.answers_other, right, equal_nan=True)
    assert outcomes.other_share() == pytest.approx(float(right.nanmean()))
    assert torch.equal(outcomes.top[:, 0], said)
    assert "answered C'" in repr(outcomes)
    assert_close(
        type(outcomes).from_arrays(outcomes.to_arrays()).answers_other, right, equal_nan=True
    )
    some = outcomes.select(torch.tensor([2, 0]))
    assert_close(some.answers_other, right[[2, 0]], equal_nan=True)


def test_with_all_components_replaced_at_end_the_counterfactual_is_answered(
    make_hf: Any, llama: Any
) -> None:
    """END's token is the same in both prompts, so that nothing of the reference is left there."""
    raw = Raw(make_hf("llama"), make_pairs(llama))
    other = raw.logits[1].argmax(-1)
    assert (other != raw.logits[0].argmax(-1)).any()
    pairs = replace(raw.pairs, counterfactual_answer=other)
    kept = keep_only(llama, pairs, [], among="all", ablation="counterfactual", positions="end")
    assert_close(kept.answers_other[other != pairs.answer].mean(), torch.tensor(1.0))


def test_resampled_outputs_count_the_answer_of_their_donor(llama: Any) -> None:
    plain = make_pairs(llama, (7, 7, 7, 7))
    other = torch.tensor([11, 12, 13, 14])
    pairs = replace(plain, counterfactual_answer=other)
    outcomes = knock_out(llama, pairs, [Mlp(1)], ablation="resample", seed=3)
    assert outcomes.counterfactual_answer is not None
    donors = [other.tolist().index(answer) for answer in outcomes.counterfactual_answer.tolist()]
    assert all(donor != pair for pair, donor in enumerate(donors))


@pytest.mark.parametrize(
    "name", ["Llama-3", "Ministral 3", "GPT-NeoX, sequential", "Pythia", "Gemma 3"]
)
@pytest.mark.parametrize("keep", [True, False], ids=["keep_only", "knock_out"])
def test_resampled_heads_carry_the_answer_of_their_donor(
    name: str, keep: bool, tokenizer: Any
) -> None:
    """Heads get their outputs at END on another pair's counterfactual, by torch's hooks."""
    hf = SWEPT[name].make(len(tokenizer))
    plain = make_pairs(hf, (7,) * 6)
    raw, model = Raw(hf, plain, SWEPT[name].places), load_model((hf, tokenizer))
    n_layers, n_heads = model.n_layers, model.n_heads
    named = [Head(0, 1), Head(1, 0), Head(1, 2)]
    out = [one for one in every_head(n_layers, n_heads) if (one in named) != keep]
    options: dict[str, Any] = {"ablation": "resample", "positions": "end", "seed": 5}
    run = partial(keep_only if keep else knock_out, model, components=named, **options)
    numbers = torch.arange(10, 10 + len(plain))
    numbered = replace(plain, answer=plain.answer, counterfactual_answer=numbers)
    known = run(pairs=numbered).counterfactual_answer
    assert known is not None
    donor = torch.where(known < 0, plain.answer, known) - 10
    assert ((donor >= 0) & (donor < len(plain)) & (donor != torch.arange(len(plain)))).all()
    raw.z[1] = [z[donor] for z in raw.z[1]]
    handles = [
        raw._reads_z(layer).register_forward_pre_hook(
            partial(
                raw._put_z,
                layer=layer,
                heads=[one.index for one in out if one.layer == layer],
                frozen=False,
            )
        )
        for layer in range(n_layers)
    ]
    said = raw.run(plain.reference, handles).argmax(-1)
    other = (said[:1] + 1).repeat(len(plain)) % model.cfg.d_vocab
    other[donor] = said  # the last pair of a donor decides
    right = (said == other[donor]).float().masked_fill(other[donor] == plain.answer, torch.nan)
    assert right.nansum() > 1
    outcomes = run(pairs=replace(plain, counterfactual_answer=other))
    assert_close(outcomes.answers_other, right, equal_nan=True)
    assert torch.equal(outcomes.top[:, 0], said)
    turned = replace(plain, counterfactual_answer=other.roll(1))
    assert not torch.equal(run(pairs=turned).answers_other, right), "the test must be able to fail"


def test_a_circuit_curve_counts_other_answers(llama: Any) -> None:
    plain = make_pairs(llama)
    order = [Mlp(1), Mlp(0), Mlp(2)]
    options: dict[str, Any] = {"ablation": "counterfactual", "positions": "end"}
    said = knock_out(llama, plain, order, **options).top[:, 0]
    other = torch.where(said == plain.answer, (said + 1) % llama.cfg.d_vocab, said)
    pairs = replace(plain, counterfactual_answer=other)
    curve = circuit_curve(
        llama, pairs, order, kind="knock_out", among="mlps", metric="answers_other", **options
    )
    alone = knock_out(llama, pairs, order[:1], **options).answers_other
    assert_close(curve.value[curve.sizes.index(3)], (said == other).float())
    assert_close(curve.value[curve.sizes.index(1)], alone)
    with pytest.raises(ValueError, match="5 of 5 without one"):
        circuit_curve(llama, plain, order, among="mlps", metric="answers_other", **options)


@SMALL
def test_gradients_approximate_an_interchange_and_none_is_of_counted_answers(llama: Any) -> None:
    plain = make_pairs(llama)
    pairs = replace(plain, counterfactual_answer=(plain.answer + 1) % llama.cfg.d_vocab)
    exact = path_patch(llama, pairs, metric="interchange", paths="direct")
    approximate = attribute(llama, pairs, metric="interchange", paths="direct", method="atp")
    both = torch.stack([exact.mlps.per_pair.flatten(), approximate.mlps.per_pair.flatten()])
    assert torch.corrcoef(both[:, both.isfinite().all(0)])[0, 1] > 0.5
    with pytest.raises(ValueError, match="expected a metric with a gradient"):
        attribute(llama, pairs, metric="answers_other")


def test_the_strongest_carry_most_of_the_other_answer() -> None:
    model = al.load_model("reference")
    pairs = al.sample_pairs(model, "addition", n=18, counterfactual="operands")
    effects = al.path_patch(model, pairs, metric="interchange", progress=False)
    means = effects.heads.mean()
    largest = int(means.flatten().argmax())
    assert effects.heads.top(1) == [Head(largest // 8, largest % 8)]
    assert effects.top(1) == [Mlp(int(effects.mlps.mean().argmax()))]
    keys = al.key_heads(effects, 0.05)
    assert keys and all(means[head.layer, head.index] > 0.05 for head in keys)
    with pytest.raises(ValueError, match="a threshold above 0 for interchange"):
        al.key_heads(effects, -0.05)


@pytest.mark.parametrize("metric", ["interchange", "share_of_total", "share_of_total_contrast"])
def test_pairs_whose_answer_hardly_changes_leave_with_a_warning(
    metric: str, make_hf: Any, tokenizer: Any
) -> None:
    """Of six pairs, two have a counterfactual that is their reference."""
    model = al.load_model((make_hf("llama"), tokenizer))
    drawn = al.sample_pairs(model, "addition", n=6, counterfactual="operands", keep="all")
    alike = drawn.counterfactual.clone()
    alike[:2] = drawn.reference[:2]
    pairs = replace(drawn, counterfactual=alike)
    small = r"by at least 0\.1, found a smaller change in {} of 6 pairs, which are left out"
    totals = al.path_patch(model, pairs[2:], metric="logit", senders=["0.1"], progress=False)
    assert totals.n_left_out == 0
    with pytest.warns(UserWarning, match=small.format(r"\d")) as caught:
        effects = al.path_patch(model, pairs, metric=metric, progress=False)
    assert len(caught) == 1, "once"
    n = int(effects.heads.per_pair.isnan().all(0).all(0).sum())
    assert n >= 2 and f" {n} of 6 " in str(caught[0].message) and effects.n_left_out == n
    nothing = replace(drawn, counterfactual=drawn.reference)
    with pytest.warns(UserWarning, match=small.format(6)):
        empty = al.path_patch(model, nothing, metric=metric, certify=False, progress=False)
    for part in (empty, empty.heads, empty.mlps):
        with pytest.raises(ValueError, match="expected effects to rank, found NaN for every"):
            part.top(3)
        assert part.top(0) == []


def test_pairs_of_a_logit_that_is_not_positive_leave_with_a_warning(llama: Any) -> None:
    pairs = make_pairs(llama)
    logits = llama(pairs.reference, attention_mask=pairs.attention_mask)[:, -1]
    answer = pairs.answer.clone()
    answer[1] = logits[1].argmin()
    effects: Any = None
    with pytest.warns(UserWarning, match="found 1 of 5 pairs left out"):
        effects = al.path_patch(llama, replace(pairs, answer=answer), progress=False)
    assert effects.n_left_out == 1 and len(effects.top(3)) == 3
    with pytest.warns(UserWarning, match="found 1 of 5 pairs left out"):
        al.neuron_effects(llama, replace(pairs, answer=answer), [0])


def test_pairs_without_a_number_of_ones_own_metric_leave_with_a_warning(llama: Any) -> None:
    pairs = make_pairs(llama)

    def partly(logits: Tensor, of: PromptPairs) -> Tensor:
        return logits[:, 5].masked_fill(torch.isin(of.answer, pairs.answer[:2]), float("nan"))

    with pytest.warns(UserWarning, match=r"'partly\(\)' for each pair, found NaN in 2 of 5 pairs"):
        al.path_patch(llama, pairs, metric=partly, progress=False)
