"""A method of the user's, written with public names alone: numbers, runs, plans, refusals."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from oracles import make_pairs
from torch import Tensor
from torch.testing import assert_close
from torch.utils.flop_counter import FlopCounterMode

import arith_lens as al
from arith_lens import runs
from arith_lens.methods import CertificateError, shards
from arith_lens.progress import bar as plain_bar

HEADS = [al.Head(1, 2), al.Head(0, 1), al.Head(2, 3)]


def scaled(model: Any, pairs: Any, components: Sequence[Any], *, factor: float) -> Tensor:
    """The change of C's logit if one head's output is scaled, [component pair]."""

    def logit(hooks: list[Any]) -> Tensor:
        logits = model.run_with_hooks(
            pairs.reference, fwd_hooks=hooks, attention_mask=pairs.attention_mask
        )
        return logits[range(len(pairs)), -1, pairs.answer]

    unchanged = logit([])
    rows = [logit(al.scale_heads([head], factor)) - unchanged for head in components]
    return torch.stack(rows)


SCALED = al.Method("scaled", scaled, HEADS, settings={"factor": 0.5})


@pytest.fixture(scope="module")
def pairs(mistral: Any) -> al.PromptPairs:
    return make_pairs(mistral)


@torch.no_grad()
def by_raw_hooks(hf: Any, pairs: Any, head: al.Head, factor: float) -> Tensor:
    """The same change with torch's own hook before the layer's output projection."""
    width = hf.config.hidden_size // hf.config.num_attention_heads
    columns = slice(head.index * width, (head.index + 1) * width)

    def scale(module: Any, inputs: tuple[Tensor]) -> tuple[Tensor]:
        z = inputs[0].clone()
        z[..., columns] *= factor
        return (z,)

    def logits() -> Tensor:
        out = hf(pairs.reference, attention_mask=pairs.attention_mask).logits
        return out[range(len(pairs)), -1, pairs.answer]

    before = logits()
    handle = hf.model.layers[head.layer].self_attn.o_proj.register_forward_pre_hook(scale)
    after = logits()
    handle.remove()
    return after - before


def test_the_numbers_are_those_of_raw_hooks_and_of_no_other_component(
    mistral: Any, make_hf: Callable[..., Any], pairs: al.PromptPairs
) -> None:
    result = al.run_method(SCALED, mistral, pairs, batch_size=2, progress=False)
    hf = make_hf("mistral")
    for head in HEADS:
        expected = by_raw_hooks(hf, pairs, head, 0.5)
        assert_close(result[head].per_pair, expected, atol=2e-5, rtol=1e-4)
        assert expected.abs().max() > 1e-2, "the test must be able to fail"
    known = ~result.heads.per_pair.isnan().all(-1)
    assert {(h.layer, h.index) for h in HEADS} == {tuple(i) for i in known.nonzero().tolist()}
    assert result.mlps.per_pair.isnan().all() and result.logit.isnan().all()


def test_it_has_the_statistics_of_every_effect(mistral: Any, pairs: al.PromptPairs) -> None:
    result = al.run_method(SCALED, mistral, pairs, progress=False)
    strongest = min(HEADS, key=lambda head: float(result[head].per_pair.mean()))
    assert result.heads.top(1) == [strongest]
    low, high = result[strongest].ci()
    assert low <= result[strongest].mean() <= high
    assert result.computation["settings"] == {"factor": 0.5}
    assert result.computation["n_senders"] == len(HEADS)


def run_of(model: Any, root: Path) -> runs.Run:
    return al.open_run("own", {}, model=model, root=root)


def test_a_stopped_computation_goes_on_and_ends_with_the_same_bits(
    mistral: Any, pairs: al.PromptPairs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = al.run_method(SCALED, mistral, pairs, batch_size=1, progress=False)
    calls, plain, bars = [], shards.compute_shard, []

    def bar(*, visible: bool, **options: Any) -> Any:
        bars.append((visible, options["desc"], options["initial"], options["total"]))
        return plain_bar(visible=False, **options)

    def stopping(*arguments: Any) -> Any:
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return plain(*arguments)

    monkeypatch.setattr(shards, "compute_shard", stopping)
    monkeypatch.setattr("arith_lens.runs.slot.bar", bar)
    with pytest.raises(KeyboardInterrupt), run_of(mistral, tmp_path) as run:
        al.run_method(SCALED, mistral, pairs, batch_size=1, run=run, progress=False)
    with run_of(mistral, tmp_path) as run:
        again = al.run_method(SCALED, mistral, pairs, batch_size=1, run=run)
    assert bars == [(False, "scaled", 0, len(pairs)), (True, "scaled", 2, len(pairs))]
    assert len(calls) == len(pairs) + 1
    with run_of(mistral, tmp_path) as run:
        al.run_method(SCALED, mistral, pairs[range(1)], run=run, name="division")
    assert bars[-1][1] == "scaled, division", "a bar says which result it is of"
    for head in HEADS:
        assert torch.equal(again[head].per_pair, whole[head].per_pair)


def twice(model: Any, pairs: Any, components: Sequence[Any], *, factor: float) -> Tensor:
    return 2 * scaled(model, pairs, components, factor=factor)


def test_a_stored_result_is_read_unless_code_settings_or_components_differ(
    mistral: Any, pairs: al.PromptPairs, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    others: list[dict[str, Any]] = [
        {"settings": {"factor": 0.0}},
        {"components": HEADS[:2]},
        {"effects": twice},
    ]
    with run_of(mistral, tmp_path) as run:
        first = al.run_method(SCALED, mistral, pairs, run=run)
        capsys.readouterr()
        read = al.run_method(SCALED, mistral, pairs, run=run)
        assert "not computed again" in capsys.readouterr().err
        assert torch.equal(read["1.2"].per_pair, first["1.2"].per_pair)
        for index, fields in enumerate(others):
            al.run_method(replace(SCALED, **fields), mistral, pairs, run=run, name=f"other-{index}")
            assert "not computed again" not in capsys.readouterr().err
    stored = al.load_run(run.path)
    assert torch.equal(stored.load("scaled")["1.2"].per_pair, first["1.2"].per_pair)
    assert torch.equal(stored.load("other-2")["1.2"].per_pair, 2 * first["1.2"].per_pair)


def test_a_plan_counts_what_torch_counts(mistral: Any, pairs: al.PromptPairs) -> None:
    longest = int(pairs.lengths.argmax())
    one = pairs[longest : longest + 1]
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        mistral(one.reference, attention_mask=one.attention_mask)
    plan = al.plan(mistral, pairs, method=SCALED)
    assert plan.flops == len(pairs) * (1 + len(HEADS)) * counter.get_total_flops()
    assert (plan.n_pairs, plan.n_senders) == (len(pairs), len(HEADS))
    assert "by scaled" in str(plan)


def test_half_precision_becomes_float32(mistral: Any, pairs: al.PromptPairs) -> None:
    def narrow(*arguments: Any, **settings: Any) -> Tensor:
        return scaled(*arguments, **settings).to(torch.bfloat16)

    result = al.run_method(replace(SCALED, effects=narrow), mistral, pairs, progress=False)
    assert result.heads.per_pair.dtype == torch.float32


def test_the_first_batch_alone_is_checked_and_a_failed_check_is_an_error(
    mistral: Any, pairs: al.PromptPairs
) -> None:
    checked = []

    def check(model: Any, pairs: Any, effects: Tensor) -> dict[str, float]:
        checked.append(len(pairs))
        unscaled = scaled(model, pairs, HEADS, factor=1.0)
        return {"factor 1 changes nothing": float(unscaled.abs().max() / effects.abs().max())}

    good = al.run_method(replace(SCALED, check=check), mistral, pairs, batch_size=2, progress=False)
    assert checked == [2]
    assert good.computation["certificate"]["found"]["factor 1 changes nothing"] < 1e-4
    wrong = replace(SCALED, check=lambda *_: {"one thing": 0.5})
    with pytest.raises(
        CertificateError, match=r"scaled to pass its checks(.|\n)*FAILED.*one thing"
    ):
        al.run_method(wrong, mistral, pairs, progress=False)


def infinite(model: Any, pairs: Any, components: Sequence[Any]) -> Tensor:
    values = torch.zeros(len(components), len(pairs))
    values[1] = float("inf")
    return values


@pytest.mark.parametrize(
    ("effects", "error", "message"),
    [
        (lambda *_: torch.zeros(3), ValueError, r"found \(3,\); return one row per component"),
        (lambda *_: [0.0], ValueError, "found list"),
        (infinite, FloatingPointError, "infinite ones of 1.2;"),
    ],
)
def test_what_is_no_number_per_component_and_pair_is_refused(
    effects: Any, error: type[Exception], message: str, mistral: Any, pairs: al.PromptPairs
) -> None:
    wrong = replace(SCALED, effects=effects, settings={})
    with pytest.raises(error, match=message):
        al.run_method(wrong, mistral, pairs, progress=False)


def test_a_function_that_a_run_cannot_know_is_refused(
    mistral: Any, pairs: al.PromptPairs, tmp_path: Path
) -> None:
    file = (tmp_path / "open").open("w")

    def writing(model: Any, pairs: Any, components: Sequence[Any]) -> Tensor:
        file.write("called")
        return torch.zeros(len(components), len(pairs))

    unknown = replace(SCALED, effects=writing, settings={})
    with (
        run_of(mistral, tmp_path) as run,
        pytest.raises(runs.RunError, match="cannot be described"),
    ):
        al.run_method(unknown, mistral, pairs, run=run, progress=False)
    file.close()
