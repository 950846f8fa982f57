"""What does the model say without its key heads? Next tokens before and after (Figure 4).

Word problems, multi-digit integers, time spans and decimals: none of these prompts was used to
choose the heads. These are the strongest by mean effect over the four operations; each is replaced
by one vector, its mean over the counterfactuals. Saves a run under results/what_comes_instead/,
which `figures/next_tokens.py` draws.
"""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import TypeAlias

import torch

import arith_lens as al
from arith_lens.knockout import counterfactual_means, knockout_hooks
from arith_lens.next_tokens import next_tokens
from arith_lens.pairs.tokens import continued, encode
from arith_lens.reference.sets import load_set
from arith_lens.runs import Run
from arith_lens.templates import FIGURE_10
from experiments.results import NEXT_TOKENS
from experiments.settings import (
    Experiment,
    PooledSampleSettings,
    operation_maps,
    pooled,
    pooled_map,
    pooled_samples,
    strongest_heads,
)

Exercise: TypeAlias = tuple[str, str]
"""A prompt, and the answer that should follow it."""


@dataclass(frozen=True)
class Config(PooledSampleSettings):
    """What does the model say without its key heads? Next tokens before and after."""

    heads: int = 10
    """How many heads to knock out: the strongest by mean effect over the four operations."""
    prompts: int = 300
    """Prompts of each kind."""


def compute(run: Run, model: al.HookedModel, config: Config) -> None:
    """Find the heads, and predict the next token of every prompt with and without them."""
    pairs = pooled_samples(model, config)
    effects = pooled_map(run, pairs, operation_maps(run, model, pairs))
    heads = strongest_heads(effects, config.heads)
    hooks = knockout_hooks(model, heads, counterfactual_means(model, pooled(pairs), heads))
    for kind, draw in EXERCISES.items():
        rng = random.Random(f"{kind} {config.seed}")
        questions = [draw(rng) for _ in range(config.prompts)]
        answers = first_tokens(model, questions)
        prompts = [prompt for prompt, _ in questions]
        for when, with_hooks in (("before", []), ("after", hooks)):
            tokens = next_tokens(model, prompts, hooks=with_hooks)
            facts = {"answers": answers, "heads": [str(head) for head in heads]}
            NEXT_TOKENS.save(run, tokens, kind, when, **facts)


def _plan(model: al.HookedModel, config: Config) -> str:
    return (
        f"a path patching of every head on four operations, then {len(EXERCISES)} kinds of "
        f"{config.prompts} prompts, each run twice"
    )


def first_tokens(model: al.HookedModel, exercises: list[Exercise]) -> list[int]:
    """The first token of each answer, from tokenizing prompt and answer together.

    Raises:
        ValueError: an answer changes how its prompt is split.
    """
    prompts = encode(model.tokenizer, [prompt for prompt, _ in exercises])
    completes = encode(model.tokenizer, [continued(*exercise) for exercise in exercises])
    for prompt, complete, (text, answer) in zip(prompts, completes, exercises, strict=True):
        if complete.ids[: len(prompt.ids)] != prompt.ids or len(complete.ids) == len(prompt.ids):
            raise ValueError(
                f"expected {answer!r} to begin with a token of its own after {text!r}, found that "
                "this tokenizer splits them otherwise; end the prompt where it wants a number"
            )
    return [
        complete.ids[len(prompt.ids)] for prompt, complete in zip(prompts, completes, strict=True)
    ]


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


def report(run: Run) -> None:
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


main = Experiment("what_comes_instead", Config, compute, _plan, report, figure="fig4")
