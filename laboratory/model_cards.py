"""The figures of the reference models' cards: which questions each model answers right."""

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from torch.nn.utils.rnn import pad_sequence

from arith_lens.operations import FOUR
from arith_lens.problems import all_problems
from arith_lens.reference.sets import by_task as group_by_task
from arith_lens.reference.sets import load_set
from arith_lens.templates import NULL_SYMBOLS, NULL_WORDS, TEMPLATES
from laboratory.calculations import pick

PromptAndAnswer = tuple[str, str]  # a prompt, and the answer that should follow it
FIGURES = ("single_digit", "null_prompts", "two_digit_test", "word_problems_test", "generic_test")
ANSWERED = "answered C"


def is_right(
    model: Any,
    tokenizer: Any,
    items: Sequence[PromptAndAnswer],
    *,
    batch_size: int = 256,
    ends: bool = True,
) -> list[bool]:
    """Whether greedy decoding writes exactly the answer, for each (prompt, answer).

    Args:
        model: a causal language model of Transformers.
        tokenizer: its tokenizer, with BOS in front of every text.
        ends: whether a number must end after the answer; else a further digit is allowed.
    """
    digits = torch.tensor([tokenizer.convert_tokens_to_ids(str(d)) for d in range(10)])
    right: list[bool] = []
    for start in range(0, len(items), batch_size):
        batch = items[start : start + batch_size]
        full = [tokenizer(prompt + answer)["input_ids"] for prompt, answer in batch]
        begins = [len(tokenizer(prompt)["input_ids"]) for prompt, _ in batch]
        tokens = pad_sequence([torch.tensor(ids) for ids in full], batch_first=True)
        with torch.no_grad():  # padding is on the right, which causal attention does not read
            guesses = model(input_ids=tokens, use_cache=False).logits.argmax(-1)
        for row, (ids, begin) in enumerate(zip(full, begins, strict=True)):
            written = guesses[row, begin - 1 : len(ids) - 1]
            goes_on = (
                ends
                and batch[row][1].isdigit()
                and bool((guesses[row, len(ids) - 1] == digits).any())
            )
            right.append(written.tolist() == ids[begin:] and not goes_on)
    return right


def figure_questions(name: str) -> dict[str, list[PromptAndAnswer]]:
    """The questions of one figure of the card, by its parts.

    Args:
        name: "single_digit": all problems of two digits 1..9 by template, whatever the answer's
            length; "null_prompts"; or a frozen set of the closed world by task ("generic_test").
    """
    if name == "single_digit":
        return {
            template.name: [
                (template.render(p.a, p.b)[0], str(p.answer)) for p in all_problems(operation)
            ]
            for operation in FOUR
            for template in TEMPLATES[operation]
        }
    return {ANSWERED: null_prompts()} if name == "null_prompts" else group_by_task(load_set(name))


def null_prompts(n: int = 2000) -> list[PromptAndAnswer]:
    """Prompts like counterfactuals, with the C that should not be their answer."""
    rng = random.Random("null")
    problems = {operation: all_problems(operation, answer_digits=1) for operation in FOUR}
    prompts: list[PromptAndAnswer] = []
    while len(prompts) < n:
        operation = pick(rng, FOUR)
        problem = pick(rng, problems[operation])
        template = pick(rng, TEMPLATES[operation])
        word = pick(rng, NULL_SYMBOLS if template.kind == "symbol" else NULL_WORDS)
        prompts.append((template.render(problem.a, problem.b, word)[0], str(problem.answer)))
    return prompts


AnswersByTask = dict[str, list[bool]]
"""Whether each question is answered right, by part of a figure."""


def question_outcomes(model: Any, tokenizer: Any, name: str, *, every: int = 1) -> AnswersByTask:
    """Ask the questions of one figure, or only every n-th question of each part (`every`)."""
    ends = name != "null_prompts"  # for these, C as the most likely token is enough
    return {
        part: is_right(model, tokenizer, items[::every], ends=ends)
        for part, items in figure_questions(name).items()
    }


def figures(measured: Mapping[str, AnswersByTask]) -> dict[str, dict[str, float]]:
    """All figures of a model card, from the outcomes of all of `FIGURES`."""
    shares = {
        name: {part: fmean(right) for part, right in parts.items()}
        for name, parts in measured.items()
    }
    counts = Counter(answer for _, answer in null_prompts())
    shares["null_prompts"]["best constant"] = counts.most_common(1)[0][1] / counts.total()
    return shares


def pack(measured: Mapping[str, AnswersByTask]) -> dict[str, dict[str, str]]:
    """Answers as text for JSON: a 1 or a 0 per question."""
    return {
        name: {part: "".join("01"[outcome] for outcome in right) for part, right in parts.items()}
        for name, parts in measured.items()
    }


def unpack(packed: Mapping[str, Mapping[str, str]]) -> dict[str, AnswersByTask]:
    """The reverse of `pack`."""
    return {
        name: {part: [digit == "1" for digit in text] for part, text in parts.items()}
        for name, parts in packed.items()
    }


def load_plain(folder: Path) -> tuple[Any, Any]:
    """Model and tokenizer of a folder by Transformers alone, in float32."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    return model.eval(), AutoTokenizer.from_pretrained(folder)


def card_rows(measured: Mapping[str, Mapping[str, float]]) -> list[str]:
    """The lines of a model card's table: targets and results."""
    single = measured["single_digit"]
    worst = min(single, key=single.__getitem__)
    null = measured["null_prompts"]
    lines = [
        f"| single-digit calculation, worst template ({worst}) | >= 95% | {single[worst]:.1%} |",
        f"| X_c-like prompt answered with C | <= {null['best constant']:.1%}, the best constant "
        f"digit | {null[ANSWERED]:.1%} |",
    ]
    for name, wanted, label in (
        ("two_digit_test", "well above chance", "held-out two-digit"),
        ("word_problems_test", "20-60%", "word problem, unseen:"),
        ("generic_test", "70-99%", "generic task:"),
    ):
        lines += [f"| {label} {task} | {wanted} | {v:.1%} |" for task, v in measured[name].items()]
    return lines
