"""What it saves to record once what prompts have in common, at few-shot and at short prompts.

Prints a table in Markdown: processor time of the sweep engine with and without shared beginnings,
and what its certificate adds. `python -m experiments.benchmark.few_shot`
"""

from dataclasses import replace
from functools import partial
from statistics import median

import torch
from torch import Tensor

from arith_lens.pairs import PromptPairs
from arith_lens.path_patching.engines import SweepEngine, ask
from experiments.benchmark.shapes import SHAPES, Setting, Shape, setting_of
from experiments.benchmark.timing import once

QUESTION = 24
"""Tokens after the examples; the first of them differ between the prompts of a pair."""
MIDDLE = SHAPES["middle"]
CASES = {
    "`middle`, 8 pairs of 16 tokens": (MIDDLE, False),
    "216 tokens, each pair its own examples": (replace(MIDDLE, n_tokens=216), False),
    "216 tokens, one set of examples": (replace(MIDDLE, n_tokens=216), True),
}


def few_shot_pairs(shape: Shape, *, one_context: bool) -> PromptPairs:
    """Random prompts whose pairs differ in the last tokens alone; at short prompts, anywhere."""
    generator = torch.Generator().manual_seed(1)
    size = (shape.n_pairs, shape.n_tokens)
    reference, other = torch.randint(4, shape.d_vocab, (2, *size), generator=generator)
    shared = max(0, shape.n_tokens - QUESTION)
    if one_context:
        reference[:, :shared] = reference[0, :shared]
    other[:, :shared] = reference[:, :shared]
    answer = torch.randint(4, shape.d_vocab, size[:1], generator=generator)
    return PromptPairs.from_tokens(reference, other, answer)


@torch.no_grad()
def times(
    setting: Setting, pairs: PromptPairs, rounds: int
) -> tuple[int | None, dict[tuple[bool, bool], list[float]]]:
    """How many tokens are recorded for each prompt alone; and seconds of the processor a round.

    By whether beginnings may be shared and whether a certificate is made. A first round warms up.
    """
    question = ask(setting.model, None, paths="via_mlps", metric="logit", foil=None, pairs=pairs)

    def compute(shares: bool, certify: bool) -> Tensor:
        way = question if shares else replace(question, own_tokens=None)
        return SweepEngine.of(setting.model, way, certify=certify)(pairs, None)

    taken: dict[tuple[bool, bool], list[float]] = {}
    for index in range(1 + rounds):
        for shares in (False, True):
            for certify in (False, True):
                _, _, busy = once(partial(compute, shares, certify), setting.device)
                if index:
                    taken.setdefault((shares, certify), []).append(busy)
    return question.own_tokens, taken


def _ratio(one: list[float], other: list[float]) -> float:
    """The median of the ratios of the rounds."""
    return median(a / b for a, b in zip(one, other, strict=True))


@torch.no_grad()
def main(rounds: int = 5) -> None:
    """Measure every case on one thread, and print a row for each."""
    torch.set_num_threads(1)
    print("| prompts | own tokens | whole | shared | ratio | certificate, whole | shared |")
    print("|---|---|---|---|---|---|---|")
    for name, (shape, one_context) in CASES.items():
        setting = setting_of(shape)
        own, taken = times(setting, few_shot_pairs(shape, one_context=one_context), rounds)

        whole, shared = (median(taken[shares, True]) for shares in (False, True))
        print(
            f"| {name} | {own or 'all'} | {whole:.2f} s | {shared:.2f} s "
            f"| {_ratio(taken[False, True], taken[True, True]):.2f}x "
            f"| {_ratio(taken[False, True], taken[False, False]) - 1:.0%} "
            f"| {_ratio(taken[True, True], taken[True, False]) - 1:.0%} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
