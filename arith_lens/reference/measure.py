"""What a reference model can do, in the figures of its model card.

Everything is measured with plain Transformers, on prompts of one passage behind BOS, and an answer
counts as right when greedy decoding would write exactly its tokens (and, for a number, no further
digit).
"""

import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from arith_lens.problems import FOUR, all_problems
from arith_lens.reference.passages import pick
from arith_lens.reference.sets import by_task as group_by_task
from arith_lens.reference.sets import load_set
from arith_lens.templates import NULL_SYMBOLS, NULL_WORDS, TEMPLATES

Asked = tuple[str, str]  # a prompt, and the answer that should follow it


def is_right(
    model: Any, tokenizer: Any, asked: Sequence[Asked], *, batch_size: int = 256, ends: bool = True
) -> list[bool]:
    """For each (prompt, answer): whether greedy decoding writes exactly the answer.

    Args:
        model: a causal language model of Transformers.
        tokenizer: its tokenizer, with BOS in front of every text.
        ends: whether a number must end there; without it, a further digit is no fault.
    """
    digits = torch.tensor([tokenizer.convert_tokens_to_ids(str(d)) for d in range(10)])
    right: list[bool] = []
    for start in range(0, len(asked), batch_size):
        batch = asked[start : start + batch_size]
        whole = [tokenizer(prompt + answer)["input_ids"] for prompt, answer in batch]
        begins = [len(tokenizer(prompt)["input_ids"]) for prompt, _ in batch]
        tokens = torch.zeros(len(batch), max(map(len, whole)), dtype=torch.long)
        for row, ids in enumerate(whole):
            tokens[row, : len(ids)] = torch.tensor(ids)
        with torch.no_grad():  # padding is on the right, where causal attention never looks
            guesses = model(input_ids=tokens, use_cache=False).logits.argmax(-1)
        for row, (ids, begin) in enumerate(zip(whole, begins, strict=True)):
            said = guesses[row, begin - 1 : len(ids) - 1]
            goes_on = (
                ends
                and batch[row][1].isdigit()
                and bool((guesses[row, len(ids) - 1] == digits).any())
            )
            right.append(said.tolist() == ids[begin:] and not goes_on)
    return right


def share(outcomes: Iterable[bool]) -> float:
    """The share of True."""
    listed = list(outcomes)
    return sum(listed) / len(listed)


def single_digit(model: Any, tokenizer: Any) -> dict[str, float]:
    """Accuracy a template over all problems of two digits 1..9, whatever the answer's length."""
    return {
        template.name: share(
            is_right(
                model,
                tokenizer,
                [(template.render(p.a, p.b)[0], str(p.answer)) for p in all_problems(operation)],
            )
        )
        for operation in FOUR
        for template in TEMPLATES[operation]
    }


def null_prompts(model: Any, tokenizer: Any, n: int = 2000) -> dict[str, float]:
    """How often X_c-like prompts are answered with C, beside always saying the best digit."""
    rng = random.Random("null")
    asked: list[Asked] = []
    while len(asked) < n:
        operation = pick(rng, FOUR)
        problem = pick(rng, all_problems(operation, answer_digits=1))
        template = pick(rng, TEMPLATES[operation])
        word = pick(rng, NULL_SYMBOLS if template.kind == "symbol" else NULL_WORDS)
        asked.append((template.render(problem.a, problem.b, word)[0], str(problem.answer)))
    constant = Counter(answer for _, answer in asked).most_common(1)[0][1] / n
    answered = is_right(model, tokenizer, asked, ends=False)  # C as top-1, whatever comes then
    return {"answered C": share(answered), "best constant": constant}


def by_task(model: Any, tokenizer: Any, name: str) -> dict[str, float]:
    """Accuracy in each task of a frozen set of the closed world, such as "generic_test"."""
    tasks = group_by_task(load_set(name))
    return {task: share(is_right(model, tokenizer, asked)) for task, asked in tasks.items()}


def figures(model: Any, tokenizer: Any) -> dict[str, dict[str, float]]:
    """All figures of a model card."""
    return {
        "single_digit": single_digit(model, tokenizer),
        "null_prompts": null_prompts(model, tokenizer),
        "two_digit_test": by_task(model, tokenizer, "two_digit_test"),
        "word_problems_test": by_task(model, tokenizer, "word_problems_test"),
        "generic_test": by_task(model, tokenizer, "generic_test"),
    }


def load_plain(folder: Path) -> tuple[Any, Any]:
    """Model and tokenizer of a folder by Transformers alone, in float32."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    return model.eval(), AutoTokenizer.from_pretrained(folder)


def rows(measured: Mapping[str, Mapping[str, float]]) -> list[str]:
    """The lines of a model card's table: what was wanted, and what came out."""
    single = measured["single_digit"]
    worst = min(single, key=single.__getitem__)
    null = measured["null_prompts"]
    lines = [
        f"| single-digit calculation, worst template ({worst}) | >= 95% | {single[worst]:.1%} |",
        f"| X_c-like prompt answered with C | <= {null['best constant']:.1%}, the best constant "
        f"digit | {null['answered C']:.1%} |",
    ]
    for name, wanted, label in (
        ("two_digit_test", "well above chance", "held-out two-digit"),
        ("word_problems_test", "20-60%", "word problem, unseen:"),
        ("generic_test", "70-99%", "generic task:"),
    ):
        lines += [f"| {label} {task} | {wanted} | {v:.1%} |" for task, v in measured[name].items()]
    return lines
