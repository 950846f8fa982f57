"""Shards outlive what made them, and are trusted only where they are of the same computation."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from support.fixtures import random_tokens

from arith_lens.components import Head
from arith_lens.effects import ComponentEffects
from arith_lens.model import HookedModel
from arith_lens.pairs import PromptPairs, sample_pairs
from arith_lens.path_patching import engines, path_patch
from arith_lens.path_patching.engines import HookEngine
from arith_lens.runs import Run, RunError, load_run, open_run, shards

LENGTHS = (10, 7, 9, 5, 8, 10, 6)


@pytest.fixture
def pairs(llama: Any) -> PromptPairs:
    """Seven left-padded pairs of unequal lengths: shards of two, the last of one."""
    reference = random_tokens(llama, 7, 10, seed=3)
    counterfactual = torch.where(torch.arange(10) == 8, (reference + 17) % 200 + 3, reference)
    mask = torch.arange(10) >= 10 - torch.tensor(LENGTHS)[:, None]
    return PromptPairs.from_tokens(reference, counterfactual, reference[:, 3], mask)


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of pairs of each shard that is really computed."""
    sizes: list[int] = []
    right = engines.SweepEngine.__call__

    def counting(self: Any, pairs: PromptPairs, foil: Any) -> Any:
        sizes.append(len(pairs))
        return right(self, pairs, foil)

    monkeypatch.setattr(engines.SweepEngine, "__call__", counting)
    return sizes


def compute(run: Run | None, model: Any, pairs: PromptPairs, **options: Any) -> ComponentEffects:
    settings = {"metric": "logit", "batch_size": 2, "progress": False} | options
    return path_patch(model, pairs, run=run, **settings)


def opened(root: Path, **options: Any) -> Run:
    return open_run("shards", {}, root=root, **options)


class Broken(Exception):
    """What stops a computation here."""


def break_off(root: Path, model: Any, pairs: PromptPairs, after: int, **options: Any) -> Path:
    """Compute until `after` shards are finished; the folder of the run."""
    right, n_done = engines.SweepEngine.__call__, 0

    def breaking(self: Any, *given: Any) -> Any:
        nonlocal n_done
        if n_done == after:
            raise Broken
        n_done += 1
        return right(self, *given)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(engines.SweepEngine, "__call__", breaking)
        with pytest.raises(Broken), opened(root) as run:
            compute(run, model, pairs, **options)
    return run.path


def shard_files(folder: Path) -> list[Path]:
    """Of all results beside a run."""
    return sorted(folder.parents[1].glob("store/*/shards/*/*.safetensors"))


def assert_same_bits(found: ComponentEffects, expected: ComponentEffects) -> None:
    for a, b in (
        (found.heads.per_pair, expected.heads.per_pair),
        (found.mlps.per_pair, expected.mlps.per_pair),
        (found.logit, expected.logit),
    ):
        assert torch.equal(a.view(torch.int32), b.view(torch.int32))
    assert found.n_left_out == expected.n_left_out
    timed = ("seconds", "processor_seconds", "certificates_after_resuming")
    assert {k: v for k, v in found.computation.items() if k not in timed} == {
        k: v for k, v in expected.computation.items() if k not in timed
    }


@pytest.mark.parametrize("after", [1, 3])
def test_a_broken_computation_goes_on_and_ends_with_the_bits_of_an_unbroken_one(
    model: Any, pairs: PromptPairs, tmp_path: Path, counted: list[int], after: int
) -> None:
    whole = compute(None, model, pairs)
    folder = break_off(tmp_path, model, pairs, after)
    assert len(shard_files(folder)) == after
    counted.clear()
    with opened(tmp_path) as run:
        result = compute(run, model, pairs)
    assert counted == [2, 2, 2, 1][after:]
    assert_same_bits(result, whole)
    assert_same_bits(load_run(folder).load("path_patching"), whole)
    assert not shard_files(folder)
    assert len(result.computation["certificates_after_resuming"]) == 1, "taken anew, and kept"
    other = compute(None, model, pairs[1:])
    assert not torch.equal(other.logit[:5], whole.logit[:5]), "the test must be able to fail"


def test_the_bits_are_those_of_an_unbroken_run_in_bfloat16(
    make_model: Callable[..., Any], make_hf: Any, tokenizer: Any, pairs: PromptPairs, tmp_path: Path
) -> None:
    from arith_lens.model import load_model

    model = load_model((make_hf("mistral").to(torch.bfloat16), tokenizer))
    whole = compute(None, model, pairs)
    break_off(tmp_path, model, pairs, 2)
    with opened(tmp_path) as run:
        assert_same_bits(compute(run, model, pairs), whole)


def test_seconds_are_those_of_all_parts(
    llama: Any, pairs: PromptPairs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter(range(0, 1000, 5))
    monkeypatch.setattr("arith_lens.methods.shards.time.perf_counter", lambda: next(clock))
    break_off(tmp_path, llama, pairs, 2)
    with opened(tmp_path) as run:
        assert compute(run, llama, pairs).computation["seconds"] == 4 * 5


def test_a_finished_result_is_not_computed_again_and_that_is_said(
    llama: Any, pairs: PromptPairs, tmp_path: Path, counted: list[int], capsys: Any
) -> None:
    with opened(tmp_path) as run:
        first = compute(run, llama, pairs)
    counted.clear()
    capsys.readouterr()
    with opened(tmp_path) as run:
        second = compute(run, llama, pairs, progress=True)
    assert counted == []
    assert "path_patching: saved before in" in capsys.readouterr().err
    assert_same_bits(second, first)


def test_a_run_opened_again_computes_anew_and_keeps_the_old_result_until_then(
    llama: Any, pairs: PromptPairs, tmp_path: Path, counted: list[int]
) -> None:
    with opened(tmp_path) as run:
        first = compute(run, llama, pairs)
    with pytest.raises(Broken), opened(tmp_path, again=True) as run:
        run.shards("other", run.identity(llama, pairs)).save(0, {"x": torch.ones(1)})
        raise Broken
    assert_same_bits(load_run(run.path).load("path_patching"), first)
    counted.clear()
    with opened(tmp_path, again=True) as run:
        compute(run, llama, pairs)
    assert counted == [2, 2, 2, 1]
    assert sorted(path.name for path in run.folder("path_patching").glob("result.2*")) == [
        "result.2.csv",
        "result.2.safetensors",
    ]
    assert_same_bits(load_run(run.path).load("path_patching"), first)


def test_a_run_computed_again_goes_on_too(
    llama: Any, pairs: PromptPairs, tmp_path: Path, counted: list[int]
) -> None:
    with opened(tmp_path) as run:
        compute(run, llama, pairs)
    right = engines.SweepEngine.__call__
    with pytest.MonkeyPatch.context() as patched, pytest.raises(Broken):
        calls = iter((True, True, False))

        def breaking(self: Any, *given: Any) -> Any:
            if not next(calls):
                raise Broken
            return right(self, *given)

        patched.setattr(engines.SweepEngine, "__call__", breaking)
        with opened(tmp_path, again=True) as run:
            compute(run, llama, pairs)
    counted.clear()
    with opened(tmp_path, again=True) as run:
        compute(run, llama, pairs)
    assert counted == [2, 1]


@pytest.mark.parametrize(
    "change",
    ["pairs", "answers", "mask", "metric", "paths", "senders", "shard size", "threads", "checks"],
)
def test_shards_of_another_computation_are_not_mixed_in(
    llama: Any, pairs: PromptPairs, tmp_path: Path, counted: list[int], change: str
) -> None:
    break_off(tmp_path, llama, pairs, 3)
    tokens, options = pairs.reference.clone(), {}
    threads = torch.get_num_threads()
    if change == "pairs":
        tokens[-1, 9] += 1
        pairs = replace(pairs, reference=tokens)
    elif change == "answers":
        pairs = replace(pairs, answer=pairs.answer.roll(1))
    elif change == "mask":
        mask = pairs.attention_mask.clone()
        mask[1, 3] = False
        pairs = replace(pairs, attention_mask=mask)
    elif change == "threads":
        torch.set_num_threads(threads + 1)
    else:
        options = {
            "metric": {"metric": "probability"},
            "paths": {"paths": "direct"},
            "senders": {"senders": [Head(0, 1), Head(2, 3)]},
            "shard size": {"batch_size": 3},
            "checks": {"certify": False},
        }[change]
    counted.clear()
    try:
        with opened(tmp_path) as run:
            found = compute(run, llama, pairs, **options)
        assert counted == ([3, 3, 1] if change == "shard size" else [2, 2, 2, 1])
        assert_same_bits(found, compute(None, llama, pairs, **options))
    finally:
        torch.set_num_threads(threads)


def test_another_foil_is_another_computation(
    llama: Any, pairs: PromptPairs, tmp_path: Path, counted: list[int]
) -> None:
    with opened(tmp_path) as run:
        for shift, n_computed in ((1, 4), (2, 4), (2, 0)):
            foil = pairs.answer.roll(shift)
            counted.clear()
            compute(run, llama, pairs, metric="logit_difference", foil=foil)
            assert len(counted) == n_computed


def test_another_model_is_refused_by_the_run_and_computed_anew_without_one(
    llama: Any, make_model: Callable[..., Any], pairs: PromptPairs, tmp_path: Path, counted: list
) -> None:
    other = make_model("llama", seed=1)
    with opened(tmp_path, model=llama) as run, pytest.raises(RunError, match="expected the model"):
        compute(run, other, pairs)
    break_off(tmp_path, llama, pairs, 3)
    counted.clear()
    with opened(tmp_path) as run:
        found = compute(run, other, pairs)
    assert counted == [2, 2, 2, 1]
    assert_same_bits(found, compute(None, other, pairs))


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-7])


def _empty(path: Path) -> None:
    path.write_bytes(b"")


def _flip_body(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-5] ^= 4
    path.write_bytes(data)


def _flip_header(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[data.index(b"seconds") + 12] ^= 1
    path.write_bytes(data)


def _foreign(path: Path) -> None:
    path.write_text('{"lr": 0.1}')


def _swap(path: Path) -> None:
    path.write_bytes((path.parent / "00002.safetensors").read_bytes())


def _make_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize("harm", [_cut, _empty, _flip_body, _flip_header, _foreign, _swap])
def test_a_damaged_shard_is_computed_again_with_a_warning(
    llama: Any, pairs: PromptPairs, tmp_path: Path, counted: list[int], harm: Callable
) -> None:
    folder = break_off(tmp_path, llama, pairs, 3)
    harm(shard_files(folder)[1])
    counted.clear()
    with opened(tmp_path) as run, pytest.warns(UserWarning, match="00001.*computed again"):
        found = compute(run, llama, pairs)
    assert counted == [2, 1]
    assert_same_bits(found, compute(None, llama, pairs))


def test_a_shard_cut_at_any_length_is_not_trusted(tmp_path: Path) -> None:
    with opened(tmp_path) as run:
        shards = run.shards("a", {"seed": 0})
        shards.save(0, {"values": torch.arange(6.0)}, {"seconds": 1.5})
        (path,) = shard_files(run.path)
        whole = path.read_bytes()
        for length in {0, 1, 7, 8, 9, len(whole) // 2, *range(len(whole) - 25, len(whole))}:
            path.write_bytes(whole[:length])
            with pytest.warns(UserWarning, match="00000.*damaged.*computed again"):
                assert shards.load(0) is None
        for place in range(0, len(whole), 5):
            path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
            with pytest.warns(UserWarning, match="00000.*damaged.*computed again"):
                assert shards.load(0) is None
        path.write_bytes(whole)
        assert shards.load(0) is not None


def test_a_pair_that_gives_nan_names_its_layer_and_the_shards_before_it_are_kept(
    make_hf: Any, tokenizer: Any, pairs: PromptPairs, tmp_path: Path, counted: list[int]
) -> None:
    """One token's embedding is NaN: the prompts before the one that holds it are in order."""
    from arith_lens.model import load_model

    hf_model = make_hf("llama")
    new = 250
    assert not bool((pairs.reference == new).any() | (pairs.counterfactual == new).any())
    hf_model.model.embed_tokens.weight.data[new] = float("nan")
    model = load_model((hf_model, tokenizer))
    tokens = pairs.reference.clone()
    tokens[5, 7] = new
    with (
        pytest.raises(FloatingPointError, match=r"NaN .* in layer 0 \(") as error,
        opened(tmp_path) as run,
    ):
        compute(run, model, replace(pairs, reference=tokens))
    assert "kept in" in error.value.__notes__[0] and "2 shards" in error.value.__notes__[0]
    assert [path.stem for path in shard_files(run.path)] == ["00000", "00001"]


def test_what_stands_in_a_shards_place_is_named(
    llama: Any, pairs: PromptPairs, tmp_path: Path
) -> None:
    folder = break_off(tmp_path, llama, pairs, 2)
    _make_folder(shard_files(folder)[1])
    with (
        pytest.warns(UserWarning, match="00001.*damaged"),
        pytest.raises(RunError, match=r"expected to write .*00001"),
        opened(tmp_path) as run,
    ):
        compute(run, llama, pairs)


@pytest.mark.parametrize("shard", [0, 3])
def test_a_result_that_another_run_finishes_meanwhile_is_stored_by_both(
    llama: Any, pairs: PromptPairs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shard: int
) -> None:
    """The other run finishes, and removes the shards, just before this one writes its file."""
    right, faster = shards.write, []

    def overtaken(path: Path, data: bytes) -> None:
        if path.stem == f"{shard:05d}" and not faster:
            faster.append(open_run("faster", {}, root=tmp_path))
            with faster[0]:
                compute(faster[0], llama, pairs)
            assert not path.parent.exists()
        right(path, data)

    monkeypatch.setattr(shards, "write", overtaken)
    with opened(tmp_path) as slower:
        found = compute(slower, llama, pairs)
    expected = compute(None, llama, pairs)
    for run in (slower, *faster):
        assert load_run(run.path).finished
        assert_same_bits(load_run(run.path).load("path_patching"), expected)
    assert_same_bits(found, expected)
    assert shard_files(slower.path) == []


def test_a_file_where_the_shards_should_be_is_named(
    llama: Any, pairs: PromptPairs, tmp_path: Path
) -> None:
    with opened(tmp_path) as run:
        (tmp_path / "store").write_text("mine")
        with pytest.raises(RunError, match=r"expected to make the folder .*store"):
            compute(run, llama, pairs)


def test_a_run_that_is_not_open_takes_no_shards(
    llama: Any, pairs: PromptPairs, tmp_path: Path, counted: list[int]
) -> None:
    with pytest.raises(RunError, match="expected an open run"):
        compute(opened(tmp_path), llama, pairs)
    assert counted == []


def test_shards_of_any_kind_are_kept_with_their_notes(tmp_path: Path) -> None:
    values = {"curve": torch.tensor([1.0, float("nan")]), "ids": torch.arange(3)}
    with opened(tmp_path) as run:
        shards = run.shards("curve", {"order": ["1.1"], "seed": 0})
        assert shards.load(4) is None
        shards.save(4, values, {"seconds": 2.5})
        again = run.shards("curve", {"seed": 0, "order": ["1.1"]}).load(4)
        assert again is not None
        assert again.header == {"seconds": 2.5}
        assert torch.equal(again.tensors["ids"], values["ids"])
        assert again.tensors["curve"].isnan().tolist() == [False, True]
        assert run.shards("curve", {"order": ["1.1"], "seed": 1}).load(4) is None
        assert run.shards("curve", {"order": ["1.1"], "seed": 0}, step=1).load(4) is None
        same = run.shards("other", {"order": ["1.1"], "seed": 0}).load(4)
        assert same is not None, "a result has one place, whatever a run calls it"


def test_a_result_takes_no_other_results_shards_away(llama: Any, tmp_path: Path) -> None:
    tokens = random_tokens(llama, 2, 6)
    result = compute(None, llama, PromptPairs.from_tokens(tokens, tokens.flip(0), tokens[:, 2]))
    with opened(tmp_path) as run:
        for seed in (0, 1):
            run.shards(f"curve-{seed}", {"seed": seed}).save(0, {"x": torch.ones(2)})
        run.save("curve-0", result, identity={"seed": 0})
        assert run.shards("curve-0", {"seed": 0}).load(0) is None
        assert run.shards("curve-1", {"seed": 1}).load(0) is not None


def test_what_memory_could_not_hold_at_one_pair_is_tried_in_half_a_shard(
    llama: Any, pairs: PromptPairs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rows of one pair may fit once fewer pairs are recorded beside them."""
    whole = compute(None, llama, pairs, batch_size=4)
    right, recorded = engines.sweep_rows, []
    record = engines.record_pairs

    def recording(model: Any, pairs: PromptPairs, **options: Any) -> Any:
        recorded.append(len(pairs))
        return record(model, pairs, **options)

    def small(*given: Any) -> torch.Tensor:
        if recorded[-1] > 2:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return right(*given)

    monkeypatch.setattr(engines, "record_pairs", recording)
    monkeypatch.setattr(engines, "sweep_rows", small)
    parts = compute(None, llama, pairs, batch_size=4, certify=False)
    assert recorded == [4, 2, 2, 3, 1, 1, 1]
    torch.testing.assert_close(parts.heads.per_pair, whole.heads.per_pair, atol=1e-5, rtol=1e-4)


def test_a_stopped_hook_engine_keeps_shards_of_eight_pairs(
    llama: HookedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pairs = sample_pairs(llama, "addition", n=20, keep="all", templates=["addition/0"])
    settings: dict[str, Any] = {"senders": [Head(1, 0)], "engine": "hooks", "metric": "logit"}
    expected = path_patch(llama, pairs, **settings).heads.per_pair
    compute, sizes = HookEngine.__call__, []

    def stopped(engine: HookEngine, some: Any, foil: Any) -> Any:
        if len(sizes) == 2:
            raise KeyboardInterrupt
        sizes.append(len(some))
        return compute(engine, some, foil)

    monkeypatch.setattr(HookEngine, "__call__", stopped)
    with pytest.raises(KeyboardInterrupt), open_run("x", {}, root=tmp_path) as run:
        path_patch(llama, pairs, run=run, **settings)
    assert sizes == [8, 8]

    def counted(engine: HookEngine, some: Any, foil: Any) -> Any:
        sizes.append(len(some))
        return compute(engine, some, foil)

    monkeypatch.setattr(HookEngine, "__call__", counted)
    with open_run("x", {}, root=tmp_path) as run:
        effects = path_patch(llama, pairs, run=run, **settings)
    assert sizes == [8, 8, len(pairs) - 16], "the shards that were finished are not computed again"
    assert torch.equal(effects.heads.per_pair.nan_to_num(7), expected.nan_to_num(7))
