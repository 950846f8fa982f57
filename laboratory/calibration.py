"""How often an audit's verdicts are right, on models where the truth is known by exhaustion.

In a small model every set of few heads can be kept alone, or left out, on all problems. So it is
known whether a set suffices, and whether leaving one out costs more than leaving out any other. The
models are the built ones, untrained ones whose own answers count as right, and built ones whose
answers are shuffled.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path

import torch

import arith_lens as al
from arith_lens.auditing import Audit
from arith_lens.auditing.measures import Scale
from arith_lens.auditing.verdicts import ENOUGH, FEW, HOLDS, NEED, OPEN, TASK
from arith_lens.built import BUILT_NAMES
from arith_lens.components import every_head
from arith_lens.knockout import knockout_curves
from arith_lens.neurons import untrained_model

BUILT, SHUFFLED, UNTRAINED, OWN = "built", "shuffled answers", "untrained", "untrained, own answers"
QUESTIONS = (TASK, FEW, NEED)


@dataclass(frozen=True)
class Case:
    """A model and its pairs."""

    kind: str
    name: str
    model: al.HookedModel
    pairs: al.PromptPairs


def cases(seeds: int) -> Iterator[Case]:
    """Every built model; untrained ones of the same shapes; shuffled answers."""
    for name in BUILT_NAMES:
        model, pairs, _ = al.built_model(name, counterfactual="operands")
        yield Case(BUILT, name, model, pairs)
        order = torch.randperm(len(pairs), generator=torch.Generator().manual_seed(0))
        yield Case(SHUFFLED, name, model, replace(pairs, answer=pairs.answer[order]))
    for seed in range(seeds):
        model, pairs, _ = al.built_model("table", counterfactual="operands", seed=seed)
        fresh = untrained_model(model, seed)
        with torch.no_grad():
            for weight in fresh.bridge.original_model.parameters():
                weight.mul_(8)  # Transformers' initial weights are so small that all answers agree
        yield Case(UNTRAINED, f"seed {seed}", fresh, pairs)
        outcomes = al.knock_out(fresh, pairs, [], progress=False)
        swapped = replace(pairs, reference=pairs.counterfactual)
        others = al.knock_out(fresh, swapped, [], progress=False).top[:, 0]
        own = replace(pairs, answer=outcomes.top[:, 0], counterfactual_answer=others)
        yield Case(OWN, f"seed {seed}", fresh, own)


def truths(case: Case, audit: Audit) -> dict[str, bool]:
    """What is true of the model on all pairs, for each question."""
    model, pairs = case.model, case.pairs
    outcomes = al.knock_out(model, pairs, [], progress=False)
    true = {TASK: case.kind in (BUILT, OWN)}
    if not audit.heads:
        return true
    right = pairs[outcomes.correct]
    heads = every_head(model.n_layers, model.n_heads)
    few = Scale.of(model, 0, 2).few
    sets = [{*chosen} for k in range(1, few + 1) for chosen in combinations(heads, k)]
    out = {f"kept {i}": [h for h in heads if h not in one] for i, one in enumerate(sets)}
    size = len(audit.heads)
    others = [{*audit.heads}] + [
        one for one in sets if len(one) == size and not one & {*audit.heads}
    ]
    out |= {f"without {i}": sorted(one) for i, one in enumerate(others)}
    curves = knockout_curves(
        model,
        right,
        out,  # pyright: ignore[reportArgumentType]
        ks={label: [len(order)] for label, order in out.items()},
        positions="end",
        progress=False,
    )
    accuracy = {label: float(curves[label].accuracy()[-1]) for label in out}
    accuracies = [accuracy[f"kept {i}"] for i in range(len(sets))]
    without = [accuracy[f"without {i}"] for i in range(len(others))]
    true[FEW] = max(accuracies) >= ENOUGH > accuracy_of_none(model, right)
    true[NEED] = without[0] < min(without[1:], default=1.0)
    return true


def accuracy_of_none(model: al.HookedModel, pairs: al.PromptPairs) -> float:
    """The share of right answers if every head gives its mean at END."""
    return al.keep_only(model, pairs, [], positions="end", progress=False).accuracy()


def calibration(seeds: int = 20, draws: int = 100, csv: Path | None = None) -> None:
    """Audit every model whose truth is known, and count how many verdicts are right.

    Args:
        seeds: the number of untrained models.
        draws: the number of random sets of heads.
        csv: the file to write.
    """
    import pandas as pd

    rows = []
    for case in cases(seeds):
        audit = al.audit(case.model, case.pairs, draws=draws, progress=False)
        true = truths(case, audit)
        verdicts = {question: audit.first(question).verdict for question in true}
        print(case.kind, case.name, verdicts, true, [*map(str, audit.heads)], flush=True)
        rows += [
            {"kind": case.kind, "question": question, "verdict": verdicts[question],
             "is_true": true[question]}
            for question in true
        ]  # fmt: skip
    table = pd.DataFrame(rows)
    table["right"] = (table.verdict == HOLDS) == table.is_true
    summary = (
        table[table.verdict != OPEN]
        .groupby(["question", "verdict", "kind"], sort=False)
        .right.agg(right="sum", of="count")
        .reset_index()
    )
    print(summary.to_string(index=False))
    if csv is not None:
        summary.to_csv(csv, index=False)
