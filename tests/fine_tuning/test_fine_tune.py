"""Whole tunings: what changes and what does not, scales, resuming, deltas, and bad questions."""

import signal
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from support.children import Script
from support.quick_tuning import HEADS, QUICK

from arith_lens.components import Head, Mlp
from arith_lens.fine_tuning import (
    TuningResult,
    combine,
    effects_before_after,
    fine_tune,
    load_delta,
)
from arith_lens.fine_tuning.methods import lora_rank, random_components
from arith_lens.fine_tuning.pieces import pieces_of, read_pieces
from arith_lens.fine_tuning.training import (
    IGNORED,
    ByLength,
    collate,
    last_checkpoint,
    tokenized_examples,
)
from arith_lens.model import load_model, weights_hash
from arith_lens.pairs import sample_pairs
from arith_lens.path_patching import path_patch

ROWS = [
    {"prompt": f"Q: What is {a} plus {b}? A: ", "answer": str(a + b)}
    for a in range(1, 9)
    for b in range(1, 5)
]

LONGER: dict[str, Any] = QUICK | {"epochs": 6}
RESUMED: dict[str, Any] = QUICK | {"epochs": 10, "save_every": 3}


def test_decay_and_training_leave_every_untouched_bit(source: Any, tmp_path: Path) -> None:
    result = fine_tune(
        source, ROWS, heads=HEADS, mlps=[Mlp(1)], output=tmp_path, weight_decay=0.1, **QUICK
    )
    before = dict(source[0].named_parameters())
    after = dict(result.model(source)[0].named_parameters())
    changed = {name: before[name] != after[name] for name in before}
    assert {name for name, where in changed.items() if where.any()} == {
        *(f"model.layers.{x}.self_attn.{p}_proj.weight" for x in (1, 2) for p in "qkvo"),
        *(f"model.layers.1.mlp.{p}_proj.weight" for p in ("gate", "up", "down")),
    }
    q = changed["model.layers.1.self_attn.q_proj.weight"].reshape(4, 8, 32)
    assert q[0].all() and not q[1:].any()
    o = changed["model.layers.2.self_attn.o_proj.weight"].reshape(32, 4, 8)
    assert o[:, 3].all() and not o[:, :3].any()
    assert result.untouched is not None and result.untouched.identical
    assert "untouched weights bit-identical to the base" in str(result.untouched)
    assert result.n_tuned == 2 * 4 * 8 * 32 + 3 * 32 * 48 == result.untouched.n_tuned
    assert TuningResult.load(tmp_path) == result


@pytest.mark.parametrize("method", ["full", "lora", "random"])
def test_the_other_methods_train_and_load_into_the_analyses(
    source: Any, tmp_path: Path, method: str
) -> None:
    heads = [] if method == "full" else HEADS
    result = fine_tune(source, ROWS, method=method, heads=heads, output=tmp_path, **LONGER)
    tuned = load_model(result.model(source))
    assert weights_hash(tuned) != result.base_hash
    losses = [loss for _, loss in result.losses]
    assert sum(losses[-4:]) < sum(losses[:4])  # the last epoch's and the first's
    if method == "random":
        assert not set(result.heads) & set(map(str, HEADS)) and len(result.heads) == 2


def test_lora_has_the_rank_nearest_precise(source: Any) -> None:
    heads = [Head(layer, i) for layer in range(3) for i in range(3)]
    # 9 heads x 2 x 8 x 32, and 6 of the 6 key-value slices twice; 3 layers x 224 a rank
    assert lora_rank(source[0], heads, []) == round((9 * 512 + 6 * 512) / (3 * 224))


def test_random_components_are_seeded_and_outside(source: Any) -> None:
    first, second = (random_components(source[0], HEADS, [Mlp(0)], seed) for seed in (0, 1))
    assert first == random_components(source[0], HEADS, [Mlp(0)], 0) != second
    assert not set(first[0]) & set(HEADS) and Mlp(0) not in first[1]


def values(result: TuningResult) -> torch.Tensor:
    delta = result.delta.values
    return torch.cat([delta[piece].flatten() for piece in sorted(delta)])


def test_what_rescaling_does_under_adamw(source: Any, tmp_path: Path) -> None:
    def tuned(name: str, rescale: str | None, clip: float | int) -> torch.Tensor:
        options: dict[str, Any] = QUICK | {
            "learning_rate": 1e-3,
            "rescale": rescale,
            "max_grad_norm": clip,
        }
        return values(fine_tune(source, ROWS, heads=HEADS, output=tmp_path / name, **options))

    plain, scaled = tuned("none", None, 0), tuned("gradient", "gradient", 0)
    rates = tuned("rate", "learning_rate", 0)
    first = read_pieces(source[0], pieces_of(source[0], HEADS))
    base = torch.cat([first[piece].flatten() for piece in sorted(first)])
    step = (plain - base).norm()
    assert (scaled - plain).norm() < 1e-2 * step  # AdamW divides the scale out but for its eps
    assert (rates - base).norm() > 1.5 * step  # H/h is 4 and 2 here
    clipped = tuned("clipped", "gradient", 1e-3), tuned("plain clipped", None, 1e-3)
    assert not torch.equal(*clipped)


RUN = """
import sys
from test_fine_tune import HEADS, RESUMED, ROWS
from arith_lens.fine_tuning import fine_tune
fine_tune(sys.argv[1], ROWS, heads=HEADS, output=sys.argv[2], **RESUMED)
"""


def test_a_killed_tuning_goes_on_to_the_same_weights(source: Any, tmp_path: Path) -> None:
    base = tmp_path / "base"
    for part in source:
        part.save_pretrained(base)
    killed = Script(RUN, str(base), str(tmp_path / "killed"), output=tmp_path / "printed.txt")
    state = tmp_path / "killed" / "steps" / "checkpoint-6" / "trainer_state.json"
    deadline = time.monotonic() + 120
    while not state.exists():
        assert killed.process.is_alive() and time.monotonic() < deadline, killed.printed
        time.sleep(0.002)
    killed.process.kill()
    assert killed.wait() == -signal.SIGKILL
    assert last_checkpoint(state.parents[1]) is not None
    assert not (tmp_path / "killed" / "tuning.json").exists()
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        ends = [
            fine_tune(str(base), ROWS, heads=HEADS, output=tmp_path / name, **RESUMED)
            for name in ("killed", "whole")
        ]
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(values(ends[0]), values(ends[1]))
    assert ends[0].losses == ends[1].losses and len(ends[0].losses) == 40


def test_deltas_apply_revert_and_combine(source: Any, tmp_path: Path) -> None:
    hf_model, tokenizer = source
    one, two = (
        fine_tune(source, ROWS, heads=[head], output=tmp_path / str(head), **QUICK).delta
        for head in HEADS
    )
    base = weights_hash(hf_model)
    undo = one.apply(hf_model)
    tuned = weights_hash(hf_model)
    assert tuned != base
    with pytest.raises(ValueError, match="other weights"):
        two.apply(hf_model)
    undo.apply(hf_model)
    assert weights_hash(hf_model) == base
    both = load_delta(combine(one, two).save(tmp_path / "both.safetensors"))
    assert both.heads == tuple(HEADS)
    folder = both.checkpoint(tmp_path / "plain", source)
    merged, expected = load_model(folder), load_model(both.model(source))
    tokens = tokenizer("3 plus 5 = ", return_tensors="pt")["input_ids"]
    assert torch.equal(merged(tokens), expected(tokens))
    with pytest.raises(ValueError, match=r"1\.0"):
        combine(both, one)


def test_the_answer_alone_has_loss_and_ends_with_eos(tokenizer: Any) -> None:
    rows = [("Q: What is 3 plus 5? A: ", "8"), ("3 plus 5 =", " 8")]
    examples = tokenized_examples(tokenizer, rows, max_length=None)
    labels = collate(examples)["labels"]
    for row, (prompt, _) in zip(labels, rows, strict=True):
        taught = row[row != IGNORED].tolist()
        assert taught[-1] == tokenizer.eos_token_id
        assert tokenizer.decode(taught[:-1]).strip() == "8"
        assert len(tokenizer(prompt)["input_ids"]) == int((row == IGNORED).int().argmin())


def test_batches_are_of_like_length_and_follow_from_the_epoch() -> None:
    lengths = [i % 7 for i in range(100)]
    sampler = ByLength(lengths, 8, seed=3)
    first = list(sampler)
    sampler.set_epoch(1)
    assert sorted(first) == sorted(sampler) == list(range(100)) and first != list(sampler)
    spread = [
        max(lengths[i] for i in first[at : at + 8]) - min(lengths[i] for i in first[at : at + 8])
        for at in range(0, 100, 8)
    ]
    assert max(spread) <= 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"dataset": []}, "empty set"),
        ({"dataset": [{"question": "a"}]}, r"columns prompt and answer, found \['question'\]"),
        ({"heads": ()}, "expected heads or mlps"),
        ({"method": "full"}, "expected no heads"),
        ({"method": "exact"}, "method among"),
        ({"method": "lora", "heads": ()}, "lora_rank"),
        ({"max_length": 5}, "answer would be cut off"),
        ({"rescale": "loss"}, r"rescale \(or None\) among"),
        ({"micro_batch": 3}, "multiple of micro_batch"),
    ],
)
def test_mistakes_are_said(source: Any, tmp_path: Path, change: Any, message: str) -> None:
    options = {"dataset": ROWS, "heads": HEADS, "output": tmp_path, **QUICK} | change
    with pytest.raises(ValueError, match=message):
        fine_tune(source, **options)


def test_another_tuning_in_the_folder_is_refused(source: Any, tmp_path: Path) -> None:
    fine_tune(source, ROWS[:8], heads=HEADS, output=tmp_path, **QUICK)
    with pytest.raises(ValueError, match="seed differ"):
        fine_tune(source, ROWS[:8], heads=HEADS, output=tmp_path, **QUICK, seed=1)


def test_a_loaded_bridge_is_refused(llama: Any, tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="HookedModel"):
        fine_tune(llama, ROWS, heads=HEADS, output=tmp_path, **QUICK)


def test_effects_before_and_after_are_those_of_both_models(tmp_path: Path) -> None:
    base = load_model("reference", device="cpu")
    pairs = sample_pairs(base, "addition", 4)
    options: dict[str, Any] = QUICK | {"learning_rate": 1e-3}
    result = fine_tune("reference", ROWS, heads=[Head(7, 3)], output=tmp_path, **options)
    both = effects_before_after(result, pairs, progress=False)
    assert torch.equal(
        both.before.heads.per_pair, path_patch(base, pairs, progress=False).heads.per_pair
    )
    assert not torch.equal(both.after.heads.per_pair, both.before.heads.per_pair)
    assert len(both.to_dataframe()) > 0
