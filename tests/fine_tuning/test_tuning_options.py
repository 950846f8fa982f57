"""What the Trainer is told: a hand-written loop, other precisions, recomputing, inputs, errors."""

import json
import math
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from support.fixtures import HFFactory
from support.quick_tuning import HEADS, QUICK
from torch import nn
from torch.nn import functional

from arith_lens.fine_tuning import TuningResult, fine_tune, tune
from arith_lens.fine_tuning.training import ByLength, read_dataset, train

ROWS = [
    {"prompt": f"Q: What is {a} plus {b}? A: ", "answer": " ".join([str(a + b)] * (1 + a % 4))}
    for a in range(1, 9)
    for b in range(1, 5)
]  # answers of unequal lengths: a mean of micro-batches' means would weigh tokens otherwise


def tuned(source: Any, output: Path, **options: Any) -> TuningResult:
    settings: dict[str, Any] = {"heads": HEADS} | QUICK | options
    return fine_tune(source, ROWS, output=output, **settings)


def values(result: TuningResult) -> torch.Tensor:
    delta = result.delta.values
    return torch.cat([delta[piece].flatten() for piece in sorted(delta)])


def owned(hf_model: Any) -> dict[str, torch.Tensor]:
    """Ones where a weight belongs to HEADS, cut by hand: 4 heads and 2 key-value heads of 8."""
    found = {}
    for layer, head in ((1, 0), (2, 3)):
        attention = hf_model.model.layers[layer].self_attn
        for part, index in (("q", head), ("k", head // 2), ("v", head // 2)):
            mask = torch.zeros_like(getattr(attention, f"{part}_proj").weight)
            mask[8 * index : 8 * index + 8] = 1
            found[f"model.layers.{layer}.self_attn.{part}_proj.weight"] = mask
        mask = torch.zeros_like(attention.o_proj.weight)
        mask[:, 8 * head : 8 * head + 8] = 1
        found[f"model.layers.{layer}.self_attn.o_proj.weight"] = mask
    return found


def by_hand(hf_model: Any, tokenizer: Any, n_steps: int, *, clip: float) -> dict[str, Any]:
    """The tuned weights by a loop over plain Transformers and torch, one row at a time."""
    rows = []
    for row in ROWS:
        n_prompt = len(tokenizer(row["prompt"])["input_ids"])
        ids = tokenizer(row["prompt"] + row["answer"])["input_ids"] + [tokenizer.eos_token_id]
        rows.append((torch.tensor([ids]), n_prompt))
    sampler, order = ByLength([ids.shape[1] for ids, _ in rows], 8, seed=0), []
    for epoch in range(math.ceil(n_steps / 4)):
        sampler.set_epoch(epoch)
        order += sampler
    masks, weights = owned(hf_model), dict(hf_model.named_parameters())
    optimizer = torch.optim.AdamW([weights[name] for name in masks], weight_decay=0.1)
    warmup = math.ceil(0.02 * n_steps)
    for step in range(n_steps):
        share = step / warmup if step < warmup else (n_steps - step) / (n_steps - warmup)
        optimizer.param_groups[0]["lr"] = 1e-2 * share
        chosen = [rows[i] for i in order[8 * step : 8 * step + 8]]
        n_tokens = sum(ids.shape[1] - n_prompt for ids, n_prompt in chosen)
        hf_model.zero_grad()
        for ids, n_prompt in chosen:
            logits = hf_model(ids, use_cache=False).logits[0, n_prompt - 1 : -1]
            answer = ids[0, n_prompt:]
            (functional.cross_entropy(logits, answer, reduction="sum") / n_tokens).backward()
        before = {name: weights[name].detach().clone() for name in masks}
        for name, mask in masks.items():
            weights[name].grad *= mask  # pyright: ignore[reportOperatorIssue]
        nn.utils.clip_grad_norm_([weights[name] for name in masks], clip)
        optimizer.step()
        for name, mask in masks.items():
            weights[name].data = torch.where(mask.bool(), weights[name].data, before[name])
    return {name: weights[name].detach() for name in masks}


@pytest.mark.parametrize("micro_batch", [None, 2])
def test_a_tuning_is_the_loop_that_one_would_write_by_hand(
    source: Any, make_hf: HFFactory, tmp_path: Path, micro_batch: int | None
) -> None:
    """Accumulated or not: loss over all answers' tokens, clipping, warm-up, decay, AdamW."""
    settings = {"rescale": None, "max_steps": 6, "micro_batch": micro_batch}
    result = tuned(source, tmp_path, **settings)
    assert [step for step, _ in result.losses] == [1, 2, 3, 4, 5, 6], "beyond its one epoch"
    after = dict(result.model(source)[0].named_parameters())
    expected = by_hand(make_hf("mistral"), source[1], 6, clip=1.0)
    for name, weight in expected.items():
        torch.testing.assert_close(after[name].detach(), weight, rtol=0, atol=2e-5)
    other = by_hand(make_hf("mistral"), source[1], 6, clip=1e9)
    assert max((other[name] - expected[name]).abs().max() for name in expected) > 2e-4


def test_accumulated_steps_give_the_weights_of_whole_batches(source: Any, tmp_path: Path) -> None:
    whole, accumulated, other = (
        values(tuned(source, tmp_path / name, **settings))
        for name, settings in (
            ("whole", {}),
            ("two", {"micro_batch": 2}),
            ("few", {"batch_size": 2}),
        )
    )
    torch.testing.assert_close(accumulated, whole, rtol=0, atol=1e-6)
    assert (other - whole).abs().max() > 1e-3, "the test must be able to fail"


@pytest.mark.parametrize("method", ["precise", "full", "lora"])
def test_recomputing_gives_the_same_bits_and_no_warning(
    source: Any, tmp_path: Path, method: str
) -> None:
    heads = () if method == "full" else HEADS
    calls = {}
    for recompute in (False, True):
        seen: list[str] = []
        handle = nn.modules.module.register_module_forward_pre_hook(
            lambda module, *_, seen=seen: seen.append(type(module).__name__)
        )
        try:
            with warnings.catch_warnings(record=True) as said:
                warnings.simplefilter("always")
                tuned(
                    source, tmp_path / str(recompute), method=method, heads=heads, max_steps=2,
                    gradient_checkpointing=recompute,
                )  # fmt: skip
        finally:
            handle.remove()
        assert [str(w.message) for w in said if w.category in (FutureWarning, UserWarning)] == []
        calls[recompute] = seen.count("MistralMLP")
    plain, recomputed = (
        dict(TuningResult.load(tmp_path / name).model(source)[0].named_parameters())
        for name in ("False", "True")
    )
    assert all(torch.equal(plain[name], recomputed[name]) for name in plain)
    assert calls[True] > calls[False], "layers must have been run again"


@pytest.mark.parametrize("method", ["precise", "full"])
def test_bf16_multiplies_in_bfloat16_and_goes_the_same_way(
    source: Any, tmp_path: Path, method: str
) -> None:
    settings: dict[str, Any] = {"method": method, "heads": () if method == "full" else HEADS}
    seen = set()
    handle = nn.modules.module.register_module_forward_hook(
        lambda module, _, out: (
            seen.add(out.dtype) if type(module).__name__ == "SlicedLinear" else None
        )
    )
    try:
        half = tuned(source, tmp_path / "half", bf16=True, **settings)
    finally:
        handle.remove()
    whole = tuned(source, tmp_path / "whole", **settings)
    dtype = torch.float32 if method == "full" else torch.bfloat16
    assert seen == (set() if method == "full" else {torch.bfloat16})
    after = dict(half.model(source)[0].named_parameters())
    assert {weight.dtype for weight in after.values()} == {dtype}
    losses = [torch.tensor([loss for _, loss in one.losses]) for one in (half, whole)]
    torch.testing.assert_close(*losses, rtol=0.02, atol=0)
    assert not torch.equal(*losses), "float32 would give the same losses"
    plain = dict(source[0].named_parameters())
    other = dict(whole.model(source)[0].named_parameters())
    name = "model.layers.2.self_attn.o_proj.weight"
    steps = [(weights[name].float() - plain[name]).detach().flatten() for weights in (after, other)]
    assert functional.cosine_similarity(*steps, dim=0) > 0.95


def test_a_qwen3_model_is_tuned_exactly(make_hf: HFFactory, tokenizer: Any, tmp_path: Path) -> None:
    """Grouped queries, heads larger than d_model / n_heads, norms of Q and K that heads share."""
    source = (make_hf("qwen3", num_key_value_heads=2, head_dim=16), tokenizer)
    result = tuned(source, tmp_path, weight_decay=0.1)
    before = dict(source[0].named_parameters())
    after = dict(result.model(source)[0].named_parameters())
    changed = {name for name, weight in before.items() if not torch.equal(weight, after[name])}
    assert changed == {
        f"model.layers.{layer}.self_attn.{part}_proj.weight" for layer in (1, 2) for part in "qkvo"
    }
    q = (before["model.layers.2.self_attn.q_proj.weight"] != after[
        "model.layers.2.self_attn.q_proj.weight"
    ]).reshape(4, 16, 32)  # fmt: skip
    assert q[3].all() and not q[:3].any()
    assert result.n_tuned == 2 * 4 * 16 * 32
    assert result.untouched is not None and result.untouched.identical


def test_parameters_are_counted_before_a_training_that_may_shard_them(
    source: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def sharded(prepared: Any, *arguments: Any, **options: Any) -> Any:
        trainer = train(prepared, *arguments, **options)
        for parameter in prepared.model.parameters():
            parameter.data = parameter.data.flatten()[:1]
        return trainer

    monkeypatch.setattr(tune, "train", sharded)
    monkeypatch.setattr(tune, "_write", lambda *_, **__: None)
    result = fine_tune(source, ROWS[:4], method="full", output=tmp_path, **QUICK)
    size = sum(parameter.numel() for parameter in source[0].parameters())
    assert result.n_tuned == result.n_parameters == size


def test_a_dataset_a_list_and_a_file_are_the_same_rows(
    source: Any, tokenizer: Any, tmp_path: Path
) -> None:
    from datasets import Dataset

    path = tmp_path / "rows.jsonl"
    path.write_text("\n".join(map(json.dumps, ROWS)) + "\n\n", encoding="utf-8")
    expected = [(row["prompt"], row["answer"]) for row in ROWS]
    for dataset in (ROWS, Dataset.from_list(ROWS), path, str(path), iter(ROWS)):
        assert read_dataset(dataset) == expected
    settings: dict[str, Any] = QUICK | {"max_steps": 1}
    results = [
        fine_tune(source, dataset, heads=HEADS, output=tmp_path / name, **settings)
        for dataset, name in ((ROWS, "list"), (Dataset.from_list(ROWS), "set"), (str(path), "file"))
    ]
    assert len({result.dataset_hash for result in results}) == 1


@pytest.mark.parametrize(
    ("change", "kind", "message"),
    [
        ({"lr": 1e-3}, TypeError, "unexpected keyword argument 'lr'.* options learning_rate,"),
        ({"max_steps": 0}, ValueError, "max_steps above 0"),
        ({"log_every": 0}, ValueError, "log_every above 0"),
        ({"warmup": 100}, ValueError, "warmup as a share"),
        ({"weight_decay": -0.1}, ValueError, "weight_decay of at least 0"),
        ({"dataset": None}, TypeError, "found a NoneType"),
        ({"dataset": {"train": ROWS, "test": ROWS}}, TypeError, "of train, test; of several"),
        ({"dataset": [3, 4]}, ValueError, "found int in row 0"),
        ({"dataset": [*ROWS, {"prompt": "3", "answer": 4}]}, ValueError, "text .* in row 32"),
        ({"dataset": "nowhere.jsonl"}, FileNotFoundError, "JSONL file .* nowhere"),
    ],
)
def test_mistakes_are_said(
    source: Any, tmp_path: Path, change: dict[str, Any], kind: type[Exception], message: str
) -> None:
    options = {"dataset": ROWS, "heads": HEADS, "output": tmp_path, **QUICK} | change
    with pytest.raises(kind, match=message):
        fine_tune(source, **options)


def test_a_line_that_is_no_json_is_named(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"prompt": "1 + 1 = ", "answer": "2"}\n{"prompt": "1 + \n')
    with pytest.raises(ValueError, match=r"JSON object in line 2 of .*rows\.jsonl, found"):
        read_dataset(path)
