"""Two processes give one process' losses at the same global batch, and its weights."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from support.children import Script
from support.fixtures import HFFactory
from torch.nn import functional

from arith_lens.components import Head
from arith_lens.fine_tuning import TuningResult, fine_tune
from arith_lens.fine_tuning.training import ByLength, Example, filled

ROWS = [
    {"prompt": f"{a} plus 5 =", "answer": " " + " ".join([str(a)] * (1 + a % 5))}
    for a in range(10, 23)  # 13 rows: the last batch is not whole; answers of unequal lengths
]
OPTIONS: dict[str, Any] = {"learning_rate": 1e-3, "batch_size": 4, "epochs": 2, "log_every": 1}


@pytest.fixture
def base(make_hf: HFFactory, tokenizer: Any, tmp_path: Path) -> Path:
    folder = tmp_path / "base"
    for part in (make_hf("mistral"), tokenizer):
        part.save_pretrained(folder)
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, ROWS)))
    return folder


def by_two(base: Path, output: Path, *options: str) -> None:
    """The example command, started by torchrun."""
    arguments = ["--model", str(base), "--data", str(base.parent / "rows.jsonl")]
    arguments += ["--output", str(output), *options]
    for name, value in (OPTIONS | {"device": "cpu"}).items():
        arguments += [f"--{name.replace('_', '-')}", str(value)]
    script = Script("experiments", "tune", *arguments, output=base.parent / "printed.txt", n=2)
    assert script.wait(120) == 0, script.printed[-3000:]


def losses(result: TuningResult) -> torch.Tensor:
    return torch.tensor([loss for _, loss in result.losses])


def first_batches_loss(hf_model: Any, tokenizer: Any, *, apart: bool) -> float:
    """Over all answers' tokens, or the mean of both processes' means: by plain Transformers."""
    lengths = [len(tokenizer(row["prompt"] + row["answer"])["input_ids"]) + 1 for row in ROWS]
    chosen = list(ByLength(lengths, OPTIONS["batch_size"], seed=0))[: OPTIONS["batch_size"]]
    each = []
    for index in chosen:
        row = ROWS[index]
        n_prompt = len(tokenizer(row["prompt"])["input_ids"])
        ids = tokenizer(row["prompt"] + row["answer"])["input_ids"] + [tokenizer.eos_token_id]
        with torch.no_grad():
            logits = hf_model(torch.tensor([ids])).logits[0]
        answer = torch.tensor(ids[n_prompt:])
        each.append(functional.cross_entropy(logits[n_prompt - 1 : -1], answer, reduction="none"))
    if apart:
        return float((torch.cat(each[:2]).mean() + torch.cat(each[2:]).mean()) / 2)
    return float(torch.cat(each).mean())


def test_two_processes_give_the_losses_and_weights_of_one(
    base: Path, make_hf: HFFactory, tokenizer: Any, tmp_path: Path
) -> None:
    heads = [Head(1, 0), Head(2, 3)]
    one = fine_tune(
        base, ROWS, heads=heads, output=tmp_path / "one", device="cpu", progress=False, **OPTIONS
    )
    by_two(base, tmp_path / "two", "--heads", *map(str, heads))
    two = TuningResult.load(tmp_path / "two")
    assert len(one.losses) == 8
    torch.testing.assert_close(losses(two), losses(one), rtol=1e-5, atol=0)
    for piece, value in one.delta.values.items():
        torch.testing.assert_close(two.delta.values[piece], value, rtol=0, atol=1e-5)
    assert two.untouched is not None and two.untouched.identical
    assert not list((tmp_path / "two").glob("question.json.*")), "each process wrote its own"
    together, apart = (
        first_batches_loss(make_hf("mistral"), tokenizer, apart=apart) for apart in (False, True)
    )
    assert abs(one.losses[0][1] - together) < 1e-5
    assert abs(apart - together) > 1e-4, "the test must be able to fail"


def test_silent_examples_fill_the_last_batch_and_come_last() -> None:
    examples = filled([Example((1, 5, 6), 2)] * 5, 4)
    assert len(examples) == 8 and examples[5:] == [Example((1,), 1)] * 3
    order = list(ByLength([3] * 5, 4, seed=0, n_silent=3))
    assert sorted(order[:5]) == list(range(5)) and order[5:] == [5, 6, 7]


def test_slices_are_refused_under_fsdp(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ACCELERATE_USE_FSDP", "true")
    with pytest.raises(ValueError, match="method 'full' under FSDP, found 'precise'"):
        fine_tune(base, ROWS, heads=[Head(1, 0)], output=tmp_path / "one")
    with pytest.raises(ValueError, match="expected GPUs under FSDP"):
        fine_tune(base, ROWS, method="full", output=tmp_path / "one", device="cpu")
