"""Logits at answers alone: loss and gradients of plain Transformers, which computes all logits."""

from pathlib import Path
from typing import Any

import pytest
import torch
from support.families import GROUPED, LOCAL_EXPERTS, SWEPT, Family
from support.quick_tuning import HEADS, QUICK
from torch import Tensor, nn
from torch.testing import assert_close

from arith_lens.fine_tuning import fine_tune
from arith_lens.fine_tuning.training import IGNORED, Example, answer_logits, collate

VOCAB = 200
FAMILIES = {
    "Qwen3": SWEPT["Qwen3"],  # grouped queries
    "Gemma 2": Family("Gemma2", GROUPED | {"head_dim": 16, "final_logit_softcapping": 2.0}),
    "Cohere": SWEPT["Cohere"],  # a factor on the logits
    "GPT-2": SWEPT["GPT-2"],  # positions are learned
    "Pythia": SWEPT["Pythia"],
    "Mixtral": Family("Mixtral", GROUPED | LOCAL_EXPERTS | {"output_router_logits": True}),
}


def batch(side: str) -> dict[str, Tensor]:
    """Prompts and answers of unequal lengths, one without an answer, padded on one side."""
    generator = torch.Generator().manual_seed(0)
    sizes = ((5, 3), (8, 1), (4, 0), (2, 6))  # tokens of the prompt, tokens of the answer
    examples = [
        Example(tuple(torch.randint(3, VOCAB, (n + m,), generator=generator).tolist()), n)
        for n, m in sizes
    ]
    inputs = collate(examples)
    if side == "left":
        shifts = (inputs["attention_mask"] == 0).sum(1).tolist()
        inputs = {
            name: torch.stack([row.roll(n) for row, n in zip(rows, shifts, strict=True)])
            for name, rows in inputs.items()
        }
        inputs["position_ids"] = (inputs["attention_mask"].cumsum(1) - 1).clamp(min=0)
    return inputs


def loss_and_gradients(hf_model: Any, inputs: dict[str, Tensor]) -> tuple[Tensor, dict[str, Any]]:
    hf_model.zero_grad()
    loss = hf_model(**inputs, use_cache=False).loss
    loss.backward()
    return loss.detach(), {name: p.grad.clone() for name, p in hf_model.named_parameters()}


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("name", FAMILIES)
def test_loss_and_gradients_are_those_of_all_logits(name: str, side: str) -> None:
    """Within float32 rounding: sums over fewer rows have another order."""
    hf_model, inputs = FAMILIES[name].make(VOCAB), batch(side)
    expected, gradients = loss_and_gradients(hf_model, inputs)
    labels = inputs["labels"]
    for shift in (0, 1):  # the second are the labels of other positions
        with answer_logits(hf_model, labels.roll(-shift, 1)) as chosen:
            loss, found = loss_and_gradients(hf_model, inputs | {"labels": chosen})
        if shift:
            (embedding, *_) = gradients
            error = (found[embedding] - gradients[embedding]).norm() / gradients[embedding].norm()
            assert error > 0.1, "the test must be able to fail"
            continue
        assert chosen[0, 1:].tolist() == labels[labels != IGNORED].tolist()
        assert_close(loss, expected, rtol=1e-6, atol=0)
        for weight, gradient in gradients.items():
            assert_close(found[weight], gradient, rtol=1e-4, atol=1e-6 * gradient.abs().max())
    assert_close(hf_model(**inputs).loss, expected, rtol=0, atol=0)  # nothing remains


def test_a_batch_without_answers_has_no_gradient() -> None:
    """Among several processes, one may have only the rows that fill up the last batch."""
    hf_model = FAMILIES["Qwen3"].make(VOCAB)
    inputs = collate([Example((5,), 1)] * 2)
    with answer_logits(hf_model, inputs["labels"]) as chosen:
        loss = hf_model(**inputs | {"labels": chosen}, num_items_in_batch=7).loss
    loss.backward()
    assert loss == 0
    assert not any(weight.grad.any() for weight in hf_model.parameters())


def test_a_tuning_computes_the_logits_of_answers_alone(source: Any, tmp_path: Path) -> None:
    n_logits: list[int] = []

    def count(module: nn.Module, _: Any, output: Any) -> None:
        if isinstance(module, nn.Linear) and module.out_features == len(source[1]):
            n_logits.append(output.shape[:-1].numel())

    handle = nn.modules.module.register_module_forward_hook(count)
    rows = [{"prompt": f"Q: What is {a} plus 1? A: ", "answer": str(a + 1)} for a in range(8)]
    try:
        fine_tune(source, rows, heads=HEADS, output=tmp_path, **QUICK)
    finally:
        handle.remove()
    assert n_logits == [8 * 2 + 1], "digit and EOS of each row, and one position at the end"
