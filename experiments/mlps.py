"""What do MLPs do? What they read and add, and how they add digits."""

from typing import Any

import torch

import arith_lens as al
from arith_lens.effects import Effects
from arith_lens.next_tokens import next_tokens
from arith_lens.probes import chance, curve_of, distinct, turning_layers, winners
from arith_lens.runs import Run
from experiments.command import exit_on_user_error
from experiments.configs.states import AddConfig, SumsConfig
from experiments.results import (
    CHANCE,
    DIGIT_COSINES,
    LENS,
    PROBE,
    SUM_COSINES,
    WINNERS,
)
from experiments.settings import BEFORE_FILTER, Experiment, operation_pairs

CASE = (4, 3)
"""The paper's example is 4 + 3. If it is not among the pairs, the example is the first pair whose
A, B, C and C±1 all differ."""


def _save_curves(run: Run, model: al.HookedModel, config: AddConfig) -> None:
    """Cosines, the logit lens, and which digit each layer writes most, for each operation."""
    for name, pairs in operation_pairs(model, config):
        norm: dict[str, Any] = {"final_norm": config.final_norm}
        for read in ("mlp_in", "write"):
            PROBE.compute(run, al.mlp_probe, model, pairs, name, read, read=read, **norm)
        for read in ("mlp_in", "write", "mlp_out"):
            LENS.compute(run, al.logit_lens, model, pairs, name, read, read=read)
        PROBE.compute(run, al.mlp_probe, model, pairs, name, "logit", read="mlp_out", unit="logit")
        facts = {"case": _case(pairs)}
        settings = {"read": "write", "tokens": "digits", **norm}
        digits = DIGIT_COSINES.compute(
            run, al.mlp_probe, model, pairs, name, facts=facts, **settings
        )
        apart = distinct(pairs).tolist()
        CHANCE.save(run, chance(pairs), name, pairs=pairs, distinct_classes=apart)
        WINNERS.save(run, winners(digits, pairs), name, pairs=pairs, distinct_classes=apart)


def _plan_curves(model: al.HookedModel, config: AddConfig) -> str:
    n = sum(len(pairs) for _, pairs in operation_pairs(model, config, keep="all"))
    return (
        f"{n} prompts, seven forwards each: {7 * n} forwards without the vocabulary{BEFORE_FILTER}"
    )


def _case(pairs: al.PromptPairs) -> dict[str, Any]:
    """The pair of the case study: its index, text, A, B and C."""
    assert pairs.operands is not None and pairs.reference_text and pairs.answer_text
    like = (pairs.operands == torch.tensor(CASE)).all(1)
    apart = distinct(pairs)
    row = int((like if bool(like.any()) else apart if bool(apart.any()) else ~apart).nonzero()[0])
    a, b = pairs.operands[row].tolist()
    c = int(pairs.answer_text[row])
    return {"pair": row, "text": pairs.reference_text[row], "a": a, "b": b, "c": c}


def _report_curves(run: Run) -> None:
    """Print where the curves turn, which digits win, and the rank of C in each layer."""
    print(run.config["model"])
    for name in run.config["operations"]:
        facts = WINNERS.facts(run, name)
        print(f"\n{name}: {facts['pairs']} pairs, {facts['distinct']} distinct references")
        for title, curve, shape in curves(run, name):
            turning = turning_layers(curve, shape)
            ends = ", ".join(
                "none" if interval is None else f"{interval[0]:.0f} to {interval[1]:.0f}"
                for interval in turning.intervals
            )
            print(
                f"  {title:<34} turns at {turning!s:<12} ({ends}); rises by {turning.height:.2f}"
                + (f", falls by {turning.depth:.2f}" if shape == "rise_and_fall" else "")
            )
        _print_winners(run, name)


def curves(run: Run, name: str) -> list[tuple[str, Effects, str]]:
    """The curves with turning layers: title, curve and shape."""
    reads, writes = (PROBE.load(run, name, read) for read in ("mlp_in", "write"))
    others = "others without A, B, C"
    return [
        ("MLP_in: A and B", curve_of(reads, "A", "B"), "rise_and_fall"),
        (
            "MLP_in: A and B less other digits",
            curve_of(reads, "A", "B", less=others),
            "rise_and_fall",
        ),
        ("write: C", curve_of(writes, "C"), "rise"),
        ("write: C less other digits", curve_of(writes, "C", less="others without C"), "rise"),
    ]


def _print_winners(run: Run, name: str) -> None:
    """Print the share of pairs in which A, B, C and C±1 win, by layer, if all four differ."""
    apart = torch.tensor(WINNERS.facts(run, name)["distinct_classes"])
    if not bool(apart.any()):
        return
    shares = WINNERS.load(run, name).select(apart).mean()
    by_chance = CHANCE.load(run, name).select(apart).mean()
    lens = LENS.load(run, name, "mlp_out").mean()
    print(f"  winners of what MLPs write, {int(apart.sum())} pairs whose A, B, C, C±1 differ:")
    print("    layer      C      A      B    C±1  other   rank and p(C) of the stream")
    for layer, row in enumerate(shares.tolist()):
        cells = " ".join(f"{share:6.0%}" for share in row)
        rank, probability = lens[layer].tolist()
        print(f"    {layer:>5} {cells}   {rank:6.1f} {probability:6.1%}")
    print("   chance " + " ".join(f"{share:6.0%}" for share in by_chance.tolist()))


what_do_mlps_add = Experiment(
    "what_do_mlps_add", AddConfig, _save_curves, _plan_curves, _report_curves, figure="fig6"
)


CASES = ((3, 4, "whole"), (7, 8, "first"), (7, 8, "last"), (27, 15, "last"))
"""A, B, and the token of C that follows the prompt."""


def _save_sums(run: Run, model: al.HookedModel, config: SumsConfig) -> None:
    """The cosines of what MLPs write with the ten digits, for each sum."""
    for case in CASES:
        with exit_on_user_error():
            compute_sum(run, model, *case)


def _plan_sums(model: al.HookedModel, config: SumsConfig) -> str:
    return f"{len(CASES)} prompts, two forwards each"


def compute_sum(run: Run, model: al.HookedModel, a: int, b: int, token: str) -> None:
    """One prompt; `token` says which token of C follows it."""
    sampled = al.sample_pairs(model, operands={a, b}, templates=("addition/0",), answer_token=token,
                            keep="all")  # fmt: skip
    assert sampled.operands is not None
    pairs = sampled.filter((sampled.operands == torch.tensor([a, b])).all(1).tolist())
    assert pairs.reference_text and pairs.answer_text
    prediction = next_tokens(model, pairs.reference_text, k=1)
    facts = {
        "text": pairs.reference_text[0],
        "a": a,
        "b": b,
        "answer": pairs.answer_text[0].strip(),
        "said": prediction.pieces[0][0].strip(),
        "probability": float(prediction.probabilities[0, 0]),
    }
    settings = {"read": "write", "tokens": "digits"}
    name = f"{a}-{b}-{token}"
    SUM_COSINES.compute(run, al.mlp_probe, model, pairs, name, facts=facts, **settings)


def _report_sums(run: Run) -> None:
    """Print each prompt and the winners, layer by layer."""
    for name in SUM_COSINES.labels(run):
        facts = SUM_COSINES.facts(run, name)
        winners = SUM_COSINES.load(run, name).per_pair[..., 0].argmax(1).tolist()
        print(f"{facts['text']!r} -> {facts['said']!r} (right: {facts['answer']}): "
              f"layers write {' '.join(map(str, winners))}")  # fmt: skip


like_a_computer = Experiment(
    "like_a_computer", SumsConfig, _save_sums, _plan_sums, _report_sums, figure="fig17"
)
