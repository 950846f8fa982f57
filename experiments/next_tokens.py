"""What does the model say next? Without the calculation, and without its key heads."""

import random
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, TypeAlias

import torch

import arith_lens as al
from arith_lens.knockout import counterfactual_means, knockout_hooks, random_order
from arith_lens.next_tokens import next_tokens
from arith_lens.operations import FOUR
from arith_lens.pairs import answer, continued, encode, keep_correct
from arith_lens.progress import counted
from arith_lens.reference.sets import load_set
from arith_lens.runs import Run
from arith_lens.templates import FIGURE_10
from experiments.command import exit_on_user_error
from experiments.configs.answers import CalculationConfig, InsteadConfig
from experiments.results import ANSWER_PROBABILITY, LIKELIEST, NEXT_TOKENS
from experiments.settings import (
    Experiment,
    operation_maps,
    pooled,
    pooled_map,
    pooled_samples,
    strongest_heads,
)

SIDES = ("reference", "counterfactual")
ANSWER_MEASURES = ("p(C)", "top-1 is C")
PAIR_KINDS: Mapping[str, Mapping[str, Any]] = {
    **{operation: {"operation": operation} for operation in FOUR},
    "two_digits": {
        "operation": "addition",
        "templates": ("addition/4",),
        "operands": range(10, 100),
        "answer_token": "last",
    },
    "stories": {"operation": "addition", "templates": tuple(f"story/{i}" for i in range(9, 13))},
}
N_SAMPLED = 200  # reference prompts of kinds that have thousands
BATCH = 128
AFTER, RANDOM = "after", "random-"
"""The names of knockouts: of the strongest heads, and of a random draw with its number."""


def _save_both_sides(run: Run, model: al.HookedModel, config: CalculationConfig) -> None:
    """For each kind of prompt: the likeliest tokens of every prompt, and whether they are C."""
    for kind in counted([*PAIR_KINDS], "kinds of prompts"):
        if ANSWER_PROBABILITY.is_in(run, kind):
            continue
        prompts = PAIR_KINDS[kind]
        n = N_SAMPLED if config.n is None and kind == "two_digits" else config.n
        with exit_on_user_error():
            pairs = al.sample_pairs(model, n=n, seed=config.seed, keep="all", **prompts)
        if config.keep == "correct" and answer(model, pairs, "reference", BATCH)[0].any():
            pairs = keep_correct(model, pairs)  # if none is right, all are shown
        for side in SIDES:
            tokens = next_tokens(model, getattr(pairs, f"{side}_text"), k=config.k)
            LIKELIEST.save(run, tokens, kind, side, pairs=pairs, answers=pairs.answer.tolist())
        ANSWER_PROBABILITY.save(run, right_of_both_sides(model, pairs), kind, pairs=pairs)


def _plan_both_sides(model: al.HookedModel, config: CalculationConfig) -> str:
    names = ", ".join(PAIR_KINDS)
    return f"{len(PAIR_KINDS)} kinds of prompts ({names}), two forwards per prompt and side"


def right_of_both_sides(model: al.HookedModel, pairs: al.PromptPairs) -> al.Effects:
    """p(C) and whether C is the likeliest token, after both prompts, [side measure pair]."""
    answers = [answer(model, pairs, side, BATCH) for side in SIDES]
    outcomes = torch.stack([torch.stack([p, right.float()]) for right, p in answers])
    labels = {"side": SIDES, "measure": ANSWER_MEASURES}
    return al.Effects(outcomes, ("side", "measure"), "share", **pairs.units, labels=labels)


def _report_both_sides(run: Run) -> None:
    """Print p(C) and how often C is likeliest, with and without the calculation."""
    print(run.config["model"])
    for kind in PAIR_KINDS:
        effects = ANSWER_PROBABILITY.load(run, kind)
        (p, right), (p_c, right_c) = effects.mean().tolist()
        chosen = ANSWER_PROBABILITY.facts(run, kind)["selection"]
        note = f" ({chosen['n_kept']} of {chosen['n_drawn']} answered right)" if chosen else ""
        print(
            f"  {kind:>14}: {effects.n_pairs} pairs{note}; with the calculation p(C) {p:.1%}, "
            f"C likeliest {right:.1%}; without it {p_c:.1%}, {right_c:.1%}"
        )


what_the_calculation_does = Experiment(
    "what_the_calculation_does",
    CalculationConfig,
    _save_both_sides,
    _plan_both_sides,
    _report_both_sides,
    figure="fig9",
)


Exercise: TypeAlias = tuple[str, str]
"""A prompt, and the answer that should follow it."""


def _save_instead(run: Run, model: al.HookedModel, config: InsteadConfig) -> None:
    """Find the heads, and predict the next token of every prompt with and without them."""
    pairs = pooled_samples(model, config)
    effects = pooled_map(run, pairs, operation_maps(run, model, pairs))
    heads = strongest_heads(effects, config.heads)
    names = [str(head) for head in heads]
    sets = {AFTER: heads} | {
        f"{RANDOM}{seed}": random_order(model.n_layers, model.n_heads, seed)[: len(heads)]
        for seed in range(config.controls)
    }
    every = [*dict.fromkeys(head for some in sets.values() for head in some)]
    means = counterfactual_means(model, pooled(pairs), every)
    hooks = {"before": []} | {
        when: knockout_hooks(model, some, means) for when, some in sets.items()
    }
    for kind, draw in EXERCISES.items():
        rng = random.Random(f"{kind} {config.seed}")
        questions = [draw(rng) for _ in range(config.prompts)]
        answers = first_tokens(model, questions)
        prompts = [prompt for prompt, _ in questions]
        for when, with_hooks in hooks.items():
            if NEXT_TOKENS.is_in(run, kind, when):
                continue
            tokens = next_tokens(model, prompts, hooks=with_hooks)
            NEXT_TOKENS.save(run, tokens, kind, when, answers=answers, heads=names)


def _plan_instead(model: al.HookedModel, config: InsteadConfig) -> str:
    return (
        f"a path patching of every head on four operations, then {len(EXERCISES)} kinds of "
        f"{config.prompts} prompts, each run {2 + config.controls} times"
    )


def first_tokens(model: al.HookedModel, exercises: list[Exercise]) -> list[int]:
    """The first token of each answer, from tokenizing prompt and answer together.

    Raises:
        ValueError: an answer changes how its prompt is split.
    """
    prompts = encode(model.tokenizer, [prompt for prompt, _ in exercises])
    completes = encode(model.tokenizer, [continued(*exercise) for exercise in exercises])
    first = []
    for prompt, complete, (text, expected) in zip(prompts, completes, exercises, strict=True):
        n = len(prompt.ids)
        if complete.ids[:n] != prompt.ids or len(complete.ids) == n:
            raise ValueError(
                f"expected {expected!r} to begin with a token of its own after {text!r}, found "
                "that this tokenizer splits them otherwise; end the prompt where a number follows"
            )
        first.append(complete.ids[n])
    return first


def _between(rng: random.Random, low: int, high: int) -> int:
    return low + int(rng.random() * (high - low + 1))


def world_word_problem(rng: random.Random) -> Exercise:
    """A word problem of the closed world that is not in its training data."""
    lines = _word_problems()
    line = lines[int(rng.random() * len(lines))]
    return line["prompt"], line["answer"]


def integers(rng: random.Random) -> Exercise:
    """A sum of three-digit numbers."""
    a, b = _between(rng, 100, 499), _between(rng, 100, 499)
    return f"{a} + {b} = ", str(a + b)


def time_span(rng: random.Random) -> Exercise:
    """One of the first eight templates of the paper's Figure 10."""
    template = FIGURE_10[int(rng.random() * 8)]
    a = _between(rng, 1, 8)
    b = _between(rng, 1, 9 - a)
    return template.sample(rng, a, b)[0], str(a + b)


def decimals(rng: random.Random) -> Exercise:
    """A sum of two numbers with one decimal."""
    a, b = _between(rng, 10, 499), _between(rng, 10, 499)
    texts = [f"{n // 10}.{n % 10}" for n in (a, b, a + b)]
    return f"{texts[0]} plus {texts[1]} equals to ", texts[2]


EXERCISES: Mapping[str, Callable[[random.Random], Exercise]] = {
    "word_problem": world_word_problem,
    "integers": integers,
    "time_span": time_span,
    "decimals": decimals,
}


@cache
def _word_problems() -> list[dict[str, str]]:
    return load_set("word_problems_test")


def _report_instead(run: Run) -> None:
    """Print how often the first token is right before and after, kind by kind."""
    heads = NEXT_TOKENS.facts(run, next(iter(EXERCISES)), "before")["heads"]
    print(f"{run.config['model']}: next token without {', '.join(heads)}")
    for kind in EXERCISES:
        before, after = (right_share(run, kind, when) for when in ("before", "after"))
        print(f"  {kind:>13}: right {before:.1%} before, {after:.1%} after")


def right_share(run: Run, kind: str, when: str) -> float:
    """How often the likeliest token is the first token of the answer."""
    tokens, facts = NEXT_TOKENS.load(run, kind, when), NEXT_TOKENS.facts(run, kind, when)
    return float((tokens.ids[:, 0] == torch.tensor(facts["answers"])).float().mean())


what_comes_instead = Experiment(
    "what_comes_instead",
    InsteadConfig,
    _save_instead,
    _plan_instead,
    _report_instead,
    figure="fig4",
)
