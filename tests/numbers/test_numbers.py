"""Numbers: hooks on plain Transformers, least squares and waves by hand, and built models."""

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from oracles import logits_at_end
from scipy.stats import binomtest
from torch import Tensor

import arith_lens as al
from arith_lens.interchanges import Site
from arith_lens.model import HookedModel
from arith_lens.numbers import (
    CONTROLS,
    OWN,
    UNSEEN,
    WHOLE,
    NumberSpace,
    Shape,
    Swaps,
    power_by_frequency,
)
from arith_lens.numbers.spectrum import P_VALUE, POWER, _tested
from arith_lens.numbers.swap import DRAWS, _Plan, swap_tests, unseen_steps, unseen_tests
from arith_lens.numbers.values import (
    class_means,
    rests_of,
    states_of,
    token_of,
    values_of,
    with_value,
)
from arith_lens.pairs import Role

TEMPLATES = ["addition/0", "addition/1"]


@pytest.fixture(scope="module")
def pairs(tokenizer: Any) -> al.PromptPairs:
    """Sums of digits in wordings of two lengths, so that some are padded."""
    return al.sample_pairs(tokenizer, "addition", keep="all", templates=TEMPLATES)


def plain_states(model: HookedModel, pairs: al.PromptPairs, layer: int, columns: Tensor) -> Tensor:
    """The output of a block of plain Transformers, by a torch hook."""
    hf = model.bridge.original_model
    seen: list[Tensor] = []

    def keep(_: Any, __: Any, out: Any) -> None:
        seen.append((out[0] if isinstance(out, tuple) else out).clone())

    handle = hf.model.layers[layer].register_forward_hook(keep)
    logits_at_end(hf, pairs.reference, pairs.attention_mask)
    handle.remove()
    return seen[0][torch.arange(len(pairs)), columns].double()


def plain_answers(
    model: HookedModel, pairs: al.PromptPairs, layer: int, columns: Tensor, values: Tensor
) -> Tensor:
    """The likeliest token if a block of plain Transformers returns other values at one token."""
    hf = model.bridge.original_model

    def put(_: Any, __: Any, out: Any) -> Any:
        stream = (out[0] if isinstance(out, tuple) else out).clone()
        stream[torch.arange(len(pairs)), columns] = values.to(stream)
        return (stream, *out[1:]) if isinstance(out, tuple) else stream

    handle = hf.model.layers[layer].register_forward_hook(put)
    logits = logits_at_end(hf, pairs.reference, pairs.attention_mask)
    handle.remove()
    return logits.argmax(-1)


def columns_by_hand(pairs: al.PromptPairs, role: Role) -> Tensor:
    if role is Role.END:
        return torch.full((len(pairs),), pairs.reference.shape[1] - 1)
    assert pairs.spans is not None
    return pairs.spans[role][:, 1] - 1


@pytest.mark.parametrize(
    ("name", "layer", "role"),
    [
        ("llama", 1, Role.END),
        ("llama", 0, Role.OPERAND_A),
        ("mistral", 1, Role.END),
        ("mistral", 0, Role.OPERAND_A),
        ("qwen3", 1, Role.END),
        ("deep", 10, Role.END),
        ("deep", 11, Role.OPERAND_A),
    ],
)
def test_swaps_and_unseen_values_are_those_of_plain_transformers(
    name: str, layer: int, role: Role, pairs: al.PromptPairs, request: Any, make_model: Any
) -> None:
    """The test expects what plain Transformers answer to the same states, so that it cannot agree
    by chance on a random model: all swaps must follow, and not with another basis."""
    model = (
        make_model("qwen3", head_dim=8, num_key_value_heads=2)
        if name == "qwen3"
        else request.getfixturevalue(name)
    )
    space = al.number_subspace(model, pairs, layer, role, "a", "helix", (10,))
    tested = pairs[~space.is_fitted(pairs)]
    rng = random.Random(3)
    swaps = swap_tests(tested, space, 24, rng)
    unseen = unseen_tests(pairs, tested, space, 24, rng)
    columns = columns_by_hand(tested, role)
    states = plain_states(model, tested, layer, columns)
    own = states_of(model, tested, [f"blocks.{layer}.hook_resid_post"], space.site)[:, 0]
    torch.testing.assert_close(own, states, rtol=1e-5, atol=1e-5)
    destinations, sources = tested[swaps.rows], states[swaps.sources]
    own = states[swaps.rows]
    projector = space.basis @ space.basis.T
    plain = plain_answers(
        model, destinations, layer, columns[swaps.rows], own + (sources - own) @ projector
    )
    numbers = values_of(tested, "a")[unseen.rows]
    written = states[unseen.rows].clone()
    for row, (a, v) in enumerate(zip(numbers.tolist(), unseen.numbers, strict=True)):
        seen = space.values != v
        weights = np.linalg.lstsq(
            space.shape.design(space.values[seen]).numpy(), space.means[seen].numpy(), rcond=None
        )[0]
        terms = space.shape.terms(torch.tensor([a, v])).numpy()
        written[row] += torch.as_tensor((terms[1] - terms[0]) @ weights[1:])
    plain_unseen = plain_answers(model, tested[unseen.rows], layer, columns[unseen.rows], written)
    result = answers_of(model, tested, space, swaps, unseen)
    assert float((result[0] == plain).float().mean()) == 1
    assert float((result[1] == plain_unseen).float().mean()) == 1
    other = replace(space, basis=torch.linalg.qr(torch.randn(len(space.basis), 12).double())[0])
    wrong = answers_of(model, tested, other, swaps, unseen)
    assert role is not Role.END or not torch.equal(wrong[0], plain)


def answers_of(
    model: HookedModel, tested: al.PromptPairs, space: NumberSpace, swaps: Any, unseen: Any
) -> tuple[Tensor, Tensor]:
    """The library's states at the site, answered."""
    from arith_lens.interchanges import swapped
    from arith_lens.numbers.swap import swap_runs

    first = [
        runs.answers(swapped(runs.base, runs.source, space.basis)[None])[0]
        for _, runs in swap_runs(model, tested, space, swaps)
    ]
    steps = unseen_steps(space, torch.arange(len(space.values)))
    index = {int(value): i for i, value in enumerate(space.values)}
    numbers = values_of(tested, "a")[unseen.rows].tolist()
    own = torch.tensor([index[a] for a in numbers])
    other = torch.tensor([index[v] for v in unseen.numbers])
    second = [
        runs.answers((runs.base + steps[other[rows], own[rows]].to(runs.base))[None])[0]
        for rows, runs in swap_runs(model, tested, space, unseen)
    ]
    return torch.cat(first), torch.cat(second)


def test_the_accuracy_counts_the_answers_of_plain_transformers(
    llama: HookedModel, pairs: al.PromptPairs
) -> None:
    """The expected tokens are what the whole vector gives here, so that the share is not 0."""
    space = al.number_subspace(llama, pairs, 0, "end", "a", "helix", (10,))
    result = al.swap_values(llama, pairs, space, controls=("pca", "stream"), n=40)
    tested = pairs[~space.is_fitted(pairs)]
    swaps = swap_tests(tested, space, 40, random.Random(0))
    columns = columns_by_hand(tested, Role.END)
    states = plain_states(llama, tested, 0, columns)
    for name, basis in ((OWN, space.basis), (WHOLE, torch.eye(len(space.basis)).double())):
        own = states[swaps.rows]
        put = own + (states[swaps.sources] - own) @ basis @ basis.T
        plain = plain_answers(llama, tested[swaps.rows], 0, columns[swaps.rows], put)
        right = (plain == torch.tensor(swaps.expected)).double()
        assert torch.equal(result.of(name).per_pair.double(), right), name


def test_controls_of_a_swap_are_what_their_names_say(
    llama: HookedModel, pairs: al.PromptPairs
) -> None:
    space = al.number_subspace(llama, pairs, 1, "end", "a", "helix", (10,))
    other_half = al.number_subspace(llama, pairs, 1, "end", "a", "helix", (10,), seed=1)
    assert other_half.fitted != space.fitted
    names = ("pca", "span", "stream", "labels")
    plan = _Plan.of(space, names, 4, seed=3)
    centred = space.means - space.means.mean(0)
    _, sizes, vectors = np.linalg.svd(centred.numpy(), full_matrices=False)
    inside = torch.as_tensor(vectors[sizes > 1e-6 * sizes.max()].T)
    for name in ("span", "stream"):
        first, *others = plan.bases[CONTROLS[name]]
        assert first.shape == space.basis.shape and len(others) == DRAWS - 1
        assert not any(torch.allclose(first, one) for one in others)
        left = first - inside @ (inside.T @ first)
        assert (float(left.abs().max()) < 1e-9) is (name == "span")
    pca = plan.bases[CONTROLS["pca"]][0]
    torch.testing.assert_close(pca @ pca.T, inside[:, :3] @ inside[:, :3].T)
    for order, basis in zip(plan.orders, plan.bases[CONTROLS["labels"]], strict=True):
        wanted = space.shape.basis(space.values[order], space.means)
        assert torch.equal(basis, wanted) and not torch.allclose(basis, space.basis)
        labels, terms = space.values[order], space.shape.terms(space.values[order])
        steps = unseen_steps(space, order)
        for unseen in (0, 5):
            seen = np.arange(8) != unseen
            design = space.shape.design(labels[seen]).numpy()
            weights = np.linalg.lstsq(design, space.means[seen].numpy(), rcond=None)[0]
            step = (terms[unseen] - terms).numpy() @ weights[1:]
            torch.testing.assert_close(steps[unseen], torch.as_tensor(step))
    assert not all(map(torch.equal, plan.orders, _Plan.of(space, names, 4, seed=4).orders))
    rows = [swap_tests(pairs, space, 9, random.Random(seed)).rows for seed in (0, 1)]
    assert rows[0] != rows[1]
    own = [al.swap_values(llama, pairs, space, controls=(), n=9, seed=s).effects for s in (0, 1)]
    assert own[0].problem != own[1].problem


def test_a_digit_is_a_value_by_hand() -> None:
    tokens = torch.zeros(4, 5).long()
    pairs = al.PromptPairs.from_tokens(tokens, tokens, torch.zeros(4).long())
    operands = torch.tensor([[35, 48], [75, 48], [36, 48], [35, 18]])
    pairs = replace(pairs, operands=operands, operation=("addition",) * 4)
    digits = {"a_ones": [5, 5, 6, 5], "a_tens": [3, 7, 3, 3], "b_ones": [8] * 4}
    for value, wanted in {**digits, "b_tens": [4, 4, 4, 1], "a": [35, 75, 36, 35]}.items():
        assert values_of(pairs, value).tolist() == wanted
    for value, alike in (("a_tens", 1), ("a_ones", 2), ("b_tens", 3)):
        own, *others = rests_of(pairs, value)
        assert [i for i, rest in enumerate(others, 1) if rest == own] == [alike], value
    changed = {"a_tens": 95 + 48, "a_ones": 39 + 48, "b_tens": 35 + 98, "b": 35 + 9, "answer": 9}
    for value, wanted in changed.items():
        assert with_value("addition", 35, 48, value, 9) == wanted


def means_by_hand(states: Tensor, pairs: al.PromptPairs) -> Tensor:
    """The mean for each B with A and wording held equal, by normal equations."""
    assert pairs.operands is not None and pairs.template is not None
    a, b = pairs.operands.T
    columns = [(b == v).double() for v in range(1, 9)]
    second = torch.tensor([name == TEMPLATES[1] for name in pairs.template])
    rests = [(a == v) & (second == on) for v in a.unique() for on in (False, True)]
    columns += [rest.double() for rest in rests if bool(rest.any())][1:]
    x = torch.stack(columns, dim=1)
    effects = torch.linalg.solve(x.T @ x, x.T @ states)
    return effects[:8] + (x[:, 8:] @ effects[8:]).mean(0)


def test_the_basis_solves_the_normal_equations(llama: HookedModel, pairs: al.PromptPairs) -> None:
    space = al.number_subspace(llama, pairs, 1, "end", "b", "helix", (10,))
    half = space.is_fitted(pairs)
    assert 0.4 < float(half.float().mean()) < 0.8
    assert not {*pairs[half].problem} & {*pairs[~half].problem}
    states = plain_states(llama, pairs, 1, columns_by_hand(pairs, Role.END))
    assert pairs.operands is not None
    b = pairs.operands[:, 1]
    means = means_by_hand(states[half], pairs[half])
    plain = torch.stack([states[half & (b == v)].mean(0) for v in range(1, 9)])
    assert float((means - plain).abs().max()) > 1e-3
    torch.testing.assert_close(space.means, means, rtol=1e-5, atol=1e-5)
    v = torch.arange(1, 9).double()
    x = torch.stack([v**0, (v * 2 * np.pi / 10).cos(), (v * 2 * np.pi / 10).sin(), v], dim=1)
    wanted = torch.linalg.solve(x.T @ x, x.T @ space.means)[1:]
    inside = space.basis @ (space.basis.T @ wanted.T)
    torch.testing.assert_close(inside, wanted.T, rtol=1e-9, atol=1e-9)
    assert space.k == 3
    shuffled = space.shape.basis(space.values.flip(0)[[1, 0, 3, 2, 5, 4, 7, 6]], space.means)
    wrong = shuffled @ (shuffled.T @ wanted.T)
    assert float((wrong - wanted.T).abs().max()) > 1e-3
    eye = torch.eye(3).double()
    torch.testing.assert_close(space.basis.T @ space.basis, eye, rtol=1e-9, atol=1e-9)


def test_the_spectrum_of_waves_by_hand() -> None:
    v = torch.arange(10).double()
    rows = torch.linalg.qr(torch.randn(16, 4, generator=torch.Generator().manual_seed(1)).double())
    direction = rows[0]
    angle = 2 * np.pi * v / 10
    means = 3 * angle.cos()[:, None] * direction[:, 0] + 3 * angle.sin()[:, None] * direction[:, 1]
    means = means + 2 * (3 * angle).cos()[:, None] * direction[:, 2]
    means = means + ((-1) ** v)[:, None] * direction[:, 3] + 7
    # sums over ten values: 2 waves of 9 * 5, one of 4 * 5, one of 1 * 10
    wanted = torch.tensor([90.0, 0, 20, 0, 10]).double() / 120
    torch.testing.assert_close(power_by_frequency(means), wanted, rtol=1e-9, atol=1e-9)
    moved = power_by_frequency(means[[1, 0, *range(2, 10)]])
    assert float((moved - wanted).abs().max()) > 0.01
    odd = power_by_frequency(means[:9])
    assert odd.shape == (4,) and float(odd.sum()) == pytest.approx(1)


@pytest.mark.parametrize(
    ("of", "axes", "shape"),
    [
        ("stream", ("layer",), (3,)),
        ("mlps", ("layer",), (3,)),
        ("heads", ("layer", "head"), (3, 4)),
    ],
)
def test_the_spectrum_of_a_model_is_that_of_its_class_means(
    llama: HookedModel, pairs: al.PromptPairs, of: str, axes: tuple[str, ...], shape: Any
) -> None:
    effects = al.number_spectrum(llama, pairs, of, "end", "a", permutations=19)
    assert effects.axes == (*axes, "measure", "period")
    assert effects.per_pair.shape == (*shape, 2, 4, 1)
    assert effects.labels is not None and effects.labels["period"] == ("8", "4", "2.67", "2")
    power, p_values = effects.per_pair[..., 0].movedim(-2, 0)
    torch.testing.assert_close(power.sum(-1), torch.ones(shape))
    assert bool((p_values >= 0.05 - 1e-6).all())
    if of == "stream":
        assert pairs.operands is not None
        states = plain_states(llama, pairs, 2, columns_by_hand(pairs, Role.END))
        means = means_by_hand(states, replace(pairs, operands=pairs.operands.flip(1)))
        wanted = power_by_frequency(means).float()
        torch.testing.assert_close(power[2], wanted, rtol=1e-4, atol=1e-5)


def test_the_spectrum_of_weights(llama: HookedModel, pairs: al.PromptPairs) -> None:
    hf = llama.bridge.original_model
    embedding = hf.get_input_embeddings().weight.detach().double()
    assert pairs.operands is not None
    column = columns_by_hand(pairs, Role.OPERAND_A)
    tokens = pairs.reference[torch.arange(len(pairs)), column]
    means = class_means(embedding[tokens], pairs.operands[:, 0], torch.arange(1, 9))
    effects = al.number_spectrum(llama, pairs, "W_E", Role.OPERAND_A, permutations=9)
    torch.testing.assert_close(
        effects.per_pair[0, :, 0], power_by_frequency(means).float(), rtol=1e-5, atol=1e-6
    )
    answers = al.number_spectrum(llama, pairs, "W_U", "end", "answer", permutations=9)
    assert answers.labels is not None and answers.labels["measure"] == (POWER, P_VALUE)
    with pytest.raises(ValueError, match="expected 'W_E' at an operand"):
        al.number_spectrum(llama, pairs, "W_E", "end")


def on_built(name: str, kind: str, periods: Any = (10, 5), k: int | None = None, **variant: Any):
    model, pairs, truth = al.built_model(name, **variant)
    linear = kind == "helix"
    space = al.number_subspace(model, pairs, 0, "end", "a", kind, periods, linear, k=k)
    controls = ("means", "labels", "unseen", "stream")
    swaps = al.swap_values(model, pairs, space, controls=controls, n=150, permutations=19)
    return model, truth, space, swaps


def test_the_waves_of_a_clock_are_found() -> None:
    model, truth, space, swaps = on_built("clock", "fourier", frequencies=(1, 2))
    assert space.k == 4
    slot = truth.circuit.slots["a"]
    plane = torch.eye(model.d_model).double()[:, slot]
    angles = torch.linalg.svdvals(plane.T @ space.basis).clamp(max=1).acos()
    assert float(angles.max()) < 1e-4
    assert swaps.iia(UNSEEN) == swaps.iia() == 1 and swaps.p_value(UNSEEN) == 0.05
    assert on_built("clock", "polynomial", k=1, frequencies=(1, 2))[3].iia(UNSEEN) < 0.5


def test_a_thermometer_is_a_line_and_no_wave() -> None:
    line = on_built("thermometer", "polynomial", k=1, n_layers=2)[3]
    assert line.iia(UNSEEN) == 1 and line.iia() > 0.5
    waves = on_built("thermometer", "fourier", n_layers=2)[3]
    assert waves.iia(UNSEEN) < 0.5


def test_a_table_has_no_shape_and_rotation_changes_nothing() -> None:
    for kind, k in (("fourier", None), ("polynomial", 1), ("polynomial", 4)):
        plain = on_built("table", kind, k=k, n_layers=2)[3]
        assert plain.iia(UNSEEN) == 0 and plain.iia("all class means") == plain.iia(WHOLE) == 1
        turned = on_built("table", kind, k=k, n_layers=2, rotation=0)[3]
        for name in (UNSEEN, OWN, WHOLE, "all class means"):
            assert turned.iia(name) == plain.iia(name), (kind, name)


def test_a_batch_of_one_gives_the_same(
    llama: HookedModel, pairs: al.PromptPairs, monkeypatch: pytest.MonkeyPatch
) -> None:
    space = al.number_subspace(llama, pairs, 0, "end", "a", "helix", (10,))
    together = al.swap_values(llama, pairs, space, n=12, permutations=5)
    monkeypatch.setattr("arith_lens.numbers.swap.BATCH", 1)
    alone = al.swap_values(llama, pairs, space, n=12, permutations=5)
    torch.testing.assert_close(
        alone.effects.per_pair, together.effects.per_pair, rtol=0, atol=0, equal_nan=True
    )


def test_half_precision_gives_nearly_the_same_and_its_means_are_exact_sums(
    llama: HookedModel, pairs: al.PromptPairs, make_hf: Any, tokenizer: Any
) -> None:
    """bfloat16 has 8 bits: a state is off by less than 2% of its size, and means are of float64."""
    half = al.load_model((make_hf("llama").bfloat16(), tokenizer))
    settings: dict[str, Any] = {"layer": 1, "at": "end", "periods": (10,)}
    space, rough = (al.number_subspace(one, pairs, **settings) for one in (llama, half))
    assert rough.means.dtype == rough.basis.dtype == torch.float64
    error = (rough.means - space.means).norm() / space.means.norm()
    assert 0 < float(error) < 0.02
    cosines = torch.linalg.svdvals(rough.basis.T @ space.basis)
    assert float(cosines.min()) > 0.95
    swaps = al.swap_values(half, pairs, rough, n=20, permutations=3)
    assert swaps.of(WHOLE).per_pair.shape == (20,) and 0 <= swaps.iia() <= 1
    exact = al.number_spectrum(llama, pairs, permutations=9).per_pair[:, 0]
    spectrum = al.number_spectrum(half, pairs, permutations=9).per_pair[:, 0]
    torch.testing.assert_close(spectrum, exact, rtol=0.1, atol=0.02)


def test_a_result_is_stored_and_read_back(
    llama: HookedModel, pairs: al.PromptPairs, tmp_path: Path
) -> None:
    space = al.number_subspace(llama, pairs, 1, "end", "a", "helix", (10,))
    swaps = al.swap_values(llama, pairs, space, n=20, permutations=7, controls=(
        "pca", "polynomial", "labels", "span", "means", "stream", "unseen"))  # fmt: skip
    back = Swaps.from_arrays(swaps.to_arrays())
    assert back.spaces == swaps.spaces and back.spaces[0] == UNSEEN
    assert back.p_value() == swaps.p_value() and back.ci() == swaps.ci()
    table = back.to_dataframe()
    assert len(table) == len(back.spaces) and "Swaps(waves 10 and line" in repr(back)
    assert "of 32 dimensions" in repr(space)
    with pytest.raises(KeyError, match="expected a space among"):
        back.iia("magnitude")
    with pytest.raises(KeyError, match="expected permuted labels"):
        back.p_value(WHOLE)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"periods": (10, 5)}, r"expected 1 to 3.5 directions for 8 values.* found 5"),
        ({"kind": "pca", "k": 8}, r"found 8 of pca 8"),
        ({"kind": "pca", "k": 0}, r"found 0 of pca 0"),
        ({"kind": "spiral"}, "expected kind among"),
        ({"kind": "fourier", "periods": (10, 1.5)}, "expected different periods of 2 or more"),
        ({"periods": (10, 10)}, "expected different periods of 2 or more"),
        ({"periods": (10, float("nan"))}, "expected different periods of 2 or more"),
        ({"value": "a_tens"}, r"expected three values or more, found \[0\]"),
        ({"value": "c"}, "expected value among"),
        ({"layer": 3}, "expected a layer from 0 to 2"),
        ({"layer": 2, "at": Role.OPERAND_A}, "no layer reads this token"),
        ({"at": "middle"}, "expected a role among"),
    ],
)
def test_bad_input_is_refused_by_name(
    llama: HookedModel, pairs: al.PromptPairs, options: dict[str, Any], message: str
) -> None:
    settings: dict[str, Any] = {"layer": 1, "at": "end", "periods": (10,)} | options
    with pytest.raises((ValueError, IndexError), match=message):
        al.number_subspace(llama, pairs, **settings)


def test_pairs_without_swaps_and_numbers_of_several_tokens_are_refused(
    llama: HookedModel, tokenizer: Any, pairs: al.PromptPairs
) -> None:
    space = al.number_subspace(llama, pairs, 1, "end", "a", "helix", (10,))
    with pytest.raises(ValueError, match="expected controls among"):
        al.swap_values(llama, pairs, space, controls=("nothing",))
    with pytest.raises(ValueError, match="found none of its problems"):
        al.swap_values(llama, pairs[~space.is_fitted(pairs)][:1], space)
    rows = [int(space.is_fitted(pairs).nonzero()[0]), int((~space.is_fitted(pairs)).nonzero()[0])]
    with pytest.raises(ValueError, match="found none among 1 pairs"):
        al.swap_values(llama, pairs[rows], space)
    parts = {"basis": torch.eye(33).double()[:, :3], "means": torch.zeros(8, 33).double()}
    wide = replace(space, **parts)
    with pytest.raises(ValueError, match="fit it on this model"):
        al.swap_values(llama, pairs, wide)
    long = al.sample_pairs(tokenizer, "addition", 60, operands=range(10, 30), templates=TEMPLATES,
                           answer_token="first", keep="all")  # fmt: skip
    with pytest.raises(ValueError, match=r"one token at operand a, found 2 tokens"):
        al.number_subspace(llama, long, 0, Role.OPERAND_A, "a", "pca", k=1)
    assert token_of(long, Role.OPERAND_A, "a_tens") == -2
    ones = al.number_subspace(llama, long, 0, Role.OPERAND_A, "a_ones", "fourier", (10,))
    assert ones.site == Site(0, Role.OPERAND_A, -1) and len(ones.values) == 10
    with pytest.raises(ValueError, match="four values of a or more without gaps"):
        al.number_spectrum(llama, pairs.filter(values_of(pairs, "a") != 4), "stream")
    bare = replace(pairs, operands=None)
    with pytest.raises(ValueError, match="expected pairs that know their operands"):
        al.number_subspace(llama, bare, 1, "end")


def test_terms_by_hand() -> None:
    shape = Shape("helix", (10.0, 2.0), True, 0, 1, 9)
    terms = shape.terms(torch.tensor([1, 5]))
    wanted = [[np.cos(0.2 * np.pi), np.sin(0.2 * np.pi), -1, -1], [-1, 0, -1, 0]]
    torch.testing.assert_close(terms, torch.tensor(wanted).double())
    assert shape.n_terms == 4 and str(shape) == "waves 10, 2 and line"
    with pytest.raises(TypeError, match="found PCA"):
        Shape("pca", k=2).terms(torch.tensor([1]))


def test_p_values_of_a_spectrum_are_against_the_largest_power_of_any_frequency() -> None:
    """By numpy, with the same permutations of ten values."""
    means = torch.randn(10, 3, generator=torch.Generator().manual_seed(1)).double()
    _, p = _tested(means, 50, 4)
    generator = torch.Generator().manual_seed(4)

    def powers(rows: np.ndarray) -> np.ndarray:
        waves = (np.abs(np.fft.fft(rows, axis=0)) ** 2).sum(1)[1:6] * [2, 2, 2, 2, 1]
        return waves / waves.sum()

    orders = [torch.randperm(10, generator=generator).numpy() for _ in range(50)]
    null, own = np.stack([powers(means.numpy()[order]) for order in orders]), powers(means.numpy())
    by_frequency, by_largest = (
        (1 + (draws >= own - 1e-9).sum(0)) / 51 for draws in (null, null.max(1, keepdims=True))
    )
    assert p.tolist() == pytest.approx(by_largest.tolist())
    assert (by_frequency < by_largest - 0.1).any(), "each frequency alone would pass too often"


def test_random_controls_of_a_swap_keep_each_of_at_least_twenty_draws(
    llama: HookedModel, pairs: al.PromptPairs
) -> None:
    space = al.number_subspace(llama, pairs, 0, "end", "a", "helix", (10,))
    swaps = al.swap_values(
        llama, pairs, space, controls=("labels", "span", "stream"), n=12, permutations=25
    )
    for name, n_draws in (("labels", 25), ("span", 20), ("stream", 20)):
        control = CONTROLS[name]
        assert swaps.draws[control].shape == (n_draws, 12)
        by_draw = swaps.of_draws(control)
        assert swaps.iia(control) == pytest.approx(float(by_draw.mean()), abs=1e-6)
    sure = torch.zeros(20, 12, dtype=torch.bool)  # over problems, and not over draws
    sure[:4] = True
    span = CONTROLS["span"]
    exact = binomtest(4, 20).proportion_ci(method="wilson")
    ends = replace(swaps, draws={span: sure}).ci(span)
    assert ends == pytest.approx((exact.low, exact.high), abs=0.03)
    assert torch.equal(swaps.null[OWN], swaps.of_draws(CONTROLS["labels"]))
    assert "the subspace" not in swaps.draws
    with pytest.raises(KeyError, match="expected a control with draws"):
        swaps.of_draws(OWN)
