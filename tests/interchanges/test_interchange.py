"""Interchanges: the logits of plain Transformers with torch's own hooks, and what must follow."""

import inspect
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch
from oracles import logits_at_end
from torch import Tensor

import arith_lens as al
from arith_lens.effects import crossed_draws
from arith_lens.interchanges import (
    Interchange,
    InterchangePairs,
    SiteRuns,
    TooFewPairs,
    site_runs,
    spaces,
    swapped,
)
from arith_lens.interchanges.controls import (
    COMPLEMENT,
    ELSEWHERE,
    SHUFFLED,
    SPAN,
    STREAM,
    VARIANCE,
    WRITE,
    WRITE_SPAN,
    FittedSite,
    orthogonal_part,
)
from arith_lens.interchanges.interchange import _other_basis, _states
from arith_lens.interchanges.runs import role_columns
from arith_lens.interchanges.spaces import FitData, principal_directions
from arith_lens.model import HookedModel
from arith_lens.pairs import Role

CARRY = al.causal_model("addition", "carry")
SITES = (
    al.Site(0),
    al.Site(2),
    al.Site(0, Role.OPERAND_A),
    al.Site(1, Role.OPERAND_B, token=-1),
    al.Head(1, 3),
    al.Mlp(1),
    al.Neuron(1, 5),
)


@pytest.fixture(scope="module")
def drawn(tokenizer: Any) -> InterchangePairs:
    """Prompts of two lengths, so that some are padded."""
    return al.interchange_pairs(tokenizer, CARRY, n=48, templates=["addition/0", "addition/1"])


def on_itself(model: HookedModel, pairs: InterchangePairs, side: str) -> InterchangePairs:
    """The same pairs; what this model answers to one side is expected."""
    hf = model.bridge.original_model
    logits = logits_at_end(hf, getattr(pairs.pairs, side), pairs.pairs.attention_mask)
    return replace(pairs, expected=logits.argmax(-1))


def plain_run(model: HookedModel, tokens: Tensor, mask: Tensor, hooks: list[Any]) -> Tensor:
    try:
        return logits_at_end(model.bridge.original_model, tokens, mask)
    finally:
        for handle in hooks:
            handle.remove()


def plain_part(
    model: HookedModel, site: Any, pairs: al.PromptPairs, change: Any
) -> tuple[Any, list[Any]]:
    """A torch hook at a site: `change` gets [pair width] and returns it, or None."""
    block = model.bridge.original_model.model.layers[site.layer]
    row = torch.arange(len(pairs))[:, None]
    columns = torch.full((len(pairs), 1), -1)
    if isinstance(site, al.Site) and not site.is_end:
        columns = role_columns(pairs, site)
    d_head = model.d_head
    part = (
        slice(site.index * d_head, (site.index + 1) * d_head)
        if isinstance(site, al.Head)
        else slice(None)
    )
    if isinstance(site, al.Neuron):
        part = slice(site.index, site.index + 1)

    def edited(activation: Tensor) -> Tensor:
        new = change(activation[row, columns][..., part].flatten(1))
        if new is None:
            return activation
        activation = activation.clone()
        rows = activation[row, columns]
        rows[..., part] = new.unflatten(1, (columns.shape[1], -1))
        activation[row, columns] = rows
        return activation

    def after(_: Any, __: Any, out: Any) -> Any:
        return (edited(out[0]), *out[1:]) if isinstance(out, tuple) else edited(out)

    if isinstance(site, al.Head):
        return block.self_attn.o_proj.register_forward_pre_hook(lambda _, x: (edited(x[0]),))
    if isinstance(site, al.Neuron):
        return block.mlp.down_proj.register_forward_pre_hook(lambda _, x: (edited(x[0]),))
    if isinstance(site, al.Mlp):
        return block.mlp.register_forward_hook(after)
    return block.register_forward_hook(after)


def plain_swap(model: HookedModel, pairs: al.PromptPairs, site: Any, basis: Tensor) -> Tensor:
    """h + (h_source - h_base) Q Qᵀ with torch's own hooks on plain Transformers."""
    seen: list[Tensor] = []
    mask = pairs.attention_mask
    for tokens in (pairs.reference, pairs.counterfactual):
        handle = plain_part(model, site, pairs, lambda x: seen.append(x.clone()))
        plain_run(model, tokens, mask, [handle])
    base, source = seen
    projector = basis @ basis.T
    handle = plain_part(model, site, pairs, lambda x: base + (source - base) @ projector)
    return plain_run(model, pairs.reference, mask, [handle])


def random_basis(width: int, k: int) -> Tensor:
    return torch.linalg.qr(torch.randn(width, k, generator=torch.Generator().manual_seed(k)))[0]


@pytest.mark.parametrize("site", SITES, ids=str)
def test_a_swap_is_that_of_plain_transformers(
    model: HookedModel, drawn: InterchangePairs, site: Any
) -> None:
    pairs = drawn.pairs[:12]
    ((runs,),) = site_runs(model, pairs, [site], batch_size=12)
    plain = logits_at_end(model.bridge.original_model, pairs.reference, pairs.attention_mask)
    width = runs.base.shape[1]
    for k in (1, min(3, width)):
        basis = random_basis(width, k)
        found = runs.logits(swapped(runs.base, runs.source, basis)[None])[0]
        wanted = plain_swap(model, pairs, site, basis)
        torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)
    other = plain_swap(
        model, pairs, site, random_basis(width, 2) if width > 1 else torch.zeros(1, 1)
    )
    assert not torch.allclose(found, other, atol=1e-3 if width > 1 else 1e-6)
    whole = runs.logits(torch.stack([runs.source, runs.base]))
    every = runs.logits(swapped(runs.base, runs.source, torch.eye(len(basis)))[None])[0]
    torch.testing.assert_close(every, whole[0], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(whole[1], plain, rtol=1e-5, atol=1e-5)


def test_the_tokens_of_a_role_are_those_of_its_span(drawn: InterchangePairs) -> None:
    spans = (drawn.pairs.spans or {})[Role.OPERAND_B]
    found = {
        at: role_columns(drawn.pairs, al.Site(1, Role.OPERAND_B, at)) for at in (None, 0, -1, -2)
    }
    assert torch.equal(found[None], torch.stack([spans[:, 0], spans[:, 1] - 1], dim=1))
    assert torch.equal(found[0], spans[:, :1]) and torch.equal(found[-2], found[0])
    assert torch.equal(found[-1], spans[:, 1:] - 1) and not torch.equal(found[-1], found[0])


def test_a_swap_is_that_of_pyvene(llama: HookedModel, drawn: InterchangePairs) -> None:
    pyvene = pytest.importorskip("pyvene", reason="needs pyvene, which is no dependency")
    pairs = drawn.pairs.filter(drawn.pairs.lengths == int(drawn.pairs.lengths[0]))[:4]
    first = int((~pairs.attention_mask[0]).sum())
    basis = random_basis(llama.d_model, 2)
    config = pyvene.IntervenableConfig(
        [{"layer": 1, "component": "block_output", "low_rank_dimension": 2}],
        pyvene.LowRankRotatedSpaceIntervention,
    )
    inner = pyvene.IntervenableModel(config, llama.bridge.original_model)
    (intervention,) = inner.interventions.values()
    rotation = getattr(intervention, "rotate_layer", None) or intervention[0].rotate_layer
    rotation.parametrizations.weight[0].base = None
    del rotation.parametrizations
    rotation.weight = torch.nn.Parameter(basis)
    prompts = [
        {"input_ids": tokens[:, first:]} for tokens in (pairs.reference, pairs.counterfactual)
    ]
    width = prompts[0]["input_ids"].shape[1] - 1
    _, out = inner(prompts[0], [prompts[1]], {"sources->base": width})
    ((runs,),) = site_runs(llama, pairs, [al.Site(1)], batch_size=4)
    found = runs.logits(swapped(runs.base, runs.source, basis)[None])[0]
    torch.testing.assert_close(found, out.logits[:, -1], rtol=1e-5, atol=1e-5)


def test_at_the_last_layer_the_whole_site_gives_the_answers_of_the_source(
    model: HookedModel, drawn: InterchangePairs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In several batches, the last of which is smaller."""
    monkeypatch.setattr(import_module("arith_lens.interchanges.interchange"), "BATCH", 7)
    for layer, side, equal in ((2, "counterfactual", True), (2, "reference", False)):
        expected = on_itself(model, drawn, side)
        result = al.interchange(model, expected, al.Site(layer), space="whole")
        assert result.spaces == ("whole",) and result.effects.n_pairs == int(drawn.test.sum())
        assert (float(result.iia) == 1) is equal


def test_the_mean_direction_is_the_difference_of_means(
    llama: HookedModel, drawn: InterchangePairs, tmp_path: Path
) -> None:
    sites = [al.Site(0), al.Site(1), al.Mlp(1)]
    result = al.interchange(llama, drawn, sites, seed=3)
    fitted = drawn[drawn.fit]
    (batch,) = site_runs(llama, fitted.pairs, sites, batch_size=99)
    states = torch.cat([batch[1].base, batch[1].source])
    carry = torch.cat([fitted.values[:, 0], fitted.values[:, 1]]) == 1
    wanted = states[carry].mean(0) - states[~carry].mean(0)
    found = result.bases["stream 1 at END"][:, 0].float()
    torch.testing.assert_close(found, wanted / wanted.norm(), rtol=1e-4, atol=1e-5)
    assert result.iia.shape == (3, 10) and not result.iia[:2].isnan().any()
    assert bool(result.iia[2, result.spaces.index("of another site")].isfinite())
    one = replace(result.effects, per_pair=result.effects.per_pair[:, 0], axes=("site",))
    for name, right in result.draws.items():
        column = result.spaces.index(name)
        assert torch.equal(result.effects.per_pair[:, column], right.float().mean(1))
        crossed = crossed_draws(right.float(), replace(one, labels=None))
        assert torch.equal(result.ci()[:, :, column], crossed.ci()), name
    low, high = result.ci()
    assert bool((low <= result.iia + 1e-6).all()) and bool((high >= result.iia - 1e-6).all())
    assert result.effects.problem == drawn[drawn.test].pairs.problem
    assert result.n_problems == len({*drawn[drawn.test].pairs.problem})
    back = Interchange.from_arrays(result.to_arrays())
    assert torch.equal(back.effects.per_pair, result.effects.per_pair)
    assert torch.equal(back.bases["stream 1 at END"], result.bases["stream 1 at END"])
    assert "highest at" in repr(back) and len(back.to_dataframe()) == 30


def test_a_search_raises_the_share_of_expected_answers(
    llama: HookedModel, drawn: InterchangePairs
) -> None:
    """Of what this model itself answers to the source: a few directions suffice, one does not."""
    pairs = on_itself(llama, drawn, "counterfactual")
    random = al.interchange(llama, pairs, al.Site(2), space="pca", k=1)
    found = al.interchange(llama, pairs, al.Site(2), space="das", k=6, draws=1)
    assert float(found.iia[0, 1]) >= float(random.iia[0, 1])
    basis = found.bases["stream 2 at END"]
    torch.testing.assert_close(basis.T @ basis, torch.eye(6).double(), rtol=1e-5, atol=1e-5)
    again = al.interchange(llama, pairs, al.Site(2), space="das", k=6, draws=1)
    assert torch.equal(again.bases["stream 2 at END"], basis)
    parts = (again.effects.per_pair, found.effects.per_pair)
    torch.testing.assert_close(*parts, rtol=0, atol=0, equal_nan=True)


def test_controls_of_the_span_are_orthogonal_to_the_subspace() -> None:
    rows = torch.randn(9, 4, generator=torch.Generator().manual_seed(0)).double()
    basis = torch.linalg.qr(torch.randn(9, 2).double())[0]
    left = orthogonal_part(rows, basis)
    assert left.shape == (9, 4)
    torch.testing.assert_close(basis.T @ left, torch.zeros(2, 4).double())
    inside = orthogonal_part(torch.cat([rows[:, :1], basis], dim=1), basis)
    assert inside.shape == (9, 1)


def fit_data(first: float = 1.0) -> FitData:
    """Twelve pairs of states far from zero, in two batches, which differ along the variable.

    With a negative number, the first pair differs against it, and so does SVD's first direction.
    """
    generator = torch.Generator().manual_seed(0)
    values = torch.tensor([[0, 1], [1, 0]] * 6)
    noise, direction = torch.randn(2, 12, 30, generator=generator), torch.linspace(-1, 2, 30)
    size = torch.tensor([first] + [1.0] * 11)[:, None]
    base, source = noise + 9 + values.T[:, :, None] * direction * size
    runs = [
        SiteRuns(base[rows], source[rows], lambda values: values, 30)
        for rows in (slice(0, 7), slice(7, 12))
    ]
    return FitData(runs, torch.arange(12), torch.arange(12) + 20, values)


@pytest.mark.parametrize("first", [1.0, -1.0])
@pytest.mark.parametrize(("space", "k"), [("mean", 1), ("pca", 1), ("pca", 2)])
def test_controls_of_a_subspace_are_what_their_names_say(space: str, k: int, first: float) -> None:
    data = fit_data(first)
    fitted = FittedSite.of(data, space, k, 3, torch.Generator().manual_seed(4))
    basis = fitted.basis
    assert basis is not None
    up = data.values[:, 1] - data.values[:, 0]
    moved = up[:, None] * (data.source - data.base).double()
    assert fitted.length == pytest.approx(float((moved @ basis[:, 0]).mean())) and fitted.length > 0
    for name in (SPAN, STREAM):
        one, *others = fitted.controls[name]
        torch.testing.assert_close(one.T @ one, torch.eye(k).double())
        assert len(others) == 2 and not any(torch.allclose(one, other) for other in others)
    span = torch.linalg.qr(torch.cat([principal_directions(moved, 8 + k), basis], dim=1))[0]
    for one in fitted.controls[SPAN]:
        torch.testing.assert_close(basis.T @ one, torch.zeros(k, k).double())
        torch.testing.assert_close(span @ (span.T @ one), one)
    assert float((basis.T @ fitted.controls[STREAM][0]).norm()) > 1e-3
    states = torch.cat([data.base, data.source]).double()
    centred = (states - states.mean(0)).T @ (states - states.mean(0))
    wanted = torch.linalg.eigh(centred)[1][:, -k:]
    found = fitted.controls[VARIANCE][0]
    torch.testing.assert_close(found @ found.T, wanted @ wanted.T)
    assert len(fitted.controls[SHUFFLED]) == (3 if space == "mean" else 0)


def test_a_search_is_stopped_by_pairs_that_it_does_not_fit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Gradients are of four pairs in five, and the fifth decides which basis is the best."""
    data, right, rows = fit_data(), spaces._loss, {True: set[int](), False: set[int]()}

    def loss(run: SiteRuns, expected: Tensor, basis: Tensor, chosen: Tensor) -> Tensor:
        start = 0 if run is data.runs[0] else 7
        rows[torch.is_grad_enabled()] |= {*(start + chosen.nonzero().flatten()).tolist()}
        return right(run, expected, basis, chosen)

    monkeypatch.setattr(spaces, "_loss", loss)
    monkeypatch.setattr(spaces, "STEPS", 20)
    with torch.no_grad():
        basis = spaces.das_basis(data, 2, torch.Generator().manual_seed(0))
    torch.testing.assert_close(basis.T @ basis, torch.eye(2).double(), rtol=1e-5, atol=1e-5)
    assert rows == {True: {*range(12)} - {4, 11}, False: {4, 11}}


def test_a_shuffled_fit_has_other_values_and_expects_what_follows_them() -> None:
    data = fit_data()
    order = torch.randperm(24, generator=torch.Generator().manual_seed(4))
    values = data.values.flatten()[order].view(12, 2)
    shuffled = data.shuffled(torch.Generator().manual_seed(4))
    assert torch.equal(shuffled.values, values) and not torch.equal(values, data.values)
    keeps = values[:, 0] == values[:, 1]
    assert 0 < int(keeps.sum()) < 12
    assert torch.equal(shuffled.expected, torch.arange(12) + 20 * keeps)
    states = torch.cat([data.base, data.source]).double()
    high = values.T.flatten() == 1
    wanted = states[high].mean(0) - states[~high].mean(0)
    fitted = FittedSite.of(data, "mean", 1, 1, torch.Generator().manual_seed(4))
    found = fitted.controls[SHUFFLED][0][:, 0]
    torch.testing.assert_close(found, wanted / wanted.norm())


def test_states_of_each_control_by_hand() -> None:
    data = fit_data()
    run, value = data.runs[0], data.values[:7, 0]
    own, span, other = torch.eye(30).double().split(1, dim=1)[:3]
    fitted = FittedSite(own, 2.0, {SPAN: (span, other)})

    def made(name: str) -> Tensor:
        return _states(run, fitted, other, name, value)

    step = 2.0 * (1 - 2.0 * value)
    wanted = {"mean": run.base.clone(), COMPLEMENT: run.source.clone()}
    wanted |= {name: run.base.clone() for name in (WRITE, SPAN, WRITE_SPAN, ELSEWHERE)}
    wanted["mean"][:, 0], wanted[COMPLEMENT][:, 0] = run.source[:, 0], run.base[:, 0]
    wanted[SPAN][:, 1], wanted[ELSEWHERE][:, 2] = run.source[:, 1], run.source[:, 2]
    wanted[WRITE][:, 0] += step
    wanted[WRITE_SPAN][:, 1] += step
    for name, states in wanted.items():
        torch.testing.assert_close(made(name)[0], states)
        assert len(made(name)) == (2 if name in (SPAN, WRITE_SPAN) else 1)
    assert len(_states(run, fitted, None, ELSEWHERE, value)) == 0
    sites = [FittedSite(one, 1.0) for one in (own, span, torch.eye(8)[:, :1], other)]
    bases = [_other_basis(sites, number) for number in range(4)]
    assert bases[0] is other and bases[1] is bases[3] is own and bases[2] is None


@pytest.mark.parametrize(
    ("sites", "options", "message"),
    [
        (al.Site(3), {}, "expected a layer from 0 to 2, found stream 3 at END"),
        (al.Site(2, Role.OPERAND_A), {}, "no layer reads this token after that"),
        (al.Head(0, 4), {}, "expected a head from 0 to 3"),
        (al.Neuron(0, 9999), {}, "expected a neuron from 0 to"),
        (al.Neuron(0, 1), {}, "expected space='whole' with neurons, found 'mean' and MLP 0.1"),
        ([], {}, "expected different sites"),
        (al.Site(1), {"space": "ica"}, "expected space among whole, mean, pca, das"),
        (al.Site(1), {"space": "das", "k": 40}, "could remember each of them"),
        (al.Site(1), {"k": 2}, "expected k=1 and a variable of two values"),
        (al.Site(1, Role.OPERAND_A), {}, "expected one token, and no search before END"),
    ],
)
def test_bad_input_is_refused_by_name(
    llama: HookedModel, drawn: InterchangePairs, sites: Any, options: Any, message: str
) -> None:
    with pytest.raises((ValueError, IndexError), match=message):
        al.interchange(llama, drawn, sites, **options)


def test_pairs_that_cannot_be_exchanged_are_refused(
    llama: HookedModel, drawn: InterchangePairs
) -> None:
    with pytest.raises(TypeError, match="expected pairs of interchange_pairs, or PromptPairs, f"):
        inspect.unwrap(al.interchange)(llama, [1, 2], al.Site(1))  # pyright: ignore
    same = replace(drawn, values=torch.zeros_like(drawn.values))
    with pytest.raises(ValueError, match=r"found \[0\]"):
        al.interchange(llama, same, al.Site(1))
    with pytest.raises(ValueError, match=r"expected a role among .* found 'middle'"):
        al.interchange(llama, drawn, al.Site(1, "middle"))


def test_prompts_of_ones_own_are_exchanged_as_with_torchs_hooks(
    model: HookedModel, drawn: InterchangePairs
) -> None:
    """Of unequal lengths, without a causal model; C' is what the model answers to the source."""
    own = al.PromptPairs.from_tokens(
        drawn.pairs.reference,
        drawn.pairs.counterfactual,
        on_itself(model, drawn, "reference").expected,
        drawn.pairs.attention_mask,
        counterfactual_answer=on_itself(model, drawn, "counterfactual").expected,
    )
    sites = [al.Site(1), al.Mlp(1), al.Head(0, 2)]
    result = al.interchange(model, own, sites)
    asked = own[own.counterfactual_answer != own.answer]
    assert result.effects.n_pairs == len(asked) > 0 and result.spaces == ("whole",)
    for number, site in enumerate(sites):
        source: list[Tensor] = []
        handle: Any = plain_part(model, site, asked, lambda h, source=source: source.append(h))
        plain_run(model, asked.counterfactual, asked.attention_mask, [handle])
        handle = plain_part(model, site, asked, lambda _, source=source: source[0])
        logits = plain_run(model, asked.reference, asked.attention_mask, [handle])
        right = logits.argmax(-1) == asked.counterfactual_answer
        assert result.effects.per_pair[number, 0].bool().tolist() == right.tolist()
    last = al.interchange(model, own, al.Site(model.n_layers - 1))
    assert float(last.iia[0, 0]) == 1 > float(result.iia[2, 0])


def test_prompts_of_ones_own_need_another_answer_and_the_whole_site(
    model: HookedModel, drawn: InterchangePairs
) -> None:
    silent = replace(drawn.pairs, counterfactual_answer=torch.full_like(drawn.pairs.answer, -1))
    with pytest.raises(TooFewPairs, match=r"found none in .* counterfactual_answer"):
        al.interchange(model, silent, al.Site(0))
    with pytest.raises(ValueError, match="expected space='whole' for prompts of your own"):
        al.interchange(model, drawn.pairs, al.Site(0), space="mean")
